package cluster

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/specs"
)

// claims are the instance's volumes, as far as there are any, the data volume
// first; one that nobody asks for is not among them.
func (i Instance) claims() []*corev1.PersistentVolumeClaim {
	var claims []*corev1.PersistentVolumeClaim
	for _, claim := range []*corev1.PersistentVolumeClaim{i.Volume, i.WAL} {
		if claim != nil {
			claims = append(claims, claim)
		}
	}
	return claims
}

// allClaims are claims with the one that nobody asks for.
func (i Instance) allClaims() []*corev1.PersistentVolumeClaim {
	if i.Unasked == nil {
		return i.claims()
	}
	return append(i.claims(), i.Unasked)
}

// mounts says whether the instance's pod has a node, and there uses the claim of
// that name.
func (i Instance) mounts(claim string) bool {
	return i.isScheduled() && specs.UsesVolume(i.Pod, claim)
}

// missingVolumes are the claims of the instance's pod that the caches don't show, by
// name.
func (i Instance) missingVolumes(c *v1.PostgresCluster) []object {
	var missing []object
	claim := func(name string) {
		missing = append(missing, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: name}})
	}
	if i.Volume == nil {
		claim(i.Name)
	}
	if wal := specs.WALVolumeName(i.Name); i.WAL == nil && specs.UsesVolume(i.Pod, wal) {
		claim(wal)
	}
	return missing
}

// missingVolume is the name of a volume that a new pod of the instance would use
// and that is not there; empty: none.
func (o Observation) missingVolume(i Instance) string {
	switch {
	case i.Volume == nil:
		return i.Name
	case i.WAL == nil && o.Cluster.Spec.Storage.WAL != nil:
		return specs.WALVolumeName(i.Name)
	}
	return ""
}

// ofOtherClass are the instance's volumes that are not of the storage class that
// the spec asks for.
func (o Observation) ofOtherClass(i Instance) []*corev1.PersistentVolumeClaim {
	return slices.DeleteFunc(i.claims(), func(c *corev1.PersistentVolumeClaim) bool { return specs.HasStorageClass(c, o.Cluster) })
}

// ensureVolumes makes missing volumes, grows those that are too small, and
// keeps their owner as spec.storage.retain asks. A retained volume of an
// earlier cluster of the name is taken over: its agent finds out what it holds.
// A claim that nothing was provisioned for holds nothing, and is made anew when
// the spec asks for something else.
func ensureVolumes(o Observation, p *Plan) {
	for _, i := range o.Spares {
		for _, claim := range i.allClaims() {
			if o.isGivenUp(i) && claim.DeletionTimestamp == nil {
				p.repairOwner(o, claim)
			}
		}
	}
	for _, name := range p.Members {
		i := find(o, name)
		if !p.Stop { // then no volume goes
			dropUnaskedVolume(o, p, i)
		}
		if !p.Stop && walGoesWithData(o, i) {
			p.delete(i.WAL, v1.ReasonVolumeReplaced, fmt.Sprintf("replacing volume %s, since the data volume that it belongs to was deleted", i.WAL.Name))
			p.wait("volume %s is made when volume %s, whose data is gone, is gone, too", name, i.WAL.Name)
			continue
		}
		ensureVolume(o, p, i, specs.Volume(o.Cluster, name), i.Volume)
		if want := specs.WALVolume(o.Cluster, name); want != nil {
			ensureVolume(o, p, i, want, i.WAL)
		}
	}
}

// ensureVolume takes care of one volume of an instance; live is nil while there
// is none.
func ensureVolume(o Observation, p *Plan, i Instance, want, live *corev1.PersistentVolumeClaim) {
	switch {
	case p.Stop && (live == nil || live.DeletionTimestamp != nil || !specs.IsProvisioned(live)):
		// What is missing is made when the cluster is started.
	case live == nil && !i.mounts(want.Name):
		// A pod that waits for its volume gets it. Or the volume is there, and
		// the cache of volumes is behind that of pods.
		p.create(want, "", "")
	case live == nil:
		// The pod goes first; a volume made now would be mounted by no one.
	case live.DeletionTimestamp != nil:
		p.wait("volume %s is being deleted; a new one is made when it is gone", want.Name)
	case !specs.IsProvisioned(live) && !i.mounts(want.Name) && specs.IsOutdated(live, o.Cluster):
		p.delete(live, v1.ReasonVolumeReplaced, fmt.Sprintf("replacing volume %s, which was never provisioned: spec.storage has changed", want.Name))
	default:
		keepVolume(o, p, live)
	}
}

