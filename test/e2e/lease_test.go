//go:build e2e

package e2e

import (
	"context"
	"testing"
	"time"

	"github.com/pgop/postgres-operator/test/e2e/framework"
)

// C-22: a cluster whose Lease is deleted by hand goes on: the same primary, in the
// same pod, with the same server.
func TestC22LeaseIsDeletedByHand(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	c := f.Create("robbed", framework.Instances(3))
	c.AwaitReady()
	c.SQL(framework.RW, "create table kept as select 1 as n")
	const started = "select pg_postmaster_start_time()::text"
	primary, since := c.Primary(), c.SQL(framework.RW, started)
	f.Kubectl("delete", "lease/robbed")
	f.Await(framework.Patience, "the Lease is there again, and names its holder", func(context.Context) error {
		holder, err := f.TryKubectl("", "get", "lease/robbed", "-o", "jsonpath={.spec.holderIdentity}")
		if err != nil {
			return err
		}
		return framework.Want("whether somebody holds it", holder != "", true)
	})
	f.Hold(10*time.Second, "the primary serves on", func(ctx context.Context) error {
		now, err := c.TrySQL(ctx, framework.RW, started)
		if err != nil {
			return err
		}
		return framework.Want("the start of the primary's server", now, since)
	})
	if now := c.Primary(); now != primary {
		t.Errorf("%s is the primary, after %s", now, primary)
	}
	c.AwaitReady()
	c.AwaitRows(framework.RO, "select n from kept", "1")
}
