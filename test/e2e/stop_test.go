//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/test/e2e/framework"
)

func awaitPhase(f *framework.Framework, c *framework.Cluster, phase v1.Phase) {
	f.T.Helper()
	f.Await(framework.Patience, fmt.Sprintf("%s is %s", c.Name, phase), func(ctx context.Context) error {
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

// B-13: 2 -> 0 -> 2, after a switchover. The server shuts down in order, nobody takes
// over, the volumes stay although they would go with the cluster, and the instance
// that led last leads again, with every row. Then 2 -> 0 -> 1.
func TestB13ScaleToZeroAndBack(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	c := f.Create("zero", framework.Instances(2))
	c.AwaitReady()
	c.SQL(framework.RW, "create table kept as select generate_series(1, 1000) as n")
	ask(f, c, v1.SwitchoverAnnotation, "zero-2", v1.ReasonSwitchedOver, "zero-2 took over from zero-1")
	c.AwaitReady()
	c.SQL(framework.RW, "insert into kept values (1001)")
	timeline := c.Live().Status.Timeline
	volumes, err := c.Volumes(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	f.Kubectl("scale", "pg/zero", "--replicas=0")
	awaitPhase(f, c, v1.PhaseStopped)
	c.AwaitCondition(v1.ConditionReady, metav1.ConditionFalse, "spec.instances is 0", "zero-1, zero-2")
	if pods := c.Pods(); len(pods) > 0 {
		t.Errorf("%d pods are left", len(pods))
	}
	if now, err := c.Volumes(t.Context()); err != nil || fmt.Sprint(now) != fmt.Sprint(volumes) {
		t.Errorf("volumes are %v, were %v (%v)", now, volumes, err)
	}

	c.Edit(framework.Instances(2))
	c.AwaitReady()
	if c.Primary() != "zero-2" || c.Live().Status.Timeline != timeline {
		t.Errorf("%s leads, on timeline %d after %d", c.Primary(), c.Live().Status.Timeline, timeline)
	}
	c.AwaitRows(framework.RO, "select count(*) from kept", "1001")
	// In order: the server has no crash to recover from.
	if log := f.Kubectl("logs", "zero-2", "-c", "postgres"); !containsAny(log, "database system was shut down") || containsAny(log, "was interrupted", "was not properly shut down") {
		t.Errorf("the server did not shut down in order: %s", log)
	}

	c.Edit(framework.Instances(0))
	awaitPhase(f, c, v1.PhaseStopped)
	c.Edit(framework.Instances(1))
	c.AwaitReady()
	f.Await(framework.Patience, "one instance is left, with its volume", func(ctx context.Context) error {
		now, err := c.Volumes(ctx)
		if err != nil {
			return err
		}
		return framework.Want("volumes and pods", fmt.Sprint(len(now), len(c.Pods())), "1 1")
	})
	c.AwaitRows(framework.RW, "select count(*) from kept", "1001")
}
