package cluster

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/backup"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/specs"
)

// A PostgresBackup goes through these steps, one write each, so that an operator
// that ends in between goes on where it was:
//
//	Pending            it waits; the message says for what
//	Pending with an id it is the one whose turn it is, and an instance was chosen
//	                   (the ConfigMap asks the agent, in its present life)
//	Running            the agent was asked
//	Completed, Failed  as the agent says, or the store; Failed as well when the agent
//	                   has another life or is silent
//
// The store has the last word: what its catalog shows is Completed, whatever was
// thought of it before.

const (
	// silenceOfBackup is for how long the agent that takes a backup may give no answer.
	silenceOfBackup = 30 * time.Second
	// beginOfBackup is how long an agent that answers may take to begin with it.
	beginOfBackup = time.Minute
	// backupRecheckPeriod is how often an agent that takes a backup is asked.
	backupRecheckPeriod = 5 * time.Second
	// reportsAtOnce and madeAtOnce are how many PostgresBackups one pass writes: there
	// may be thousands.
	reportsAtOnce, madeAtOnce = 50, 20
)

// planBackups keeps the PostgresBackups of the cluster, and has one at a time taken.
func planBackups(o Observation, p *Plan) {
	planSchedules(o, p)
	now := o.currentBackup()
	if now == nil {
		now = nextBackup(o, p)
	}
	reports := 0
	for _, b := range o.Backups {
		next := becomes(o, p, b, now)
		if equality.Semantic.DeepEqual(b.Status, next) || b.DeletionTimestamp != nil || reports == reportsAtOnce {
			continue
		}
		reports++
		p.report(b, next)
	}
	removeBackups(o, p)
	makeFoundBackups(o, p)
}

// report writes what has become of a backup.
func (p *Plan) report(b *v1.PostgresBackup, next v1.PostgresBackupStatus) {
	reported := b.DeepCopy()
	reported.Status = next
	reason, note := backupNews(b, next)
	p.Actions = append(p.Actions, Action{Verb: Report, Object: reported, Reason: reason, Note: note})
}

// backupNews is the event of a backup whose phase changes. What was found in the
// store is no news.
func backupNews(b *v1.PostgresBackup, next v1.PostgresBackupStatus) (reason, note string) {
	if b.Status.Phase == next.Phase || isFound(b) {
		return "", ""
	}
	switch next.Phase {
	case v1.BackupRunning:
		return v1.ReasonBackupStarted, fmt.Sprintf("%s takes backup %s", next.Instance, b.Name)
	case v1.BackupCompleted:
		return v1.ReasonBackupCompleted, fmt.Sprintf("backup %s is in the store, with the WAL that it needs", b.Name)
	case v1.BackupFailed:
		return v1.ReasonBackupFailed, fmt.Sprintf("backup %s has failed: %s", b.Name, next.Message)
	}
	return "", ""
}

// isFound says whether the backup was found in the store, and asks for nothing.
func isFound(b *v1.PostgresBackup) bool { return b.Annotations[specs.BackupIDAnnotation] != "" }

// idOf is a backup's name in the store; empty as long as it has none.
func idOf(b *v1.PostgresBackup) string {
	return cmp.Or(b.Annotations[specs.BackupIDAnnotation], b.Status.ID)
}

func hasEnded(b *v1.PostgresBackup) bool {
	return b.Status.Phase == v1.BackupCompleted || b.Status.Phase == v1.BackupFailed
}

// byAge sorts backups, oldest first.
func byAge(a, b *v1.PostgresBackup) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
}

// currentBackup is the one that is being taken, or is about to be; nil: none.
func (o Observation) currentBackup() *v1.PostgresBackup {
	var current *v1.PostgresBackup
	told := o.told().TakeBackup
	for _, b := range o.Backups {
		if hasEnded(b) || isFound(b) || b.Status.ID == "" || b.DeletionTimestamp != nil || o.inCatalog(b.Status.ID) != nil {
			continue
		}
		if current == nil || told != nil && told.ID == b.Status.ID {
			current = b
		}
	}
	return current
}

// nextBackup is the one whose turn it is: the oldest that waits, if it can be taken
// now. Nil: none.
func nextBackup(o Observation, p *Plan) *v1.PostgresBackup {
	if o.Cluster.Spec.Paused {
		return nil
	}
	for _, b := range o.Backups {
		if hasEnded(b) || isFound(b) || b.DeletionTimestamp != nil {
			continue
		}
		if whyNotYet(o, p, b) == "" {
			return b
		}
		return nil
	}
	return nil
}

