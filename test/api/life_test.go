//go:build e2e

package api

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/test/api/framework"
)

// Whenever a cluster is deleted during its creation, nothing is left over and
// nothing appears later.
func TestB01DeletedDuringCreation(t *testing.T) {
	t.Parallel()
	moments := map[string]func(f *framework.Framework, c *framework.Cluster){
		"at once":                        func(*framework.Framework, *framework.Cluster) {},
		"when its first object is there": func(f *framework.Framework, _ *framework.Cluster) { awaitObject(f, "") },
		"when its first pod is there":    func(f *framework.Framework, _ *framework.Cluster) { awaitObject(f, "pods/") },
		"when its Service is there":      func(f *framework.Framework, _ *framework.Cluster) { awaitObject(f, "services/shop-rw") },
		"when it is ready":               func(_ *framework.Framework, c *framework.Cluster) { c.AwaitReady() },
	}
	for why, await := range moments {
		t.Run(why, func(t *testing.T) {
			t.Parallel()
			f := framework.New(t)
			op := f.StartOperator()
			c := f.Create("shop", framework.Instances(2))
			await(f, c)
			c.Delete()
			f.AwaitOnly()
			f.Hold(2*time.Second, "nothing comes back", f.Only())
			wantNoComplaints(t, op)
		})
	}
}

// Retained volumes are all that stays, and the next cluster of the name finds
// them.
func TestB01RetainedVolumesStay(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	f.StartOperator()
	c := f.Create("shop", framework.Instances(2), framework.Retain)
	c.AwaitReady()
	id := c.Live().Status.SystemID
	c.Delete()
	f.AwaitOnly("persistentvolumeclaims/shop-1", "persistentvolumeclaims/shop-2")
	f.Create("shop", framework.Instances(2), framework.Retain).AwaitReady()
	if now := c.Live().Status.SystemID; now != id {
		t.Errorf("the database is %s, and %s was on the volumes", now, id)
	}
}

// A cluster that is deleted and created again in one breath, round after round,
// becomes ready each time.
func TestB02DeletedAndCreatedAgain(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	f.StartOperator()
	for range 5 {
		c := f.Create("shop", framework.Instances(2))
		c.AwaitReady()
		c.Delete()
	}
	c := f.Create("shop", framework.Instances(2))
	c.AwaitReady()
	wantOwnedBy(f, c.Live())
}

