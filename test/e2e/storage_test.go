//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/test/e2e/framework"
)

// dataOfSize and walOfSize ask for volumes of that size.
func dataOfSize(text string) framework.Modifier {
	return func(c *v1.PostgresCluster) { c.Spec.Storage.Size = resource.MustParse(text) }
}

func walOfSize(text string) framework.Modifier {
	return func(c *v1.PostgresCluster) { c.Spec.Storage.WAL = &v1.WALStorageSpec{Size: resource.MustParse(text)} }
}

// wantWALApart checks that instances have their WAL on the WAL volume.
func wantWALApart(t *testing.T, c *framework.Cluster, instances ...string) {
	t.Helper()
	for _, instance := range instances {
		got := c.Shell(instance, "stat -c %m $(readlink -f /pgdata/17/data/pg_wal); ls /pgwal/17 | wc -l")
		if got != "/pgwal\n1" {
			t.Errorf("where %s has its WAL, and how many directories of it there are: %q", instance, got)
		}
	}
}

// awaitVolume waits until the status says of a volume what is wanted.
func awaitVolume(f *framework.Framework, c *framework.Cluster, name string, state v1.VolumeState, actual string) {
	f.T.Helper()
	f.Await(framework.Patience, fmt.Sprintf("volume %s is %s with %s", name, state, actual), func(ctx context.Context) error {
		live, err := c.Get(ctx)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(live.Status.Volumes, func(v v1.VolumeStatus) bool { return v.Name == name })
		if i < 0 {
			return fmt.Errorf("volumes: %+v", live.Status.Volumes)
		}
		v := live.Status.Volumes[i]
		return errors.Join(framework.Want("state", v.State, state), framework.Want("size", v.Actual, actual))
	})
}

// C-08: a volume is filled until the server panics; the pod and its volume stay, the
// status says what is full, and larger volumes bring it back with every row.
func TestC08FullVolumeGrows(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, mount, volume, field string
		with                       framework.Modifier
		larger                     framework.Modifier
	}{
		{"data", "/pgdata", "full-1", "spec.storage.size", func(*v1.PostgresCluster) {}, dataOfSize("768Mi")},
		{"wal", "/pgwal", "full-1-wal", "spec.storage.wal.size", walOfSize("320Mi"), walOfSize("768Mi")},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			f := framework.New(t)
			c := f.Create("full", test.with)
			c.AwaitReady()
			pod, volume := c.Pod("full-1"), c.Volume("full-1")
			c.SQL(framework.RW, "create table kept (n int)")
			// What WAL frees meanwhile is taken again.
			c.Shell("full-1", "cat /dev/zero >"+test.mount+"/ballast 2>/dev/null || true")
			acknowledged := 0
			f.Await(framework.Patience, "the server panics for want of space", func(ctx context.Context) error {
				if _, err := c.TrySQL(ctx, framework.RW, fmt.Sprintf("insert into kept values (%d)", acknowledged+1)); err == nil {
					acknowledged++
				}
				_, _ = c.TryShell(ctx, "full-1", "cat /dev/zero >>"+test.mount+"/ballast 2>/dev/null; psql -c 'select pg_switch_wal()'")
				live, err := c.Get(ctx)
				if err != nil {
					return err
				}
				for _, condition := range live.Status.Conditions {
					if condition.Type == v1.ConditionPrimaryAvailable && condition.Reason == v1.ReasonDiskFull &&
						strings.Contains(condition.Message, "volume "+test.volume+" is full: raise "+test.field) {
						return nil
					}
				}
				return errors.New(framework.Summary(live))
			})
			if acknowledged == 0 {
				t.Fatal("no row was acknowledged")
			}
			awaitVolume(f, c, test.volume, v1.VolumeFull, c.Volume(test.volume).Status.Capacity.Storage().String())
			c.Edit(test.larger)
			c.AwaitReady()
			awaitVolume(f, c, test.volume, v1.VolumeReady, "768Mi")
			c.AwaitRows(framework.RW, fmt.Sprintf("select count(*) >= %d from kept", acknowledged), "t")
			if now := c.Pod("full-1"); now.UID != pod.UID || c.Volume("full-1").UID != volume.UID {
				t.Error("the pod or its volume is another")
			}
		})
	}
}