// keepVolume keeps a volume as the spec asks. It grows by an update of its own:
// one that is refused keeps nothing else from being done.
func keepVolume(o Observation, p *Plan, live *corev1.PersistentVolumeClaim) {
	// Once the primary serves, the volumes in use are this cluster's own.
	if repaired := specs.RepairVolume(live, o.Cluster, o.primaryServes()); repaired != nil {
		p.update(repaired)
	} else if grown := specs.GrowVolume(live, o.Cluster); grown != nil {
		p.update(grown)
	}
}

func (p *Plan) repairOwner(o Observation, claim *corev1.PersistentVolumeClaim) {
	if repaired := specs.RepairVolumeOwner(claim, o.Cluster); repaired != nil {
		p.update(repaired)
	}
}

// dropUnaskedVolume deletes the claim of a WAL volume that the spec asks for no
// more, if none was ever provisioned for it.
func dropUnaskedVolume(o Observation, p *Plan, i Instance) {
	switch claim := i.Unasked; {
	case claim == nil || claim.DeletionTimestamp != nil:
	case specs.IsAdopted(claim, o.Cluster):
	case !specs.IsProvisioned(claim):
		p.delete(claim, v1.ReasonVolumeReplaced, fmt.Sprintf("removing volume %s, which was never provisioned: spec.storage.wal was taken back", claim.Name))
	default:
		p.repairOwner(o, claim)
	}
}

// checkWALVolumes refuses to do without WAL volumes once there are any. The schema
// does so, too, and may be late: it goes by the status.
func checkWALVolumes(o Observation) error {
	if o.Cluster.Spec.Storage.WAL != nil {
		return nil
	}
	for _, i := range o.Instances {
		for _, claim := range i.allClaims() {
			if _, isWAL := specs.InstanceOfWALVolume(claim.Name); isWAL && specs.IsProvisioned(claim) && !specs.IsAdopted(claim, o.Cluster) {
				return fmt.Errorf("spec.storage.wal: volume %s has been provisioned, and WAL can't be moved back from it; put the field back", claim.Name)
			}
		}
	}
	return nil
}

// goneFor is from what age on a WAL volume without a data volume counts as left
// behind: both are made at once, and may be seen one after the other.
const goneFor = time.Minute

// walGoesWithData says whether the WAL volume of a replica has lost the data
// volume that it belongs to, which somebody has deleted. That of a primary stays:
// its WAL may be all that is left.
func walGoesWithData(o Observation, i Instance) bool {
	if i.WAL == nil || i.WAL.DeletionTimestamp != nil || i.Volume != nil && i.Volume.DeletionTimestamp == nil {
		return false
	}
	return o.primaryServes() && i.Name != o.primaryName() && !specs.IsAdopted(i.WAL, o.Cluster) && !o.isGivenUp(i) &&
		specs.IsProvisioned(i.WAL) && o.Now.Sub(i.WAL.CreationTimestamp.Time) >= goneFor
}

// walRoom is the size, in bytes, of the smallest volume that holds WAL, as
// specs.Configuration has it. As long as one is smaller than the spec asks, WAL
// must not take the room that is to come.
func walRoom(o Observation) int64 {
	smallest := specs.WALRoom(o.Cluster.Spec.Storage)
	for _, i := range o.Instances {
		claim, times := i.Volume, int64(1)
		if i.Pod != nil && specs.UsesVolume(i.Pod, specs.WALVolumeName(i.Name)) {
			claim, times = i.WAL, 2
		}
		if claim == nil || !specs.IsProvisioned(claim) {
			continue
		}
		if capacity, known := claim.Status.Capacity[corev1.ResourceStorage]; known {
			smallest = min(smallest, times*capacity.Value())
		}
	}
	return smallest
}

// provisioned are the claims with a volume behind them, by instance, data first.
func provisioned(o Observation) []*corev1.PersistentVolumeClaim {
	var claims []*corev1.PersistentVolumeClaim
	for _, i := range o.Instances {
		claims = append(claims, i.claims()...)
	}
	return slices.DeleteFunc(claims, func(c *corev1.PersistentVolumeClaim) bool { return !specs.IsProvisioned(c) })
}