// becomes is the status that a backup is to have; now is the one that is being taken,
// or is to be.
func becomes(o Observation, p *Plan, b, now *v1.PostgresBackup) v1.PostgresBackupStatus {
	if info := o.inCatalog(idOf(b)); info != nil {
		return catalogued(o, b, *info)
	}
	s := *b.Status.DeepCopy()
	switch {
	case b.Status.Phase == v1.BackupCompleted:
		if why := o.damage(b); why != "" {
			s.Message, s.Restorable = why, nil
		}
	case hasEnded(b):
	case isFound(b):
		return awaitCatalog(o, b, s)
	case b != now && now != nil:
		s.Phase, s.Message = v1.BackupPending, fmt.Sprintf("it waits until %s has ended: backups of a cluster are taken one at a time", now.Name)
	case b != now:
		s.Phase, s.Message = v1.BackupPending, whyNotYet(o, p, b)
	case s.ID == "":
		assign(o, p, b, &s)
	default:
		follow(o, p, b, &s)
	}
	return s
}

// awaitCatalog is the status of a backup that was found in the store, and that the
// catalog does not show.
func awaitCatalog(o Observation, b *v1.PostgresBackup, s v1.PostgresBackupStatus) v1.PostgresBackupStatus {
	s.ID = b.Annotations[specs.BackupIDAnnotation]
	s.Phase, s.Message = v1.BackupPending, "it is not known yet whether the store has it"
	if why := o.damage(b); why != "" {
		s.Phase, s.Message = v1.BackupFailed, why
	} else if o.Catalog != nil {
		s.Phase, s.Message = v1.BackupFailed, fmt.Sprintf("the store has no backup %s", s.ID)
	}
	return s
}

// whyNotYet is what a backup waits for whose turn it could be; empty: for nothing.
func whyNotYet(o Observation, p *Plan, b *v1.PostgresBackup) string {
	switch {
	case o.Cluster.Spec.Backup == nil:
		return "the cluster has no spec.backup, which says where backups go"
	case o.Cluster.Spec.Paused:
		return "spec.paused is true: no backup begins until it is false"
	case p.Stop || *o.Cluster.Spec.Instances == 0:
		return "the cluster is stopped (spec.instances: 0)"
	case !o.primaryServes():
		return "it waits for a primary that takes writes"
	case o.told().Backups == nil:
		return "the instances are being told where backups go"
	case wantsParent(o, b) && o.Catalog == nil:
		return "an incremental backup goes on from another, and it is not known yet which there are" + o.catalogError()
	case len(backupCandidates(o, p)) == 0:
		return "no instance can take it now: it waits for one that serves and is not about to restart"
	}
	return ""
}

// catalogError is why the catalog could not be read, to be put at the end of a
// sentence.
func (o Observation) catalogError() string {
	if primary, _ := o.primary(); primary.State != nil && primary.State.CatalogError != "" {
		return ": " + primary.State.CatalogError
	}
	return ""
}

// wantsParent says whether the backup is to go on from another.
func wantsParent(o Observation, b *v1.PostgresBackup) bool {
	return b.Spec.Type == v1.BackupIncremental && o.Cluster.Spec.Postgres.Version >= specs.IncrementalSince
}

// parentFor is the backup that an incremental one goes on from: the newest that can
// be restored to the present. Empty: it is to be a full one.
func parentFor(o Observation, b *v1.PostgresBackup) string {
	if !wantsParent(o, b) || o.Catalog == nil {
		return ""
	}
	if info := o.newestInCatalog(); info != nil {
		return info.ID
	}
	return ""
}

// assign chooses who takes the backup.
func assign(o Observation, p *Plan, b *v1.PostgresBackup, s *v1.PostgresBackupStatus) {
	if b.Spec.Type == v1.BackupIncremental && !wantsParent(o, b) {
		s.Phase = v1.BackupFailed
		s.Message = fmt.Sprintf("spec.type: incremental backups need PostgreSQL %d, and this cluster has %d; make a PostgresBackup of type full", specs.IncrementalSince, o.Cluster.Spec.Postgres.Version)
		return
	}
	chosen := backupCandidates(o, p)[0] // or it would not be its turn
	s.Phase, s.Instance, s.Message = v1.BackupPending, chosen.Name, chosen.Name+" is asked for it"
	s.Parent = parentFor(o, b)
	kind := backup.Full
	if s.Parent != "" {
		kind = backup.Incremental
	}
	s.ID = backup.NewID(o.Now, kind, fewLetters(string(b.UID)))
	s.Store = o.Cluster.Spec.Backup.Store.DeepCopy()
}

