//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/test/e2e/framework"
)

// undo makes a PostgresRestore of the cluster.
func undo(f *framework.Framework, c *framework.Cluster, name, backup string, target v1.RestoreTarget) {
	f.T.Helper()
	r := &v1.PostgresRestore{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.PostgresRestoreSpec{Cluster: c.Name, Backup: backup, Target: target}}
	if _, err := f.Postgres.PgopV1().PostgresRestores(f.Namespace).Create(f.T.Context(), r, metav1.CreateOptions{FieldValidation: "Strict"}); err != nil {
		f.T.Fatal(err)
	}
}

func awaitRestore(f *framework.Framework, name string, phase v1.RestorePhase, words string) v1.PostgresRestoreStatus {
	f.T.Helper()
	var s v1.PostgresRestoreStatus
	f.Await(4*time.Minute, fmt.Sprintf("restore %s is %s", name, phase), func(ctx context.Context) error {
		r, err := f.Postgres.PgopV1().PostgresRestores(f.Namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if s = r.Status; s.Phase != phase || !strings.Contains(s.Message, words) {
			return fmt.Errorf("it is %s: %s", s.Phase, s.Message)
		}
		return nil
	})
	return s
}

// claims are the names of the cluster's volumes, sorted.
func claims(t *testing.T, c *framework.Cluster) []string {
	t.Helper()
	found, err := c.Volumes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return slices.Sorted(maps.Keys(found))
}

// damage inverts a part of a backup's object; the function returned puts it right.
func damage(t *testing.T, bucket *framework.Bucket, id, object string) (mend func()) {
	t.Helper()
	path := ""
	err := filepath.WalkDir(bucket.Objects(), func(at string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(at, "/"+id+"/"+object) {
			path = at
		}
		return err
	})
	if err != nil || path == "" {
		t.Fatalf("find object %s of backup %s: %q, %v", object, id, path, err)
	}
	flip := func() {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for i := len(content) / 3; i < len(content)/2; i++ {
			content[i] ^= 0xff
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	flip()
	return flip
}

// A table is dropped by mistake, and the cluster is rolled back to the moment before:
// under the same name, with the same login, and with the data from before kept. A
// restore that the archive does not allow leaves everything as it was.
func TestTheClusterIsRolledBackInPlace(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	bucket := f.StartBucket()
	bucket.PutLogin(bucket.Login.Secret)
	c := f.Create("undo", framework.Instances(2), bucket.BackUp())
	c.AwaitReady()
	c.BackUp("first", v1.BackupFull)
	first := f.AwaitBackup(2*time.Minute, "first", v1.BackupCompleted)
	c.SQL(framework.RW, "create table story (row text)")
	target := insert(c, "kept")
	c.SQL(framework.RW, "drop table story")
	secret, volumes := c.Secret(), claims(t, c)

	// The store has damaged the backup: the old data is put back.
	mend := damage(t, bucket, first.Status.ID, "part-00001.tar.zst")
	c.SQL(framework.RW, "create table since (n int)")
	undo(f, c, "in-vain", "first", v1.RestoreTarget{Time: target})
	message := awaitRestore(f, "in-vain", v1.RestoreFailed, "").Message
	if !strings.Contains(message, "part-00001") || !strings.Contains(message, "damaged") {
		t.Errorf("it does not say what is damaged: %s", message)
	}
	c.AwaitReady()
	c.AwaitRows(framework.RW, "select count(*) from since", "0")
	if now := claims(t, c); !slices.Equal(now, volumes) {
		t.Errorf("the volumes are %v, and were %v", now, volumes)
	}
	mend()

	undo(f, c, "undo", "", v1.RestoreTarget{Time: target})
	s := awaitRestore(f, "undo", v1.RestoreCompleted, "")
	if !slices.Equal(s.KeptVolumes, volumes) || s.Timeline < 2 || s.RecoveredTo == nil || s.RecoveredTo.LSN == "" {
		t.Errorf("it tells %+v; the volumes were %v", s, volumes)
	} else if at := s.RecoveredTo.Time; at == nil || at.UTC().Format("2006-01-02T15:04:05.000000Z") > target {
		t.Errorf("it recovered to %+v; the target was %s", s.RecoveredTo, target)
	}
	c.AwaitReady()
	c.AwaitRows(framework.RW, story, "kept")
	c.AwaitRows(framework.RO, story, "kept")
	if now := c.Secret(); now["password"] != secret["password"] {
		t.Error("the login is another")
	}
	for _, name := range volumes {
		if c.Volume(name).DeletionTimestamp != nil {
			t.Errorf("volume %s goes", name)
		}
	}
	insert(c, "new")
	switchWAL(f, c)
	c.AwaitCondition(v1.ConditionArchivingWAL, metav1.ConditionTrue)
	c.BackUp("second", v1.BackupFull)
	f.AwaitBackup(2*time.Minute, "second", v1.BackupCompleted)
}
