//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/test/e2e/framework"
)

// shareVolume makes the claim "backups", whose volume all nodes of the local cluster can
// mount at once: it is a directory of this machine.
func shareVolume(f *framework.Framework) {
	f.T.Helper()
	framework.LocalOnly(f.T)
	dir := filepath.Join(filepath.Dir(os.Getenv("KUBECONFIG")), "shared-"+f.Namespace)
	if err := os.Mkdir(dir, 0o755); err != nil {
		f.T.Fatal(err)
	}
	f.T.Cleanup(func() { _ = os.RemoveAll(dir) }) // the next run has another name
	// A directory of the node belongs to nobody's group: whoever mounts it may write.
	if err := os.Chmod(dir, 0o777); err != nil {
		f.T.Fatal(err)
	}
	manifest := fmt.Sprintf(`
apiVersion: v1
kind: PersistentVolume
metadata: {name: shared-%[1]s}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteMany]
  persistentVolumeReclaimPolicy: Retain
  storageClassName: ""
  hostPath: {path: %[2]s, type: Directory}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: backups, namespace: %[1]s}
spec:
  accessModes: [ReadWriteMany]
  storageClassName: ""
  volumeName: shared-%[1]s
  resources: {requests: {storage: 1Gi}}
`, f.Namespace, dir)
	if output, err := f.TryKubectl(manifest, "apply", "-f", "-"); err != nil {
		f.T.Fatal(output)
	}
	f.T.Cleanup(func() {
		// The test's context has ended.
		_ = f.Kube.CoreV1().PersistentVolumes().Delete(context.WithoutCancel(f.T.Context()), "shared-"+f.Namespace, metav1.DeleteOptions{})
	})
}

// The example with a volume: backups, a restore to a point in time, an undo in place, what
// was left behind by it, and a restore with nothing left but the volume.
func TestD11D18BackupsOnAVolume(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	shareVolume(f)
	f.Kubectl("apply", "-f", "../../example/backup-on-a-volume.yaml")
	c := f.Cluster("shop")
	c.AwaitReady()
	c.BackUp("first", v1.BackupFull)
	f.AwaitBackup(2*time.Minute, "first", v1.BackupCompleted)
	c.SQL(framework.RW, "create table story (row text)")
	target := insert(c, "before")
	insert(c, "later")
	c.BackUp("second", v1.BackupIncremental)
	f.AwaitBackup(2*time.Minute, "second", v1.BackupCompleted)
	insert(c, "last")
	switchWAL(f, c)
	c.AwaitCondition(v1.ConditionBackedUp, metav1.ConditionTrue, "second")

	undo(f, c, "undo", "", v1.RestoreTarget{Time: target})
	awaitRestore(f, "undo", v1.RestoreCompleted, "")
	c.AwaitReady()
	c.AwaitRows(framework.RW, story, "before")
	insert(c, "new")
	switchWAL(f, c)
	f.AwaitBackup(time.Minute, "second", v1.BackupCompleted, "rolled back")
	c.AwaitCondition(v1.ConditionBackedUp, metav1.ConditionTrue, "first")
	c.BackUp("third", v1.BackupIncremental)
	third := f.AwaitBackup(2*time.Minute, "third", v1.BackupCompleted)
	// By an instance that was made since: it lacks the summaries for an incremental one.
	if left := f.AwaitBackup(time.Minute, "second", v1.BackupCompleted).Status.ID; third.Status.Parent == left {
		t.Errorf("it goes on from %s, which was left behind", left)
	}

	for name, want := range map[string]string{"second": "before,last,later", "third": "before,new"} {
		past := f.Create(name, framework.Restore(v1.RestoreSource{Backup: name}))
		past.AwaitReady()
		if rows := past.SQL(framework.RW, story); rows != want {
			t.Errorf("of %s there are the rows %s, want %s", name, rows, want)
		}
		past.Delete()
	}

	c.Delete() // its volumes stay, and are not used
	store := v1.BackupStore{Volume: &v1.VolumeStore{Claim: "backups", Path: "team"}}
	again := f.Create("again", framework.Restore(v1.RestoreSource{Store: &store, Cluster: "shop"}))
	again.AwaitReady()
	if rows := again.SQL(framework.RW, story); rows != "before,new" {
		t.Errorf("from the volume there are the rows %s", rows)
	}
}
