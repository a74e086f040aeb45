package cluster

import (
	"crypto/x509"
	"encoding/pem"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/pki"
	"github.com/pgop/postgres-operator/pkg/postgres"
	"github.com/pgop/postgres-operator/pkg/specs"
)

// otherSystemID is the database of the cluster "other".
const otherSystemID = "7432000000000000777"

// otherCA is its authority; the same in all tests, since keys take their time.
var otherCA = func() pki.Pair {
	ca, err := pki.NewAuthority("db/other", time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC))
	if err != nil {
		panic(err)
	}
	return ca
}()

// copyOf makes w a new cluster of one that is to be a copy of "other".
func (w *world) copyOf() {
	*w = *newWorld(1)
	w.copies()
}

// copies asks for a copy of "other".
func (w *world) copies() {
	w.edit(func(s *v1.PostgresClusterSpec) {
		s.Bootstrap = &v1.BootstrapSpec{Clone: &v1.CloneSource{Cluster: "other"}}
	})
}

// otherServes adds the cluster "other", whose instances have those roles, in order, and
// serve.
func (w *world) otherServes(edit func(*v1.PostgresCluster), roles ...instanceapi.Role) {
	c := &v1.PostgresCluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: "db", Name: "other", UID: "cluster-other"},
		Spec:       v1.PostgresClusterSpec{Instances: ptr.To(int32(len(roles))), Postgres: v1.PostgresSpec{Version: 17}},
		Status:     v1.PostgresClusterStatus{SystemID: otherSystemID},
	}
	edit(c)
	a := pki.Authorities{Wanted: otherCA, Signer: otherCA, Trusted: otherCA.Cert, Since: w.now}
	w.others = []object{c, specs.NewCASecret(c, otherCA), specs.NewOperatorSecret(c, a, otherCA)}
	for n, role := range roles {
		pod := specs.Pod(v1.WithDefaults(c), specs.Instance("other", n+1), testImage)
		pod.Labels[specs.RoleLabel] = string(role)
		pod.Status.Phase, pod.Status.PodIP = corev1.PodRunning, "10.0.7."+string(rune('1'+n))
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		w.others = append(w.others, pod)
	}
}

// otherPod edits a pod of the cluster "other".
func (w *world) otherPod(name string, edit func(*corev1.Pod)) {
	for n, o := range w.others {
		if pod, is := o.(*corev1.Pod); is && pod.Name == name {
			pod = pod.DeepCopy()
			edit(pod)
			w.others[n] = pod
		}
	}
}

func notReady(pod *corev1.Pod) { pod.Status.Conditions[0].Status = corev1.ConditionFalse }

func asItIs(*v1.PostgresCluster) {}

// copying is a copy of a replica that is under way.
func copying(w *world) {
	w.copyOf()
	w.otherServes(asItIs, instanceapi.RolePrimary, instanceapi.RoleReplica, instanceapi.RoleReplica)
	for range 3 {
		w.turnWithoutAgents()
	}
	w.say("shop-1", func(s *instanceapi.State) {
		s.Phase, s.Message, s.Restored, s.RestoreTotal = instanceapi.PhaseBootstrapping, "copying cluster other", 7<<30, 20<<30
	})
}

// cloneCases are what a pass may find of a cluster that is to be a copy of another.
var cloneCases = []analyseCase{
	{why: "a cluster is to be a copy of another: the agents are told of a replica, and may read what lets them in", change: func(w *world) {
		w.copyOf()
		w.otherServes(asItIs, instanceapi.RolePrimary, instanceapi.RoleReplica)
	}},
	{why: "a copy of a cluster of one is of its primary", change: func(w *world) {
		w.copyOf()
		w.otherServes(asItIs, instanceapi.RolePrimary)
	}},
	{why: "a copy of a cluster that there is not", change: func(w *world) { w.copyOf() }},
	{why: "a copy of a cluster that is being deleted", change: func(w *world) {
		w.copyOf()
		w.otherServes(func(c *v1.PostgresCluster) { c.DeletionTimestamp = &metav1.Time{Time: w.now} }, instanceapi.RolePrimary)
	}},
	{why: "a copy of itself, past the schema", change: func(w *world) {
		w.copyOf()
		w.edit(func(s *v1.PostgresClusterSpec) { s.Bootstrap.Clone.Cluster = "shop" })
	}},
	{why: "D-10: a copy of a cluster of another major version", change: func(w *world) {
		w.copyOf()
		w.otherServes(func(c *v1.PostgresCluster) { c.Spec.Postgres.Version = 16 }, instanceapi.RolePrimary)
	}},
	{why: "a copy of a cluster that has no database yet: it waits", change: func(w *world) {
		w.copyOf()
		w.otherServes(func(c *v1.PostgresCluster) { c.Status.SystemID = "" })
	}},
	{why: "a copy of a cluster that is stopped: it waits", change: func(w *world) {
		w.copyOf()
		w.otherServes(func(c *v1.PostgresCluster) { c.Spec.Instances = ptr.To[int32](0) })
	}},
	{why: "a copy of a cluster of which none serves: it waits", change: func(w *world) {
		w.copyOf()
		w.otherServes(asItIs, instanceapi.RolePrimary)
		w.otherPod("other-1", notReady)
	}},
	{why: "a copy is under way", change: copying},
	{why: "a copy is under way, and its server is not ready for a moment: another is named for the next try", change: func(w *world) {
		copying(w)
		w.otherPod("other-2", notReady)
	}},
	{why: "a copy is under way, and nobody serves there any more: it is not taken back", change: func(w *world) {
		copying(w)
		for _, name := range []string{"other-1", "other-2", "other-3"} {
			w.otherPod(name, notReady)
		}
	}},
	{why: "a copy is under way, and the other cluster is deleted", change: func(w *world) {
		copying(w)
		w.others = nil
	}},
	{why: "the other cluster has another authority while it is copied", change: func(w *world) {
		copying(w)
		for _, o := range w.others {
			if secret, is := o.(*corev1.Secret); is && secret.Name == "other-operator" {
				secret.Data[specs.CAKey] = append(secret.Data[specs.CAKey], "# and another\n"...)
			}
		}
	}},
	{why: "a copy is there: what let it in goes", change: func(w *world) {
		copying(w)
		w.agents()
		w.catchUp(allKinds...)
		w.pass()
		w.catchUp(allKinds...)
	}},
	{why: "another way is asked for before there is a database: what let it in goes", change: func(w *world) {
		copying(w)
		w.edit(func(s *v1.PostgresClusterSpec) { s.Bootstrap = nil })
	}},
	{why: "a copy made long ago, whose source is gone", change: func(w *world) {
		w.copyOf()
		w.otherServes(asItIs, instanceapi.RolePrimary)
		w.settle()
		w.others = nil
	}},
}

