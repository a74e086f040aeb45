//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/test/e2e/framework"
)

// insert puts a row into the table of a restore's story, and returns the server's time
// after it.
func insert(c *framework.Cluster, row string) (after string) {
	c.SQL(framework.RW, "insert into story values ('"+row+"')")
	return c.SQL(framework.RW, `select to_char(clock_timestamp() at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')`)
}

const story = "select string_agg(row, ',' order by row) from story"

// switchWAL lets the primary hand what it has written to the archive, and waits until
// that has it.
func switchWAL(f *framework.Framework, c *framework.Cluster) {
	primary := c.Primary()
	file := c.SQLIn(primary, "select pg_walfile_name(pg_switch_wal())")
	f.Await(time.Minute, file+" is in the archive", func(ctx context.Context) error {
		got, err := c.TrySQLIn(ctx, primary, "select coalesce(last_archived_wal, '') from pg_stat_archiver")
		if err == nil && strings.TrimSpace(got) < file {
			err = fmt.Errorf("the last is %s", got)
		}
		return err
	})
}

// From a Secret that is not there yet to a cluster of which only the bucket is left.
func TestD11D13D16FromTheFirstBackupToTheBucketAlone(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	bucket := f.StartBucket()
	c := f.Create("shop", framework.Instances(2), bucket.BackUp())
	c.AwaitCondition(v1.ConditionPrimaryAvailable, metav1.ConditionTrue)
	c.SQLIn(c.Primary(), "select pg_switch_wal()")
	// D-13: the login is missing, then wrong, then right; nothing else is touched.
	c.AwaitCondition(v1.ConditionArchivingWAL, metav1.ConditionFalse, framework.BucketLogin)
	bucket.PutLogin("wrong")
	message := c.AwaitCondition(v1.ConditionArchivingWAL, metav1.ConditionFalse, "signature")
	t.Logf("with a wrong login: %s", message)
	bucket.PutLogin(bucket.Login.Secret)
	c.AwaitCondition(v1.ConditionArchivingWAL, metav1.ConditionTrue)
	c.AwaitReady()

	// D-16: the database is empty and idle.
	c.BackUp("first", v1.BackupFull)
	first := f.AwaitBackup(2*time.Minute, "first", v1.BackupCompleted)
	if first.Status.Instance == c.Primary() {
		t.Errorf("%s took it, which is the primary", first.Status.Instance)
	}
	c.AwaitCondition(v1.ConditionBackedUp, metav1.ConditionTrue, "first")

	c.SQL(framework.RW, "create table story (row text)")
	target := insert(c, "before")
	insert(c, "later")
	switchWAL(f, c)
	c.BackUp("second", v1.BackupIncremental)
	second := f.AwaitBackup(2*time.Minute, "second", v1.BackupCompleted)
	if second.Status.Parent != first.Status.ID {
		t.Errorf("it goes on from %q", second.Status.Parent)
	}

	past := f.Create("past", framework.Restore(v1.RestoreSource{Backup: "first", Target: v1.RestoreTarget{Time: target}}))
	past.AwaitReady()
	if rows := past.SQL(framework.RW, story); rows != "before" {
		t.Errorf("at %s there are the rows %s", target, rows)
	}
	past.Delete()

	// D-08: nobody has committed anything by then.
	late := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	never := f.Create("never", framework.Restore(v1.RestoreSource{Backup: "first", Target: v1.RestoreTarget{Time: late}}))
	message = never.AwaitCondition(v1.ConditionPrimaryAvailable, metav1.ConditionFalse, "the archive ends before target", "can be reached")
	t.Logf("a target that is too late: %s", message)
	never.Delete()

	// D-11: nothing is left but the bucket and its login.
	c.Delete()
	for _, name := range []string{"first", "second"} {
		if err := f.Postgres.PgopV1().PostgresBackups(f.Namespace).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	c.AwaitGone()
	store := bucket.Store()
	again := f.Create("shop", framework.Instances(2), bucket.BackUp(), framework.Restore(v1.RestoreSource{Store: &store, Cluster: "shop"}))
	again.AwaitReady()
	if rows := again.SQL(framework.RW, story); rows != "before,later" {
		t.Errorf("from the bucket there are the rows %s", rows)
	}
	f.AwaitBackup(time.Minute, "first", v1.BackupCompleted)
	insert(again, "new")
	switchWAL(f, again)
	again.AwaitCondition(v1.ConditionArchivingWAL, metav1.ConditionTrue)
}

// A pod is deleted while it takes a backup: that ends with the cause, and the next one
// is taken.
func TestD01PodIsKilledDuringABackup(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	bucket := f.StartBucket()
	bucket.PutLogin(bucket.Login.Secret)
	c := f.Create("shop", framework.Instances(2), bucket.BackUp(), func(c *v1.PostgresCluster) {
		c.Spec.Backup.MaxRate = ptr.To(resource.MustParse("64Ki")) // minutes
	})
	c.AwaitReady()
	c.BackUp("big", v1.BackupFull)
	big := f.AwaitBackup(time.Minute, "big", v1.BackupRunning)
	c.BackUp("next", v1.BackupFull)
	f.AwaitBackup(time.Minute, "next", v1.BackupPending, "waits until big has ended")
	c.DeletePod(big.Status.Instance)
	failed := f.AwaitBackup(time.Minute, "big", v1.BackupFailed)
	t.Logf("it has failed: %s", failed.Status.Message)
	if failed.Status.Message == "" {
		t.Error("and nobody says why")
	}
	c.AwaitCondition(v1.ConditionBackedUp, metav1.ConditionFalse, "big has failed")
	f.AwaitBackup(2*time.Minute, "next", v1.BackupRunning)
	c.Edit(func(c *v1.PostgresCluster) { c.Spec.Backup.MaxRate = nil })
	if err := f.Postgres.PgopV1().PostgresBackups(f.Namespace).Delete(t.Context(), "next", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.AwaitReady()
	c.BackUp("last", v1.BackupFull)
	f.AwaitBackup(2*time.Minute, "last", v1.BackupCompleted)
	c.AwaitCondition(v1.ConditionBackedUp, metav1.ConditionTrue, "last")
	if left := c.SQLIn(c.Primary(), "select count(*) from pg_stat_progress_basebackup"); left != "0" {
		t.Errorf("%s base backups still run", left)
	}
}

// The store goes away and comes back: the condition says so in its words, the servers
// serve all the time, and afterwards only the time of the failure is left. A schedule
// goes on.
func TestD14F07StoreGoesAwayAndComesBack(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	bucket := f.StartBucket()
	bucket.PutLogin(bucket.Login.Secret)
	c := f.Create("shop", bucket.BackUp(v1.BackupSchedule{Name: "often", Cron: "* * * * *"}))
	c.AwaitReady()
	c.SQL(framework.RW, "create table story (row text)")
	bucket.Stop()
	insert(c, "while it is away")
	c.SQLIn(c.Primary(), "select pg_switch_wal()")
	message := c.AwaitCondition(v1.ConditionArchivingWAL, metav1.ConditionFalse, "connection refused")
	t.Logf("while the store is away: %s", message)
	insert(c, "and still")
	bucket.Run()
	c.AwaitCondition(v1.ConditionArchivingWAL, metav1.ConditionTrue)
	f.Await(framework.Patience, "a scheduled backup is complete, and the next one has a time", func(ctx context.Context) error {
		live, err := c.Get(ctx)
		if err != nil {
			return err
		}
		switch s := live.Status.Backup; {
		case s == nil || s.ArchiveFailedAt == nil:
			return errors.New("no time of the failure")
		case len(s.Schedules) != 1 || s.Schedules[0].Last == nil || s.Schedules[0].Next == nil || s.Count == 0:
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
}

// E-06: backups fail one after the other, at the first part that the store refuses.
// The agent has as many connections and open files after five more as after the first,
// and everything else goes on.
func TestE06BackupsThatFailLeaveNothingOpen(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	bucket := f.StartBucket()
	bucket.PutLogin(bucket.Login.Secret)
	c := f.Create("leak", bucket.BackUp())
	c.AwaitReady()
	c.SQL(framework.RW, "create table kept as select 1 as n")
	switchWAL(f, c)
	fail := func(name string) {
		t.Helper()
		c.BackUp(name, v1.BackupFull)
		f.AwaitBackup(time.Minute, name, v1.BackupFailed, "write leak/")
	}
	// The store refuses what begins with the name of a file.
	folders, err := filepath.Glob(filepath.Join(bucket.Objects(), "leak", "*", "17"))
	if err != nil || len(folders) != 1 {
		t.Fatalf("the archive is in %v (%v)", folders, err)
	}
	if err := os.WriteFile(filepath.Join(folders[0], "base"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	fail("zeroth")
	open := func(ctx context.Context) (connections, files int, err error) {
		const look = `psql -X -q -A -t -d postgres -c "select count(*) from pg_stat_activity where backend_type in ('client backend', 'walsender') and pid <> pg_backend_pid()"
			ls /proc/1/fd | wc -l`
		text, err := c.TryShell(ctx, "leak-1", look)
		if err == nil {
			_, err = fmt.Sscan(text, &connections, &files)
		}
		return connections, files, err
	}
	connections, files, err := open(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	for _, name := range []string{"first", "second", "third", "fourth", "fifth"} {
		fail(name)
	}
	// Two of each come and go with what the agent does at the moment.
	f.Await(30*time.Second, "no more is open than before", func(ctx context.Context) error {
		nowConnections, nowFiles, err := open(ctx)
		if err != nil {
			return err
		}
		t.Logf("connections: %d, and before %d; files: %d, and before %d", nowConnections, connections, nowFiles, files)
		if nowConnections > connections+2 || nowFiles > files+2 {
			return fmt.Errorf("connections: %d, and before %d; files: %d, and before %d", nowConnections, connections, nowFiles, files)
		}
		return nil
	})
	if n := c.SQLIn("leak-1", "select count(*) from pg_stat_progress_basebackup"); n != "0" {
		t.Errorf("%s base backups still run", n)
	}
	c.AwaitCondition(v1.ConditionBackedUp, metav1.ConditionFalse, "fifth has failed")
	c.AwaitReady()
	neverRestarted(t, c, "leak-1")
	c.AwaitRows(framework.RW, "select n from kept", "1")
}

// D-12: a new cluster under an old name does not write into the archive of the old one,
// which stays as it is.
func TestD12ArchiveOfAnEarlierCluster(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	bucket := f.StartBucket()
	bucket.PutLogin(bucket.Login.Secret)
	c := f.Create("shop", bucket.BackUp())
	c.AwaitReady()
	c.BackUp("old", v1.BackupFull)
	f.AwaitBackup(2*time.Minute, "old", v1.BackupCompleted)
	c.Delete()
	c.AwaitGone()
	c = f.Create("shop", bucket.BackUp())
	c.AwaitCondition(v1.ConditionPrimaryAvailable, metav1.ConditionTrue)
	c.SQLIn(c.Primary(), "select pg_switch_wal()")
	message := c.AwaitCondition(v1.ConditionArchivingWAL, metav1.ConditionFalse, "holds the archive of cluster", "set another prefix")
	t.Logf("the second cluster: %s", message)
	c.SQL(framework.RW, "create table story (row text)")
	copied := f.Create("copy", framework.Restore(v1.RestoreSource{Backup: "old"}))
	copied.AwaitReady()
}

// The newest backup is proved, with what was committed after it, in a pod that goes
// afterwards.
func TestBackupsAreProved(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	bucket := f.StartBucket()
	bucket.PutLogin(bucket.Login.Secret)
	c := f.Create("shop", framework.Instances(1), bucket.BackUp())
	c.AwaitReady()
	c.SQL(framework.RW, "create table story (row text)")
	c.BackUp("first", v1.BackupFull)
	f.AwaitBackup(2*time.Minute, "first", v1.BackupCompleted)
	insert(c, "after")
	switchWAL(f, c)
	// One is due within a minute, and no more while the test runs.
	soon := time.Now().UTC().Add(70 * time.Second)
	c.Edit(func(c *v1.PostgresCluster) {
		c.Spec.Backup.Verify = &v1.VerifySpec{Cron: fmt.Sprintf("%d %d * * *", soon.Minute(), soon.Hour())}
	})
	message := c.AwaitCondition(v1.ConditionBackedUp, metav1.ConditionTrue, "the last that was proved is first")
	t.Logf("it says: %s", message)
	f.Await(time.Minute, "the pod is gone", func(ctx context.Context) error {
		_, err := f.Kube.CoreV1().Pods(f.Namespace).Get(ctx, "shop-verify", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(errors.New("it is there"), err)
	})
}
