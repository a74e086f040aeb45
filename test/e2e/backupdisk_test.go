//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/test/e2e/framework"
)

// D-14, C-08: the store is away until the volume for WAL is full. The condition warns
// while the server still serves, and that ends only when the disk does. Once the store is
// back and the volume has grown, what was acknowledged is there, and goes into the archive.
func TestD14StoreIsAwayUntilTheDiskIsFull(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	bucket := f.StartBucket()
	bucket.PutLogin(bucket.Login.Secret)
	c := f.Create("fills", walOfSize("320Mi"), bucket.BackUp())
	c.AwaitReady()
	c.SQL(framework.RW, "create table kept (n int)")
	switchWAL(f, c)
	bucket.Stop()

	acknowledged, served := 0, true
	// until writes, until a condition has that reason, a segment of WAL each time; but none
	// more once the volume is so full, in percent.
	until := func(kind, reason string, most int) (message string) {
		t.Helper()
		f.Await(2*framework.Patience, kind+" says "+reason, func(ctx context.Context) error {
			_, err := c.TrySQL(ctx, framework.RW, fmt.Sprintf("insert into kept values (%d)", acknowledged+1))
			if served = err == nil; served {
				acknowledged++
				const another = `test "$(df --output=pcent /pgwal | tail -n 1 | tr -dc 0-9)" -gt %d || psql -X -q -c 'select pg_switch_wal()'`
				_, _ = c.TryShell(ctx, "fills-1", fmt.Sprintf(another, most)) // it fails when there is no room
			}
			live, err := c.Get(ctx)
			if err != nil {
				return err
			}
			condition := meta.FindStatusCondition(live.Status.Conditions, kind)
			if condition == nil || condition.Reason != reason {
				return errors.Join(errors.New(framework.Summary(live)), framework.Sleep(ctx, time.Second))
			}
			message = condition.Message
			return nil
		})
		return message
	}
	const warned, full = 82, 100
	t.Logf("the warning: %s", until(v1.ConditionArchivingWAL, v1.ReasonArchiveFillsDisk, warned))
	if !served {
		t.Error("the warning came when the server served no more")
	}
	t.Logf("in the end: %s", until(v1.ConditionPrimaryAvailable, v1.ReasonDiskFull, full))

	bucket.Run()
	c.Edit(walOfSize("640Mi"))
	c.AwaitReady()
	c.AwaitCondition(v1.ConditionArchivingWAL, metav1.ConditionTrue)
	c.AwaitRows(framework.RW, fmt.Sprintf("select count(*) >= %d from kept", acknowledged), "t")
	f.Await(framework.Patience, "the archive has everything", func(ctx context.Context) error {
		waiting, err := c.TrySQLIn(ctx, "fills-1", "select count(*) from pg_ls_archive_statusdir() where name like '%.ready'")
		if err != nil {
			return err
		}
		return framework.Want("segments that wait", waiting, "0")
	})
	neverRestarted(t, c, "fills-1")
}

// D-15: without backups no WAL is kept: twice what the volume for it holds is written,
// and the server serves on.
func TestD15WithoutBackupsWALIsRecycled(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	c := f.Create("recycles", walOfSize("320Mi"))
	c.AwaitReady()
	began := c.SQLIn("recycles-1", "select pg_current_wal_lsn()")
	f.Await(3*framework.Patience, "twice the volume is written", func(ctx context.Context) error {
		if _, err := c.TrySQL(ctx, framework.RW, writeWAL); err != nil {
			return err
		}
		enough, err := c.TrySQLIn(ctx, "recycles-1", "select pg_wal_lsn_diff(pg_current_wal_lsn(), '"+began+"') >= 640 * 1048576.0")
		if err != nil {
			return err
		}
		return framework.Want("enough", enough, "t")
	})
	if got := c.SQLIn("recycles-1", "select sum(size) < 300 * 1048576.0 from pg_ls_waldir()"); got != "t" {
		t.Errorf("pg_wal has %s bytes", c.SQLIn("recycles-1", "select sum(size) from pg_ls_waldir()"))
	}
	c.AwaitReady()
	neverRestarted(t, c, "recycles-1")
}
