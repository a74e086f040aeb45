package cluster

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/election"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/specs"
)

// replaceBrokenPods deletes pods that will not serve again as they are, and
// whose replacement may. Their volumes stay.
func replaceBrokenPods(o Observation, p *Plan) {
	for _, i := range o.Instances {
		if i.Pod == nil || i.podIsLeaving() || !slices.Contains(p.Members, i.Name) {
			continue
		}
		if why := whyReplace(o, i); why != "" {
			p.delete(i.Pod, v1.ReasonInstanceReplaced, fmt.Sprintf("replacing pod %s: %s", i.Name, why))
		} else if lost := lostVolumes(o, i); len(lost) > 0 {
			p.Actions = append(p.Actions, Action{
				Verb: Delete, Object: i.Pod, Missing: lost,
				Reason: v1.ReasonInstanceReplaced, Note: fmt.Sprintf("replacing pod %s: its volume is gone", i.Name),
			})
		}
	}
}

// lostVolumes are the volumes that a pod waits for in vain, since it has its node
// and they are not there.
func lostVolumes(o Observation, i Instance) []object {
	if i.Pod.Status.Phase != corev1.PodPending || serverRuns(i.Pod) || !i.isScheduled() {
		return nil
	}
	return i.missingVolumes(o.Cluster)
}

// whyReplace says why the pod must be replaced, or nothing.
func whyReplace(o Observation, i Instance) string {
	switch {
	case i.Pod.Status.Phase == corev1.PodFailed || i.Pod.Status.Phase == corev1.PodSucceeded:
		return fmt.Sprintf("it ended (%s)", endOf(i.Pod))
	case i.volumeIsLeaving() && i.Name != o.primaryName():
		return "its volume is being deleted"
	case isToBeReplaced(o, i):
		return whyRestart(o, i) + ", and it does not serve"
	}
	return ""
}

// isToBeReplaced says whether the instance's server does not run, and its pod is
// not what a new one would be. One that has served a moment ago may have handed over: it
// follows by itself, and its end would delay what leads writers to their new primary.
func isToBeReplaced(o Observation, i Instance) bool {
	return i.isStuck() && !i.servedLately(o.Now) && whyRestart(o, i) != ""
}

func endOf(pod *corev1.Pod) string {
	if pod.Status.Reason != "" {
		return pod.Status.Reason + ": " + pod.Status.Message
	}
	return string(pod.Status.Phase)
}

// ensurePods makes missing pods, all at once: replicas wait for the primary by
// themselves. No pod is made on a volume that is on its way out, since it would
// keep the volume from going.
func ensurePods(o Observation, p *Plan) {
	if id, _ := o.systemID(); o.SourceWaits != "" && id == "" && !o.mayHoldData() {
		p.wait("%s", o.SourceWaits)
		return
	}
	for _, name := range p.Members {
		i := find(o, name)
		if i.Pod != nil || i.volumeIsLeaving() {
			continue
		}
		p.create(o.podOf(name), creationEvent(o, i), creationNote(o, i))
	}
}

func creationEvent(o Observation, i Instance) string {
	if i.Volume != nil && specs.IsAdopted(i.Volume, o.Cluster) && o.Cluster.Status.SystemID == "" {
		return v1.ReasonVolumeAdopted
	}
	return v1.ReasonInstanceCreated
}

func creationNote(o Observation, i Instance) string {
	switch {
	case i.Volume == nil:
		return fmt.Sprintf("created instance %s on a new volume", i.Name)
	case creationEvent(o, i) == v1.ReasonVolumeAdopted:
		return fmt.Sprintf("created instance %s on the volume that an earlier cluster of this name left", i.Name)
	}
	return fmt.Sprintf("created pod %s on its volume", i.Name)
}

// markPods keeps what pods are marked with: their labels, by which Services find
// them, and the request for a restart that they have followed. The role's label says
// what the agent says. A pod of which nothing is known keeps its role; its
// readiness decides. But there is one primary at most.
func markPods(o Observation, p *Plan) {
	for _, i := range o.Instances {
		if i.Pod == nil || i.podIsLeaving() {
			continue
		}
		pod, role := i.Pod, roleOf(o, i)
		if o.clientsAreMoving() {
			role = instanceapi.RoleNone // it keeps the label that it has
		}
		if role == instanceapi.RoleNone && wasDeposed(o, i) {
			pod = specs.DropPodRole(pod)
		}
		if dropped := specs.DropRestartMark(pod); dropped != nil && o.Cluster.Annotations[v1.RestartAnnotation] == "" {
			pod = dropped // the request is over, or was taken back
		}
		if repaired := specs.RepairPodLabels(pod, o.Cluster, string(role)); repaired != nil {
			p.update(repaired)
		} else if pod != i.Pod {
			p.update(pod)
		}
	}
}

// clientsAreMoving says whether an instance reigns to which the rw Service does
// not lead yet. Labels change the slices of the ro Service, and kube-proxy takes
// changes in once a second only: the one of the rw Service must come first.
func (o Observation) clientsAreMoving() bool {
	_, holder := o.record()
	if holder.IsZero() || o.EndpointSlice == nil {
		return false
	}
	return !slices.ContainsFunc(o.EndpointSlice.Endpoints, func(e discoveryv1.Endpoint) bool {
		return e.TargetRef != nil && string(e.TargetRef.UID) == holder.PodUID
	})
}

// wasDeposed says whether the pod is labelled as the primary while another
// instance reigns.
func wasDeposed(o Observation, i Instance) bool {
	now := o.primaryName()
	return now != "" && now != i.Name && i.Pod.Labels[specs.RoleLabel] == string(instanceapi.RolePrimary)
}

// roleOf is primary for the pod that holds the Lease and for no other.
func roleOf(o Observation, i Instance) instanceapi.Role {
	_, holder := o.record()
	if i.Pod != nil && holder == (election.Holder{Instance: i.Name, PodUID: string(i.Pod.UID)}) {
		return instanceapi.RolePrimary
	}
	if i.State != nil && i.State.Role == instanceapi.RoleReplica {
		return instanceapi.RoleReplica
	}
	return instanceapi.RoleNone
}

// find returns the named instance, with neither pod nor volume if there is none.
func find(o Observation, name string) Instance {
	i := slices.IndexFunc(o.Instances, func(i Instance) bool { return i.Name == name })
	if i < 0 {
		return Instance{Name: name}
	}
	return o.Instances[i]
}
