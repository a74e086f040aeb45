package cluster

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/specs"
)

// trouble is why an instance does not serve, in the words of whoever said it.
type trouble struct {
	// Reason is one of the API's reasons; empty where time alone will do.
	Reason  string
	Message string
}

// troubleOf looks for what keeps an instance from serving, beginning with what
// would come first in its life.
func troubleOf(i Instance, now time.Time) trouble {
	switch {
	case i.volumeIsLeaving():
		return trouble{v1.ReasonVolumePending, "its volume is being deleted"}
	case i.Pod == nil && slices.ContainsFunc(i.claims(), func(c *corev1.PersistentVolumeClaim) bool { return c.Status.Phase == corev1.ClaimLost }):
		return trouble{v1.ReasonVolumePending, "its volume was lost: the PersistentVolume behind it is gone"}
	case i.Pod == nil:
		return trouble{"", "its pod is not there yet"}
	case i.podIsLeaving():
		return trouble{"", "its pod is stopping"}
	}
	if t, found := podTrouble(i.Pod); found {
		if i.LostNode != "" {
			t.Message = fmt.Sprintf("its volume went with node %s, which is gone; %s", i.LostNode, t.Message)
		}
		return t
	}
	return agentTrouble(i, now)
}

func podTrouble(pod *corev1.Pod) (trouble, bool) {
	if pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
		return trouble{v1.ReasonPodFailed, "its pod ended: " + endOf(pod)}, true
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return trouble{v1.ReasonUnschedulable, "its pod can't be scheduled: " + c.Message}, true
		}
	}
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if text := whyWaiting(s); text != "" && !isSidecar(pod, s) {
			return trouble{v1.ReasonPodFailed, text}, true
		}
	}
	return trouble{}, false
}

// whyWaiting says why a container does not run, or nothing while that is the way of
// things.
func whyWaiting(s corev1.ContainerStatus) string {
	w := s.State.Waiting
	if w == nil || w.Reason == "PodInitializing" || w.Reason == "ContainerCreating" {
		return ""
	}
	text := fmt.Sprintf("container %s is waiting: %s: %s", s.Name, w.Reason, w.Message)
	if t := s.LastTerminationState.Terminated; t != nil {
		text += fmt.Sprintf(" (last end: %s, exit code %d %s)", t.Reason, t.ExitCode, t.Message)
	}
	return strings.TrimSpace(text)
}

// startGrace is how long, after its container has started, an agent that does
// not answer is no news.
const startGrace = 10 * time.Second

func agentTrouble(i Instance, now time.Time) trouble {
	if i.State == nil && i.Pod.Spec.NodeName == "" {
		return trouble{"", "its pod waits for the scheduler to give it a node"}
	}
	if i.State == nil {
		started, running := containerStart(i.Pod)
		if !running || now.Sub(started) < startGrace {
			return trouble{"", "its containers are starting" + lastEnd(i.Pod)}
		}
		return trouble{v1.ReasonAgentUnreachable, "its agent does not answer: " + i.Unreachable}
	}
	switch s := i.State; s.Phase {
	case instanceapi.PhaseFailed:
		return failureOf(i)
	case instanceapi.PhaseRunning:
		if full := i.fullVolume(); full != nil {
			return trouble{v1.ReasonDiskFull, fmt.Sprintf("volume %s is full: raise %s", full.Name, sizeField(full)) + orNothing("; ", s.Message)}
		}
		if s.Message != "" {
			return trouble{"", s.Message}
		}
		if s.ConnectionsTaken {
			return trouble{v1.ReasonConnectionsTaken, "its server gives no connection, not even to its agent, since " + allConnectionsTaken}
		}
		return trouble{"", "its server runs and is not ready yet"}
	default:
		return trouble{"", strings.TrimSuffix(strings.ToLower(string(s.Phase))+": "+s.Message, ": ") + restoreProgress(*s)}
	}
}

// restoreProgress is how far the restore of a backup is, in steps that are not too
// many to be written; empty: there is none.
func restoreProgress(s instanceapi.State) string {
	if s.RestoreTotal <= 0 {
		return ""
	}
	const step = 5
	return fmt.Sprintf(" (%d%% of %s)", min(s.Restored, s.RestoreTotal)*100/s.RestoreTotal/step*step, sizeForPeople(s.RestoreTotal))
}

// containerStart is when the server's container started; false if it does not
// run.
func containerStart(pod *corev1.Pod) (time.Time, bool) {
	for _, s := range pod.Status.ContainerStatuses {
		if s.Name == specs.PostgresContainer && s.State.Running != nil {
			return s.State.Running.StartedAt.Time, true
		}
	}
	return time.Time{}, false
}

// lastEnd says how the server's container has ended last, if it has, for one that
// starts anew.
func lastEnd(pod *corev1.Pod) string {
	if ended := endOfServer(pod); ended != nil {
		return "; the one before has ended: " + describeEnd(ended)
	}
	return ""
}

// describeEnd is how a container ended, with the way out where there is one.
func describeEnd(ended *corev1.ContainerStateTerminated) string {
	text := fmt.Sprintf("%s, exit code %d", ended.Reason, ended.ExitCode)
	if ended.Reason == "OOMKilled" {
		text += ": it took more memory than spec.resources.limits allow"
	}
	return text
}

func orNothing(before, text string) string {
	if text == "" {
		return ""
	}
	return before + text
}

// failureOf is why the agent's last try failed; where a volume is full, with the
// way out.
func failureOf(i Instance) trouble {
	switch s, full := i.State, i.fullVolume(); {
	case full != nil:
		return trouble{v1.ReasonDiskFull, fmt.Sprintf("%s; volume %s is full: raise %s", s.Message, full.Name, sizeField(full))}
	case !s.HasData && s.SystemID == "" && s.Term == 0:
		return trouble{v1.ReasonBootstrapFailed, s.Message}
	}
	return trouble{v1.ReasonInstanceFailed, i.State.Message}
}
