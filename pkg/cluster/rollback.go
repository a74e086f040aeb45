package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/backup"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/postgres"
	"github.com/pgop/postgres-operator/pkg/specs"
)

// A PostgresRestore goes through these steps, each written down before it is begun,
// so that an operator that ends in between goes on where it was:
//
//	Pending    it waits; the message says for what. Nothing was touched.
//	Stopping   the instances stop as they do for spec.instances: 0. When no pod is
//	           left the rw EndpointSlice and the Lease are emptied, which speak of their
//	           reign, and then the volumes are set aside.
//	Restoring  one new instance makes its database of the backup, and claims the Lease.
//	           Clients are let in: from here on there is no way back.
//	Completed  the volumes are kept; the other instances are made as when scaling up.
//	Reverting  it can't be done, or was taken back, and no one reigns: the new instance
//	           goes, and when the Lease can't be claimed by it any more, its volumes. Had
//	           it claimed the Lease before, it is Restoring again.
//	Failed     the old volumes are used again. The Lease is empty: the instance that
//	           reigned last claims it.
//
// A PostgresRestore that is deleted on the way leaves its mark on the volumes that it
// has set aside, which tells as much as is needed to revert it, or to end it: since
// the Lease was emptied before, whatever reign it tells of is that of the new instance.

// rollback is the restore that is under way.
type rollback struct {
	// restore is the object; nil if it was deleted meanwhile.
	restore *v1.PostgresRestore
	name    string
	// instance is the one that is made of the backup.
	instance string
	phase    v1.RestorePhase
	// source is what the agent is told, while it restores.
	source *instanceapi.Restore
}

// stops says whether the instances are to stop.
func (r *rollback) stops() bool { return r != nil && r.phase == v1.RestoreStopping }

// isMaking says whether an instance is being made of the backup.
func (r *rollback) isMaking() bool { return r != nil && r.phase == v1.RestoreRestoring }

func (r *rollback) reverts() bool { return r != nil && r.phase == v1.RestoreReverting }

// chooseRollback finds the restore that is under way, or begins with the oldest that
// waits.
func chooseRollback(o Observation, p *Plan) {
	for _, r := range o.Restores {
		if r.Status.Phase == v1.RestoreStopping || r.Status.Phase == v1.RestoreRestoring || r.Status.Phase == v1.RestoreReverting {
			p.Rollback = &rollback{restore: r, name: r.Name, instance: r.Status.Instance, phase: r.Status.Phase}
			break
		}
	}
	if p.Rollback == nil {
		p.Rollback = o.deletedRollback()
	}
	if p.Rollback != nil {
		follow := p.Rollback
		if follow.isMaking() {
			follow.source = o.sourceOf(follow.restore)
		}
		takeStep(o, p, follow)
	}
	for _, r := range o.Restores {
		if r.Status.Phase == "" || r.Status.Phase == v1.RestorePending {
			consider(o, p, r)
		}
	}
}

// deletedRollback is one whose object is gone, as the volumes tell that it has set
// aside; nil if there is none.
func (o Observation) deletedRollback() *rollback {
	for _, claim := range o.setAside() {
		if name, instance, is := specs.SetAsideFor(claim); is {
			r := &rollback{name: name, instance: instance, phase: v1.RestoreReverting}
			if o.isLed() {
				r.phase = v1.RestoreRestoring
			}
			return r
		}
	}
	return nil
}

// setAside are the claims that restores have set aside.
func (o Observation) setAside() []*corev1.PersistentVolumeClaim {
	var claims []*corev1.PersistentVolumeClaim
	for _, i := range slices.Concat(o.Instances, o.Spares) {
		for _, claim := range i.allClaims() {
			if specs.IsSetAside(claim) {
				claims = append(claims, claim)
			}
		}
	}
	return claims
}

// isLed says whether the Lease tells of a reign. Once volumes are set aside it is that
// of the restored data: it has come about, and nothing before it comes back.
func (o Observation) isLed() bool {
	record, _ := o.record()
	return !record.IsEmpty()
}

// consider says what a restore waits for that has not begun, and begins with it.
func consider(o Observation, p *Plan, r *v1.PostgresRestore) {
	next := r.Status
	next.Phase = v1.RestorePending
	switch refused, waits := checkRollback(o, p, r); {
	case refused != "":
		next.Phase, next.Message, next.EndedAt = v1.RestoreFailed, limit(refused), stamp(o.Now)
	case waits != "":
		next.Message = waits
	default:
		next.Phase, next.Message, next.StartedAt = v1.RestoreStopping, "", stamp(o.Now)
		next.ID, next.Instance = o.idFor(r), o.freeInstance()
		p.Rollback = &rollback{restore: r, name: r.Name, instance: next.Instance, phase: v1.RestorePending}
	}
	p.reportRestore(r, next)
}

