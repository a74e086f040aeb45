package cluster

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
)

// stopPatience is how long an agent that answers may not know that the cluster is
// to stop. One that never does, such as that of an older operator, hands over to a
// replica instead, which is stopped next.
const stopPatience = 15 * time.Second

// stopInstances ends every pod and keeps the volumes. The agents are told first, so
// that nobody takes over; then the primary stops, so that the replicas have all
// that it has; then they do.
func stopInstances(o Observation, p *Plan) {
	primary, found := o.primary()
	switch {
	case !o.hasPods():
		takeRestartBack(o, p)
	case !o.told().Stop && (p.SpecError == "" || o.StopWaited < stopPatience):
		p.wait("the instances stop as soon as they are told that nobody shall take over")
	case found && primary.Pod != nil:
		stopPrimary(o, p, primary)
	default:
		for _, i := range o.Instances {
			stop(p, i)
		}
	}
}

func stopPrimary(o Observation, p *Plan, primary Instance) {
	if state := primary.State; state != nil && !state.Stopping && serverRuns(primary.Pod) && !primary.podIsLeaving() && o.StopWaited < stopPatience {
		p.wait("%s stops as soon as it knows that nobody shall take over", primary.Name)
		return
	}
	stop(p, primary)
	p.wait("%s, the primary, stops first, so that the others have all that it has", primary.Name)
}

func stop(p *Plan, i Instance) {
	if i.Pod != nil {
		why := "spec.instances: 0"
		if p.Rollback != nil {
			why = "PostgresRestore " + p.Rollback.name
		}
		p.delete(i.Pod, v1.ReasonInstanceStopped, fmt.Sprintf("stopped instance %s, as %s asks; its volume is kept", i.Name, why))
	}
}

// hasPods says whether an instance has a pod.
func (o Observation) hasPods() bool {
	for _, i := range o.Instances {
		if i.Pod != nil {
			return true
		}
	}
	return false
}

// stoppingSince is when the cluster ceased to be ready, if its status tells that it
// stops; the zero time if it does not.
func (o Observation) stoppingSince() time.Time {
	ready := meta.FindStatusCondition(o.Cluster.Status.Conditions, v1.ConditionReady)
	if ready == nil || ready.Reason != v1.ReasonStopping {
		return time.Time{}
	}
	return ready.LastTransitionTime.Time
}

// refuseRequests takes back what is asked of instances that shall not run.
func refuseRequests(o Observation, p *Plan) {
	for _, annotation := range []string{v1.SwitchoverAnnotation, v1.RecloneAnnotation, v1.ForcePromoteAnnotation, v1.RotateAnnotation} {
		if _, asked := o.Cluster.Annotations[annotation]; asked {
			p.refuse(o, annotation, "the cluster is stopped, as spec.instances: 0 asks; start it first")
		}
	}
}

// takeRestartBack takes back a request for a restart: every instance starts anew
// when the cluster does.
func takeRestartBack(o Observation, p *Plan) {
	if request, asked := o.Cluster.Annotations[v1.RestartAnnotation]; asked && p.SpecError == "" {
		p.clear(o, v1.RestartAnnotation, v1.ReasonRestarted, fmt.Sprintf("every instance has stopped since %s=%s asked for a restart", v1.RestartAnnotation, request))
	}
}

// stoppedConditions are the conditions of a cluster that shall not run.
func stoppedConditions(o Observation, p Plan, failures []Failure) []metav1.Condition {
	reason, text := v1.ReasonStopped, "spec.instances is 0: the cluster is stopped"+keptVolumes(o)
	if o.hasPods() {
		reason, text = v1.ReasonStopping, "spec.instances is 0: the cluster is being stopped; all volumes are kept"
	}
	return conditionsWithout(o, p, failures, reason, text)
}

// conditionsWithout are the conditions of a cluster in which no primary shall serve,
// for that reason.
func conditionsWithout(o Observation, p Plan, failures []Failure, reason, text string) []metav1.Condition {
	primary := no(v1.ConditionPrimaryAvailable, reason, text)
	if o.primaryServes() {
		primary = yes(v1.ConditionPrimaryAvailable, v1.ReasonPrimaryServes, o.primaryName()+" takes writes until it is stopped")
	}
	return []metav1.Condition{
		specAccepted(p),
		primary,
		no(v1.ConditionReplicating, reason, text),
		no(v1.ConditionFailoverReady, reason, text),
		upToDateStopped(o, p, failures),
		databasesReady(o, p),
		archivingStopped(o, reason, text),
		backedUp(o, p),
		no(v1.ConditionReady, reason, limit(text)),
		stopProgress(o, p, failures),
	}
}

// keptVolumes names them, and says how the cluster starts.
func keptVolumes(o Observation) string {
	var names []string
	for _, i := range o.Instances {
		if i.Volume != nil {
			names = append(names, i.Name)
		}
	}
	if len(names) == 0 {
		return "; it has no volumes"
	}
	return fmt.Sprintf(", and its volumes are kept: %s. To start it: kubectl scale pg/%s --replicas=%d",
		strings.Join(names, ", "), o.Cluster.Name, len(names))
}

func upToDateStopped(o Observation, p Plan, failures []Failure) metav1.Condition {
	if p.SpecError != "" {
		return no(v1.ConditionUpToDate, v1.ReasonInvalid, "the spec is not accepted")
	}
	if c, found := volumesDiffer(o, failures); found {
		return c
	}
	return yes(v1.ConditionUpToDate, v1.ReasonUpToDate, largerThanAsked(o))
}

func stopProgress(o Observation, p Plan, failures []Failure) metav1.Condition {
	const kind = v1.ConditionProgressing
	switch {
	case p.Paused:
		return paused(p, "")
	case len(failures) > 0:
		return no(kind, v1.ReasonBlocked, limit(describeFailures(failures)))
	case isSettled(o, p):
		return no(kind, v1.ReasonSettled, "")
	}
	return yes(kind, v1.ReasonReconciling, limit(orElse(strings.Join(p.Waits, "; "), "the instances are being stopped")))
}

// paused says that nothing is done, and what would be.
func paused(p Plan, blocked string) metav1.Condition {
	text := "spec.paused is true: the operator changes nothing until it is false"
	if len(p.Held) > 0 {
		text += "; held back: " + strings.Join(p.Held, ", ")
	}
	return no(v1.ConditionProgressing, v1.ReasonPaused, limit(joined(text, blocked)))
}
