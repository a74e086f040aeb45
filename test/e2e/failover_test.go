//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/test/e2e/framework"
)

// ask puts a request on the cluster and waits until it is answered by an event
// of that reason, which has all of the words.
func ask(f *framework.Framework, c *framework.Cluster, annotation, value, reason string, words ...string) {
	f.T.Helper()
	f.Kubectl("annotate", "--overwrite", "pg/"+c.Name, annotation+"="+value)
	f.Await(framework.Patience, fmt.Sprintf("%s=%s is answered by %s %q", annotation, value, reason, words), func(ctx context.Context) error {
		live, err := c.Get(ctx)
		if err != nil {
			return err
		}
		if _, there := live.Annotations[annotation]; there {
			return fmt.Errorf("the request is still there: %s", framework.Summary(live))
		}
		return told(ctx, c, reason, words...)
	})
}

// told says whether an event of that reason has all of the words.
func told(ctx context.Context, c *framework.Cluster, reason string, words ...string) error {
	messages, err := c.Messages(ctx)
	if err != nil {
		return err
	}
	fits := func(m string) bool {
		return strings.HasPrefix(m, reason+": ") && !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(m, word) })
	}
	if !slices.ContainsFunc(messages, fits) {
		return fmt.Errorf("told %q", messages)
	}
	return nil
}

// breakData lets an instance's data look like another cluster's, which it leaves
// alone for good, and ends its server. The agent looks again at the next start.
func breakData(c *framework.Cluster, instance string) {
	c.Shell(instance, `initdb -D /tmp/other >/tmp/initdb.log && cp /tmp/other/global/pg_control "$PGDATA/global/pg_control"
		kill -9 "$(head -n 1 "$PGDATA/postmaster.pid")"; kill -TERM 1`)
}

// E-11: sessions that lead to a primary end with it, also if it is back as a
// replica at once, and clients find the new one.
func TestE11SessionsEndAtASwitchover(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	c := f.Create("pool", framework.Instances(2))
	c.AwaitReady()
	c.SQL(framework.RW, "create table kept (n int)")
	ended := make(chan error, 1)
	go func() {
		_, err := c.TrySQL(t.Context(), framework.RW, "select 'pooled', pg_sleep(55)")
		ended <- err
	}()
	f.Await(framework.Patience, "the session", func(ctx context.Context) error {
		n, err := c.TrySQLIn(ctx, "pool-1", "select count(*) from pg_stat_activity where query like '%pooled%' and usename = 'app'")
		if err != nil {
			return err
		}
		return framework.Want("the number of sessions", n, "1")
	})
	ask(f, c, v1.SwitchoverAnnotation, "pool-2", v1.ReasonSwitchedOver, "pool-2 took over from pool-1", "as asked")
	select {
	case err := <-ended:
		if err == nil {
			t.Error("the session went on to its end")
		}
	case <-time.After(10 * time.Second):
		t.Error("the session still hangs")
	}
	c.SQL(framework.RW, "insert into kept values (1)")
	c.AwaitReady()
	wantStreaming(t, c, 2)
	c.AwaitRows(framework.RO, "select n, pg_is_in_recovery() from kept", "1|t")
}

// B-14: after a switchover to the last instance, one is asked for: the primary
// stays, and nothing is left of the others.
func TestB14ScaledDownToTheLastInstance(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	c := f.Create("last", framework.Instances(3))
	c.AwaitReady()
	c.SQL(framework.RW, "create table kept as select 1 as n")
	ask(f, c, v1.SwitchoverAnnotation, "last-3", v1.ReasonSwitchedOver, "last-3 took over from last-1")
	c.AwaitReady()
	pod := c.Pod("last-3").UID
	since := c.SQLIn("last-3", "select pg_postmaster_start_time()")
	c.Edit(framework.Instances(1))
	f.Await(framework.Patience, "last-3 is left alone, without slots", func(ctx context.Context) error {
		if pods := c.Pods(); len(pods) != 1 || pods["last-3"] == nil {
			return fmt.Errorf("%d pods are left", len(pods))
		}
		slots, err := c.TrySQLIn(ctx, "last-3", "select count(*) from pg_replication_slots")
		if err != nil {
			return err
		}
		return framework.Want("the number of slots", slots, "0")
	})
	c.AwaitReady()
	if c.Pod("last-3").UID != pod || c.SQLIn("last-3", "select pg_postmaster_start_time()") != since {
		t.Error("the primary was disturbed")
	}
	c.AwaitRows(framework.RW, "select n from kept", "1")
}

