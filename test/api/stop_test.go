//go:build e2e

package api

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/test/api/framework"
)

func pause(paused bool) framework.Modifier {
	return func(c *v1.PostgresCluster) { c.Spec.Paused = paused }
}

func awaitPhase(f *framework.Framework, c *framework.Cluster, phase v1.Phase) {
	f.T.Helper()
	f.Await(fmt.Sprintf("%s is %s", c.Name, phase), func(ctx context.Context) error {
		live, err := c.Get(ctx)
		if err != nil {
			return err
		}
		if live.Status.Phase != phase || live.Status.ObservedGeneration != live.Generation {
			return fmt.Errorf("%s", framework.Summary(live))
		}
		return nil
	})
}

// parts are the keys of the objects of a kind.
func parts(f *framework.Framework, resource string) []string {
	f.T.Helper()
	return slices.DeleteFunc(framework.Keys(f.MustObjects()), func(key string) bool { return !strings.HasPrefix(key, resource+"/") })
}

// B-13: none and back. The volumes stay, although they would go with the cluster;
// the instance that led last leads again; an idle stopped cluster costs nothing.
func TestB13ScaleToZeroAndBack(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	f.StartOperator()
	c := f.Create("shop", framework.Instances(3))
	c.AwaitReady()
	f.Kubelet.TakeOver("shop-2")
	c.AwaitPrimary("shop-2")
	c.AwaitReady()
	takeovers := countOf(t, c, v1.ReasonFailedOver)
	volumes := fmt.Sprint(parts(f, "persistentvolumeclaims"))

	scale := func(n int32) error {
		s := &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Name: "shop", Namespace: f.Namespace}, Spec: autoscalingv1.ScaleSpec{Replicas: n}}
		_, err := f.Postgres.PgopV1().PostgresClusters(f.Namespace).UpdateScale(t.Context(), "shop", s, metav1.UpdateOptions{})
		return err
	}
	expectRefusal(t, "less than none", c.TryEdit(framework.Instances(-1)), "spec.instances: at least 0", "the cluster is stopped and keeps its volumes")
	if err := scale(0); err != nil {
		t.Fatal(err)
	}
	awaitPhase(f, c, v1.PhaseStopped)
	c.AwaitCondition(v1.ConditionReady, metav1.ConditionFalse, "spec.instances is 0", "shop-1, shop-2, shop-3", "kubectl scale pg/shop --replicas=3")
	if pods, err := c.Pods(t.Context()); err != nil || len(pods) > 0 {
		t.Errorf("pods are left: %v %v", pods, err)
	}
	if now := fmt.Sprint(parts(f, "persistentvolumeclaims")); now != volumes {
		t.Errorf("volumes are %s, were %s", now, volumes)
	}
	if left := parts(f, "poddisruptionbudgets"); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
	f.Hold(2*time.Second, "it is settled", unchanged(f, framework.Versions(f.MustObjects())))

	c.Edit(framework.Instances(3))
	c.AwaitReady()
	c.AwaitPrimary("shop-2")
	if n := countOf(t, c, v1.ReasonFailedOver); n != takeovers {
		t.Errorf("%d takeovers", n-takeovers)
	}
}

// B-13: 3 -> 0 -> 2: all come back first, since any may be the one that leads; then
// one goes with its volume, as from 3 to 2. 3 -> 0 -> 3 at once, and 0 from the
// beginning.
func TestB13AwkwardOrders(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	f.StartOperator()
	c := f.Create("shop", framework.Instances(3))
	c.AwaitReady()
	c.Edit(framework.Instances(0))
	awaitPhase(f, c, v1.PhaseStopped)
	c.Edit(framework.Instances(2))
	c.AwaitReady()
	wantInstances(f, 2)

	c.Edit(framework.Instances(0))
	c.Edit(framework.Instances(3))
	c.AwaitReady()
	wantInstances(f, 3)
	for _, n := range []int32{0, 2, 0, 1, 0, 3} {
		c.Edit(framework.Instances(n))
		f.Pause(300 * time.Millisecond)
	}
	c.AwaitReady()
	wantInstances(f, 3)

	late := f.Create("late", framework.Instances(0))
	awaitPhase(f, late, v1.PhaseStopped)
	late.Edit(framework.Instances(1))
	late.AwaitReady()
}

// A cluster that is stopped answers requests, and takes them back.
func TestB13RequestsToAStoppedCluster(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	f.StartOperator()
	c := f.Create("shop", framework.Instances(2))
	c.AwaitReady()
	c.Edit(framework.Instances(0))
	awaitPhase(f, c, v1.PhaseStopped)
	c.Ask(v1.SwitchoverAnnotation, "shop-2")
	c.AwaitAnswer(v1.SwitchoverAnnotation, v1.ReasonRequestRefused, 1, "the cluster is stopped")
	c.Ask(v1.RestartAnnotation, "1")
	c.AwaitAnswer(v1.RestartAnnotation, v1.ReasonRestarted, 1, "every instance has stopped")
}

// A paused cluster is watched and not changed: edits, requests and repairs wait, and
// the last edit counts when it goes on.
func TestPausedClusterIsLeftAlone(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	f.StartOperator()
	c := f.Create("shop", framework.Instances(2))
	c.AwaitReady()
	c.Edit(pause(true))
	awaitPhase(f, c, v1.PhasePaused)

	c.Edit(framework.Instances(4), framework.Parameter("work_mem", "8MB"))
	c.Edit(framework.Instances(3))
	c.Ask(v1.SwitchoverAnnotation, "shop-2")
	f.Remove("services/shop-ro")
	c.AwaitCondition(v1.ConditionProgressing, metav1.ConditionFalse, "spec.paused is true", "create Pod shop-3", "create Service shop-ro", "update ConfigMap shop-config")
	f.Hold(3*time.Second, "nothing is done", func(ctx context.Context) error {
		pods, err := c.Pods(ctx)
		if err != nil {
			return err
		}
		live, err := c.Get(ctx)
		if err != nil {
			return err
		}
		if _, asked := live.Annotations[v1.SwitchoverAnnotation]; !asked || len(pods) != 2 || live.Status.Primary != "shop-1" {
			return fmt.Errorf("%d pods, the request is there: %v, %s", len(pods), asked, framework.Summary(live))
		}
		if _, err := f.Object(ctx, "services/shop-ro"); err == nil {
			return fmt.Errorf("the Service is back")
		}
		return nil
	})

	// The agents go on, and the status follows them.
	f.Kubelet.TakeOver("shop-2")
	f.Await("the status names shop-2", func(ctx context.Context) error {
		live, err := c.Get(ctx)
		if err != nil {
			return err
		}
		return framework.Want("primary and phase", live.Status.Primary+" "+string(live.Status.Phase), "shop-2 "+string(v1.PhasePaused))
	})
	expectRefusal(t, "retain", c.TryEdit(framework.Retain), "spec.storage.retain", "set spec.paused to false first")

	c.Edit(pause(false))
	c.AwaitReady()
	c.AwaitPrimary("shop-2")
	wantInstances(f, 3)
	if _, asked := c.Live().Annotations[v1.SwitchoverAnnotation]; asked {
		t.Error("the request is still there")
	}
}

func TestPausedClusterCanBeDeleted(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	f.StartOperator()
	c := f.Create("shop", framework.Instances(2))
	c.AwaitReady()
	c.Edit(pause(true))
	awaitPhase(f, c, v1.PhasePaused)
	c.Delete()
	f.AwaitOnly()
}
