package cluster

import (
	"maps"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/specs"
)

const graceSecret = "shop-role-loader"

// gracedWorld has settled with a role whose password is exchanged with a grace time.
func gracedWorld(grace time.Duration) *world {
	w := settledWorld(2)
	w.settleWith(withGrace(grace))
	return w
}

// declareGrace declares a role with a grace time of an hour.
func declareGrace(s *v1.PostgresClusterSpec) { withGrace(time.Hour)(s) }

func withGrace(grace time.Duration) func(*v1.PostgresClusterSpec) {
	return func(s *v1.PostgresClusterSpec) {
		s.Roles = []v1.RoleSpec{{Name: "loader", Login: true, Rotation: &v1.RotationSpec{Grace: &metav1.Duration{Duration: grace}}}}
	}
}

// passes lets time pass, and the primary renew its Lease.
func (w *world) passes(d time.Duration) {
	w.now = w.now.Add(d)
	w.renews(w.now)
}

func (w *world) renews(at time.Time) {
	change(w, "shop", func(l *coordinationv1.Lease) { l.Spec.RenewTime = ptr.To(metav1.NewMicroTime(at)) })
}

// loginOf is as whom the Secret logs in, and who is beside it.
func (w *world) loginOf() string {
	live := w.secret(graceSecret)
	return strings.TrimSpace(string(live.Data[instanceapi.UsernameKey]) + " " + string(live.Data[instanceapi.OtherUsernameKey]))
}

func (w *world) wantLogin(t *testing.T, when, want string) {
	t.Helper()
	if got := w.loginOf(); got != want {
		t.Errorf("%s: the Secret has the logins %q, want %q", when, got, want)
	}
}

func (w *world) condition(kind string) metav1.Condition {
	return *meta.FindStatusCondition(w.cluster.Status.Conditions, kind)
}

func (w *world) rotates(t *testing.T) {
	t.Helper()
	w.annotate(v1.RotateAnnotation, "loader")
	if _, settled := w.settle(); !settled || len(w.cluster.Annotations) > 0 {
		t.Errorf("settled %v with the requests %v", settled, w.cluster.Annotations)
	}
}

// E-01: logins take turns. The one before is valid for the grace time, by the operator's
// clock and by the primary's: one that jumps shuts nobody out. Another exchange waits
// until then. Without a grace time one logs in as the role again.
func TestE01LoginsTakeTurns(t *testing.T) {
	const grace = time.Hour
	w := gracedWorld(grace)
	w.wantLogin(t, "before the first exchange", "loader")
	first := string(w.secret(graceSecret).Data["password"])
	w.renews(w.now)
	w.rotates(t)
	w.wantLogin(t, "exchanged", "loader_1 loader")
	live := w.secret(graceSecret)
	if got := string(live.Data["other-password"]); got != first {
		t.Error("the password before is not kept beside")
	}
	if !strings.Contains(string(live.Data["uri"]), "loader_1:"+string(live.Data["password"])+"@") || !strings.Contains(string(live.Data["pgpass"]), ":loader_1:") {
		t.Error("not every form has the login")
	}
	row := w.cluster.Status.Roles[0]
	if row.Login != "loader_1" || row.PreviousLogin != "loader" || row.PreviousLoginUntil == nil || row.PreviousLoginUntil.Sub(w.now) > grace || row.PreviousLoginUntil.Sub(w.now) < grace-time.Minute {
		t.Errorf("the status says %+v at %s", row, w.now)
	}

	w.annotate(v1.RotateAnnotation, "loader")
	w.settle()
	w.wantLogin(t, "asked again within the grace time", "loader_1 loader")
	if message := w.condition(v1.ConditionProgressing).Message; !strings.Contains(message, "loader (once the login loader is valid no more, at ") {
		t.Errorf("it is told of as %q", message)
	}
	asked := w.cluster.Annotations
	w.cluster.Annotations = nil
	w.settle()
	for _, clock := range []struct {
		what              string
		operator, primary time.Duration
	}{{"the operator's clock jumps", 48 * time.Hour, 0}, {"the primary's clock jumps", 0, 48 * time.Hour}, {"it is not over", grace - time.Minute, grace - time.Minute}} {
		jumped := w.clone()
		jumped.renews(w.now.Add(clock.primary))
		jumped.now = w.now.Add(clock.operator)
		jumped.operate()
		jumped.wantLogin(t, clock.what, "loader_1 loader")
	}
	w.passes(grace + time.Minute)
	w.settle()
	w.wantLogin(t, "the grace time is over", "loader_1")
	if row := w.cluster.Status.Roles[0]; row.Login != "loader_1" || row.PreviousLogin != "" || row.PreviousLoginUntil != nil {
		t.Errorf("afterwards the status says %+v", row)
	}
	w.cluster.Annotations = maps.Clone(asked)
	w.settle()
	w.wantLogin(t, "asked again", "loader_2 loader_1")
	w.passes(grace + time.Minute)
	w.settle()

	w.settleWith(func(s *v1.PostgresClusterSpec) { s.Roles[0].Rotation = nil })
	w.wantLogin(t, "without a grace time", "loader loader_2")
	w.passes(grace - time.Minute)
	w.settle()
	w.wantLogin(t, "which the last one has still", "loader loader_2")
	w.passes(2 * time.Minute)
	w.settle()
	w.wantLogin(t, "back", "loader")
	last := string(w.secret(graceSecret).Data["password"])
	w.rotates(t)
	w.wantLogin(t, "in place", "loader")
	if string(w.secret(graceSecret).Data["password"]) == last {
		t.Error("the password was not exchanged in place")
	}
	w.passes(time.Hour)
	if _, settled := w.settle(); !settled {
		t.Error("there is more to do")
	}
	w.wantLogin(t, "and no more", "loader")
}

