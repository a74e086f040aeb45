//go:build e2e

package api

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/specs"
	"github.com/pgop/postgres-operator/test/api/framework"
)

// wal asks for WAL volumes.
func wal(size, class string) framework.Modifier {
	return func(c *v1.PostgresCluster) {
		c.Spec.Storage.WAL = &v1.WALStorageSpec{Size: resource.MustParse(size), Class: class}
	}
}

func noWAL(c *v1.PostgresCluster) { c.Spec.Storage.WAL = nil }

// claimOf is a claim as it is now.
func claimOf(f *framework.Framework, name string) *corev1.PersistentVolumeClaim {
	f.T.Helper()
	claim, err := f.Kube.CoreV1().PersistentVolumeClaims(f.Namespace).Get(f.T.Context(), name, metav1.GetOptions{})
	if err != nil {
		f.T.Fatal(err)
	}
	return claim
}

// awaitVolume waits until the status says of a volume that it has that state and
// size, with those words.
func awaitVolume(f *framework.Framework, c *framework.Cluster, name string, state v1.VolumeState, actual string, words ...string) {
	f.T.Helper()
	f.Await(fmt.Sprintf("volume %s is %s with %s", name, state, actual), func(ctx context.Context) error {
		live, err := c.Get(ctx)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(live.Status.Volumes, func(v v1.VolumeStatus) bool { return v.Name == name })
		if i < 0 {
			return fmt.Errorf("the status has %v", live.Status.Volumes)
		}
		v := live.Status.Volumes[i]
		lacks := slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(v.Message, w) })
		if v.State != state || v.Actual != actual || lacks {
			return fmt.Errorf("it is %+v", v)
		}
		return nil
	})
}