// B-15: a broken instance of a lower number than the primary's goes, and nobody
// waits for it to become ready.
func TestB15ScaledDownWhileTheFirstIsBroken(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	c := f.Create("first", framework.Instances(2))
	c.AwaitReady()
	c.SQL(framework.RW, "create table kept as select 1 as n")
	ask(f, c, v1.SwitchoverAnnotation, "first-2", v1.ReasonSwitchedOver, "first-2 took over from first-1")
	c.AwaitReady()
	pod := c.Pod("first-2").UID
	breakData(c, "first-1")
	c.AwaitCondition(v1.ConditionReady, metav1.ConditionFalse, "first-1", "another database")
	c.Edit(framework.Instances(1))
	f.Await(framework.Patience, "first-2 is left alone", func(context.Context) error {
		if pods := c.Pods(); len(pods) != 1 || pods["first-2"] == nil {
			return fmt.Errorf("%d pods are left", len(pods))
		}
		return nil
	})
	c.AwaitReady()
	if c.Pod("first-2").UID != pod {
		t.Error("the primary was disturbed")
	}
	c.AwaitRows(framework.RW, "select n from kept", "1")
}

// B-28: the primary dies while no operator runs. The one that comes back finds
// another primary, with everything, and tells of it.
func TestB28FailoverWithoutOperator(t *testing.T) {
	f := framework.New(t)
	c := f.Create("absent", framework.Instances(3))
	c.AwaitReady()
	c.SQL(framework.RW, "create table kept as select 1 as n")
	deployment := f.UninstallOperator()
	c.ForceDeletePod("absent-1")
	served := c.AwaitWrites("absent-1", "insert into kept values (2)")
	f.InstallOperator(deployment)
	c.AwaitReady()
	if c.Primary() != served {
		t.Errorf("the primary is %s, and without the operator it was %s", c.Primary(), served)
	}
	f.Await(framework.Patience, "the event", func(ctx context.Context) error {
		return told(ctx, c, v1.ReasonFailedOver, served+" took over from absent-1")
	})
	wantStreaming(t, c, 3)
	for _, instance := range []string{"absent-1", "absent-2", "absent-3"} {
		want := "t"
		if instance == served {
			want = "f"
		}
		if got := c.SQLIn(instance, "select pg_is_in_recovery()"); got != want {
			t.Errorf("%s is in recovery: %s", instance, got)
		}
	}
	c.AwaitRows(framework.RO, "select count(distinct n) from kept", "2")
}

// A replica is cloned anew as a user asks: it has other data, and its former
// data is kept.
func TestRecloneOnRequest(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	c := f.Create("anew", framework.Instances(2))
	c.AwaitReady()
	c.SQL(framework.RW, "create table kept as select 1 as n")
	before := c.Shell("anew-2", "cat /pgdata/17/data-id")
	ask(f, c, v1.RecloneAnnotation, "anew-2", v1.ReasonRecloned, "anew-2")
	c.AwaitReady()
	wantStreaming(t, c, 2)
	if c.Shell("anew-2", "cat /pgdata/17/data-id") == before {
		t.Error("it has the data that it had")
	}
	if got := c.Shell("anew-2", "ls -d /pgdata/17/data.former-* | wc -l"); strings.TrimSpace(got) != "1" {
		t.Errorf("%s former data directories are kept", got)
	}
	c.AwaitRows(framework.RO, "select n from kept", "1")
}

// C-18: the replica does not stream, since its receiver is frozen, and then the
// primary's server can't start: the status says so, nobody takes over by itself,
// and the data of both is kept. A user forces a promotion; the former primary
// joins again once it is whole.
func TestForcePromote(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	c := f.Create("force", framework.Instances(2))
	c.AwaitReady()
	c.SQL(framework.RW, "create table kept as select 1 as n")
	c.AwaitRows(framework.RO, "select n from kept", "1")
	c.Shell("force-2", `kill -STOP "$(psql -X -q -A -t -d postgres -c "select pid from pg_stat_wal_receiver")"`)
	c.AwaitCondition(v1.ConditionFailoverReady, metav1.ConditionFalse)
	c.Shell("force-1", `mv "$PGDATA/global/pg_control" "$PGDATA/global/pg_control.away"; kill -9 "$(head -n 1 "$PGDATA/postmaster.pid")"`)
	c.AwaitCondition(v1.ConditionPrimaryAvailable, metav1.ConditionFalse, "pg_control")
	c.AwaitCondition(v1.ConditionReady, metav1.ConditionFalse)
	f.Hold(12*time.Second, "nobody takes over", func(context.Context) error { return framework.Want("the primary", c.Primary(), "force-1") })

	ask(f, c, v1.ForcePromoteAnnotation, "force-2", v1.ReasonFailedOver, "force-2 took over from force-1", v1.ForcePromoteAnnotation)
	c.SQL(framework.RW, "insert into kept values (2)")
	c.Shell("force-1", `mv "$PGDATA/global/pg_control.away" "$PGDATA/global/pg_control" 2>/dev/null || true`)
	c.AwaitReady()
	// What it has beyond the fork may be found after it has served for a moment.
	f.Await(framework.Patience, "force-1 streams", func(context.Context) error { return streams(c, 2) })
	wantStreaming(t, c, 2)
	c.AwaitRows(framework.RO, "select count(*) from kept", "2")
}
