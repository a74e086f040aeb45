//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/test/e2e/framework"
)

// fillSegment lets the primary write a whole file of WAL of which little has to be
// sent.
const fillSegment = "select pg_logical_emit_message(false, 'test', 'x'); select pg_switch_wal(); "

// C-10: a replica is away for good. The status says how much WAL is kept for it
// while there is room; what is kept has an end; and a replica that is asked for no
// more has no slot any more, on any instance.
func TestC10ReplicaAwayForGood(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	c := f.Create("away", framework.Instances(3), framework.Parameter("max_slot_wal_keep_size", "96MB"), framework.Parameter("max_wal_size", "64MB"))
	c.AwaitReady()
	c.SQL(framework.RW, "create table kept as select 1 as n") // the client's pod is there from now on
	if primary := c.Primary(); primary != "away-1" {
		t.Fatalf("the primary is %s", primary)
	}
	const oldest = "select pg_walfile_name(restart_lsn) from pg_replication_slots where slot_name = 'away_3'"
	limitPods(f, 3) // the client, away-1 and away-2
	c.DeletePod("away-3")
	f.Await(framework.Patience, "away-3 is gone", func(context.Context) error {
		return framework.Want("instances' pods", len(c.Pods()), 2)
	})

	needed := c.SQLIn("away-1", oldest)
	c.SQLIn("away-1", strings.Repeat(fillSegment, 5))
	message := c.AwaitCondition(v1.ConditionReplicating, metav1.ConditionFalse, "not streaming: away-3", "away-1 keeps WAL, up to max_slot_wal_keep_size", "more than 64 MiB for away-3")
	t.Logf("Replicating says: %s", message)
	f.Await(framework.Patience, "what the replica needs is removed once it is more than may be kept", func(ctx context.Context) error {
		files, err := c.TrySQLIn(ctx, "away-1", fillSegment+"checkpoint; select string_agg(name, ' ') from pg_ls_waldir()")
		if err != nil {
			return err
		}
		if strings.Contains(files, needed) {
			return fmt.Errorf("%s is there, in %s", needed, files)
		}
		return nil
	})
	f.Await(framework.Patience, "its slot begins anew, from here", func(ctx context.Context) error {
		status, err := c.TrySQLIn(ctx, "away-1", "select wal_status from pg_replication_slots where slot_name = 'away_3'")
		if err != nil {
			return err
		}
		return framework.Want("its slot", status, "reserved")
	})
	const most = 96 + 64 + 2*16 // the cap, what a server keeps for itself, and what it writes
	size, err := strconv.Atoi(c.SQLIn("away-1", "select (sum(size) / 1048576)::int from pg_ls_waldir()"))
	if err != nil || size > most {
		t.Errorf("%d MB of WAL are kept, want at most %d (%v)", size, most, err)
	}
	c.SQL(framework.RW, "insert into kept values (2)")
	c.AwaitRows(framework.RO, "select count(*) from kept", "2")

	c.Edit(framework.Instances(2))
	c.AwaitReady()
	f.Await(framework.Patience, "no instance has a slot for away-3", func(ctx context.Context) error {
		var errs []error
		for _, instance := range []string{"away-1", "away-2"} {
			n, err := c.TrySQLIn(ctx, instance, "select count(*) from pg_replication_slots where slot_name = 'away_3'")
			errs = append(errs, err, framework.Want("slots on "+instance, n, "0"))
		}
		return errors.Join(errs...)
	})
	wantStreaming(t, c, 2)
}

// limitPods lets no pod be made in the namespace that would be more than n.
func limitPods(f *framework.Framework, n int64) {
	f.T.Helper()
	quotas := f.Kube.CoreV1().ResourceQuotas(f.Namespace)
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "few"}, Spec: corev1.ResourceQuotaSpec{
		Hard: corev1.ResourceList{corev1.ResourcePods: *resource.NewQuantity(n, resource.DecimalSI)},
	}}
	if _, err := quotas.Create(f.T.Context(), quota, metav1.CreateOptions{}); err != nil {
		f.T.Fatal(err)
	}
	f.Await(framework.Patience, "the quota is in force", func(ctx context.Context) error {
		live, err := quotas.Get(ctx, "few", metav1.GetOptions{})
		if err != nil {
			return err
		}
		return framework.Want("limits in its status", len(live.Status.Hard), 1)
	})
}
