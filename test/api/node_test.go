//go:build e2e

package api

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/controller"
	"github.com/pgop/postgres-operator/pkg/specs"
	"github.com/pgop/postgres-operator/test/api/framework"
)

// withNodes lets an operator look at nodes, with a clock on which a long time
// passes at once when that is called.
func withNodes() (change func(*controller.Config), pass func()) {
	var passed atomic.Int64
	change = func(c *controller.Config) {
		c.WatchNodes = true
		c.Now = func() time.Time { return time.Now().Add(time.Duration(passed.Load())) }
	}
	return change, func() { passed.Add(int64(2 * time.Minute)) }
}

// A volume that can be used on one node alone is lost when the Node object is
// deleted, and not before: another instance takes the replica's place, and the
// claim is kept and named.
func TestNodeThatIsDeletedTakesItsVolumesWithIt(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	node := "gone-" + f.Namespace
	makeNodeWithVolume(t, f, node)
	nodes, longPasses := withNodes()
	op := f.StartOperator(nodes)
	c := f.Create("shop", framework.Instances(3))
	c.AwaitReady()
	f.Patch("persistentvolumeclaims/shop-2", fmt.Sprintf(`{"spec":{"volumeName":%q}}`, node))

	const words = "0/3 nodes are available: 3 node(s) didn't match PersistentVolume's node affinity."
	f.Kubelet.Script("shop-2", framework.Script{Unschedulable: words})
	f.Remove("pods/shop-2")
	c.AwaitCondition(v1.ConditionReady, metav1.ConditionFalse, "shop-2", words)
	longPasses()
	f.Hold(3*time.Second, "the instance stays while its node is there, although not ready", func(ctx context.Context) error {
		return framework.Want("events", countOf(t, c, v1.ReasonNodeLost), 0)
	})

	if err := f.Kube.CoreV1().Nodes().Delete(t.Context(), node, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.AwaitCondition(v1.ConditionReady, metav1.ConditionTrue, "shop-2 (went with node "+node+")")
	c.AwaitReady()
	pods, err := c.Pods(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := framework.Keys(pods); !slices.Equal(got, []string{"shop-1", "shop-3", "shop-4"}) {
		t.Errorf("pods are %v", got)
	}
	claim, err := f.Kube.CoreV1().PersistentVolumeClaims(f.Namespace).Get(t.Context(), "shop-2", metav1.GetOptions{})
	if err != nil || claim.DeletionTimestamp != nil || claim.Annotations[specs.LostNodeAnnotation] != node {
		t.Errorf("the claim is not kept and marked: %v, %+v", err, claim)
	}
	f.Await("it is told once", func(context.Context) error {
		return framework.Want("events", countOf(t, c, v1.ReasonNodeLost), 1)
	})
	looked := framework.Count(op.Proxy.Since(0), func(r framework.Request) bool { return r.Resource == "persistentvolumes" })
	if n := framework.Total(looked); n != 1 {
		t.Errorf("volumes were looked up %d times: %v", n, looked)
	}
}

// makeNodeWithVolume makes a node that is not ready, and a volume of the same name
// that can be used on it alone.
func makeNodeWithVolume(t *testing.T, f *framework.Framework, name string) {
	t.Helper()
	nodes, volumes := f.Kube.CoreV1().Nodes(), f.Kube.CoreV1().PersistentVolumes()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}}}
	if _, err := nodes.Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: "/data"}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{name}}},
			}}}},
		},
	}
	if _, err := volumes.Create(t.Context(), volume, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.Background()
		_ = nodes.Delete(ctx, name, metav1.DeleteOptions{}) // gone by now, unless the test failed
		if err := volumes.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
		if _, err := volumes.Patch(ctx, name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
			t.Error(err)
		}
	})
}