// largestRequest is that of the provisioned volumes for data, or for WAL, which
// can't shrink.
func largestRequest(o Observation, wal bool) resource.Quantity {
	largest := resource.MustParse("0")
	for _, i := range o.Instances {
		for _, claim := range i.allClaims() {
			_, isWAL := specs.InstanceOfWALVolume(claim.Name)
			asked := claim.Spec.Resources.Requests.Storage()
			if isWAL == wal && specs.IsProvisioned(claim) && asked.Cmp(largest) > 0 {
				largest = *asked
			}
		}
	}
	return largest
}

// largestWALRequest is largestRequest of WAL volumes; nil for a cluster that never
// had any.
func largestWALRequest(o Observation) *resource.Quantity {
	largest := largestRequest(o, true)
	if largest.IsZero() && o.Cluster.Spec.Storage.WAL == nil && o.Cluster.Status.WALVolumeSize == nil {
		return nil
	}
	return &largest
}

// volumeStatuses has a row for each volume that there is.
func volumeStatuses(o Observation, failures []Failure) []v1.VolumeStatus {
	rows := []v1.VolumeStatus{}
	for _, i := range o.Instances {
		for _, claim := range i.allClaims() {
			asked := specs.AskedSize(claim, o.Cluster)
			row := v1.VolumeStatus{Name: claim.Name, Class: ptr.Deref(claim.Spec.StorageClassName, ""), Asked: asked.String()}
			if capacity, known := claim.Status.Capacity[corev1.ResourceStorage]; known {
				row.Actual = capacity.String()
			}
			state, message := stateOf(o, i, claim, failures)
			row.State, row.Message = state, limit(message)
			rows = append(rows, row)
		}
	}
	return rows
}

// stateOf is what becomes of a volume, and why.
func stateOf(o Observation, i Instance, claim *corev1.PersistentVolumeClaim, failures []Failure) (v1.VolumeState, string) {
	switch refused := refusalOf(claim.Name, failures); {
	case claim.DeletionTimestamp != nil:
		return v1.VolumeDeleting, ""
	case claim.Status.Phase == corev1.ClaimLost:
		return v1.VolumeLost, "the PersistentVolume behind it is gone"
	case !specs.IsProvisioned(claim):
		return v1.VolumePending, ""
	case refused != "":
		return v1.VolumeRefused, refused
	case isGrowing(o, claim) && resizeFailed(claim):
		return v1.VolumeFailed, resizeWords(claim)
	case isGrowing(o, claim):
		return v1.VolumeGrowing, resizeWords(claim)
	case isFull(i, claim):
		return v1.VolumeFull, "nothing more fits on it; raise " + sizeField(claim)
	}
	return v1.VolumeReady, ""
}

// sizeField is the field of the spec that says how large a volume shall be.
func sizeField(claim *corev1.PersistentVolumeClaim) string {
	if _, isWAL := specs.InstanceOfWALVolume(claim.Name); isWAL {
		return "spec.storage.wal.size"
	}
	return "spec.storage.size"
}

// isFull says whether the agent finds less than a hundredth of the volume free, or, once
// the server has ended, no room for another segment of WAL.
func isFull(i Instance, claim *corev1.PersistentVolumeClaim) bool {
	if i.State == nil {
		return false
	}
	size, free := i.State.VolumeSize, i.State.VolumeFree
	if claim == i.WAL {
		size, free = i.State.WALVolumeSize, i.State.WALVolumeFree
	}
	// A segment of WAL that could not be written whole is gone again, and leaves room.
	const segment = 16 << 20
	return size > 0 && (free < size/100 || !i.runs() && free < segment)
}

// fullVolume is a volume of the instance on which nothing is free; nil: there is
// room on each.
func (i Instance) fullVolume() *corev1.PersistentVolumeClaim {
	for _, claim := range i.claims() {
		if isFull(i, claim) {
			return claim
		}
	}
	return nil
}

func isGrowing(o Observation, claim *corev1.PersistentVolumeClaim) bool {
	capacity, bound := claim.Status.Capacity[corev1.ResourceStorage]
	return bound && capacity.Cmp(specs.AskedSize(claim, o.Cluster)) < 0
}