// Whenever the operator dies, or the primary with what it was told: at no moment does a
// login that clients may have read not let them in, and each exchange comes about once.
func TestE01GraceWhateverDies(t *testing.T) {
	base := gracedWorld(time.Hour)
	base.renews(base.now)
	base.rotates(t)
	base.passes(2 * time.Hour)
	base.settle()
	before := base.secret(graceSecret)
	base.annotate(v1.RotateAnnotation, "loader")
	all := base.clone().dieAfter(100)
	if all == 0 {
		t.Fatal("nothing was done")
	}
	for actions := range all + 1 {
		w := base.clone()
		w.dieAfter(actions)
		server := w.logins["loader"]
		for _, login := range []map[string][]byte{before.Data, w.secret(graceSecret).Data} {
			if user := string(login["username"]); server[user] != string(login["password"]) {
				t.Errorf("dead after %d actions: the server does not let in %s", actions, user)
			}
		}
		if actions%2 == 1 { // another takes over, which lacks what the server was told last
			w.crown(w.pod("shop-2"))
			w.logins = map[string]map[string]string{}
		}
		status, settled := w.settle()
		if !settled || status.Phase != v1.PhaseHealthy || len(w.cluster.Annotations) > 0 {
			t.Errorf("dead after %d actions: settled %v as %s with requests %v", actions, settled, status.Phase, w.cluster.Annotations)
		}
		w.wantLogin(t, "settled", "loader_2 loader_1")
		live := w.secret(graceSecret)
		want := map[string]string{"loader_2": string(live.Data["password"]), "loader_1": string(before.Data["password"])}
		if !maps.Equal(w.logins["loader"], want) {
			t.Errorf("dead after %d actions: the server lets in %v, want %v", actions, w.logins["loader"], want)
		}
	}
}

// What the spec does not ask for any more is taken back as long as nobody was told of it;
// another's word ends no exchange; an edit of a password is that of the login.
func TestE01ExchangeTakenBack(t *testing.T) {
	w := gracedWorld(time.Hour)
	w.renews(w.now)
	change(w, graceSecret, func(s *corev1.Secret) {
		s.Data["other-username"], s.Data["other-password"] = []byte("loader_1"), []byte("never told")
		s.Annotations = map[string]string{specs.RotationAskedAnnotation: "loader"}
	})
	w.annotate(v1.RotateAnnotation, "loader")
	w.operate()
	w.wantLogin(t, "the server has it not", "loader loader_1")
	w.edit(func(s *v1.PostgresClusterSpec) { s.Roles[0].Rotation = nil })
	w.operate()
	w.wantLogin(t, "taken back", "loader")
	w.settle()
	w.wantLogin(t, "and made in place", "loader")
	if len(w.cluster.Annotations) > 0 {
		t.Error("the request is there")
	}
}

// A schedule that comes before a grace time is over, and roles that have the names of
// logins, are refused by their fields.
func TestE01GraceThatCannotBe(t *testing.T) {
	for want, roles := range map[string][]v1.RoleSpec{
		"spec.roles[loader].rotation.grace: 1h0m0s is not shorter than the times of cron are apart, which is 1h0m0s at the least": {
			{Name: "loader", Login: true, Rotation: &v1.RotationSpec{Cron: "0 * * * *", TimeZone: "Etc/UTC", Grace: &metav1.Duration{Duration: time.Hour}}}},
		"spec.roles[loader].rotation.grace: clients would log in as loader_2, which is another role": {
			{Name: "loader", Login: true, Rotation: &v1.RotationSpec{Grace: &metav1.Duration{Duration: time.Hour}}}, {Name: "loader_2"}},
	} {
		w := settledWorld(1)
		w.edit(func(s *v1.PostgresClusterSpec) { s.Roles = roles })
		w.settle()
		if got := w.condition(v1.ConditionSpecAccepted); got.Status != metav1.ConditionFalse || !strings.Contains(got.Message, want) {
			t.Errorf("%s: %s", got.Status, got.Message)
		}
	}
}
