//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/test/e2e/framework"
)

// B-18: 3 -> 1 -> 2 at once, and five edits in a row: the last one wins.
func TestB18ScaledToAndFro(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	c := f.Create("fro", framework.Instances(3))
	c.AwaitReady()
	c.SQL(framework.RW, "create table kept as select 1 as n")

	c.Edit(framework.Instances(1))
	f.Await(framework.Patience, "the replicas begin to go", func(context.Context) error {
		if len(c.Pods()) == 3 {
			return errors.New("all three are there")
		}
		return nil
	})
	c.Edit(framework.Instances(2))
	c.AwaitReady()
	wantStreaming(t, c, 2)

	for _, n := range []int32{3, 1, 4, 1, 2} {
		c.Edit(framework.Instances(n))
	}
	c.AwaitReady()
	c.AwaitCondition(v1.ConditionProgressing, metav1.ConditionFalse)
	f.Await(framework.Patience, "two pods are left", func(context.Context) error {
		return framework.Want("pods", len(c.Pods()), 2)
	})
	c.AwaitRows(framework.RO, "select n from kept", "1")
}

// 1 -> 3 clones the data; 3 -> 1 through the scale subresource removes replicas
// with their slots and volumes, and leaves the primary alone.
func TestScaleUpAndDown(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	c := f.Create("scale")
	c.AwaitReady()
	c.SQL(framework.RW, "create table kept as select generate_series(1, 1000) as n")
	primary := c.Pod("scale-1")

	c.Edit(framework.Instances(3))
	c.AwaitReady()
	wantStreaming(t, c, 3)
	c.AwaitRows(framework.RO, "select count(*) from kept", "1000")

	f.Kubectl("scale", "pg/scale", "--replicas=1")
	c.AwaitReady()
	f.Await(framework.Patience, "what belonged to the replicas is gone", func(ctx context.Context) error {
		volumes, err := c.Volumes(ctx)
		if err != nil {
			return err
		}
		if len(volumes) != 1 || volumes["scale-1"] == "" {
			return fmt.Errorf("volumes: %v", volumes)
		}
		objects, err := f.Objects(ctx)
		if err != nil {
			return err
		}
		for _, name := range []string{"Pod/scale-2", "Pod/scale-3", "Secret/scale-2-tls", "Secret/scale-3-tls"} {
			if _, found := objects[name]; found {
				return fmt.Errorf("%s is there", name)
			}
		}
		slots, err := c.TrySQLIn(ctx, "scale-1", "select count(*) from pg_replication_slots")
		if err != nil {
			return err
		}
		return framework.Want("the number of slots", slots, "0")
	})
	now := c.Pod("scale-1")
	if now.UID != primary.UID || now.Status.ContainerStatuses[0].RestartCount != 0 || c.Primary() != "scale-1" {
		t.Errorf("the primary was disturbed: %s, primary %s", now.UID, c.Primary())
	}
	if got := c.SQL(framework.RW, "select count(*) from kept"); got != "1000" {
		t.Errorf("%s rows are left", got)
	}
	if got := f.Kubectl("get", "pg", "scale", "-o", "jsonpath={.status.selector}"); got != "pgop.dev/cluster=scale" {
		t.Errorf("the scale subresource's selector is %q", got)
	}
}