// checkRollback says why a restore can't be carried out, ever or yet.
func checkRollback(o Observation, p *Plan, r *v1.PostgresRestore) (refused, waits string) {
	c := o.Cluster
	b := o.backupNamed(r.Spec.Backup)
	switch {
	case c.Spec.Backup == nil:
		return fmt.Sprintf("cluster %s has no spec.backup, which says where its backups lie; set it, and make another PostgresRestore", c.Name), ""
	case r.Spec.Backup != "" && b == nil:
		return fmt.Sprintf("spec.backup: cluster %s has no PostgresBackup %s; kubectl get pgb shows those that there are", c.Name, r.Spec.Backup), ""
	case b != nil && b.Status.Phase != v1.BackupCompleted:
		return fmt.Sprintf("spec.backup: backup %s is not complete (%s); name another", b.Name, cmp.Or(string(b.Status.Phase), "Pending")), ""
	case b != nil && !o.isOfStore(b):
		return fmt.Sprintf("spec.backup: backup %s lies in another store than spec.backup.store of cluster %s says, or is of another database; make a new cluster of it, by spec.bootstrap.restore", b.Name, c.Name), ""
	case b != nil && b.Status.InCatalog && b.Status.Restorable == nil:
		return fmt.Sprintf("spec.backup: backup %s can't be restored: %s; name another", b.Name, b.Status.Message), ""
	}
	if why := o.whyOutOfReach(r.Spec.Target, b); why != "" {
		return why, ""
	}
	switch {
	case p.Rollback != nil:
		return "", fmt.Sprintf("it waits until PostgresRestore %s has ended", p.Rollback.name)
	case c.Spec.Paused:
		return "", "spec.paused is true: nothing begins until it is false"
	case *c.Spec.Instances == 0:
		return "", "the cluster is stopped (spec.instances: 0); it waits until it is started"
	case p.SpecError != "":
		return "", "the cluster's spec is not accepted; see its condition SpecAccepted"
	case o.Cluster.Status.SystemID == "":
		return "", "the cluster has no database yet"
	}
	return "", ""
}

// whyOutOfReach says why a target can't be reached from a backup, or from any, as far
// as that can be told before anything is stopped.
func (o Observation) whyOutOfReach(t v1.RestoreTarget, b *v1.PostgresBackup) string {
	if _, err := backup.ParseTarget(backup.TargetSpec{Time: t.Time, LSN: t.LSN, XID: t.XID, Name: t.Name, Immediate: t.Immediate}); err != nil {
		return "spec." + err.Error()
	}
	if b == nil && (t.XID != "" || t.Name != "") {
		return "spec.backup: it can't be told which backup comes before the target; name one"
	}
	if t.LSN != "" {
		return o.whyLSNOutOfReach(t.LSN, b)
	}
	at, err := backup.ParseTime(t.Time)
	if err != nil {
		return "" // another kind of target, or none
	}
	first, whose := time.Time{}, "the oldest backup"
	switch {
	case b != nil && b.Status.CompletedAt != nil:
		first, whose = b.Status.CompletedAt.Add(-time.Second), "backup "+b.Name // it is rounded up
	case b == nil && o.Catalog != nil:
		first = o.Catalog.First
	}
	switch {
	case at.After(o.Now):
		return fmt.Sprintf("spec.target.time: %s is in the future", t.Time)
	case at.Before(first):
		return fmt.Sprintf("spec.target.time: %s was complete at %s, and can be restored to that time and later ones", whose, first.UTC().Format(time.RFC3339))
	}
	return ""
}

// whyLSNOutOfReach says that a position is before the end of a backup, or of all that lead
// to the present; empty: it is not, as far as is known.
func (o Observation) whyLSNOutOfReach(target string, b *v1.PostgresBackup) string {
	isBefore := func(stop string) bool {
		wanted, err := postgres.ParseLSN(target)
		end, errEnd := postgres.ParseLSN(stop)
		return err == nil && errEnd == nil && wanted < end
	}
	if b != nil && isBefore(b.Status.StopLSN) {
		return fmt.Sprintf("spec.target.lsn: backup %s was complete at %s, and can be restored to that position and later ones", b.Name, b.Status.StopLSN)
	}
	if b != nil || o.Catalog == nil {
		return ""
	}
	first := ""
	for _, info := range o.Catalog.Backups {
		switch {
		case info.Unusable != "" || info.LeftBehind:
		case !isBefore(info.StopLSN):
			return ""
		default:
			first = cmp.Or(first, info.StopLSN)
		}
	}
	if first == "" {
		return ""
	}
	return fmt.Sprintf("spec.target.lsn: the oldest backup was complete at %s, and can be restored to that position and later ones", first)
}