// A cluster becomes a copy of another and settles: with what the other has, and with
// nothing left of what let it in.
func TestCopyOfAClusterSettles(t *testing.T) {
	w := newWorld(1)
	w.copyOf()
	w.otherServes(asItIs, instanceapi.RolePrimary, instanceapi.RoleReplica)
	w.catchUp(allKinds...)
	w.pass()
	secret := w.secret("shop-clone")
	if secret == nil {
		t.Fatal("there is no Secret for the copy")
	}
	leaf := specs.ReplicationCertificateOf(secret)
	if err := w.verify(otherCA.Cert, leaf.Cert, "", x509.ExtKeyUsageClientAuth); err != nil {
		t.Errorf("the other cluster does not let it in: %v", err)
	}
	if subject := subjectOf(t, leaf.Cert); subject != postgres.ReplicationRole {
		t.Errorf("it comes as %s", subject)
	}
	status, settled := w.settle()
	if !settled || status.SystemID != otherSystemID || status.Phase != v1.PhaseHealthy {
		t.Errorf("settled %v, as %+v", settled, status)
	}
	if w.secret("shop-clone") != nil {
		t.Error("the Secret for the copy is still there")
	}
	if told := w.told().Bootstrap; told.Clone != nil {
		t.Errorf("the agents are still told to copy: %+v", told)
	}
}

// D-19: a cluster that is made again, on the volumes that it left, needs the other one no
// more, whether that is gone or not; and where they hold nothing, it does.
func TestRecreatedCopyNeedsNoSource(t *testing.T) {
	w := newWorld(1)
	w.copyOf()
	w.otherServes(asItIs, instanceapi.RolePrimary)
	w.settle()
	spec := w.cluster.Spec
	w.rebirth(1)
	w.cluster.Spec, w.others = spec, nil
	status, settled := w.settle()
	if !settled || status.SystemID != otherSystemID || status.Phase != v1.PhaseHealthy {
		t.Errorf("settled %v, as %+v", settled, status)
	}
	if accepted := meta.FindStatusCondition(status.Conditions, v1.ConditionSpecAccepted); accepted.Status != metav1.ConditionTrue {
		t.Errorf("the spec is refused: %s", accepted.Message)
	}

	w.rebirth(1)
	w.cluster.Spec = spec
	clear(w.data)
	if status, _ = w.settle(); reasonOf(status, v1.ConditionSpecAccepted) != v1.ReasonInvalid || status.SystemID != "" {
		t.Errorf("without data, and nobody to copy: %+v", status)
	}
	w.otherServes(asItIs, instanceapi.RolePrimary)
	if status, settled = w.settle(); !settled || status.SystemID != otherSystemID || status.Phase != v1.PhaseHealthy {
		t.Errorf("the other cluster is back: settled %v, as %+v", settled, status)
	}
}

func subjectOf(t *testing.T, cert []byte) string {
	t.Helper()
	block, _ := pem.Decode(cert)
	if block == nil {
		t.Fatal("no certificate")
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return leaf.Subject.CommonName
}

// While it is not known whom to copy, nobody makes an empty database instead, though
// there is an instance that could.
func TestNobodyMakesAnEmptyDatabaseInsteadOfACopy(t *testing.T) {
	w := newWorld(1)
	copying(w)
	w.otherServes(func(c *v1.PostgresCluster) { c.Name, c.Status.SystemID = "third", "" })
	w.edit(func(s *v1.PostgresClusterSpec) { s.Bootstrap.Clone.Cluster = "third" })
	w.catchUp(allKinds...)
	w.pass()
	if told := w.told().Bootstrap; told.Instance != "" || told.Clone != nil || told.Encoding != "" {
		t.Errorf("the agents are told %+v", told)
	}
}
