package cluster

import (
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/election"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/specs"
)

// Observation is what was seen in one pass, as plain data. The objects in it
// are shared with caches and never modified. All of them, but retained
// volumes, are owned by this very cluster, by UID.
type Observation struct {
	Now time.Time
	// Cluster is what the user asks for, with defaults.
	Cluster *v1.PostgresCluster
	// refused is true while the spec is not accepted.
	refused bool
	// OperatorImage is where pods get their agent from.
	OperatorImage string

	// LeafLifetime is for how long new certificates are valid; 0: 90 days.
	LeafLifetime time.Duration

	ServiceAccount *corev1.ServiceAccount
	Role           *rbacv1.Role
	RoleBinding    *rbacv1.RoleBinding
	ConfigMap      *corev1.ConfigMap
	Lease          *coordinationv1.Lease
	EndpointSlice  *discoveryv1.EndpointSlice
	// DisruptionBudget is nil for a cluster of one.
	DisruptionBudget *policyv1.PodDisruptionBudget
	Services         map[string]*corev1.Service
	Secrets          map[string]*corev1.Secret

	// Instances are those of which a pod or a volume exists, by number, but for
	// Spares.
	Instances []Instance
	// Nodes are those that the instances run on, by name; one that is not there
	// does not exist. Nil: nobody may look at nodes.
	Nodes map[string]*corev1.Node

	// LeaseUnchanged is for how long this operator has seen the Lease stay as it
	// is, by its own clock, which does not jump; SwitchoverWaited and RotationWaited
	// for how long the ConfigMap has had the switchover that is in it, and the
	// authorities have been as they are. StopWaited is for how long the status has
	// told that the cluster stops, or longer, if it was not ready before.
	LeaseUnchanged, SwitchoverWaited, RotationWaited, StopWaited time.Duration
	// Ended is the reign before the present one, if this operator saw its end.
	Ended EndedReign

	// Backups are those of the cluster, oldest first. BackupsTaken are names of
	// PostgresBackups of the namespace that the catalog would give to others.
	Backups []*v1.PostgresBackup
	Taken   map[string]bool
	// Unlisted are the backups, by their UID, that the catalog should show by now, and
	// does not.
	Unlisted map[types.UID]bool
	// Restores are the cluster's, oldest first.
	Restores []*v1.PostgresRestore
	// Catalog is what the store holds, as the primary says now; nil while it does not.
	// It is shared, too.
	Catalog *instanceapi.Catalog
	// BackupWaited is for how long the agent that was asked for a backup has said
	// nothing of it, by the operator's own clock.
	BackupWaited time.Duration
	// Verifier is the pod that proves a backup; nil: there is none.
	Verifier *corev1.Pod
	// CloneFrom is the server that the first database is to be a copy of; nil: none is
	// to be, or can be.
	CloneFrom *cloneSource
	// SourceWaits is what the restore of a PostgresBackup, or the copy of a cluster,
	// waits for, and SourceRefused why it can't be: then Cluster does not say where the
	// backup lies, and CloneFrom not who is copied.
	SourceWaits, SourceRefused string

	// Theirs is what the Secrets of spec.tls hold; nil: it names none. TrustWaited is for
	// how long clients have been told of every authority that they are told of now.
	Theirs      *theirSecrets
	TrustWaited time.Duration

	// Spares are volumes that an earlier cluster of the name left and that this
	// one has no use for, and those of instances that were given up. What they
	// hold is never touched, and they keep their number.
	Spares []Instance
}

// Instance is one instance as it was seen.
type Instance struct {
	Name   string
	Number int
	// Pod, Volume, which is for data, and WAL, the volume for WAL, are nil where
	// there is none.
	Pod         *corev1.Pod
	Volume, WAL *corev1.PersistentVolumeClaim
	// Unasked is a volume for WAL that neither the spec asks for nor the pod uses.
	Unasked *corev1.PersistentVolumeClaim
	// State is what the agent said; nil when it did not answer, and then
	// Unreachable says why.
	State       *instanceapi.State
	Unreachable string
	// LostNode is the node that the volume can be used on alone, if that is gone
	// for good; LostNodeError is why that could not be found out.
	LostNode, LostNodeError string
}

// record is the reign that the Lease tells of, and the instance that holds it:
// nobody, once the Lease was released. An unreadable record counts as empty
// here; agents refuse to claim over it.
func (o Observation) record() (election.Record, election.Holder) {
	if o.Lease == nil {
		return election.Record{}, election.Holder{}
	}
	record, err := election.ParseRecord(o.Lease.Annotations[election.RecordAnnotation])
	if err != nil {
		return election.Record{}, election.Holder{}
	}
	return record, election.ParseHolder(ptr.Deref(o.Lease.Spec.HolderIdentity, ""))
}

// leaseExpired says whether the Lease has not been renewed for as long as it
// lasts, so that another instance may take it.
func (o Observation) leaseExpired() bool {
	return o.LeaseUnchanged >= o.Cluster.Spec.Failover.LeaseDuration.Duration
}

// primaryName is the instance that reigns, or the empty string.
func (o Observation) primaryName() string {
	_, holder := o.record()
	return holder.Instance
}