// A cluster gets WAL volumes: each instance restarts once, one after the other, and
// from then on they stay.
func TestWALVolumesAreAddedAndStay(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	f.StartOperator()
	c := f.Create("shop", framework.Instances(2), framework.Retain)
	c.AwaitReady()
	// A class that does not exist costs the first replica, and is taken back.
	c.Edit(wal("512Mi", framework.NoSuchClass))
	c.AwaitCondition(v1.ConditionReady, metav1.ConditionFalse, "shop-2: its pod can't be scheduled", "volume")
	awaitVolume(f, c, "shop-2-wal", v1.VolumePending, "")
	c.Edit(noWAL)
	c.AwaitReady()
	f.Await("the claims are gone", func(ctx context.Context) error {
		objects, err := f.Objects(ctx)
		if err != nil {
			return err
		}
		for key := range objects {
			if strings.HasSuffix(key, "-wal") {
				return fmt.Errorf("there is %s", key)
			}
		}
		return nil
	})

	before := map[string]any{"shop-1": f.UID("pods/shop-1"), "shop-2": f.UID("pods/shop-2")}
	c.Edit(wal("512Mi", ""))
	c.AwaitReady()
	c.AwaitCondition(v1.ConditionUpToDate, metav1.ConditionTrue)
	for name, uid := range before {
		pod, err := f.Kube.CoreV1().Pods(f.Namespace).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if pod.UID == uid || !specs.UsesVolume(pod, name+"-wal") {
			t.Errorf("pod %s has no WAL volume", name)
		}
		awaitVolume(f, c, name+"-wal", v1.VolumeReady, "512Mi")
	}
	expectRefusal(t, "no WAL volume any more", c.TryEdit(noWAL), "spec.storage.wal: WAL is on volumes of its own and can't be moved back")
	expectRefusal(t, "A-22: a smaller WAL volume", c.TryEdit(wal("256Mi", ""), framework.Instances(3)), "spec.storage.wal.size: a volume can't shrink")

	// They live as long as the data volumes.
	c.Edit(func(c *v1.PostgresCluster) { c.Spec.Storage.Retain = v1.DeleteVolumes })
	f.Await("the volumes are owned", func(context.Context) error {
		for _, name := range []string{"shop-1", "shop-1-wal", "shop-2", "shop-2-wal"} {
			if !metav1.IsControlledBy(claimOf(f, name), c.Live()) {
				return fmt.Errorf("%s is not", name)
			}
		}
		return nil
	})
	c.Edit(framework.Instances(1))
	c.AwaitReady()
	f.Await("the removed instance's volumes are gone", func(ctx context.Context) error {
		list, err := f.Kube.CoreV1().PersistentVolumeClaims(f.Namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		return framework.Want("volumes", len(list.Items), 2)
	})
}

// growth that the class of WAL volumes does not allow is told of each, and
// taken back; meanwhile the data volumes grow.
func TestA24GrowthOfWALVolumesRefusedAndTakenBack(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	f.StartOperator()
	fixed, growing := storageClass(f, "fixed", false), storageClass(f, "growing", true)
	c := f.Create("shop", class(growing), wal("512Mi", fixed))
	c.AwaitReady()
	c.Edit(size("2Gi"), wal("1Gi", fixed))
	c.AwaitCondition(v1.ConditionUpToDate, metav1.ConditionFalse, "must support resize", "put spec.storage.wal.size back to 512Mi")
	awaitVolume(f, c, "shop-1-wal", v1.VolumeRefused, "512Mi", "must support resize")
	awaitVolume(f, c, "shop-1", v1.VolumeReady, "2Gi")
	c.Edit(wal("512Mi", fixed))
	c.AwaitReady()
	c.AwaitCondition(v1.ConditionUpToDate, metav1.ConditionTrue)
	awaitVolume(f, c, "shop-1-wal", v1.VolumeReady, "512Mi")
}

// a replica moves to volumes of the new class when people ask for a new copy;
// a primary when it has handed over.
func TestA25InstancesMoveToVolumesOfTheNewClass(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	f.StartOperator()
	slow, fast := storageClass(f, "slow", false), storageClass(f, "fast", false)
	c := f.Create("shop", class(slow), wal("512Mi", slow), framework.Instances(2))
	c.AwaitReady()
	c.Edit(class(fast), wal("512Mi", fast))
	c.AwaitCondition(v1.ConditionUpToDate, metav1.ConditionFalse, "existing volumes keep their storage class", "shop-1-wal ("+slow+")", v1.RecloneAnnotation)
	for _, name := range []string{"shop-2", "shop-1"} {
		if name == c.Live().Status.Primary {
			f.Patch("postgresclusters/shop", fmt.Sprintf(`{"metadata":{"annotations":{%q:"shop-2"}}}`, v1.SwitchoverAnnotation))
			f.Await("it has handed over", func(ctx context.Context) error {
				return framework.Want("the primary", c.Live().Status.Primary, "shop-2")
			})
			c.AwaitReady()
		}
		f.Patch("postgresclusters/shop", fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, v1.RecloneAnnotation, name))
		f.Await(name+" is on volumes of the new class", func(ctx context.Context) error {
			live, err := c.Get(ctx)
			if err != nil {
				return err
			}
			if _, asked := live.Annotations[v1.RecloneAnnotation]; asked {
				return fmt.Errorf("the request is still there: %s", framework.Summary(live))
			}
			for _, claim := range []string{name, name + "-wal"} {
				if got := ptr.Deref(claimOf(f, claim).Spec.StorageClassName, ""); got != fast {
					return fmt.Errorf("%s is of class %s", claim, got)
				}
			}
			return nil
		})
		c.AwaitReady()
	}
	c.AwaitCondition(v1.ConditionUpToDate, metav1.ConditionTrue)
	f.Await("events tell of both", func(context.Context) error {
		return framework.Want("events", countOf(t, c, v1.ReasonRecloned), 2)
	})
}

// the wrong class of WAL volumes is corrected, and the same cluster comes up.
func TestA26WrongClassOfWALVolumes(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	f.StartOperator()
	c := f.Create("shop", wal("512Mi", framework.NoSuchClass), framework.Instances(2))
	c.AwaitCondition(v1.ConditionReady, metav1.ConditionFalse, "shop-1: its pod can't be scheduled", "volume")
	c.Edit(wal("512Mi", ""))
	c.AwaitReady()
	f.Hold(time.Second, "it stays so", c.Ready)
}
