//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/test/e2e/framework"
)

// C-22: the primary's pod and volume are deleted together: another takes over, and
// the instance is made anew from that one.
func TestC22PrimaryLosesPodAndVolume(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	c := f.Create("lose", framework.Instances(3))
	c.AwaitReady()
	c.SQL(framework.RW, "create table kept as select 1 as n")
	former := c.Pod(c.Primary())
	volume, data := c.Volume(former.Name).UID, c.Shell(former.Name, "cat /pgdata/17/data-id")
	f.Kubectl("delete", "--wait=false", "pod/"+former.Name, "pvc/"+former.Name)
	f.Await(framework.Patience, "another primary takes writes", func(ctx context.Context) error {
		served, err := c.TrySQL(ctx, framework.RW, "insert into kept values (2) returning current_setting('cluster_name')")
		if err == nil && served == former.Name {
			err = fmt.Errorf("%s still serves", served)
		}
		return err
	})
	c.AwaitNewPod(former.Name, former.UID)
	if c.Primary() == former.Name {
		t.Errorf("the primary is %s, which had lost its data", former.Name)
	}
	if c.Volume(former.Name).UID == volume || c.Shell(former.Name, "cat /pgdata/17/data-id") == data {
		t.Errorf("%s has the volume or the data that it had", former.Name)
	}
	wantStreaming(t, c, 3)
	if got := c.SQLIn(former.Name, "\\c app\nselect count(distinct n) from kept"); got != "2" {
		t.Errorf("%s has %s of 2 rows", former.Name, got)
	}
}

// C-22: the only instance's pod and volume are deleted together: the status says that
// the data is lost and what to do, and no empty database appears under the name.
func TestC22OnlyInstanceLosesPodAndVolume(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	c := f.Create("lost")
	c.AwaitReady()
	c.SQL(framework.RW, "create table kept as select 1 as n")
	old, id := c.Pod("lost-1").UID, c.Live().Status.SystemID
	f.Kubectl("delete", "--wait=false", "pod/lost-1", "pvc/lost-1")
	message := c.AwaitCondition(v1.ConditionPrimaryAvailable, metav1.ConditionFalse, "no data", "restore")
	t.Logf("PrimaryAvailable says: %s", message)
	c.AwaitCondition(v1.ConditionReady, metav1.ConditionFalse)
	f.Hold(5*time.Second, "no database appears", func(ctx context.Context) error {
		live, err := c.Get(ctx)
		if err != nil {
			return err
		}
		if reason := conditionOf(live, v1.ConditionPrimaryAvailable).Reason; reason != v1.ReasonDataLost || live.Status.Phase == v1.PhaseHealthy {
			return errors.New(framework.Summary(live))
		}
		if said, err := c.TryShell(ctx, "lost-1", `ls "$PGDATA/PG_VERSION"`); err == nil {
			return fmt.Errorf("a database is there: %s", said)
		}
		return errors.Join(framework.Want("ready instances", live.Status.ReadyInstances, 0), framework.Want("the system id", live.Status.SystemID, id))
	})
	if c.Pod("lost-1").UID == old {
		t.Error("the pod is the old one")
	}
	if rows, err := c.TrySQL(t.Context(), framework.RW, "select 1"); err == nil {
		t.Errorf("a server answers: %s", rows)
	}
}

// C-27: the primary's server is dead and its pod stays Terminating. The new primary
// waits for live standbys only, and writes go on. When more acknowledgements are
// asked for than there are live standbys, commits wait and a condition says why.
func TestC27DeadPrimaryStaysTerminating(t *testing.T) {
	framework.LocalOnly(t)
	t.Parallel()
	f := framework.New(t)
	c := f.Create("dead", framework.Instances(3), replication(v1.ReplicationSync, 1, v1.DurabilityRequired))
	c.AwaitReady()
	c.SQL(framework.RW, "create table kept as select 1 as n")
	former := c.Pod(c.Primary())

	release := f.HoldContainers(string(former.UID)) // so that it is never told to stop
	killServer(f, string(former.UID))
	c.DeletePod(former.Name)
	primary := c.AwaitWrites(former.Name, "insert into kept values (2)")
	isListed := func(ctx context.Context) error {
		names, err := c.TrySQLIn(ctx, primary, "show synchronous_standby_names")
		if err != nil {
			return err
		}
		if !strings.HasPrefix(names, "ANY 1 (") || strings.Count(names, ".") != 1 || strings.Contains(names, former.Name+".") || strings.Contains(names, primary+".") {
			return fmt.Errorf("synchronous_standby_names is %s, with %s dead and %s the primary", names, former.Name, primary)
		}
		return nil
	}
	f.Await(framework.Patience, "the live standby alone is listed", isListed)
	f.Hold(5*time.Second, "writes go on while the old pod is Terminating", func(ctx context.Context) error {
		if now := c.Pod(former.Name); now.UID != former.UID || now.DeletionTimestamp == nil {
			return fmt.Errorf("pod %s is not the one that is Terminating", now.Name)
		}
		writing, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		_, err := c.TrySQL(writing, framework.RW, "insert into kept values (3)")
		return errors.Join(err, isListed(ctx))
	})
	c.AwaitCondition(v1.ConditionReplicating, metav1.ConditionFalse, "not streaming: "+former.Name)

	c.Edit(replication(v1.ReplicationSync, 2, v1.DurabilityRequired))
	message := c.AwaitCondition(v1.ConditionReplicating, metav1.ConditionFalse, former.Name, "commits wait")
	t.Logf("Replicating says: %s", message)
	written := make(chan error, 1)
	go func() {
		_, err := c.TrySQL(t.Context(), framework.RW, "insert into kept values (4)")
		written <- err
	}()
	select {
	case err := <-written:
		t.Errorf("a commit that wants two standbys did not wait for the second: %v", err)
		written <- nil
	case <-time.After(3 * time.Second):
	}
	release()
	if err := <-written; err != nil {
		t.Errorf("the commit that waited: %v", err)
	}
	c.AwaitNewPod(former.Name, former.UID)
	wantStreaming(t, c, 3)
	c.AwaitRows(framework.RO, "select count(distinct n) from kept", "4")
}

// killServer kills the agent and every process of the server in a pod.
func killServer(f *framework.Framework, podUID string) {
	f.T.Helper()
	all, err := framework.Processes(podUID)
	if err != nil {
		f.T.Fatal(err)
	}
	for _, p := range all {
		if p.Command == "postgres" || strings.HasPrefix(p.Command, "postgres-operat") {
			if err := syscall.Kill(p.PID, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				f.T.Fatal(err)
			}
		}
	}
}
