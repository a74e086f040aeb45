package controller

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/cluster"
	"github.com/pgop/postgres-operator/pkg/election"
	"github.com/pgop/postgres-operator/pkg/specs"
)

// pod is one of the named cluster, in that version; of none if name is empty.
func pod(cluster, version string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "db", Name: "shop-1", ResourceVersion: version}}
	if cluster != "" {
		p.Labels = map[string]string{specs.ClusterLabel: cluster}
	}
	return p
}

func TestEventsOfChildrenWakeTheirCluster(t *testing.T) {
	cases := []struct {
		why   string
		event func(cache.ResourceEventHandler)
		want  []string
	}{
		{"made", func(h cache.ResourceEventHandler) { h.OnAdd(pod("shop", "1"), false) }, []string{"db/shop"}},
		{"changed", func(h cache.ResourceEventHandler) { h.OnUpdate(pod("shop", "1"), pod("shop", "2")) }, []string{"db/shop", "db/shop"}},
		{"seen again in a resync", func(h cache.ResourceEventHandler) { h.OnUpdate(pod("shop", "1"), pod("shop", "1")) }, nil},
		{"deleted", func(h cache.ResourceEventHandler) { h.OnDelete(pod("shop", "1")) }, []string{"db/shop"}},
		{"deleted while the watch was cut", func(h cache.ResourceEventHandler) {
			h.OnDelete(cache.DeletedFinalStateUnknown{Key: "db/shop-1", Obj: pod("shop", "1")})
		}, []string{"db/shop"}},
		{"of no cluster", func(h cache.ResourceEventHandler) { h.OnAdd(pod("", "1"), false) }, nil},
		{"robbed of its label", func(h cache.ResourceEventHandler) { h.OnUpdate(pod("shop", "1"), pod("", "2")) }, []string{"db/shop"}},
		{"labelled as another cluster's", func(h cache.ResourceEventHandler) { h.OnUpdate(pod("shop", "1"), pod("other", "2")) }, []string{"db/shop", "db/other"}},
		{"made, to prove a backup", func(h cache.ResourceEventHandler) {
			p := pod("", "1")
			p.Labels = map[string]string{specs.VerifiesLabel: "shop"}
			h.OnAdd(p, false)
		}, []string{"db/shop"}},
		{"something that is no object", func(h cache.ResourceEventHandler) { h.OnDelete("x") }, nil},
	}
	for _, c := range cases {
		var got []string
		c.event(handlerOf(func(key cache.ObjectName) { got = append(got, key.String()) }, childKey, anyChange))
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: %s", c.why, diff)
		}
	}
}

// A backup wakes the cluster that it is of, whatever labels it has.
func TestBackupsWakeTheirCluster(t *testing.T) {
	var got []string
	handler := handlerOf(func(key cache.ObjectName) { got = append(got, key.String()) }, backupKey, anyChange)
	backup := func(version string) *v1.PostgresBackup {
		return &v1.PostgresBackup{ObjectMeta: metav1.ObjectMeta{Namespace: "db", Name: "b", ResourceVersion: version}, Spec: v1.PostgresBackupSpec{Cluster: "shop"}}
	}
	handler.OnAdd(backup("1"), false)
	handler.OnUpdate(backup("1"), backup("1"))
	handler.OnDelete(backup("1"))
	handler.OnAdd(pod("other", "1"), false)
	if diff := cmp.Diff([]string{"db/shop", "db/shop"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestResyncWakesEveryCluster(t *testing.T) {
	var got []string
	handler := handlerOf(func(key cache.ObjectName) { got = append(got, key.String()) }, clusterKey, always)
	c := &v1.PostgresCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "db", Name: "shop", ResourceVersion: "1"}}
	handler.OnUpdate(c, c)
	if len(got) == 0 || got[0] != "db/shop" {
		t.Errorf("woken: %v", got)
	}
}

func TestRenewalsOfALeaseWakeNobody(t *testing.T) {
	record := election.Record{Term: 3, SystemID: "1"}
	lease := func(edit func(*coordinationv1.Lease)) *coordinationv1.Lease {
		l := &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: "shop", Annotations: map[string]string{election.RecordAnnotation: record.String()}},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: ptr.To("shop-1/uid")},
		}
		if edit != nil {
			edit(l)
		}
		return l
	}
	newer := record
	newer.Term++
	cases := []struct {
		why   string
		after *coordinationv1.Lease
		want  bool
	}{
		{"a renewal", lease(func(l *coordinationv1.Lease) {
			l.ResourceVersion = "2"
			l.Spec.RenewTime = ptr.To(metav1.NewMicroTime(time.Unix(1, 0)))
		}), false},
		{"another annotation", lease(func(l *coordinationv1.Lease) { l.Annotations["mine"] = "x" }), false},
		{"another holder", lease(func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = ptr.To("shop-2/uid") }), true},
		{"the same instance in another pod", lease(func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = ptr.To("shop-1/other") }), true},
		{"released", lease(func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = nil }), true},
		{"a new record", lease(func(l *coordinationv1.Lease) { l.Annotations[election.RecordAnnotation] = newer.String() }), true},
		{"no record", lease(func(l *coordinationv1.Lease) { l.Annotations = nil }), true},
		{"on its way out", lease(func(l *coordinationv1.Lease) { l.DeletionTimestamp = ptr.To(metav1.Now()) }), true},
	}
	for _, c := range cases {
		if got := reignChanged(lease(nil), c.after); got != c.want {
			t.Errorf("%s: wakes is %v, want %v", c.why, got, c.want)
		}
		if reignChanged(c.after, c.after.DeepCopy()) {
			t.Errorf("%s: a resync wakes", c.why)
		}
	}
	if !reignChanged("not", "leases") {
		t.Error("what is no Lease is left out")
	}
}