// fewLetters tell backups of the same second apart.
func fewLetters(uid string) string {
	sum := sha256.Sum256([]byte(uid))
	return hex.EncodeToString(sum[:3])
}

// follow asks the chosen agent for the backup, and says what becomes of it.
func follow(o Observation, p *Plan, b *v1.PostgresBackup, s *v1.PostgresBackupStatus) {
	told := o.told().TakeBackup
	if told == nil || told.ID != s.ID {
		ask(o, p, b, s)
		return
	}
	p.TakeBackup = told
	if s.Phase != v1.BackupRunning {
		s.Phase, s.Message, s.StartedAt = v1.BackupRunning, "", stamp(o.Now)
	}
	i := find(o, told.Instance)
	switch state := i.State; {
	case o.Cluster.Spec.Backup == nil:
		fail(s, "spec.backup was removed while it was taken")
	case state != nil && state.Backup != nil && state.Backup.ID == told.ID:
		hear(o, b, s, *state.Backup)
	case state != nil && state.Life != told.Life:
		fail(s, fmt.Sprintf("the agent of %s has restarted while it took the backup%s", i.Name, lastEndOf(i)))
	case i.Pod == nil:
		fail(s, fmt.Sprintf("the pod of %s, which took the backup, is gone", i.Name))
	case state == nil && o.BackupWaited >= silenceOfBackup:
		fail(s, fmt.Sprintf("the agent of %s, which took the backup, does not answer: %s", i.Name, cmp.Or(i.Unreachable, "its container does not run")+lastEndOf(i)))
	case state != nil && o.BackupWaited >= beginOfBackup:
		fail(s, fmt.Sprintf("the agent of %s was asked for the backup and has not begun with it in %s", i.Name, beginOfBackup))
	}
}

func lastEndOf(i Instance) string {
	if i.Pod == nil {
		return ""
	}
	return lastEnd(i.Pod)
}

// ask asks the chosen agent for a backup. The ConfigMap is what it reads; once that
// says so, follow finds it there.
func ask(o Observation, p *Plan, b *v1.PostgresBackup, s *v1.PostgresBackupStatus) {
	i := find(o, s.Instance)
	if s.Phase == v1.BackupRunning {
		// It was asked, and somebody has taken that away since.
		if i.State != nil && i.State.Backup != nil && i.State.Backup.ID == s.ID {
			if hear(o, b, s, *i.State.Backup); s.Phase == v1.BackupRunning {
				p.TakeBackup = askFor(b, s, i)
			}
			return
		}
		fail(s, fmt.Sprintf("%s was asked for the backup, and the request for it is gone", s.Instance))
		return
	}
	if why := whyNotYet(o, p, b); why != "" || !slices.ContainsFunc(backupCandidates(o, p), func(c Instance) bool { return c.Name == i.Name }) {
		*s = v1.PostgresBackupStatus{Phase: v1.BackupPending, Message: cmp.Or(why, "it waits for an instance that can take it")}
		return
	}
	p.TakeBackup = askFor(b, s, i)
}

func askFor(b *v1.PostgresBackup, s *v1.PostgresBackupStatus, i Instance) *instanceapi.TakeBackup {
	return &instanceapi.TakeBackup{ID: s.ID, Name: b.Name, Parent: s.Parent, Instance: i.Name, Life: i.State.Life}
}

// hear takes in what the agent says of the backup.
func hear(o Observation, b *v1.PostgresBackup, s *v1.PostgresBackupStatus, said instanceapi.BackupState) {
	switch {
	case said.Failed != "":
		fail(s, said.Failed)
	case said.Complete != nil:
		*s = completed(o, b, *said.Complete)
	default:
		next := v1.BackupProgress{Done: said.Done, Estimated: said.Estimated, AwaitsWAL: said.AwaitsWAL}
		if isProgress(s.Progress, next) {
			s.Progress = &next
		}
		s.Message = whyItGoesOn(o, said)
	}
}

