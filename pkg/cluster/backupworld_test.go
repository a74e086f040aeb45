package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/specs"
)

// backupStore is a store of backups, with as much of the agents as the operator sees
// of it.
type backupStore struct {
	// backups are complete ones, oldest first; damaged are others, by id.
	backups []instanceapi.BackupInfo
	damaged map[string]string
	gap     string
	// away says why the store does not answer; empty: it does. failed is when it last
	// did not.
	away          string
	since, failed time.Time
	// slow lets no backup end; refuses is why each fails.
	slow    bool
	refuses string
	// lacks is why no backup can be restored; empty: each can.
	lacks string
	// proof is what comes of proving a backup; nil: that does not end.
	proof *instanceapi.Proof
	// reads counts how often the operator has read the catalog.
	reads int
}

// backups is a cache of PostgresBackups.
func (w *world) backups() *Backups {
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, BackupIndexers())
	for _, o := range w.cached[v1.BackupKind] {
		if err := indexer.Add(o); err != nil {
			panic(err)
		}
	}
	return NewBackups(indexer)
}

func (w *world) backup(name string) *v1.PostgresBackup {
	b, _ := w.objects[v1.BackupKind][name].(*v1.PostgresBackup)
	return b
}

// order makes a PostgresBackup as a user does.
func (w *world) order(name string, kind v1.BackupType) {
	w.store(w.born(&v1.PostgresBackup{
		ObjectMeta: metav1.ObjectMeta{Namespace: "db", Name: name},
		Spec:       v1.PostgresBackupSpec{Cluster: "shop", Type: kind},
	}))
}

// backUp asks for backups in a bucket.
func (w *world) backUp(schedules ...v1.BackupSchedule) {
	w.edit(func(s *v1.PostgresClusterSpec) {
		s.Backup = &v1.BackupSpec{
			Store:     v1.BackupStore{S3: &v1.S3Store{Bucket: "backups", CredentialsSecret: &v1.SecretName{Name: "s3-login"}}},
			Schedules: schedules,
		}
	})
}

// backedUp is a settled cluster with backups, one of which was taken.
func (w *world) backedUp(schedules ...v1.BackupSchedule) {
	w.backUp(schedules...)
	w.order("first", v1.BackupFull)
	if _, settled := w.settle(); !settled {
		panic("the backup does not end")
	}
}

// readCatalog is the operator's reading of the catalog, as a Loop does it.
func (w *world) readCatalog(o *Observation) {
	w.catalogRead = readCatalog(context.Background(), w, w.backups(), w.catalogRead, o)
}

func (w *world) catalog(context.Context, *corev1.Secret, *corev1.Pod, string) (instanceapi.Catalog, error) {
	if w.bucket.away != "" {
		return instanceapi.Catalog{}, errors.New(w.bucket.away)
	}
	w.bucket.reads++
	c := instanceapi.Catalog{
		Version: w.catalogVersion(), ReadAt: w.now, Backups: slices.Clone(w.bucket.backups),
		Damaged: maps.Clone(w.bucket.damaged), Gap: w.bucket.gap,
	}
	if n := len(c.Backups); n > 0 {
		c.First, c.Last = c.Backups[0].StoppedAt, c.Backups[n-1].StoppedAt.Add(5*time.Minute)
		for n := range c.Backups {
			if info := &c.Backups[n]; !info.LeftBehind {
				info.Until = c.Last
			}
		}
	}
	return c, nil
}

func (w *world) catalogVersion() string {
	return fmt.Sprint(len(w.bucket.backups), w.bucket.backups, len(w.bucket.damaged), w.bucket.gap)
}

