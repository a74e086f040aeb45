//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/pgop/postgres-operator/test/e2e/framework"
)

// C-23: DNS is away. Replication goes on; a replica that is restarted streams again,
// and when the primary is deleted another takes over, all without a name. Nothing is
// cloned or made anew, and clients find the primary once DNS is back.
func TestC23DNSAway(t *testing.T) {
	framework.LocalOnly(t)
	f := framework.New(t)
	c := f.Create("nameless", framework.Instances(2))
	c.AwaitReady()
	c.SQL(framework.RW, "create table kept as select 1 as n")
	primary, replica := "nameless-1", "nameless-2"
	volumes, err := c.Volumes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	dataIDs := func() string {
		return c.Shell(primary, "cat /pgdata/17/data-id") + " " + c.Shell(replica, "cat /pgdata/17/data-id")
	}
	data := dataIDs()
	const receiver = "select pid from pg_stat_wal_receiver where status = 'streaming'"
	streamedBy := c.SQLIn(replica, receiver)

	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if _, err := framework.RunLocal(ctx, "dns", "start"); err != nil {
			t.Error(err)
		}
	})
	f.LocalCluster("dns", "stop")
	f.Hold(5*time.Second, "the replica streams on", func(ctx context.Context) error {
		pid, err := c.TrySQLIn(ctx, replica, receiver)
		if err != nil {
			return err
		}
		return framework.Want("the process that streams", pid, streamedBy)
	})
	old := c.Pod(replica).UID
	c.DeletePod(replica)
	c.AwaitNewPod(replica, old)
	wantStreaming(t, c, 2)
	old = c.Pod(primary).UID
	c.DeletePod(primary)
	f.Await(framework.Patience, "the replica has taken over", func(ctx context.Context) error {
		_, err := c.TrySQLIn(ctx, replica, "\\c app\ninsert into kept values (2)")
		return err
	})
	c.AwaitNewPod(primary, old)
	if c.Primary() != replica {
		t.Errorf("the primary is %s", c.Primary())
	}
	wantStreaming(t, c, 2)

	f.LocalCluster("dns", "start")
	c.AwaitReady()
	c.SQL(framework.RW, "insert into kept values (3)")
	c.AwaitRows(framework.RO, "select count(distinct n) from kept", "3")
	if now := dataIDs(); now != data {
		t.Errorf("data was cloned: the ids are %s, and were %s", now, data)
	}
	now, err := c.Volumes(t.Context())
	if err != nil || fmt.Sprint(now) != fmt.Sprint(volumes) {
		t.Errorf("volumes are %v, and were %v (%v)", now, volumes, err)
	}
}
