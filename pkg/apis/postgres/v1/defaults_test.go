package v1

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func TestDefaultsFillWhatIsLeftOut(t *testing.T) {
	bare := &PostgresCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "shop"},
		Spec: PostgresClusterSpec{
			Postgres: PostgresSpec{Version: 16},
			Storage:  StorageSpec{Size: resource.MustParse("1Gi")},
		},
	}
	before := bare.DeepCopy()
	want := bare.DeepCopy()
	want.Spec.Instances = ptr.To[int32](1)
	want.Spec.Postgres.UID = ptr.To[int64](999)
	want.Spec.Postgres.Image = "docker.io/library/postgres:16"
	want.Spec.Storage.Retain = RetainVolumes
	seconds := func(n time.Duration) metav1.Duration { return metav1.Duration{Duration: n * time.Second} }
	want.Spec.Replication = ReplicationSpec{Mode: ReplicationAsync, Need: ptr.To[int32](1), Durability: DurabilityRequired}
	want.Spec.Failover = FailoverSpec{
		LeaseDuration: seconds(10), RestartTimeout: seconds(15), UnresponsiveTimeout: seconds(15), MaxLag: ptr.To(resource.MustParse("16Mi")),
	}
	want.Spec.Services.RW.Type, want.Spec.Services.RO.Type = corev1.ServiceTypeClusterIP, corev1.ServiceTypeClusterIP
	want.Spec.Bootstrap = &BootstrapSpec{Initdb: &InitdbSpec{
		Database: "app", Owner: "app", Locale: "C.UTF-8", Encoding: "UTF8", DataChecksums: ptr.To(true),
	}}
	got := WithDefaults(bare)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(before, bare); diff != "" {
		t.Errorf("the cluster that was given changed:\n%s", diff)
	}
	if diff := cmp.Diff(got, WithDefaults(got)); diff != "" {
		t.Errorf("defaults of defaults differ:\n%s", diff)
	}
}

func TestDefaultsKeepWhatIsSet(t *testing.T) {
	c := &PostgresCluster{Spec: PostgresClusterSpec{
		Instances:   ptr.To[int32](3),
		Postgres:    PostgresSpec{Version: 17, Image: "reg:5000/pg", UID: ptr.To[int64](70)},
		Storage:     StorageSpec{Size: resource.MustParse("1Gi"), Retain: DeleteVolumes, Class: "fast"},
		Replication: ReplicationSpec{Mode: ReplicationSync, Need: ptr.To[int32](2), Durability: DurabilityPreferred},
		Failover: FailoverSpec{
			LeaseDuration: metav1.Duration{Duration: time.Minute}, RestartTimeout: metav1.Duration{Duration: time.Minute},
			UnresponsiveTimeout: metav1.Duration{Duration: time.Minute}, MaxLag: ptr.To(resource.MustParse("1Gi")),
		},
		Bootstrap: &BootstrapSpec{Initdb: &InitdbSpec{
			Database: "d", Owner: "o", Locale: "C", Encoding: "SQL_ASCII", DataChecksums: ptr.To(false), SQL: []string{"SELECT 1"},
		}},
		Services: ServicesSpec{RW: ServiceSpec{Type: corev1.ServiceTypeLoadBalancer}, RO: ServiceSpec{Type: corev1.ServiceTypeNodePort}},
	}}
	if diff := cmp.Diff(c, WithDefaults(c)); diff != "" {
		t.Error(diff)
	}
}

// A database that is to be made of a backup must never be made empty.
func TestDefaultsOfARestore(t *testing.T) {
	c := &PostgresCluster{Spec: PostgresClusterSpec{
		Bootstrap: &BootstrapSpec{Restore: &RestoreSource{Backup: "a"}, Initdb: &InitdbSpec{Database: "other"}},
		Backup:    &BackupSpec{Schedules: []BackupSchedule{{Name: "nightly", Cron: "0 3 * * *"}}, Verify: &VerifySpec{Cron: "0 5 * * 0"}},
	}}
	got := WithDefaults(c)
	if diff := cmp.Diff(&BootstrapSpec{Restore: &RestoreSource{Backup: "a", Database: "app", Owner: "app"}}, got.Spec.Bootstrap); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]BackupSchedule{{Name: "nightly", Cron: "0 3 * * *", TimeZone: "Etc/UTC", Type: BackupFull}}, got.Spec.Backup.Schedules); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(&VerifySpec{Cron: "0 5 * * 0", TimeZone: "Etc/UTC"}, got.Spec.Backup.Verify); diff != "" {
		t.Error(diff)
	}
	if database, owner := got.Spec.Bootstrap.Application(); database != "app" || owner != "app" {
		t.Errorf("the application has %s, %s", database, owner)
	}
	if diff := cmp.Diff(got, WithDefaults(got)); diff != "" {
		t.Errorf("defaults of defaults differ:\n%s", diff)
	}
	if c.Spec.Backup.Schedules[0].TimeZone != "" {
		t.Error("the cluster that was given changed")
	}
}

// Nor must one that is to be a copy.
func TestDefaultsOfAClone(t *testing.T) {
	c := &PostgresCluster{Spec: PostgresClusterSpec{
		Bootstrap: &BootstrapSpec{Clone: &CloneSource{Cluster: "other", Owner: "web"}, Initdb: &InitdbSpec{Database: "empty"}},
	}}
	got := WithDefaults(c)
	if diff := cmp.Diff(&BootstrapSpec{Clone: &CloneSource{Cluster: "other", Database: "app", Owner: "web"}}, got.Spec.Bootstrap); diff != "" {
		t.Error(diff)
	}
	if database, owner := got.Spec.Bootstrap.Application(); database != "app" || owner != "web" {
		t.Errorf("the application has %s, %s", database, owner)
	}
	if diff := cmp.Diff(got, WithDefaults(got)); diff != "" {
		t.Errorf("defaults of defaults differ:\n%s", diff)
	}
	both := WithDefaults(&PostgresCluster{Spec: PostgresClusterSpec{
		Bootstrap: &BootstrapSpec{Clone: &CloneSource{Cluster: "other"}, Restore: &RestoreSource{Backup: "a"}},
	}})
	if both.Spec.Bootstrap.Clone != nil || both.Spec.Bootstrap.Restore == nil {
		t.Errorf("of both there is %+v", both.Spec.Bootstrap)
	}
}
