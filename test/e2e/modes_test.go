//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/election"
	"github.com/pgop/postgres-operator/test/e2e/framework"
)

func replication(mode v1.ReplicationMode, need int32, durability v1.Durability) framework.Modifier {
	return func(c *v1.PostgresCluster) {
		c.Spec.Replication = v1.ReplicationSpec{Mode: mode, Need: &need, Durability: durability}
	}
}

// People ask for another durability while a client writes: commits wait as
// declared, who may take over follows, FailoverReady says so, and nothing
// restarts.
func TestModeChangesOnALiveCluster(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	c := f.Create("modes", framework.Instances(3))
	c.AwaitReady()
	c.SQL(framework.RW, "create table written (n int, backend int default pg_backend_pid())")
	primary, before, began := c.Primary(), podUIDs(c), serverStarts(c)
	stop := writeInOneSession(f, c)

	for n, m := range []struct {
		mode       v1.ReplicationMode
		need       int32
		durability v1.Durability
		// names is how synchronous_standby_names begins, and votes of the two members
		// elect.
		names string
		votes int
	}{
		{v1.ReplicationSync, 1, v1.DurabilityRequired, "ANY 1 (", 2},
		{v1.ReplicationSync, 2, v1.DurabilityRequired, "ANY 2 (", 1},
		{v1.ReplicationSync, 1, v1.DurabilityPreferred, "ANY 1 (", 2},
		{v1.ReplicationAsync, 1, v1.DurabilityPreferred, "", 1},
	} {
		what := fmt.Sprintf("change %d, to %s %d %s", n+1, m.mode, m.need, m.durability)
		c.Edit(replication(m.mode, m.need, m.durability))
		f.Await(framework.Patience, what, func(ctx context.Context) error {
			names, err := c.TrySQLIn(ctx, primary, "show synchronous_standby_names")
			if err != nil {
				return err
			}
			r, err := recordOf(ctx, f, c)
			if err != nil {
				return err
			}
			if !strings.HasPrefix(names, m.names) || (names == "") != (m.names == "") || len(r.Members) != 2 || r.Votes != m.votes {
				return fmt.Errorf("synchronous_standby_names is %q; the record is %s", names, r)
			}
			return nil
		})
		c.AwaitCondition(v1.ConditionFailoverReady, metav1.ConditionTrue, "can take over")
		c.AwaitReady()
		awaitMoreRows(f, c, primary)
		if m.durability == v1.DurabilityPreferred && m.mode == v1.ReplicationSync {
			goOnAlone(f, c, primary)
		}
	}

	if err := stop(); err != nil {
		t.Errorf("the session: %v", err)
	}
	if got := c.SQL(framework.RW, "select count(distinct backend), count(*) = max(n) from written"); got != "1|t" {
		t.Errorf("backends of the session, and whether all rows are there: %s", got)
	}
	if c.Primary() != primary {
		t.Errorf("the primary is %s, and was %s", c.Primary(), primary)
	}
	if n := replaced(before, podUIDs(c)); n != 0 {
		t.Errorf("%d pods were replaced", n)
	}
	if now := serverStarts(c); now != began {
		t.Errorf("servers started at %s, and before at %s", now, began)
	}
}

// awaitMoreRows waits until the client has written some more.
func awaitMoreRows(f *framework.Framework, c *framework.Cluster, primary string) {
	f.T.Helper()
	const count = `\c app
		select count(*) from written`
	before := c.SQLIn(primary, count)
	f.Await(framework.Patience, "the client writes on", func(ctx context.Context) error {
		now, err := c.TrySQLIn(ctx, primary, count)
		if err == nil && now == before {
			err = fmt.Errorf("%s rows, as before", now)
		}
		return err
	})
}

// goOnAlone lets every replica be silent in mode preferred: the primary goes on
// alone, and the status says that nobody could take over. Then they are back.
func goOnAlone(f *framework.Framework, c *framework.Cluster, primary string) {
	f.T.Helper()
	receivers := map[string]string{}
	for instance := range c.Pods() {
		if instance != primary {
			receivers[instance] = c.SQLIn(instance, "select pid from pg_stat_wal_receiver")
			c.Shell(instance, "kill -STOP "+receivers[instance])
		}
	}
	c.AwaitCondition(v1.ConditionFailoverReady, metav1.ConditionFalse, "nobody could take over")
	awaitMoreRows(f, c, primary)
	for instance, pid := range receivers {
		c.Shell(instance, "kill -CONT "+pid+" || true") // it may have ended
	}
	c.AwaitCondition(v1.ConditionFailoverReady, metav1.ConditionTrue, "can take over")
	c.AwaitReady()
}

// recordOf is what the Lease says of the reign.
func recordOf(ctx context.Context, f *framework.Framework, c *framework.Cluster) (election.Record, error) {
	lease, err := f.Kube.CoordinationV1().Leases(f.Namespace).Get(ctx, c.Name, metav1.GetOptions{})
	if err != nil {
		return election.Record{}, err
	}
	return election.ParseRecord(lease.Annotations[election.RecordAnnotation])
}