// C-08: the volume of a primary fills up while its replica has room. The server still
// serves then, and so it hands over in order: no acknowledged row is lost, though no
// standby had to have it, and the former primary follows as it is.
func TestC08FullPrimaryHandsOverInOrder(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	c := f.Create("full", framework.Instances(2))
	c.AwaitReady()
	c.SQL(framework.RW, "create table kept (n int)")
	c.Shell("full-1", "cat /dev/zero >/pgdata/ballast 2>/dev/null; truncate -s -6M /pgdata/ballast")
	acknowledged := 0
	f.Await(framework.Patience, "the replica with room takes over", func(ctx context.Context) error {
		if _, err := c.TrySQL(ctx, framework.RW, fmt.Sprintf("insert into kept values (%d)", acknowledged+1)); err == nil {
			acknowledged++
		}
		lease, err := f.Kube.CoordinationV1().Leases(f.Namespace).Get(ctx, c.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if holder := ptr.Deref(lease.Spec.HolderIdentity, ""); !strings.HasPrefix(holder, "full-2") {
			return fmt.Errorf("the Lease is held by %q", holder)
		}
		return nil
	})
	c.Shell("full-1", "rm /pgdata/ballast")
	c.AwaitReady()
	c.AwaitRows(framework.RW, fmt.Sprintf("select count(*) >= %d from kept", acknowledged), "t")
	wantStreaming(t, c, 2)
	log := f.Kubectl("logs", "full-1")
	if !strings.Contains(log, "released the Lease") || strings.Contains(log, "handing over in order failed") || strings.Contains(log, "rewinding this instance") {
		t.Errorf("it did not hand over in order, or was rewound; its log:\n%s", log)
	}
}

// Volumes of both kinds grow while the servers run, and nothing restarts.
func TestVolumesGrowOnline(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	c := f.Create("grow", framework.Instances(2), walOfSize("320Mi"))
	c.AwaitReady()
	wantWALApart(t, c, "grow-1", "grow-2")
	before := c.Pods()
	c.SQL(framework.RW, "create table kept as select generate_series(1, 1000) as n")
	c.Edit(dataOfSize("1Gi"), walOfSize("640Mi"))
	for _, name := range []string{"grow-1", "grow-2"} {
		awaitVolume(f, c, name, v1.VolumeReady, "1Gi")
		awaitVolume(f, c, name+"-wal", v1.VolumeReady, "640Mi")
		for mount, least := range map[string]string{"/pgdata": "900", "/pgwal": "550"} {
			if got := c.Shell(name, "test $(df --output=size -BM "+mount+" | tail -1 | tr -d M) -gt "+least+" && echo larger"); got != "larger" {
				t.Errorf("%s of %s is smaller than %s MiB", mount, name, least)
			}
		}
	}
	c.AwaitReady()
	c.AwaitCondition(v1.ConditionUpToDate, metav1.ConditionTrue)
	for name, pod := range c.Pods() {
		if pod.UID != before[name].UID || pod.Status.ContainerStatuses[0].RestartCount != 0 {
			t.Errorf("%s has restarted", name)
		}
	}
	// WAL may take more room than before.
	c.AwaitRows(framework.RW, "show max_wal_size", "160MB")
	c.AwaitRows(framework.RO, "select count(*) from kept", "1000")
}

// A running cluster gets WAL volumes: each instance restarts once, moves its WAL and
// has the data that it had. With its WAL volume taken away, a replica is cloned.
func TestWALVolumesForARunningCluster(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	c := f.Create("late", framework.Instances(2))
	c.AwaitReady()
	c.SQL(framework.RW, "create table kept as select generate_series(1, 1000) as n")
	pods, data := map[string]types.UID{}, map[string]string{}
	for _, name := range []string{"late-1", "late-2"} {
		pods[name], data[name] = c.Pod(name).UID, c.Shell(name, "cat /pgdata/17/data-id")
	}
	c.Edit(walOfSize("320Mi"))
	for name, uid := range pods {
		c.AwaitNewPod(name, uid)
		if now := c.Shell(name, "cat /pgdata/17/data-id"); now != data[name] {
			t.Errorf("%s has other data than before: %s instead of %s", name, now, data[name])
		}
	}
	wantWALApart(t, c, "late-1", "late-2")
	c.AwaitCondition(v1.ConditionUpToDate, metav1.ConditionTrue)
	wantStreaming(t, c, 2)

	replica := map[string]string{"late-1": "late-2", "late-2": "late-1"}[c.Primary()]
	old := c.Pod(replica).UID
	c.DeleteVolume(replica + "-wal")
	c.AwaitNewPod(replica, old)
	if now := c.Shell(replica, "cat /pgdata/17/data-id"); now == data[replica] {
		t.Error("the replica runs on data whose WAL is gone")
	}
	wantWALApart(t, c, replica)
	c.AwaitRows(framework.RO, "select count(*) from kept", "1000")
}

// a replica moves to a volume of another class by a reclone.
func TestA25ReplicaMovesToAnotherClass(t *testing.T) {
	t.Parallel()
	framework.LocalOnly(t)
	f := framework.New(t)
	c := f.Create("move", framework.Instances(2))
	c.AwaitReady()
	c.SQL(framework.RW, "create table kept as select generate_series(1, 1000) as n")
	c.Edit(func(c *v1.PostgresCluster) { c.Spec.Storage.Class = "local-fixed" })
	c.AwaitCondition(v1.ConditionUpToDate, metav1.ConditionFalse, "existing volumes keep their storage class", v1.RecloneAnnotation)
	replica := map[string]string{"move-1": "move-2", "move-2": "move-1"}[c.Primary()]
	old := c.Pod(replica).UID
	f.Kubectl("annotate", "pg/move", v1.RecloneAnnotation+"="+replica)
	c.AwaitNewPod(replica, old)
	if got := ptr.Deref(c.Volume(replica).Spec.StorageClassName, ""); got != "local-fixed" {
		t.Errorf("the replica's volume is of class %s", got)
	}
	c.AwaitRows(framework.RO, "select count(*) from kept", "1000")
	f.Await(framework.Patience, "the request is done", func(ctx context.Context) error {
		live, err := c.Get(ctx)
		if err != nil {
			return err
		}
		_, asked := live.Annotations[v1.RecloneAnnotation]
		return framework.Want("asked", asked, false)
	})
}
