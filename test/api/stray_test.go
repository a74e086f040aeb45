//go:build e2e

package api

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/test/api/framework"
)

// sample is every object of a cluster of one instance, by its key, with "shop"
// as the cluster's name.
func sample(t *testing.T) map[string]*unstructured.Unstructured {
	t.Helper()
	f := framework.New(t)
	f.StartOperator()
	c := f.Create("shop")
	c.AwaitReady()
	return f.MustObjects()
}

// onePerKind leaves one object of each kind, by the order of their keys.
func onePerKind(objects map[string]*unstructured.Unstructured) map[string]*unstructured.Unstructured {
	kinds, some := map[string]bool{}, map[string]*unstructured.Unstructured{}
	for _, key := range framework.Keys(objects) {
		if kind := objects[key].GetKind(); !kinds[kind] {
			kinds[kind], some[key] = true, objects[key]
		}
	}
	return some
}

// rename makes a key, or the name in it, one of another cluster.
func rename(key, cluster string) string { return strings.Replace(key, "shop", cluster, 1) }

// strayOf is somebody's own object of the same kind and name, in the namespace
// and for the cluster named.
func strayOf(o *unstructured.Unstructured, cluster string, labels map[string]string) *unstructured.Unstructured {
	stray := o.DeepCopy()
	stray.Object["metadata"] = map[string]any{"name": rename(o.GetName(), cluster)}
	stray.SetLabels(labels)
	delete(stray.Object, "status")
	for _, assigned := range []string{"clusterIP", "clusterIPs", "nodeName", "volumeName"} {
		unstructured.RemoveNestedField(stray.Object, "spec", assigned)
	}
	return stray
}

// An object of somebody else's that has the name of a cluster's object, for
// every kind and name: the condition names it, it is left alone, and when it is
// gone creation goes on by itself.
func TestB03StrayObjects(t *testing.T) {
	t.Parallel()
	all := sample(t)
	for _, labelled := range []bool{false, true} {
		t.Run(fmt.Sprintf("labelled like the operator's=%v", labelled), func(t *testing.T) {
			t.Parallel()
			objects := all
			if labelled {
				objects = onePerKind(all)
			}
			f := framework.New(t)
			f.StartOperator()
			strays := map[string]*unstructured.Unstructured{} // by the cluster's name
			for n, key := range framework.Keys(objects) {
				name := fmt.Sprintf("c%d", n)
				resource, _, _ := strings.Cut(key, "/")
				if labelled && resource == "persistentvolumeclaims" {
					continue // it is a retained volume, and adopted; see B-26
				}
				var labels map[string]string
				if labelled {
					labels = map[string]string{}
					for k, v := range objects[key].GetLabels() {
						labels[k] = rename(v, name)
					}
				}
				strays[key] = f.Put(resource, strayOf(objects[key], name, labels))
			}
			for n, key := range framework.Keys(objects) {
				if strays[key] != nil {
					f.Create(fmt.Sprintf("c%d", n))
				}
			}
			for n, key := range framework.Keys(objects) {
				stray := strays[key]
				if stray == nil {
					continue
				}
				name := fmt.Sprintf("c%d", n)
				c := f.Cluster(name)
				c.AwaitCondition(v1.ConditionProgressing, metav1.ConditionFalse, stray.GetKind()+" "+stray.GetName(), "does not belong to this cluster")
				live, err := f.Object(t.Context(), rename(key, name))
				if err != nil {
					t.Fatal(err)
				}
				if by := writers(live); by != "api-test" {
					t.Errorf("%s was changed by %s: %v", key, by, live)
				}
				f.Remove(rename(key, name))
			}
			for n, key := range framework.Keys(objects) {
				if strays[key] != nil {
					f.Cluster(fmt.Sprintf("c%d", n)).AwaitReady()
				}
			}
		})
	}
}

// An object of a cluster that somebody's finalizer keeps Terminating, for every
// kind: the status says what is waited for, and when the finalizer is
// gone the object is made anew by itself.
func TestB04ChildrenStuckTerminating(t *testing.T) {
	t.Parallel()
	const finalizer = "example.com/wait"
	objects := onePerKind(sample(t))
	f := framework.New(t)
	f.StartOperator()
	name := func(n int) string { return fmt.Sprintf("c%d", n) }
	for n := range len(objects) {
		f.Create(name(n))
	}
	for n, key := range framework.Keys(objects) {
		key := rename(key, name(n))
		f.Cluster(name(n)).AwaitReady()
		if strings.HasPrefix(key, "persistentvolumeclaims/") {
			continue // deleting a primary's volume is another story, C-22
		}
		f.Patch(key, `{"metadata":{"finalizers":["`+finalizer+`"]}}`)
		f.Remove(key)
	}
	for n, key := range framework.Keys(objects) {
		if strings.HasPrefix(key, "persistentvolumeclaims/") {
			continue
		}
		c, key := f.Cluster(name(n)), rename(key, name(n))
		old := f.UID(key)
		kind := objects[framework.Keys(objects)[n]].GetKind()
		if kind == "Pod" {
			c.AwaitCondition(v1.ConditionReady, metav1.ConditionFalse, "its pod is stopping")
		} else {
			c.AwaitCondition(v1.ConditionProgressing, metav1.ConditionTrue, kind+" "+strings.SplitN(key, "/", 2)[1], "being deleted", finalizer)
		}
		f.Patch(key, `{"metadata":{"finalizers":null}}`)
		f.AwaitReplaced(key, old)
		c.AwaitReady()
	}
}

// writers are the clients that have written an object.
func writers(o *unstructured.Unstructured) string {
	names := map[string]bool{}
	for _, entry := range o.GetManagedFields() {
		names[entry.Manager] = true
	}
	return strings.Join(framework.Keys(names), ", ")
}

// A stray pod or volume of a higher number is no instance of the cluster, and
// not in its way.
func TestB03StrayInstanceIsNoInstance(t *testing.T) {
	t.Parallel()
	objects := sample(t)
	f := framework.New(t)
	f.StartOperator()
	stray := strayOf(objects["pods/shop-1"], "shop", nil)
	stray.SetName("shop-7")
	stray = f.Put("pods", stray)
	c := f.Create("shop", framework.Instances(2))
	c.AwaitReady()
	c.Edit(framework.Instances(1))
	c.AwaitReady()
	f.Await("pod shop-2 is gone", func(ctx context.Context) error {
		_, err := f.Object(ctx, "pods/shop-2")
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, errors.New("it is there"))
	})
	live, err := f.Object(t.Context(), "pods/shop-7")
	if err != nil || live.GetResourceVersion() != stray.GetResourceVersion() {
		t.Errorf("the stray pod was touched: %v %v", live, err)
	}
}
