package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
)

const backupsOffMessage = "spec.backup is not set"

// archivingWAL says whether the WAL goes into the store, in the store's own words
// when it does not.
func archivingWAL(o Observation) metav1.Condition {
	const kind = v1.ConditionArchivingWAL
	if o.Cluster.Spec.Backup == nil {
		return no(kind, v1.ReasonBackupsOff, backupsOffMessage+", so that no WAL is kept")
	}
	if failing := archiveTroubles(o); len(failing) > 0 {
		reason, text := v1.ReasonArchiveFailing, strings.Join(failing, "; ")
		if filling := fillingVolumes(o); filling != "" {
			reason = v1.ReasonArchiveFillsDisk
			text += "; " + filling
		}
		return keepWords(o, no(kind, reason, limit(text)))
	}
	if primary, _ := o.primary(); !o.primaryServes() || primary.State == nil {
		return no(kind, v1.ReasonPrimaryNotReady, "there is no primary that tells how archiving goes")
	}
	return yes(kind, v1.ReasonArchiving, "")
}

// archivingStopped is archivingWAL of a cluster that shall not run.
func archivingStopped(o Observation, reason, text string) metav1.Condition {
	if c := archivingWAL(o); c.Reason == v1.ReasonBackupsOff || o.hasPods() && c.Reason != v1.ReasonPrimaryNotReady {
		return c
	}
	return no(v1.ConditionArchivingWAL, reason, limit(text))
}

// archiveTroubles are what the instances say that can't archive, the primary's words
// first.
func archiveTroubles(o Observation) []string {
	type trouble struct {
		since time.Time
		names []string
	}
	troubles := map[string]*trouble{}
	var words []string
	instances := slices.Clone(o.Instances)
	slices.SortStableFunc(instances, func(a, b Instance) int {
		return cmp.Compare(bit(a.Name != o.primaryName()), bit(b.Name != o.primaryName()))
	})
	for _, i := range instances {
		if i.State == nil || i.State.Archive == nil || i.State.Archive.Failing == "" {
			continue
		}
		archive := i.State.Archive
		t := troubles[archive.Failing]
		if t == nil {
			t = &trouble{since: archive.FailingSince}
			troubles[archive.Failing] = t
			words = append(words, archive.Failing)
		}
		t.names = append(t.names, i.Name)
		if archive.FailingSince.Before(t.since) {
			t.since = archive.FailingSince
		}
	}
	var texts []string
	for _, said := range words {
		t := troubles[said]
		texts = append(texts, fmt.Sprintf("%s can't archive WAL since %s: %s", strings.Join(t.names, ", "), t.since.UTC().Format(time.RFC3339), said))
	}
	return texts
}

func bit(is bool) int {
	if is {
		return 1
	}
	return 0
}

// fillingVolumes names the volumes that hold WAL and are nearly full, of instances
// that can't archive; empty: none.
func fillingVolumes(o Observation) string {
	var texts []string
	for _, i := range o.Instances {
		if i.State == nil || i.State.Archive == nil || i.State.Archive.Failing == "" {
			continue
		}
		claim, size, free := i.Volume, i.State.VolumeSize, i.State.VolumeFree
		if i.WAL != nil && i.State.WALVolumeSize > 0 {
			claim, size, free = i.WAL, i.State.WALVolumeSize, i.State.WALVolumeFree
		}
		if claim == nil || size == 0 || free > size {
			continue
		}
		if full := (size - free) * 100 / size; full >= fillsFrom {
			texts = append(texts, fmt.Sprintf("volume %s is more than %d%% full", claim.Name, full/5*5))
		}
	}
	if len(texts) == 0 {
		return ""
	}
	return strings.Join(texts, ", ") + ", and the server stops when nothing more fits: repair the store, let the volume grow (spec.storage), or give backups up by removing spec.backup"
}

// fillsFrom is from how many hundredths on a volume is told of.
const fillsFrom = 80

// keepWords lets a condition keep its message when the new one differs in numbers
// alone: each attempt has another request's number, and would write the status.
func keepWords(o Observation, c metav1.Condition) metav1.Condition {
	before := meta.FindStatusCondition(o.Cluster.Status.Conditions, c.Type)
	if before != nil && before.Reason == c.Reason && withoutNumbers(before.Message) == withoutNumbers(c.Message) {
		c.Message = before.Message
	}
	return c
}