func TestCachesHoldNoManagedFields(t *testing.T) {
	p := pod("shop", "1")
	p.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
	stripped, err := stripManagedFields(p)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(pod("shop", "1"), stripped); diff != "" {
		t.Error(diff)
	}
}

// Of nodes only what matters is kept, and only what matters wakes the clusters on
// them.
func TestNodesWakeTheClustersOnThem(t *testing.T) {
	node := func(name string, cordoned bool) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{Unschedulable: cordoned}}
	}
	pods := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for cluster, node := range map[string]string{"shop": "one", "other": "two", "": "one"} {
		p := pod(cluster, "1")
		p.Name, p.Spec.NodeName = cluster+"-1", node
		if err := pods.Add(p); err != nil {
			t.Fatal(err)
		}
	}
	for why, c := range map[string]struct {
		event func(cache.ResourceEventHandler)
		want  []string
	}{
		"made":    {func(h cache.ResourceEventHandler) { h.OnAdd(node("one", false), false) }, []string{"db/shop"}},
		"deleted": {func(h cache.ResourceEventHandler) { h.OnDelete(node("two", false)) }, []string{"db/other"}},
		"deleted while the watch was cut": {func(h cache.ResourceEventHandler) {
			h.OnDelete(cache.DeletedFinalStateUnknown{Key: "two", Obj: node("two", false)})
		}, []string{"db/other"}},
		"cordoned":             {func(h cache.ResourceEventHandler) { h.OnUpdate(node("one", false), node("one", true)) }, []string{"db/shop"}},
		"uncordoned":           {func(h cache.ResourceEventHandler) { h.OnUpdate(node("one", true), node("one", false)) }, []string{"db/shop"}},
		"a heartbeat":          {func(h cache.ResourceEventHandler) { h.OnUpdate(node("one", true), node("one", true)) }, nil},
		"of nobody's instance": {func(h cache.ResourceEventHandler) { h.OnDelete(node("three", false)) }, nil},
	} {
		var got []string
		c.event(nodeHandler(corelisters.NewPodLister(pods), func(key cache.ObjectName) { got = append(got, key.String()) }))
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: %s", why, diff)
		}
	}
	whole := node("one", true)
	whole.Labels, whole.Status.Images = map[string]string{"zone": "a", corev1.LabelHostname: "host-1"}, []corev1.ContainerImage{{SizeBytes: 1}}
	kept, err := onlyWhatMatters(whole)
	if err != nil {
		t.Fatal(err)
	}
	want := node("one", true)
	want.Labels = map[string]string{corev1.LabelHostname: "host-1"}
	if diff := cmp.Diff(want, kept); diff != "" {
		t.Error(diff)
	}
}

func TestWhoMayNotWatchNodes(t *testing.T) {
	kube := fake.NewClientset()
	may, err := MayWatchNodes(context.Background(), cluster.Kube{Core: kube.CoreV1()})
	if !may || err != nil {
		t.Errorf("%v, %v; nothing forbids it", may, err)
	}
	kube.PrependReactor("list", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "", errors.New("no"))
	})
	may, err = MayWatchNodes(context.Background(), cluster.Kube{Core: kube.CoreV1()})
	if may || err != nil {
		t.Errorf("%v, %v; it is forbidden", may, err)
	}
}
