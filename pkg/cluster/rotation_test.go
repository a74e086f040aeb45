package cluster

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/specs"
)

// dieAfter lets the operator die after that many of its actions, in the middle of a
// pass if it comes to that; its successor finds caches of its own. It returns how many
// actions there were.
func (w *world) dieAfter(actions int) int {
	const rounds = 30
	done := 0
	for round := range rounds {
		w.catchUp(allKinds...)
		o := w.observe()
		p := Analyse(o)
		for _, a := range p.Actions {
			if done == actions {
				return done
			}
			done++
			if err := w.apply(a); err != nil {
				panic(err)
			}
		}
		w.cluster = w.cluster.DeepCopy()
		w.cluster.Status = Status(o, p, nil)
		w.kubernetes()
		if round%3 == 2 { // agents take their time
			w.agents()
		}
		w.now = w.now.Add(time.Second)
	}
	return done
}

// Whenever the operator dies, or the primary with what it was told, the Secret and the
// server have one password afterwards, and every login has been exchanged once. At no
// moment does the server have one that the Secret does not hold.
func TestPasswordsAreExchangedWhateverDies(t *testing.T) {
	for _, how := range []struct {
		why string
		ask func(*world)
		// logins that are exchanged.
		want []string
	}{
		{"all, as asked", func(w *world) { w.annotate(v1.RotateAnnotation, v1.RotateAll) }, []string{"Report_User", "app", "reporting"}},
		{"one, as asked", func(w *world) { w.annotate(v1.RotateAnnotation, "reporting") }, []string{"reporting"}},
		{"one, by a schedule", func(w *world) { w.now = time.Date(2026, 12, 1, 3, 0, 5, 0, time.UTC) }, []string{"app"}},
	} {
		base := settledWorld(2)
		base.settleWith(declareSome, func(s *v1.PostgresClusterSpec) {
			s.Roles[5].Rotation = &v1.RotationSpec{Cron: "0 3 1 * *", TimeZone: "Etc/UTC"}
		})
		how.ask(base)
		all := base.clone().dieAfter(100)
		if all == 0 {
			t.Fatalf("%s: nothing was done", how.why)
		}
		for actions := range all + 1 {
			w := base.clone()
			w.dieAfter(actions)
			for _, l := range specs.Logins(v1.WithDefaults(w.cluster)) {
				login := w.secret(l.Secret)
				if server := w.passwords[l.Role]; server != string(login.Data[instanceapi.PasswordKey]) && server != specs.NextPassword(login) {
					t.Errorf("%s, dead after %d actions: the server has a password of %s that its Secret does not hold", how.why, actions, l.Role)
				}
			}
			if actions%2 == 1 { // another takes over, which lacks what the server was told last
				w.crown(w.pod("shop-2"))
				w.passwords = map[string]string{}
			}
			status, settled := w.settle()
			if !settled || status.Phase != v1.PhaseHealthy || len(w.cluster.Annotations) > 0 {
				t.Errorf("%s, dead after %d actions: settled %v as %s with requests %v", how.why, actions, settled, status.Phase, w.cluster.Annotations)
			}
			checkLogins(t, w)
			var exchanged []string
			for _, l := range specs.Logins(v1.WithDefaults(w.cluster)) {
				if string(w.secret(l.Secret).Data[instanceapi.PasswordKey]) != string(base.secret(l.Secret).Data[instanceapi.PasswordKey]) {
					exchanged = append(exchanged, l.Role)
				}
			}
			if slices.Sort(exchanged); !slices.Equal(exchanged, how.want) {
				t.Errorf("%s, dead after %d actions: exchanged %v, want %v", how.why, actions, exchanged, how.want)
			}
			again := w.clone()
			again.now = again.now.Add(time.Minute)
			if _, settled := again.settle(); !settled || string(again.secret("shop-app").Data["password"]) != string(w.secret("shop-app").Data["password"]) {
				t.Errorf("%s, dead after %d actions: exchanged twice", how.why, actions)
			}
		}
	}
}

// E-04: a Secret of the user's own that a refused spec names takes no password away,
// since agents are not told of it.
func TestE04RefusedSpecTakesNoPassword(t *testing.T) {
	w := settledWorld(1)
	before := string(w.secret("shop-app").Data["password"])
	w.edit(func(s *v1.PostgresClusterSpec) {
		s.Roles = []v1.RoleSpec{{Name: "app", Login: true, PasswordSecret: &v1.SecretName{Name: "mine"}}}
		s.Postgres.HBA = []string{"nonsense"}
	})
	w.settle()
	if got := string(w.secret("shop-app").Data["password"]); got != before {
		t.Errorf("while the spec is refused, shop-app has the password %q", got)
	}
	w.settleWith(func(s *v1.PostgresClusterSpec) { s.Postgres.HBA = nil })
	if _, has := w.secret("shop-app").Data["password"]; has {
		t.Error("shop-app has a password that is not the role's")
	}
}

// Nor does a certificate that a refused spec asks for: the role keeps its password.
func TestRefusedCertificateTakesNoPassword(t *testing.T) {
	w := settledWorld(1)
	w.settleWith(func(s *v1.PostgresClusterSpec) { s.Roles = []v1.RoleSpec{{Name: "operator", Login: true}} })
	before := string(w.secret("shop-role-operator").Data["password"])
	w.edit(func(s *v1.PostgresClusterSpec) { s.Roles[0].ClientCertificate = true })
	w.settle()
	if reason := reasonOf(w.cluster.Status, v1.ConditionSpecAccepted); reason != v1.ReasonInvalid {
		t.Fatalf("the spec is %s", reason)
	}
	if made := w.secret("shop-role-operator"); made == nil || string(made.Data["password"]) != before {
		t.Error("while the spec is refused, the role's login is gone, or another")
	}
}

// What the mark is of counts, and not that there is one: another primary's word of
// another password ends nothing.
func TestAnotherMarkEndsNoExchange(t *testing.T) {
	w := settledWorld(1)
	w.next("shop-app", "")
	change(w, "shop-app", func(s *corev1.Secret) { s.Data[instanceapi.NextPasswordKey] = []byte("later") })
	w.operate()
	if got := w.secret("shop-app"); string(got.Data["password"]) == "later" || specs.NextPassword(got) != "later" {
		t.Error("a password is published that the server does not have")
	}
	w.agents()
	w.operate()
	if got := string(w.secret("shop-app").Data["password"]); got != "later" {
		t.Errorf("the password that the server has is not published")
	}
}
