package cluster

import (
	"fmt"
	"slices"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/specs"
)

// restartInstances restarts the pods that are not as the spec asks, and all of
// them once where the annotation pgop.dev/restart asks: one at a time, replicas
// first and the primary last, which hands over before. As long as an instance
// does not serve, no other is touched, so that a change that breaks the first
// one stops there.
func restartInstances(o Observation, p *Plan) {
	due := dueForRestart(o, p)
	if len(due) == 0 {
		finishRestart(o, p)
		return
	}
	if p.deletesPods() {
		return // one at a time
	}
	next := due[0] // a primary is alone here
	for _, name := range due {
		if name != o.primaryName() {
			next = name
			break
		}
	}
	for _, name := range p.Members {
		if !find(o, name).isReady() {
			p.wait("the restart of instance %s waits until instance %s serves", next, name)
			return
		}
	}
	if next == o.primaryName() && p.Switchover != nil && !p.SwitchoverFailed {
		return // it hands over first, and restarts as a replica
	}
	i := find(o, next)
	if missing := o.missingVolume(i); missing != "" {
		p.wait("the restart of instance %s waits until its volume %s is there", next, missing)
		return
	}
	p.Actions = append(p.Actions, Action{
		Verb: Delete, Object: i.Pod, Successor: specs.Pod(o.Cluster, next, o.OperatorImage),
		Reason: v1.ReasonInstanceRestarted, Note: fmt.Sprintf("restarting instance %s: %s", next, whyRestart(o, i)),
	})
}

// isNextToRestart says whether the named primary is all that is left to restart,
// and everything else is as it should be.
func isNextToRestart(o Observation, p *Plan, primary string) bool {
	due := dueForRestart(o, p)
	if len(due) != 1 || due[0] != primary {
		return false
	}
	return !slices.ContainsFunc(p.Members, func(name string) bool { return !find(o, name).isReady() })
}

// dueForRestart are the members whose pods must restart, sorted by number. A
// spec that is refused restarts nothing.
func dueForRestart(o Observation, p *Plan) []string {
	if p.SpecError != "" {
		return nil
	}
	var due []string
	for _, name := range p.Members {
		if i := find(o, name); i.Pod != nil && !i.podIsLeaving() && whyRestart(o, i) != "" {
			due = append(due, name)
		}
	}
	return due
}

// whyRestart says why an instance's pod is not what a new one would be, or
// nothing.
func whyRestart(o Observation, i Instance) string {
	request := o.Cluster.Annotations[v1.RestartAnnotation]
	switch {
	case !i.hasCurrentTemplate(o):
		return "the spec has changed"
	case request != "" && i.Pod.Annotations[v1.RestartAnnotation] != request:
		return fmt.Sprintf("%s=%s asks for it", v1.RestartAnnotation, request)
	}
	return ""
}

// finishRestart takes a request back that every instance has followed.
func finishRestart(o Observation, p *Plan) {
	request := o.Cluster.Annotations[v1.RestartAnnotation]
	if request == "" || p.SpecError != "" {
		return
	}
	for _, name := range p.Members {
		if !find(o, name).isReady() {
			return
		}
	}
	p.clear(o, v1.RestartAnnotation, v1.ReasonRestarted, fmt.Sprintf("every instance has restarted since %s=%s asked for it", v1.RestartAnnotation, request))
}
