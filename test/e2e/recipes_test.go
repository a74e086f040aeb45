//go:build e2e

package e2e

import (
	"os"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/test/e2e/framework"
)

// The recipes of docs/backup.md, with the manifests that they name: a backup, an undo in
// place, a cluster as it was at a time, and disaster recovery from the bucket alone. What
// a reader would put in, the store's address and a time, is all that is changed.
func TestRecipesOfTheBackupExamples(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	bucket := f.StartBucket()
	bucket.PutLogin(bucket.Login.Secret)
	apply := func(name, at string) {
		t.Helper()
		text, err := os.ReadFile("../../example/" + name + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		manifest := strings.NewReplacer("bucket: backups", "bucket: "+bucket.Bucket, "https://minio.example.com:9000", bucket.Endpoint,
			"2026-11-28T12:00:00Z", at).Replace(string(text))
		if output, err := f.TryKubectl(manifest, "apply", "-f", "-"); err != nil {
			t.Fatalf("apply example/%s.yaml: %s", name, output)
		}
	}

	apply("backup", "")
	shop := f.Cluster("shop")
	shop.AwaitReady()
	apply("backup-now", "")
	f.AwaitBackup(2*time.Minute, "before-migration", v1.BackupCompleted)
	shop.SQL(framework.RW, "create table story (row text)")
	target := insert(shop, "kept")
	shop.SQL(framework.RW, "drop table story")
	switchWAL(f, shop)

	apply("restore", target)
	past := f.Cluster("shop-at-noon")
	past.AwaitReady()
	past.AwaitRows(framework.RW, story, "kept")
	past.Delete()

	apply("undo", target)
	awaitRestore(f, "undo", v1.RestoreCompleted, "")
	shop.AwaitReady()
	shop.AwaitRows(framework.RW, story, "kept")
	insert(shop, "later")
	switchWAL(f, shop)
	shop.AwaitCondition(v1.ConditionArchivingWAL, metav1.ConditionTrue)

	shop.Delete()
	f.Kubectl("delete", "postgresbackups", "--all")
	f.Kubectl("delete", "pvc", "--all")
	shop.AwaitGone()
	apply("restore-from-a-bucket", "")
	again := f.Cluster("shop")
	again.AwaitReady()
	again.AwaitRows(framework.RW, story, "kept,later")
}