// A cluster that is deleted and created again while the operator is down, and
// whose old objects are still there when it starts: they are not adopted, and
// once they are gone the new one is built, once.
func TestB05DeletedAndCreatedAgainWhileTheOperatorIsDown(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	op := f.StartOperator()
	c := f.Create("shop", framework.Instances(2))
	c.AwaitReady()
	op.Stop()
	f.Kubelet.CollectGarbage(false)
	old := f.MustObjects()
	c.Delete()
	c = f.Create("shop", framework.Instances(2))

	f.StartOperator()
	c.AwaitCondition(v1.ConditionReady, metav1.ConditionFalse, "does not belong to this cluster")
	for key, o := range f.MustObjects() {
		if was := old[key]; was != nil && (was.GetUID() != o.GetUID() || was.GetDeletionTimestamp() == nil && o.GetDeletionTimestamp() != nil) {
			t.Errorf("%s of the old cluster was deleted or replaced", key)
		}
	}
	f.Kubelet.CollectGarbage(true)
	c.AwaitReady()
	wantOwnedBy(f, c.Live())
	before := framework.Versions(f.MustObjects())
	f.Hold(3*time.Second, "nothing is built twice", unchanged(f, before))
	messages, err := c.Messages(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	made := 0
	for _, m := range messages {
		if strings.HasPrefix(m, v1.ReasonInstanceCreated) {
			made++
		}
	}
	if made != 4 { // two of the old cluster, two of the new
		t.Errorf("%d instances were made: %q", made, messages)
	}
}

// The same with the operator's start racing the garbage collector.
func TestB05OldObjectsGoWhileTheNewClusterIsBuilt(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	op := f.StartOperator()
	c := f.Create("shop", framework.Instances(2))
	c.AwaitReady()
	op.Stop()
	c.Delete()
	c = f.Create("shop", framework.Instances(2))
	f.StartOperator()
	c.AwaitReady()
	wantOwnedBy(f, c.Live())
}

// What is gone already needs no deletion: the rest goes, without a word.
func TestB06DeletedWithPartsAlreadyGone(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	op := f.StartOperator()
	c := f.Create("shop", framework.Instances(2))
	c.AwaitReady()
	op.Proxy.Refuse(true) // so that nothing is put back
	for _, key := range []string{"services/shop-rw", "poddisruptionbudgets/shop", "pods/shop-2", "leases/shop", "configmaps/shop-config"} {
		f.Remove(key)
	}
	c.Delete()
	op.Proxy.Refuse(false)
	f.AwaitOnly()
	f.Hold(2*time.Second, "nothing comes back", f.Only())
}

// In a namespace that is on its way out nothing is made, tried in vain again
// and again, or complained about; and when it is empty nothing holds it.
func TestB07NamespaceDeleted(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	op := f.StartOperator()
	names := []string{"one", "two", "three"}
	for _, name := range names {
		f.Create(name, framework.Instances(2)).AwaitReady()
	}
	f.DeleteNamespace()
	mark, lines := op.Proxy.Mark(), op.Log.Len()
	for _, name := range names { // as the namespace's controller does, in its own order
		f.Remove("services/" + name + "-ro")
		f.Remove("pods/" + name + "-2")
		f.Remove("secrets/" + name + "-app")
	}
	f.Pause(6 * time.Second)
	creations := framework.Count(op.Proxy.Since(mark), func(r framework.Request) bool { return r.Verb == "create" })
	t.Logf("creations tried in the terminating namespace: %v", creations)
	if n := framework.Total(creations); n > 30 { // one pass of each cluster, and events
		t.Errorf("%d creations were tried in a terminating namespace", n)
	}
	if said := op.Log.Since(lines); len(said) > 3*len(names) {
		t.Errorf("the operator logged %d lines: %s", len(said), strings.Join(said, ""))
	}
	f.EmptyNamespace()
	mark = op.Proxy.Mark()
	f.Pause(3 * time.Second)
	if writes := framework.Writes(op.Proxy.Since(mark)); len(writes) > 0 {
		t.Errorf("after the namespace was empty the operator wrote: %v", writes)
	}
}

// awaitObject waits until an object is there whose key begins so.
func awaitObject(f *framework.Framework, prefix string) {
	f.T.Helper()
	f.Await("an object "+prefix+"… is there", func(ctx context.Context) error {
		objects, err := f.Objects(ctx)
		if err != nil {
			return err
		}
		for key := range objects {
			if strings.HasPrefix(key, prefix) {
				return nil
			}
		}
		return fmt.Errorf("there are only %q", framework.Keys(objects))
	})
}

// wantOwnedBy checks that every object is c's, by UID.
func wantOwnedBy(f *framework.Framework, c *v1.PostgresCluster) {
	f.T.Helper()
	for key, o := range f.MustObjects() {
		owner := metav1.GetControllerOf(o)
		if owner == nil || owner.UID != c.UID {
			f.T.Errorf("%s is owned by %v, and the cluster is %s", key, owner, c.UID)
		}
	}
}

// wantNoComplaints checks that the operator logged no warning or error.
func wantNoComplaints(t *testing.T, op *framework.Operator) {
	t.Helper()
	for _, line := range op.Log.Lines() {
		if strings.Contains(line, "level=warning") || strings.Contains(line, "level=error") {
			t.Errorf("logged: %s", line)
		}
	}
}

// unchanged looks whether every object has the version that it had, but for
// Leases, which agents renew.
func unchanged(f *framework.Framework, before map[string]string) func(context.Context) error {
	return func(ctx context.Context) error {
		objects, err := f.Objects(ctx)
		if err != nil {
			return err
		}
		after := framework.Versions(objects)
		for _, key := range framework.Keys(after) {
			renewed := strings.HasPrefix(key, "leases/") && before[key] != "" // by the agents
			if after[key] != before[key] && !renewed {
				return fmt.Errorf("%s is new or was changed (version %q, then %q)", key, before[key], after[key])
			}
		}
		return framework.Want("number of objects", len(after), len(before))
	}
}

// B-29: what still bears the label of a cluster that is gone is left alone,
// costs no request again and again, and keeps no other cluster waiting.
func TestB29ChildOfAClusterThatIsGone(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	op := f.StartOperator()
	child := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Name:   "gone-config",
		Labels: map[string]string{"pgop.dev/cluster": "gone", "app.kubernetes.io/managed-by": "postgres-operator"},
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: v1.SchemeGroupVersion.String(), Kind: v1.ClusterKind, Name: "gone", UID: "gone", Controller: ptr.To(true),
		}},
	}}
	f.Kubelet.CollectGarbage(false)
	configMaps := f.Kube.CoreV1().ConfigMaps(f.Namespace)
	child, err := configMaps.Create(t.Context(), child, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	f.Create("shop").AwaitReady()

	mark := op.Proxy.Mark()
	child.Data = map[string]string{"changed": "yes"} // its event wakes the name
	if child, err = configMaps.Update(t.Context(), child, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	f.Pause(2 * time.Second)
	for _, r := range op.Proxy.Since(mark) {
		if strings.HasPrefix(r.Name, "gone") {
			t.Errorf("the operator asks about a cluster that is gone: %v", r)
		}
	}
	live, err := configMaps.Get(t.Context(), child.Name, metav1.GetOptions{})
	if err != nil || live.ResourceVersion != child.ResourceVersion {
		t.Errorf("the child was touched: %v (%v)", live, err)
	}
}
