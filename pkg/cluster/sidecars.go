package cluster

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/pgop/postgres-operator/pkg/specs"
)

// sidecarTrial is how long a sidecar must have run before the next instance is
// restarted with it, so that one that ends at once costs one instance at most.
const sidecarTrial = 10 * time.Second

// containersNotReady is the kubelet's reason for a pod that is not ready since a
// container is not. A pod on a node that is lost has another, or stays as it was.
const containersNotReady = "ContainersNotReady"

// isSidecar says whether a container is neither the server's nor one that runs
// before it.
func isSidecar(pod *corev1.Pod, s corev1.ContainerStatus) bool {
	return s.Name != specs.PostgresContainer && slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == s.Name })
}

// serverRuns says whether the server's container runs. The phase of a pod is Pending
// as long as one of its containers has not started, be it a sidecar.
func serverRuns(pod *corev1.Pod) bool {
	_, running := containerStart(pod)
	return running && pod.Status.Phase != corev1.PodFailed && pod.Status.Phase != corev1.PodSucceeded
}

// isHeldUpBySidecars says whether the pod is not ready for its sidecars alone.
func isHeldUpBySidecars(pod *corev1.Pod) bool {
	notReady := slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionFalse && c.Reason == containersNotReady
	})
	return notReady && serverRuns(pod) && slices.ContainsFunc(pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool {
		return s.Name == specs.PostgresContainer && s.Ready
	})
}

// sidecarsTrouble names the sidecars that don't run, with the kubelet's words.
func sidecarsTrouble(o Observation) string {
	var texts []string
	for _, i := range o.Instances {
		if i.Pod == nil || i.podIsLeaving() {
			continue
		}
		for _, s := range i.Pod.Status.ContainerStatuses {
			if why := whyFailing(s, o.Now); why != "" && isSidecar(i.Pod, s) {
				texts = append(texts, i.Name+": "+why)
			}
		}
	}
	return strings.Join(texts, "; ")
}

// whyFailing says why a sidecar does not run, or that it has ended a moment ago: one
// that ends again and again is not well in between.
func whyFailing(s corev1.ContainerStatus, now time.Time) string {
	switch {
	case whyWaiting(s) != "":
		return whyWaiting(s)
	case s.State.Terminated != nil,
		s.State.Running != nil && s.LastTerminationState.Terminated != nil && isOnTrial(s, now):
		return "container " + s.Name + " has ended, and is started again"
	}
	return ""
}

// isOnTrial says whether a container that runs has begun a moment ago. What a clock
// says that is far ahead of the operator's is not believed: nothing waits for the
// other to catch up (C-24).
func isOnTrial(s corev1.ContainerStatus, now time.Time) bool {
	return now.Sub(s.State.Running.StartedAt.Time).Abs() < sidecarTrial
}

// whyHeldUp says which sidecar of an instance that runs what the spec asks for does
// not run, or has not run for long; or nothing. It holds the restart of the others
// up: what keeps it from running would keep theirs. An instance that is to restart
// itself holds nobody up.
func whyHeldUp(o Observation, i Instance) string {
	if i.Pod == nil || whyRestart(o, i) != "" {
		return ""
	}
	for _, s := range i.Pod.Status.ContainerStatuses {
		switch {
		case !isSidecar(i.Pod, s):
		case whyWaiting(s) != "":
			return whyWaiting(s) + "; correct spec.pod.sidecars, or take it out"
		case s.State.Running == nil || isOnTrial(s, o.Now):
			return fmt.Sprintf("container %s has not run for %s yet", s.Name, sidecarTrial)
		}
	}
	return ""
}