func withoutNumbers(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsDigit(r) {
			return -1
		}
		return r
	}, text)
}

// lastArchiveFailure is when archiving has failed last, by what the agents say; nil:
// it has not in their lives. While it fails, that is when it began.
func lastArchiveFailure(o Observation) *metav1.Time {
	var last time.Time
	if before := o.Cluster.Status.Backup; before != nil && before.ArchiveFailedAt != nil {
		last = before.ArchiveFailedAt.Time
	}
	for _, i := range o.Instances {
		if i.State == nil || i.State.Archive == nil {
			continue
		}
		at := i.State.Archive.FailedAt
		if i.State.Archive.Failing != "" {
			at = i.State.Archive.FailingSince
		}
		if at.After(last) {
			last = at
		}
	}
	return stamp(last)
}

// backedUp says whether there is a backup that can be restored, and neither the last one
// nor the last proof has failed.
func backedUp(o Observation, p Plan) metav1.Condition {
	const kind = v1.ConditionBackedUp
	if o.Cluster.Spec.Backup == nil {
		return no(kind, v1.ReasonBackupsOff, backupsOffMessage+", so that there are no backups")
	}
	if text := o.catalogError(); text != "" {
		return keepWords(o, no(kind, v1.ReasonCatalogUnreadable, limit("what the store holds can't be read"+text)))
	}
	if text := p.Verification.whyNotProved(); text != "" {
		return no(kind, v1.ReasonBackupNotProved, limit(text))
	}
	newest := nameOfNewest(o)
	failed := lastFailure(o)
	switch {
	case failed != nil && newest == "":
		return no(kind, v1.ReasonBackupFailed, limit(fmt.Sprintf("backup %s has failed: %s; there is none that can be restored", failed.Name, failed.Status.Message)))
	case failed != nil:
		return no(kind, v1.ReasonBackupFailed, limit(fmt.Sprintf("the last backup, %s, has failed: %s; the newest that can be restored is %s. The next one that succeeds makes this good, and so does deleting PostgresBackup %s",
			failed.Name, failed.Status.Message, newest, failed.Name)))
	case newest == "":
		return no(kind, v1.ReasonNoBackupYet, "there is no backup yet that can be restored; one is taken when a schedule says so, or when you make a PostgresBackup")
	case o.Catalog != nil && o.Catalog.Gap != "":
		return no(kind, v1.ReasonArchiveGap, fmt.Sprintf("the archive lacks WAL segment %s, so that nothing after it can be restored; take another backup", o.Catalog.Gap))
	}
	if before := meta.FindStatusCondition(o.Cluster.Status.Conditions, kind); o.Catalog == nil && before != nil && before.Reason == v1.ReasonArchiveGap {
		return no(kind, before.Reason, before.Message) // as it was said last
	}
	return yes(kind, v1.ReasonBackedUp, "the newest is "+newest+p.Verification.lastProved())
}

// nameOfNewest names the last complete backup in this cluster's store that can be
// restored, and leads to the present; empty: none.
func nameOfNewest(o Observation) string {
	var newest *v1.PostgresBackup
	for _, b := range o.Backups {
		s := b.Status
		if info := o.inCatalog(idOf(b)); info != nil && info.LeftBehind {
			continue
		}
		usable := s.Phase == v1.BackupCompleted && s.CompletedAt != nil && o.isOfStore(b) && (s.Restorable != nil || !s.InCatalog)
		if usable && (newest == nil || s.CompletedAt.After(newest.Status.CompletedAt.Time)) {
			newest = b
		}
	}
	if newest != nil {
		return newest.Name
	}
	if info := o.newestInCatalog(); info != nil { // its PostgresBackup is on its way
		return cmp.Or(info.Name, info.ID)
	}
	return ""
}

// lastFailure is the backup that has ended last, if it has failed; nil otherwise.
func lastFailure(o Observation) *v1.PostgresBackup {
	for _, b := range slices.Backward(o.Backups) {
		switch {
		case !hasEnded(b) || isFound(b) || b.DeletionTimestamp != nil:
		case b.Status.Phase == v1.BackupFailed:
			return b
		default:
			return nil
		}
	}
	return nil
}
