package specs

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
)

// A database that exists needs nothing of the backup that it was made of: neither
// its login nor its volume. And its pods need not restart for that.
func TestWhatARestoreNeedsGoesWithIt(t *testing.T) {
	onVolume := restored(v1.BackupStore{Volume: &v1.VolumeStore{Claim: "old-nfs"}}, v1.RestoreTarget{})
	inBucket := restored(v1.BackupStore{S3: &v1.S3Store{Bucket: "old", CredentialsSecret: &v1.SecretName{Name: "old-login"}}}, v1.RestoreTarget{})
	isMade := func(c *v1.PostgresCluster) { c.Status.SystemID = "7432000000000000001" }

	before, after := Pod(shop(onVolume), "shop-1", operatorImage), Pod(shop(onVolume, isMade), "shop-1", operatorImage)
	if !UsesVolume(before, "old-nfs") || UsesVolume(after, "old-nfs") {
		t.Errorf("mounted before: %v, after: %v", UsesVolume(before, "old-nfs"), UsesVolume(after, "old-nfs"))
	}
	if before.Annotations[TemplateHashAnnotation] != after.Annotations[TemplateHashAnnotation] {
		t.Error("every instance restarts once the database is there")
	}
	if diff := cmp.Diff(InstanceRole(shop()), InstanceRole(shop(inBucket, isMade))); diff != "" {
		t.Errorf("the Role keeps: %s", diff)
	}
}

// The volume of backups is mounted once, though a backup on it is restored, too.
func TestAVolumeIsMountedOnce(t *testing.T) {
	c := shop(backedUpOn("nfs", "new"), restored(v1.BackupStore{Volume: &v1.VolumeStore{Claim: "nfs", Path: "old"}}, v1.RestoreTarget{}))
	mounts := 0
	for _, v := range Pod(c, "shop-1", operatorImage).Spec.Volumes {
		if v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == "nfs" {
			mounts++
		}
	}
	if mounts != 1 {
		t.Errorf("mounted %d times", mounts)
	}
	if dir := restoreOf(c).Store.Volume.Dir; dir != "/pgop/backups/old/old" {
		t.Errorf("the backup is looked for in %s", dir)
	}
}

func TestUnknownBackupIsNotRestored(t *testing.T) {
	c := shop(func(c *v1.PostgresCluster) {
		c.Spec.Bootstrap = &v1.BootstrapSpec{Restore: &v1.RestoreSource{Backup: "before-migration"}}
	})
	if got := restoreOf(c); got != nil {
		t.Errorf("the agents are told to restore %+v, and nobody has said where it lies", got)
	}
}

func TestWithin(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"": 0, "30d": 30 * 24 * time.Hour, "12h": 12 * time.Hour, "90m": 90 * time.Minute, "99999d": 99999 * 24 * time.Hour,
		// Past the schema.
		"d": 0, "5": 0, "-5d": 0, "999999999d": 0, "5s": 0,
	} {
		if got := within(text); got != want {
			t.Errorf("%q is %s instead of %s", text, got, want)
		}
	}
}
