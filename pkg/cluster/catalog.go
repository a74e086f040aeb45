package cluster

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/cache"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/specs"
)

const (
	// catalogTimeout bounds the reading of a catalog from the primary's agent.
	catalogTimeout = 5 * time.Second
	// untilAge is how far behind the time may be to which an older backup can be
	// restored, in its own status: else each segment would write all of them. That of
	// the newest backup, and of the cluster, is as the catalog has it.
	untilAge = time.Hour
)

// observeBackups finds the cluster's backups, and the one that it is to be made of.
func observeBackups(l *Backups, o *Observation) error {
	backups, err := l.Of(cache.MetaObjectToName(o.Cluster))
	if err != nil {
		return err
	}
	slices.SortFunc(backups, byAge)
	o.Backups = backups
	if r := o.Cluster.Spec.Bootstrap.Restore; !specs.RestoreIsDue(o.Cluster) || r.Store != nil {
		return nil
	}
	source, err := l.Get(o.Cluster.Namespace, o.Cluster.Spec.Bootstrap.Restore.Backup)
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	o.Cluster.Spec.Bootstrap.Restore, o.SourceWaits, o.SourceRefused = locate(o.Cluster, source)
	return nil
}

// readCatalog puts into o what the primary has read of the store. It asks only when
// that is another catalog than the one that was read last, which it returns.
func readCatalog(ctx context.Context, agents asker, l *Backups, last *instanceapi.Catalog, o *Observation) *instanceapi.Catalog {
	primary, found := o.primary()
	if !found || primary.State == nil || o.Cluster.Spec.Backup == nil || primary.State.CatalogVersion == "" {
		return last
	}
	if last == nil || last.Version != primary.State.CatalogVersion {
		ctx, cancel := context.WithTimeout(ctx, catalogTimeout)
		defer cancel()
		host := specs.InstanceHost(o.Cluster.Name, o.Cluster.Namespace, primary.Name)
		read, err := agents.catalog(ctx, o.Secrets[specs.OperatorSecret(o.Cluster.Name)], primary.Pod, host)
		if err != nil {
			return last // its state has come a moment ago, and will again
		}
		last = &read
	}
	o.Catalog = last
	o.Taken = map[string]bool{}
	for _, info := range last.Backups {
		for _, name := range []string{info.Name, nameByID(o.Cluster.Name, info.ID)} {
			if _, err := l.Get(o.Cluster.Namespace, name); name != "" && err == nil {
				o.Taken[name] = true
			}
		}
	}
	return last
}

// inCatalog is what the catalog shows of a backup; nil: nothing, or it is not known.
func (o Observation) inCatalog(id string) *instanceapi.BackupInfo {
	if o.Catalog == nil || id == "" {
		return nil
	}
	n := slices.IndexFunc(o.Catalog.Backups, func(b instanceapi.BackupInfo) bool { return b.ID == id })
	if n < 0 {
		return nil
	}
	return &o.Catalog.Backups[n]
}

// newestInCatalog is the newest backup that can be restored and leads to the present; nil:
// there is none, or it is not known.
func (o Observation) newestInCatalog() *instanceapi.BackupInfo {
	if o.Catalog == nil {
		return nil
	}
	for n := len(o.Catalog.Backups) - 1; n >= 0; n-- {
		if info := &o.Catalog.Backups[n]; info.Unusable == "" && !info.LeftBehind {
			return info
		}
	}
	return nil
}

// damage is why the record of a backup can't be read; empty: it can, or it is not
// known.
func (o Observation) damage(b *v1.PostgresBackup) string {
	if o.Catalog == nil || o.Catalog.Damaged[idOf(b)] == "" || !o.isOfStore(b) {
		return ""
	}
	return limit("it can't be restored: " + o.Catalog.Damaged[idOf(b)])
}

// isOfStore says whether a backup lies where the catalog has looked: in the store of
// the spec, and of the same database.
func (o Observation) isOfStore(b *v1.PostgresBackup) bool {
	id, _ := o.systemID()
	return o.Cluster.Spec.Backup != nil && (b.Status.SystemID == "" || b.Status.SystemID == id) &&
		(b.Status.Store == nil || equality.Semantic.DeepEqual(*b.Status.Store, o.Cluster.Spec.Backup.Store))
}

