//go:build e2e

package e2e

import (
	"context"
	"testing"

	"github.com/pgop/postgres-operator/test/e2e/framework"
)

// The primary's node loses power and comes back: so does the cluster, alone.
func TestB12NodeRestart(t *testing.T) {
	framework.LocalOnly(t)
	f := framework.New(t)
	c := f.Create("power", framework.Instances(2))
	c.AwaitReady()
	c.SQL(framework.RW, "create table kept as select generate_series(1, 1000) as n")
	primary := c.Primary()
	before := volumesOf(t, c)
	pods := c.Pods()
	node := pods[primary].Spec.NodeName
	started := c.SQLIn(primary, "select pg_postmaster_start_time()")

	f.LocalCluster("node", "restart", node)
	f.Await(2*framework.Patience, "the cluster is ready with a server that has started since", func(ctx context.Context) error {
		if err := c.Ready(ctx); err != nil {
			return err
		}
		_, err := c.TrySQLIn(ctx, primary, "do $$ begin assert pg_postmaster_start_time() > '"+started+"', 'the old server runs'; end $$")
		return err
	})
	if c.Primary() != primary {
		t.Errorf("the primary is %s instead of %s", c.Primary(), primary)
	}
	for name, pod := range c.Pods() {
		if pod.UID != pods[name].UID {
			t.Errorf("pod %s was deleted and made anew", name)
		}
	}
	if now := volumesOf(t, c); len(now) != 2 || now[0] != before[0] || now[1] != before[1] {
		t.Errorf("volumes are %v instead of %v", now, before)
	}
	c.AwaitRows(framework.RW, "select count(*) from kept", "1000")
	c.AwaitRows(framework.RO, "select count(*) from kept", "1000")
	wantStreaming(t, c, 2)
}