// backupNamed is the cluster's backup of that name; nil: there is none.
func (o Observation) backupNamed(name string) *v1.PostgresBackup {
	n := slices.IndexFunc(o.Backups, func(b *v1.PostgresBackup) bool { return b.Name == name })
	if n < 0 {
		return nil
	}
	return o.Backups[n]
}

// idFor is the store's name of the backup that a restore names; empty: it names none.
func (o Observation) idFor(r *v1.PostgresRestore) string {
	if b := o.backupNamed(r.Spec.Backup); b != nil {
		return idOf(b)
	}
	return ""
}

// freeInstance is an instance of which there is neither pod nor volume.
func (o Observation) freeInstance() string {
	taken := slices.Concat(o.Instances, o.Spares)
	for n := 1; ; n++ {
		if !slices.ContainsFunc(taken, func(i Instance) bool { return i.Number == n }) {
			return specs.Instance(o.Cluster.Name, n)
		}
	}
}

// isTakenFrom says whether the instance that a restore is to make is there before
// anything was set aside: it was made by a pass that had not seen the restore, or was
// not seen by the one that chose it. Its volumes are none of the restore's.
func (o Observation) isTakenFrom(r *rollback) bool {
	return r.restore != nil && r.stops() && !o.isUnderWay() && (find(o, r.instance).Pod != nil || len(find(o, r.instance).allClaims()) > 0)
}

// sourceOf is what the agent is told that makes the new instance; nil if nobody knows
// any more.
func (o Observation) sourceOf(r *v1.PostgresRestore) *instanceapi.Restore {
	if r == nil || o.Cluster.Spec.Backup == nil {
		return nil
	}
	return specs.RestoreInPlace(o.Cluster, r.Status.ID, r.Spec.Target)
}

// takeStep writes the next phase down once the present one has done its work.
func takeStep(o Observation, p *Plan, r *rollback) {
	if r.restore == nil {
		return
	}
	next := *r.restore.Status.DeepCopy()
	made := find(o, r.instance)
	held := o.whyHeldUp()
	switch r.phase {
	case v1.RestoreStopping:
		next.Message = held
		if o.isTakenFrom(r) {
			next.Instance = o.freeInstance() // first of all: what is reverted, goes
		} else if o.Cluster.Spec.Backup == nil {
			next.Phase, next.Message = v1.RestoreReverting, lostStore
		} else if old := o.oldClaims(r); !o.hasPods() && !o.isLed() && allSetAside(old) {
			next.Phase, next.KeptVolumes = v1.RestoreRestoring, namesSorted(old)
		}
	case v1.RestoreRestoring:
		switch {
		case o.isLed() && o.primaryServes() && !o.isUnderWay():
			next.Phase, next.Message, next.EndedAt = v1.RestoreCompleted, "", stamp(o.Now)
			next.RecoveredTo = recoveredTo(made)
			if primary, _ := o.primary(); primary.State != nil {
				next.Timeline = int64(primary.State.Timeline)
			}
		case o.isLed():
			next.Message = r.instance + " is restored, and about to serve"
		case made.State != nil && made.State.RestoreFailed != "":
			next.Phase, next.Message = v1.RestoreReverting, limit(made.State.RestoreFailed)
		case o.Cluster.Spec.Backup == nil:
			next.Phase, next.Message = v1.RestoreReverting, lostStore
		case held != "":
			next.Message = held
		default:
			next.Message = limit(orElse(troubleOf(made, o.Now).Message, r.instance+" is being made"))
		}
	case v1.RestoreReverting:
		switch {
		case o.hasComeAbout() && len(o.claimsToRevert(made)) > 0:
			next.Phase, next.Message = v1.RestoreRestoring, r.instance+" is restored: it began to serve before it was taken back"
		case made.Pod == nil && len(o.claimsToRevert(made)) == 0 && !o.isUnderWay():
			next.Phase, next.KeptVolumes, next.EndedAt = v1.RestoreFailed, nil, stamp(o.Now)
		}
	}
	p.reportRestore(r.restore, next)
}