// completed is the status of a backup of which the store has that.
func completed(o Observation, b *v1.PostgresBackup, info instanceapi.BackupInfo) v1.PostgresBackupStatus {
	s := v1.PostgresBackupStatus{
		Phase: v1.BackupCompleted, ID: info.ID, Parent: info.Parent, Instance: info.Instance, Version: info.Version,
		Timeline: int64(info.Timeline), StartLSN: info.StartLSN, StopLSN: info.StopLSN,
		StartedAt: stamp(info.StartedAt), CompletedAt: stampUp(info.StoppedAt),
		Size: sizeForPeople(info.Size), StoredSize: sizeForPeople(info.StoredSize),
		Store: b.Status.Store, InCatalog: b.Status.InCatalog, Restorable: b.Status.Restorable,
	}
	s.SystemID, _ = o.systemID()
	if s.Store == nil && o.Cluster.Spec.Backup != nil {
		s.Store = o.Cluster.Spec.Backup.Store.DeepCopy()
	}
	if info.FirstWAL != "" {
		s.WAL = info.FirstWAL + " to " + info.LastWAL
	}
	if b.Spec.Type == v1.BackupIncremental && !info.Incremental {
		s.Message = "a full backup was taken: there was none to go on from, or its instance lacked WAL summaries since then"
	}
	return s
}

// catalogued is the status of a backup that the catalog shows.
func catalogued(o Observation, b *v1.PostgresBackup, info instanceapi.BackupInfo) v1.PostgresBackupStatus {
	s := completed(o, b, info)
	s.InCatalog = true
	if info.Unusable != "" {
		s.Message, s.Restorable = limit("it can't be restored: "+info.Unusable), nil
		return s
	}
	if info.LeftBehind {
		s.Message = fmt.Sprintf("the cluster was rolled back to a time before this backup: it leads to what there was before, on timeline %d, and is used only where it is named", info.Timeline)
	}
	s.Restorable = &v1.RestorableTimes{From: *s.CompletedAt, Until: *s.CompletedAt}
	if last := stamp(info.Until); last != nil && last.After(s.CompletedAt.Time) {
		s.Restorable.Until = *last
	}
	before := b.Status.Restorable
	isNewest := info.ID == o.Catalog.Backups[len(o.Catalog.Backups)-1].ID
	if before != nil && !isNewest && before.From.Equal(&s.Restorable.From) {
		if behind := s.Restorable.Until.Sub(before.Until.Time); behind >= 0 && behind < untilAge {
			s.Restorable = before
		}
	}
	return s
}

// sizeForPeople is a number of bytes as a quantity of two or more digits.
func sizeForPeople(bytes int64) string {
	for _, unit := range []int64{1 << 40, 1 << 30, 1 << 20, 1 << 10} {
		if bytes >= 10*unit {
			bytes = (bytes + unit/2) / unit * unit
			break
		}
	}
	return resource.NewQuantity(bytes, resource.BinarySI).String()
}

// removeBackups deletes the PostgresBackups of what the store has no more, and of
// schedules those that have failed, but for the last ones: one that fails each hour
// leaves no heap.
func removeBackups(o Observation, p *Plan) {
	failures := map[string]int{}
	for _, b := range slices.Backward(o.Backups) {
		schedule := b.Labels[specs.ScheduleLabel]
		switch {
		case b.Status.Phase == v1.BackupCompleted && o.isGone(b):
			p.delete(b, v1.ReasonBackupRemoved, fmt.Sprintf("backup %s is gone from the store: retention has removed it, or somebody has", b.Name))
		case isFound(b) && b.Status.Phase == v1.BackupFailed && b.Status.InCatalog && o.isGone(b):
			p.delete(b, "", "")
		case b.Status.Phase == v1.BackupFailed && schedule != "":
			if failures[schedule]++; failures[schedule] > keptFailures {
				p.delete(b, "", "")
			}
		}
	}
}