// whyItGoesOn says what a backup waits for whose data is in the store.
func whyItGoesOn(o Observation, said instanceapi.BackupState) string {
	switch {
	case !said.AwaitsWAL:
		return ""
	case len(archiveTroubles(o)) > 0:
		return "its data is in the store, and it waits for the WAL that it needs: archiving fails, as condition ArchivingWAL of the cluster tells"
	}
	return "its data is in the store, and it waits for the WAL that it needs"
}

// isProgress says whether it is worth to be written: each hundredth of the whole, or
// each 64 MiB while that is not known.
func isProgress(before *v1.BackupProgress, now v1.BackupProgress) bool {
	if before == nil || before.AwaitsWAL != now.AwaitsWAL {
		return true
	}
	return now.Done-before.Done >= max(now.Estimated/100, 64<<20) || now.Done > before.Done && now.Done == now.Estimated
}

func fail(s *v1.PostgresBackupStatus, why string) {
	s.Phase, s.Message, s.Progress = v1.BackupFailed, limit(why), nil
}

// backupCandidates are the instances that can take a backup, the best one first: one
// that does not restart next, a replica before the primary, the one that has
// replayed most.
func backupCandidates(o Observation, p *Plan) []Instance {
	if !o.primaryServes() || p.switchesOver() {
		return nil // a replica that becomes the primary gives its backup up
	}
	var candidates []Instance
	for _, name := range p.Members {
		i := find(o, name)
		isPrimary := name == o.primaryName()
		switch {
		case i.Pod == nil || i.podIsLeaving() || !i.runs() || !i.isReady() || i.State.Life == "":
		case !isPrimary && !i.State.Streaming:
		case p.Change.Instance == name && isRestarting(p.Change.State):
		case p.Reclone != nil && p.Reclone.Instance == name && p.Reclone.DataID == i.State.DataID:
		default:
			candidates = append(candidates, i)
		}
	}
	rank := func(i Instance) (next, primary int, lag int64) {
		if i.Name == p.Change.Instance {
			next = 1
		}
		if i.Name == o.primaryName() {
			return next, 1, 0
		}
		behind, known := o.replayLag(i)
		if !known {
			behind = 1 << 62
		}
		return next, 0, behind >> 24 // a segment more or less is chance
	}
	slices.SortStableFunc(candidates, func(a, b Instance) int {
		nextA, primaryA, lagA := rank(a)
		nextB, primaryB, lagB := rank(b)
		return cmp.Or(cmp.Compare(nextA, nextB), cmp.Compare(primaryA, primaryB), cmp.Compare(lagA, lagB), cmp.Compare(a.Number, b.Number))
	})
	return candidates
}

// isRestarting says whether the change's instance goes now.
func isRestarting(s changeState) bool {
	switch s {
	case ReplacingBroken, RestartingReplica, LoweringPrimary, HandingOver, RestartingPrimary:
		return true
	}
	return false
}

// backupSilence names what an agent that was asked for a backup does not say; empty:
// it says how it is.
func (o Observation) backupSilence() string {
	told := o.told().TakeBackup
	if told == nil {
		return ""
	}
	switch i := find(o, told.Instance); {
	case i.State == nil:
		return told.ID + " silent"
	case i.State.Backup == nil || i.State.Backup.ID != told.ID:
		return told.ID + " not begun"
	}
	return told.ID
}

// backupRecheck is when to look again for the sake of backups.
func backupRecheck(o Observation, p Plan) time.Duration {
	after := idleRecheck
	if o.currentBackup() != nil {
		after = backupRecheckPeriod
	}
	for _, s := range p.Schedules {
		if s.Next != nil && s.Create == nil {
			if until := s.Next.Sub(o.Now); until > 0 {
				after = min(after, max(until, busyRecheck))
			}
		}
	}
	if v := p.Verification; v != nil && v.Next != nil && o.Verifier == nil {
		if until := v.Next.Sub(o.Now); until > 0 {
			after = min(after, max(until, busyRecheck))
		}
	}
	return after
}

// stamp is a time as the API keeps it, in whole seconds; nil for the zero time.
func stamp(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	stamped := metav1.NewTime(t.UTC().Truncate(time.Second))
	return &stamped
}

// stampUp is stamp of the first whole second that is not before t.
func stampUp(t time.Time) *metav1.Time {
	if whole := t.Truncate(time.Second); t.After(whole) {
		t = whole.Add(time.Second)
	}
	return stamp(t)
}