// recoveredTo is how far an instance that is made of a backup came; nil: it does not tell.
func recoveredTo(made Instance) *v1.RecoveredTo {
	if made.State == nil || made.State.Recovered == nil {
		return nil
	}
	to := &v1.RecoveredTo{LSN: made.State.Recovered.LSN.String()}
	if at := made.State.Recovered.LastCommit; !at.IsZero() {
		to.Time = ptr.To(metav1.NewMicroTime(at))
	}
	return to
}

// lostStore is why a restore is taken back that does not know any more where its backup is.
const lostStore = "spec.backup was removed while it was under way, and says where the backup lies"

// whyHeldUp is what somebody has said that holds every restore up; empty: nothing.
func (o Observation) whyHeldUp() string {
	switch {
	case o.Cluster.Spec.Paused:
		return "spec.paused is true: it goes on when it is false"
	case *o.Cluster.Spec.Instances == 0:
		return "the cluster is stopped (spec.instances: 0): it goes on when it is started"
	}
	return ""
}

// oldClaims are those of every instance but the one that is made.
func (o Observation) oldClaims(r *rollback) []*corev1.PersistentVolumeClaim {
	var claims []*corev1.PersistentVolumeClaim
	for _, i := range slices.Concat(o.Instances, o.Spares) {
		for _, claim := range i.allClaims() {
			if _, _, is := specs.SetAsideFor(claim); is || i.Name != r.instance && !isOutOfUse(o, claim) {
				claims = append(claims, claim)
			}
		}
	}
	return claims
}

// isOutOfUse says whether the cluster went on without the volume before.
func isOutOfUse(o Observation, claim *corev1.PersistentVolumeClaim) bool {
	return claim.Annotations[specs.KeptAnnotation] != "" || specs.LostNode(claim, o.Cluster) != "" || specs.IsAdopted(claim, o.Cluster) && o.Cluster.Status.SystemID != ""
}

func allSetAside(claims []*corev1.PersistentVolumeClaim) bool {
	return !slices.ContainsFunc(claims, func(c *corev1.PersistentVolumeClaim) bool { return !specs.IsSetAside(c) })
}

func namesSorted(claims []*corev1.PersistentVolumeClaim) []string {
	var names []string
	for _, claim := range claims {
		names = append(names, claim.Name)
	}
	slices.Sort(names)
	return names
}

// isUnderWay says whether a volume has the mark of a restore under way.
func (o Observation) isUnderWay() bool {
	return slices.ContainsFunc(o.setAside(), func(c *corev1.PersistentVolumeClaim) bool {
		_, _, is := specs.SetAsideFor(c)
		return is
	})
}

// rollBack does the work of the present phase with volumes and Lease. Pods stop, and
// are made, as in any cluster that stops or starts.
func rollBack(o Observation, p *Plan) {
	switch r := p.Rollback; {
	case r.stops():
		if o.hasPods() || o.isTakenFrom(r) {
			p.wait("PostgresRestore %s: the instances stop before %s is made of the backup", r.name, r.instance)
			return
		}
		p.wait("PostgresRestore %s: the volumes are set aside before %s is made", r.name, r.instance)
		// What tells of a reign goes first: those of the restored data begin anew.
		if slice := specs.EmptyEndpointSlice(o.EndpointSlice); slice != nil {
			p.update(slice)
			return
		}
		if o.isLed() {
			p.update(specs.EmptyLease(o.Lease))
			return
		}
		setAside(o, p)
	case r.isMaking() && o.isLed() && o.primaryServes():
		for _, claim := range o.setAside() {
			if _, _, is := specs.SetAsideFor(claim); is {
				p.update(specs.KeepVolume(claim))
			}
		}
	case r.isMaking():
		if !o.isLed() {
			setAside(o, p) // should somebody have taken the mark away
		}
		p.wait("PostgresRestore %s: %s is made of the backup; the volumes from before are kept", r.name, r.instance)
	case r.reverts():
		revert(o, p, find(o, r.instance))
	}
}

// revert lets the new instance go, and then the old ones come back. It may have
// claimed the Lease in the meantime: its volumes go only when it is gone, and the
// Lease, which can't be claimed by what was read before, tells of no reign.
func revert(o Observation, p *Plan, made Instance) {
	p.wait("PostgresRestore %s is taken back: the instances from before come back", p.Rollback.name)
	claims := o.claimsToRevert(made)
	switch {
	case o.hasComeAbout() && len(claims) > 0: // the next phase goes on with it
	case o.hasComeAbout(): // and is gone with all that it had
		p.update(specs.EmptyLease(o.Lease))
	case made.Pod != nil:
		if !made.podIsLeaving() {
			p.delete(made.Pod, "", "")
		}
	case len(claims) > 0:
		if marked := specs.RevertLease(o.Lease, claims[0].UID); marked != nil {
			p.update(marked)
			return
		}
		for _, claim := range claims {
			dropRestored(o, p, claim)
		}
	default:
		for _, claim := range o.setAside() {
			if _, _, is := specs.SetAsideFor(claim); is {
				p.update(specs.PutVolumeBack(claim))
			}
		}
	}
}

