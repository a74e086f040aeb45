package cluster

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/specs"
)

// containerEnds remembers, by the pod's UID, the server's container that has ended
// last, so that each end is told once. What ended before the loop saw the pod for the
// first time is not told: the operator that was there then has.
type containerEnds map[types.UID]string

// news are the instances whose container has ended in disorder since the last look.
func (e containerEnds) news(instances []Instance) []Instance {
	var ended []Instance
	present := map[types.UID]bool{}
	for _, i := range instances {
		if i.Pod == nil || i.podIsLeaving() {
			continue
		}
		present[i.Pod.UID] = true
		container := ""
		end := endOfServer(i.Pod)
		if end != nil {
			container = end.ContainerID
		}
		if before, seen := e[i.Pod.UID]; seen && container != before && end != nil && end.ExitCode != 0 {
			ended = append(ended, i)
		}
		e[i.Pod.UID] = container
	}
	for uid := range e {
		if !present[uid] {
			delete(e, uid)
		}
	}
	return ended
}

// endOfServer is how the server's container has ended last; nil if it has not.
func endOfServer(pod *corev1.Pod) *corev1.ContainerStateTerminated {
	for _, s := range pod.Status.ContainerStatuses {
		if s.Name != specs.PostgresContainer {
			continue
		}
		if s.State.Terminated != nil {
			return s.State.Terminated
		}
		return s.LastTerminationState.Terminated
	}
	return nil
}

// tellOfEnds makes an event of each container that has ended since the last pass.
// The conditions need not have: one that starts again at once may never be seen
// waiting.
func (l *Loop) tellOfEnds(o Observation) {
	for _, i := range l.ends.news(o.Instances) {
		note := i.Name + ": container " + specs.PostgresContainer + " has ended: " + describeEnd(endOfServer(i.Pod))
		l.log.WithField("reason", v1.ReasonContainerEnded).Warn(note)
		l.Events.Eventf(o.Cluster, i.Pod, corev1.EventTypeWarning, v1.ReasonContainerEnded, "ObserveContainer", "%s", noteOf(note))
	}
}