// stepBackups is what an agent does for backups and says of them.
func (w *world) stepBackups(pod *corev1.Pod, config instanceapi.Config, s *instanceapi.State) {
	s.Life = "life of " + string(pod.UID)
	s.Backup = w.states[pod.UID].Backup
	if config.Backups == nil {
		s.Backup = nil
		return
	}
	s.Archive = &instanceapi.ArchiveState{FailedAt: w.bucket.failed}
	if w.bucket.away != "" {
		s.Archive.Failing, s.Archive.FailingSince = w.bucket.away, w.bucket.since
	}
	if s.Role == instanceapi.RolePrimary {
		s.CatalogVersion, s.CatalogError = w.catalogVersion(), w.bucket.away
	}
	take := config.TakeBackup
	switch {
	case take == nil || take.Instance != pod.Name || take.Life != s.Life:
	case s.Backup == nil || s.Backup.ID != take.ID:
		s.Backup = &instanceapi.BackupState{ID: take.ID, Done: 1 << 20, Estimated: 4 << 20}
	case s.Backup.Failed != "" || s.Backup.Complete != nil:
	case w.bucket.away != "" || w.bucket.refuses != "":
		s.Backup = &instanceapi.BackupState{ID: take.ID, Failed: w.bucket.away + w.bucket.refuses}
	case !w.bucket.slow:
		w.serial++
		done := w.complete(*take)
		s.Backup = &instanceapi.BackupState{ID: take.ID, Complete: &done}
		w.bucket.backups = append(w.bucket.backups, done)
	}
}

// complete is what the store has of a backup that was asked for.
func (w *world) complete(take instanceapi.TakeBackup) instanceapi.BackupInfo {
	return instanceapi.BackupInfo{
		ID: take.ID, Name: take.Name, Incremental: take.Parent != "", Parent: take.Parent, Instance: take.Instance, Version: "17.6", Timeline: 1,
		StartLSN: "0/2000028", StopLSN: "0/2000120", StartedAt: w.now.Add(-time.Minute), StoppedAt: w.now.Add(300 * time.Millisecond),
		FirstWAL: "000000010000000000000002", LastWAL: "000000010000000000000002", Size: 22931456, StoredSize: 4194304,
	}
}

// found puts a backup of that name into the store that no object tells of.
func (w *world) found(name string) string {
	id := fmt.Sprintf("20261120T00000%dZ-full-%s", len(w.bucket.backups), fewLetters(name))
	info := w.complete(instanceapi.TakeBackup{ID: id, Name: name, Instance: "shop-1"})
	info.StoppedAt = time.Date(2026, 11, 20, 0, 0, len(w.bucket.backups), 0, time.UTC)
	w.bucket.backups = slices.Insert(w.bucket.backups, 0, info)
	return id
}

func (w *world) storeGoes(why string) {
	if w.bucket.away == "" {
		w.bucket.since = w.now
	}
	w.bucket.away = why
}

func (w *world) storeComesBack() {
	if w.bucket.away != "" {
		w.bucket.away, w.bucket.failed = "", w.now
	}
}

// made is a PostgresBackup with that status, as if it had been made long ago.
func (w *world) made(name string, status v1.PostgresBackupStatus) {
	w.order(name, v1.BackupFull)
	change(w, name, func(b *v1.PostgresBackup) {
		b.CreationTimestamp = metav1.NewTime(w.now.Add(-24 * time.Hour))
		b.Status = status
	})
}

// ofSchedule says which schedule has made a PostgresBackup.
func (w *world) ofSchedule(name, schedule string) {
	change(w, name, func(b *v1.PostgresBackup) { b.Labels = map[string]string{specs.ScheduleLabel: schedule} })
}

// restoreOf asks for a new cluster of one instance whose database is that of a
// PostgresBackup.
func (w *world) restoreOf(backup string, target v1.RestoreTarget) {
	fresh := newWorld(1)
	fresh.objects[v1.BackupKind] = w.objects[v1.BackupKind]
	fresh.edit(func(s *v1.PostgresClusterSpec) {
		s.Bootstrap = &v1.BootstrapSpec{Restore: &v1.RestoreSource{Backup: backup, Target: target}}
	})
	*w = *fresh
}

// other is a complete backup of the cluster "old", of that version.
func (w *world) other(name, version string) {
	w.made(name, v1.PostgresBackupStatus{
		Phase: v1.BackupCompleted, ID: "20261126T030000Z-full-abc123", Version: version, SystemID: "7",
		Store:       &v1.BackupStore{S3: &v1.S3Store{Bucket: "old", CredentialsSecret: &v1.SecretName{Name: "old-login"}}},
		CompletedAt: ptr.To(metav1.NewTime(time.Date(2026, 11, 26, 3, 1, 0, 0, time.UTC))),
	})
	change(w, name, func(b *v1.PostgresBackup) { b.Spec.Cluster = "old" })
}