// hasComeAbout says whether a reign of restored data is told of: while volumes are set
// aside the Lease tells of no other.
func (o Observation) hasComeAbout() bool { return o.isLed() && o.isUnderWay() }

// claimsToRevert are those of the instance that a restore has made.
func (o Observation) claimsToRevert(made Instance) []*corev1.PersistentVolumeClaim {
	return slices.DeleteFunc(made.allClaims(), specs.IsSetAside)
}

// dropRestored deletes a volume that a restore has made. One of an earlier cluster of
// the name is kept: nobody knows whether it has served.
func dropRestored(o Observation, p *Plan, claim *corev1.PersistentVolumeClaim) {
	switch {
	case claim.DeletionTimestamp != nil:
	case specs.IsAdopted(claim, o.Cluster):
		p.update(specs.KeepVolume(specs.SetVolumeAside(claim, p.Rollback.name, p.Rollback.instance)))
	default:
		p.delete(claim, "", "")
	}
}

// setAside marks the volumes from before.
func setAside(o Observation, p *Plan) {
	for _, claim := range o.oldClaims(p.Rollback) {
		if !specs.IsSetAside(claim) {
			p.update(specs.SetVolumeAside(claim, p.Rollback.name, p.Rollback.instance))
		}
	}
}

// reportRestore writes how far a restore is.
func (p *Plan) reportRestore(r *v1.PostgresRestore, next v1.PostgresRestoreStatus) {
	if r.DeletionTimestamp != nil || equality.Semantic.DeepEqual(r.Status, next) {
		return
	}
	reported := r.DeepCopy()
	reported.Status = next
	reason, note := restoreNews(r, next)
	p.Actions = append(p.Actions, Action{Verb: Report, Object: reported, Reason: reason, Note: note})
}

// restoreNews is the event of a restore whose phase changes.
func restoreNews(r *v1.PostgresRestore, next v1.PostgresRestoreStatus) (reason, note string) {
	if r.Status.Phase == next.Phase {
		return "", ""
	}
	switch next.Phase {
	case v1.RestoreStopping:
		return v1.ReasonRestoreStarted, fmt.Sprintf("PostgresRestore %s: the instances stop, and %s is made of the backup beside their volumes", r.Name, next.Instance)
	case v1.RestoreCompleted:
		return v1.ReasonRestoreCompleted, fmt.Sprintf("PostgresRestore %s: %s serves with the restored data%s; the volumes from before are kept until you delete them: %s",
			r.Name, next.Instance, upTo(next.RecoveredTo), strings.Join(r.Status.KeptVolumes, ", "))
	case v1.RestoreReverting, v1.RestoreFailed:
		if r.Status.Phase == v1.RestoreReverting {
			return v1.ReasonRestoreFailed, fmt.Sprintf("PostgresRestore %s: the cluster has its old data again", r.Name)
		}
		return v1.ReasonRestoreFailed, fmt.Sprintf("PostgresRestore %s has failed: %s", r.Name, next.Message)
	}
	return "", ""
}

func upTo(to *v1.RecoveredTo) string {
	switch {
	case to == nil:
		return ""
	case to.Time == nil:
		return ", up to " + to.LSN
	}
	return fmt.Sprintf(", up to %s, where the last transaction is of %s", to.LSN, to.Time.UTC().Format(time.RFC3339Nano))
}

// describeRollback says how far the restore is, for people.
func describeRollback(o Observation, p Plan) string {
	r, text := p.Rollback, ""
	switch r.phase {
	case v1.RestoreStopping:
		text = "the instances stop; then " + r.instance + " is made of the backup"
	case v1.RestoreRestoring:
		made := find(o, r.instance)
		text = r.instance + " is made of the backup: " + troubleOf(made, o.Now).Message
	case v1.RestoreReverting:
		text = "it is taken back, and the instances from before come back"
	}
	if held := o.whyHeldUp(); held != "" {
		text += "; " + held
	}
	return limit(fmt.Sprintf("PostgresRestore %s: %s", r.name, text))
}