// resizeFailed says whether the last try to let the volume grow has failed.
func resizeFailed(claim *corev1.PersistentVolumeClaim) bool {
	switch claim.Status.AllocatedResourceStatuses[corev1.ResourceStorage] {
	case corev1.PersistentVolumeClaimControllerResizeInfeasible, corev1.PersistentVolumeClaimNodeResizeInfeasible:
		return true
	}
	return slices.ContainsFunc(claim.Status.Conditions, func(c corev1.PersistentVolumeClaimCondition) bool {
		isError := c.Type == corev1.PersistentVolumeClaimControllerResizeError || c.Type == corev1.PersistentVolumeClaimNodeResizeError
		return isError && c.Status == corev1.ConditionTrue
	})
}

// resizeWords is what the volume's conditions say of its growth.
func resizeWords(claim *corev1.PersistentVolumeClaim) string {
	var words []string
	for _, c := range claim.Status.Conditions {
		if c.Message != "" {
			words = append(words, c.Message)
		}
	}
	return strings.Join(words, "; ")
}

// volumesDiffer says how volumes differ from spec.storage; false if they don't.
func volumesDiffer(o Observation, failures []Failure) (metav1.Condition, bool) {
	const kind = v1.ConditionUpToDate
	var growing, troubles, otherClass []string
	for _, claim := range provisioned(o) {
		if isGrowing(o, claim) {
			growing = append(growing, fmt.Sprintf("%s (%s of %s)", claim.Name, claim.Status.Capacity.Storage(), ptr.To(specs.AskedSize(claim, o.Cluster))))
			if words := resizeWords(claim); words != "" {
				troubles = append(troubles, fmt.Sprintf("; %s: %s", claim.Name, words))
			}
		}
		if !specs.HasStorageClass(claim, o.Cluster) {
			otherClass = append(otherClass, fmt.Sprintf("%s (%s)", claim.Name, ptr.Deref(claim.Spec.StorageClassName, "none")))
		}
	}
	switch {
	case len(refusals(failures)) > 0:
		return no(kind, v1.ReasonVolumeRefused, limit(describeRefusals(o, failures))), true
	case len(growing) > 0:
		return no(kind, v1.ReasonVolumeGrowing, limit("volumes are growing: "+strings.Join(growing, ", ")+strings.Join(troubles, ""))), true
	case len(otherClass) > 0:
		return no(kind, v1.ReasonVolumeClassKept, limit("existing volumes keep their storage class: "+strings.Join(otherClass, ", ")+
			"; new ones are of the class in spec.storage. To move an instance, "+v1.RecloneAnnotation+"=<instance> copies a replica to new volumes; let a primary hand over first ("+v1.SwitchoverAnnotation+")")), true
	}
	return metav1.Condition{}, false
}

// largerThanAsked names the volumes that asked for more than the spec does.
func largerThanAsked(o Observation) string {
	var larger []string
	for _, claim := range provisioned(o) {
		if asked := claim.Spec.Resources.Requests.Storage(); asked.Cmp(specs.AskedSize(claim, o.Cluster)) > 0 {
			larger = append(larger, fmt.Sprintf("%s (%s)", claim.Name, asked))
		}
	}
	if len(larger) == 0 {
		return ""
	}
	return "volumes never shrink, and some are larger than asked: " + strings.Join(larger, ", ")
}

// refusals are what the API server says against changes of volumes.
func refusals(failures []Failure) []Failure {
	return slices.DeleteFunc(slices.Clone(failures), func(f Failure) bool { return f.Reason != v1.ReasonVolumeRefused })
}

// refusalOf is what the API server says against a change of the claim of that
// name; empty if nothing.
func refusalOf(claim string, failures []Failure) string {
	for _, f := range refusals(failures) {
		if f.Action.Object.GetName() == claim {
			return f.Err.Error()
		}
	}
	return ""
}

// describeRefusals has the API server's words once for each field of the spec that
// asks too much, with the way out.
func describeRefusals(o Observation, failures []Failure) string {
	var texts, fields []string
	for _, f := range refusals(failures) {
		claim, isClaim := f.Action.Object.(*corev1.PersistentVolumeClaim)
		if !isClaim || slices.Contains(fields, sizeField(claim)) {
			continue
		}
		_, isWAL := specs.InstanceOfWALVolume(claim.Name)
		fields = append(fields, sizeField(claim))
		texts = append(texts, fmt.Sprintf("%v; put %s back to %s, or let the storage class allow it", f.Err, sizeField(claim), ptr.To(largestRequest(o, isWAL))))
	}
	return strings.Join(texts, "; ")
}
