//go:build e2e

package api

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/test/api/framework"
)

// One backup runs, and another, whose name comes first, is asked for: it says what it
// waits for, and comes when the first has ended.
func TestD03QueuedBackupSaysWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	f.StartOperator()
	f.Kubelet.Script("shop-1", framework.Script{TakesLong: true})
	f.Create("shop", framework.BackUp()).AwaitReady()
	f.CreateBackup("z-1", "shop", v1.BackupFull)
	f.AwaitBackup("z-1", v1.BackupRunning)
	f.CreateBackup("a-2", "shop", v1.BackupFull)
	f.AwaitBackup("a-2", v1.BackupPending, "waits until z-1 has ended")
	f.Kubelet.Script("shop-1", framework.Script{})
	f.AwaitBackup("z-1", v1.BackupCompleted)
	f.AwaitBackup("a-2", v1.BackupCompleted)
	if stored := f.Kubelet.Stored("shop"); len(stored) != 2 || stored[0].Name != "z-1" {
		t.Errorf("in the store: %+v", stored)
	}
}

// A backup of a cluster that is not there says so, and is taken when there is one. One
// that runs when its cluster is deleted does not run for ever.
func TestD03BackupOfNoCluster(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	f.StartOperator()
	f.CreateBackup("early", "shop", v1.BackupFull)
	f.AwaitBackup("early", v1.BackupPending, "there is no PostgresCluster shop")
	shop := f.Create("shop")
	f.AwaitBackup("early", v1.BackupPending, "spec.backup")
	shop.Edit(framework.BackUp())
	shop.AwaitReady()
	f.AwaitBackup("early", v1.BackupCompleted)
	f.Kubelet.Script("shop-1", framework.Script{TakesLong: true})
	f.CreateBackup("late", "shop", v1.BackupFull)
	f.AwaitBackup("late", v1.BackupRunning)
	shop.Delete()
	f.AwaitBackup("late", v1.BackupFailed, "PostgresCluster shop was deleted")
	f.AwaitBackup("early", v1.BackupCompleted) // the store has it
}

// What the schedule would make is there already: that time is done, and the next one
// comes.
func TestD04ScheduledBackupIsThereAlready(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	op := f.StartOperator()
	const cron = "0 0 1 1 *"
	shop := f.Create("shop", framework.BackUp(v1.BackupSchedule{Name: "yearly", Cron: cron}))
	shop.AwaitReady()
	op.Stop()
	year := time.Now().UTC().Year()
	name := fmt.Sprintf("shop-yearly-%d0101-0000", year)
	f.CreateBackup(name, "shop", v1.BackupFull)
	overdue(f, shop, time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC))
	f.StartOperator()
	f.AwaitBackup(name, v1.BackupCompleted)
	f.Await("the next time is in the status", func(ctx context.Context) error {
		live, err := shop.Get(ctx)
		if err != nil {
			return err
		}
		row := live.Status.Backup.Schedules[0]
		return framework.Want("next", row.Next.Time.UTC(), time.Date(year+1, 1, 1, 0, 0, 0, 0, time.UTC))
	})
}

// overdue lets the first schedule of a cluster be due since then.
func overdue(f *framework.Framework, c *framework.Cluster, since time.Time) {
	f.T.Helper()
	f.Await("the status is written", func(ctx context.Context) error {
		live, err := c.Get(ctx)
		if err != nil {
			return err
		}
		next := metav1.NewTime(since)
		live.Status.Backup.Schedules[0].Next = &next
		_, err = f.Postgres.PgopV1().PostgresClusters(f.Namespace).UpdateStatus(ctx, live, metav1.UpdateOptions{})
		return err
	})
}

// The store has the last word: objects that are deleted come back, and those of
// backups that are gone from the store go. An idle cluster costs nothing.
func TestObjectsFollowTheStore(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	op := f.StartOperator()
	f.Create("shop", framework.Instances(2), framework.BackUp()).AwaitReady()
	f.CreateBackup("first", "shop", v1.BackupFull)
	first := f.AwaitBackup("first", v1.BackupCompleted)
	if first.Status.Instance != "shop-2" {
		t.Errorf("%s took it, and there is a replica", first.Status.Instance)
	}
	f.DeleteBackup("first")
	f.Await("it comes back, with its id", func(ctx context.Context) error {
		again, err := f.Postgres.PgopV1().PostgresBackups(f.Namespace).Get(ctx, "first", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if again.UID == first.UID {
			return errors.New("it is still the old one")
		}
		return framework.Want("id", again.Status.ID, first.Status.ID)
	})
	f.AwaitBackup("first", v1.BackupCompleted)

	f.Await("nothing is left to do", func(context.Context) error {
		mark, reads := op.Proxy.Mark(), f.Kubelet.CatalogReads()
		f.Pause(3 * time.Second)
		if writes := framework.Writes(op.Proxy.Since(mark)); len(writes) > 0 {
			return fmt.Errorf("written: %v", writes)
		}
		return framework.Want("reads of the catalog", f.Kubelet.CatalogReads(), reads)
	})

	f.Kubelet.Store("shop", func([]instanceapi.BackupInfo) []instanceapi.BackupInfo { return nil })
	f.Await("its object goes", func(ctx context.Context) error {
		_, err := f.Postgres.PgopV1().PostgresBackups(f.Namespace).Get(ctx, "first", metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is there: %v", err)
		}
		return nil
	})
}

// A cluster that is to be made of a backup waits for it, and is made when that is
// complete.
func TestD17RestoreWaitsForItsBackup(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	f.StartOperator()
	f.Kubelet.Script("shop-1", framework.Script{TakesLong: true})
	f.Kubelet.Script("copy-1", framework.Script{Unschedulable: "not yet"}) // once there is a database, nobody is told of the backup
	f.Create("shop", framework.BackUp()).AwaitReady()
	copied := f.Create("copy", func(c *v1.PostgresCluster) {
		c.Spec.Bootstrap = &v1.BootstrapSpec{Restore: &v1.RestoreSource{Backup: "first"}}
	})
	copied.AwaitCondition(v1.ConditionSpecAccepted, metav1.ConditionFalse, "there is no PostgresBackup first")
	f.CreateBackup("first", "shop", v1.BackupFull)
	f.AwaitBackup("first", v1.BackupRunning)
	copied.AwaitCondition(v1.ConditionPrimaryAvailable, metav1.ConditionFalse, "backup first is not complete yet")
	f.Kubelet.Script("shop-1", framework.Script{})
	first := f.AwaitBackup("first", v1.BackupCompleted)
	f.Await("the agent is told which backup it is", func(ctx context.Context) error {
		config, err := copied.Told(ctx)
		if err != nil {
			return err
		}
		if config.Bootstrap.Restore == nil {
			return errors.New("none")
		}
		if prefix := config.Bootstrap.Restore.Store.S3.Prefix; prefix != "shop" {
			return fmt.Errorf("it is looked for in %s", prefix)
		}
		return framework.Want("id", config.Bootstrap.Restore.ID, first.Status.ID)
	})
	f.Kubelet.Script("copy-1", framework.Script{})
	copied.AwaitReady()
}