// primary is the instance that reigns; false if there is none, or nothing is
// left of it.
func (o Observation) primary() (Instance, bool) {
	name := o.primaryName()
	i := slices.IndexFunc(o.Instances, func(i Instance) bool { return i.Name == name })
	if name == "" || i < 0 {
		return Instance{}, false
	}
	return o.Instances[i], true
}

// primaryServes says whether the primary takes writes. Of one whose agent does
// not answer, the kubelet may say so for a while after its node was lost; then
// the Lease tells.
func (o Observation) primaryServes() bool {
	primary, found := o.primary()
	if !found || !primary.isReady() {
		return false
	}
	if primary.State == nil {
		return !o.leaseExpired()
	}
	return primary.State.Role == instanceapi.RolePrimary
}

// lastPrimary is the instance that reigns, or reigned last.
func (o Observation) lastPrimary() string {
	if name := o.primaryName(); name != "" {
		return name
	}
	return o.Cluster.Status.Primary
}

// told is the configuration that the ConfigMap has for the agents.
func (o Observation) told() instanceapi.Config {
	if o.ConfigMap == nil {
		return instanceapi.Config{}
	}
	config, err := instanceapi.ParseConfig(o.ConfigMap.Data[instanceapi.ConfigKey])
	if err != nil {
		return instanceapi.Config{} // made anew in this pass
	}
	return config
}

// systemID is the database's system identifier, or the empty string as long as
// no database exists. Volumes that hold different databases say so by an
// empty answer and false.
func (o Observation) systemID() (id string, unanimous bool) {
	if id := o.Cluster.Status.SystemID; id != "" {
		return id, true
	}
	if record, _ := o.record(); record.SystemID != "" {
		return record.SystemID, true
	}
	for _, i := range o.Instances {
		if i.State == nil || !i.State.HasData {
			continue
		}
		if id != "" && i.State.SystemID != id {
			return "", false
		}
		id = i.State.SystemID
	}
	return id, true
}

// isSpare says whether the instance of a volume was given up, or it was retained
// from an earlier cluster, and this one serves without it. Before it serves every
// retained volume may be the one that counts.
func (o Observation) isSpare(i Instance) bool {
	if i.Pod != nil {
		return false
	}
	if i.Volume == nil { // WAL alone is of no use
		return len(i.allClaims()) > 0 && specs.IsAdopted(i.allClaims()[0], o.Cluster)
	}
	return o.isGivenUp(i) || specs.IsAdopted(i.Volume, o.Cluster) && o.primaryServes()
}

// mayHoldData says whether an earlier cluster of the name left a volume of which it is
// not known yet what it holds. Then nothing needs to be made, perhaps.
func (o Observation) mayHoldData() bool {
	return slices.ContainsFunc(o.Instances, func(i Instance) bool {
		return i.Volume != nil && specs.IsAdopted(i.Volume, o.Cluster) && (i.State == nil || !i.State.Inspected || i.State.HasData)
	})
}

// isReady says whether the instance serves. A sidecar that does not run is none of
// the server's business. One whose server is being stopped is ready no more, before
// the probes notice.
func (i Instance) isReady() bool {
	if i.Pod == nil || i.Pod.DeletionTimestamp != nil || i.State != nil && (!i.State.Ready || i.State.Phase == instanceapi.PhaseStopping) {
		return false
	}
	return i.Pod.Status.Phase == corev1.PodRunning && hasTrueCondition(i.Pod, corev1.PodReady) ||
		i.State != nil && isHeldUpBySidecars(i.Pod)
}

// isStuck says whether the instance's server does not run and nothing that is
// under way will change that: replacing its pod costs nothing.
func (i Instance) isStuck() bool {
	if i.Pod.Status.Phase == corev1.PodPending && !serverRuns(i.Pod) {
		return true
	}
	if i.State == nil {
		return !i.isReady()
	}
	return i.State.Phase == instanceapi.PhaseFailed || i.State.Phase == instanceapi.PhaseWaiting
}

// podOf is the pod that an instance would get now. As long as the spec is refused, pods
// are made as the one before it has it.
func (o Observation) podOf(instance string) *corev1.Pod {
	if o.refused {
		return specs.Pod(specs.ForPods(o.Cluster, o.ConfigMap), instance, o.OperatorImage)
	}
	return specs.Pod(o.Cluster, instance, o.OperatorImage)
}

func (i Instance) hasCurrentTemplate(o Observation) bool {
	want := o.podOf(i.Name)
	if claim := specs.RestoreClaim(o.Cluster); claim != "" && !specs.UsesVolume(i.Pod, claim) {
		return false // which the hash leaves out
	}
	if o.Cluster.Spec.TLS.ServerSecret != "" && !specs.HasServerFiles(i.Pod) {
		return false // so does it this
	}
	return i.Pod.Annotations[specs.TemplateHashAnnotation] == want.Annotations[specs.TemplateHashAnnotation]
}

func (i Instance) isScheduled() bool  { return i.Pod != nil && i.Pod.Spec.NodeName != "" }
func (i Instance) podIsLeaving() bool { return i.Pod != nil && i.Pod.DeletionTimestamp != nil }
func (i Instance) volumeIsLeaving() bool {
	return slices.ContainsFunc(i.claims(), func(c *corev1.PersistentVolumeClaim) bool { return c.DeletionTimestamp != nil })
}

func hasTrueCondition(pod *corev1.Pod, kind corev1.PodConditionType) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == kind && c.Status == corev1.ConditionTrue
	})
}