// keptFailures is how many failed backups of a schedule stay.
const keptFailures = 3

// isGone says whether a backup is no more in the store: the catalog has shown it
// before, or should have.
func (o Observation) isGone(b *v1.PostgresBackup) bool {
	return o.isUnlisted(b) && (b.Status.InCatalog || o.Unlisted[b.UID])
}

// isUnlisted says whether the catalog does not show a backup of its store.
func (o Observation) isUnlisted(b *v1.PostgresBackup) bool {
	return o.Catalog != nil && o.isOfStore(b) && o.inCatalog(idOf(b)) == nil && o.damage(b) == ""
}

// unlistedPatience is for how long a catalog may not show a backup that has
// completed. The primary's agent reads it again after each, and every five minutes.
const unlistedPatience = 15 * time.Minute

// noteUnlisted notes which backups have completed and have never been in the
// catalog, which should show them: they went before it was read.
func (s sightings) noteUnlisted(o *Observation) {
	o.Unlisted = map[types.UID]bool{}
	known := map[types.UID]bool{}
	for _, b := range o.Backups {
		known[b.UID] = true
		is := b.Status.Phase == v1.BackupCompleted && !b.Status.InCatalog && o.isUnlisted(b)
		o.Unlisted[b.UID] = s.last(b.UID, is, o.Now) >= unlistedPatience
	}
	maps.DeleteFunc(s, func(uid types.UID, _ time.Time) bool { return !known[uid] })
}

// makeFoundBackups makes PostgresBackups for what the store has and none shows.
func makeFoundBackups(o Observation, p *Plan) {
	if o.Catalog == nil {
		return
	}
	shown := map[string]bool{}
	for _, b := range o.Backups {
		shown[idOf(b)] = true
	}
	taken := maps.Clone(o.Taken)
	made := 0
	for _, info := range o.Catalog.Backups {
		if shown[info.ID] || made == madeAtOnce {
			continue
		}
		name := info.Name
		if taken[name] || len(validation.IsDNS1123Subdomain(name)) > 0 {
			name = nameByID(o.Cluster.Name, info.ID)
		}
		if taken[name] || len(validation.IsDNS1123Subdomain(name)) > 0 {
			continue // somebody else's has the name
		}
		taken[name] = true
		made++
		kind := v1.BackupFull
		if info.Incremental {
			kind = v1.BackupIncremental
		}
		p.create(specs.Backup(o.Cluster, name, kind, "", info.ID), "", "")
	}
}

// nameByID is a name for a backup that has none of its own.
func nameByID(cluster, id string) string { return cluster + "-" + strings.ToLower(id) }

// backupsStatus is what the status says of the store and of what comes next.
func backupsStatus(o Observation, p Plan, failures []Failure) *v1.BackupsStatus {
	if o.Cluster.Spec.Backup == nil {
		return nil
	}
	s := v1.BackupsStatus{}
	if before := o.Cluster.Status.Backup; before != nil {
		s = *before.DeepCopy()
	}
	if o.Catalog != nil {
		s.Restorable, s.LastCompleted, s.Count = nil, nil, int32(len(o.Catalog.Backups))
		if from, until := stampUp(o.Catalog.First), stamp(o.Catalog.Last); from != nil && until != nil {
			s.Restorable = &v1.RestorableTimes{From: *from, Until: *until}
			if until.Before(from) {
				s.Restorable.Until = *from
			}
		}
		for _, info := range o.Catalog.Backups {
			if at := stampUp(info.StoppedAt); info.Unusable == "" && !info.LeftBehind && at != nil && (s.LastCompleted == nil || at.After(s.LastCompleted.Time)) {
				s.LastCompleted = at
			}
		}
	}
	s.Running = ""
	if current := o.currentBackup(); current != nil {
		s.Running = current.Name
	}
	s.Schedules = scheduleStatuses(o, p, failures)
	s.ArchiveFailedAt = lastArchiveFailure(o)
	p.Verification.into(&s)
	return &s
}
