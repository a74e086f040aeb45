package cluster

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/postgres"
)

// changeState is how far a change has come that takes restarts. Nothing remembers
// it: each pass tells it anew from what there is. docs/changes.md has the diagram.
type changeState string

const (
	// Settled: nobody has to restart.
	Settled changeState = "Settled"
	// Held: parameters wait for a restart, and none comes, since a server has
	// refused them. Everything else goes on.
	Held changeState = "Held"
	// ReplacingBroken: a pod whose server does not run is not what was asked for last,
	// and is replaced at once: that costs nothing, and takes back what broke it.
	ReplacingBroken changeState = "ReplacingBroken"
	// Distributing: the newest configuration has not reached everybody. Only then
	// is it known who has to restart for it, and in which order.
	Distributing changeState = "Distributing"
	// Awaiting: an instance does not serve or has not caught up, so no other is
	// touched. A change that breaks the first instance stops here.
	Awaiting changeState = "Awaiting"
	// RestartingReplica: one replica restarts.
	RestartingReplica changeState = "RestartingReplica"
	// LoweringPrimary: the primary's server restarts in its place with less than
	// its replicas have; they may follow only when they have replayed that.
	LoweringPrimary changeState = "LoweringPrimary"
	// HandingOver: the primary alone is left, and hands over to a replica.
	HandingOver changeState = "HandingOver"
	// RestartingPrimary: the primary restarts in its place, since nobody can take
	// over from it.
	RestartingPrimary changeState = "RestartingPrimary"
)

// changeStates are all, in the order of a change's life.
var changeStates = []changeState{Settled, Held, ReplacingBroken, Distributing, Awaiting, RestartingReplica, LoweringPrimary, HandingOver, RestartingPrimary}

// changeProgress is where a change has come to.
type changeProgress struct {
	State changeState
	// Instance is the one to restart or to hand over; empty in Settled and Held.
	Instance string
	// Awaited is the instance that is waited for, and Why what it lacks, in
	// Distributing and Awaiting.
	Awaited, Why string
}

// nextChange tells where a change has come to, which decides what is done next.
// Replicas come first, one at a time, each when all others serve and have caught
// up, and the primary last. Only what replicas may not have less of than their
// primary is lowered on the primary first.
func nextChange(o Observation, p *Plan) changeProgress {
	due := dueForRestart(o, p)
	if len(due) == 0 && slices.ContainsFunc(o.Instances, func(i Instance) bool { return len(i.pendingParameters()) > 0 }) {
		return changeProgress{State: Held}
	}
	if len(due) == 0 {
		return changeProgress{State: Settled}
	}
	if n := slices.IndexFunc(due, func(name string) bool { return isToBeReplaced(o, find(o, name)) }); n >= 0 {
		return changeProgress{State: ReplacingBroken, Instance: due[n]}
	}
	if broken, found := firstBroken(o, p, due); found && o.primaryServes() {
		return changeProgress{State: RestartingReplica, Instance: broken} // which costs nothing
	}
	next := firstToRestart(o, due)
	if awaited := firstWithoutConfiguration(o, p); awaited != "" {
		return changeProgress{State: Distributing, Instance: next, Awaited: awaited,
			Why: fmt.Sprintf("the restart of instance %s waits until %s has the newest configuration", next, awaited)}
	}
	if awaited, lacks := whoKeepsWaiting(o, p, next); awaited != "" {
		return changeProgress{State: Awaiting, Instance: next, Awaited: awaited,
			Why: fmt.Sprintf("the restart of instance %s waits until %s %s", next, itOr(next, awaited), lacks)}
	}
	primary := o.primaryName()
	raised, lowered := directions(o, due)
	switch {
	case len(p.Members) > 1 && lowered && (!raised || next == primary):
		return changeProgress{State: LoweringPrimary, Instance: primary}
	case next != primary:
		return changeProgress{State: RestartingReplica, Instance: next}
	case p.SwitchoverFailed || bestReplica(o, p) == "":
		return changeProgress{State: RestartingPrimary, Instance: primary}
	}
	return changeProgress{State: HandingOver, Instance: primary}
}

func itOr(next, other string) string {
	if other == next {
		return "it"
	}
	return "instance " + other
}

// dueForRestart are the members that have to restart, sorted by number. A spec
// that is refused restarts nothing, and neither do parameters that a server has
// refused.
func dueForRestart(o Observation, p *Plan) []string {
	if p.SpecError != "" || p.Stop {
		return nil
	}
	refused := o.isRefused()
	var due []string
	for _, name := range p.Members {
		i := find(o, name)
		if i.Pod == nil || i.podIsLeaving() {
			continue
		}
		if whyRestart(o, i) != "" || !refused && len(i.pendingParameters()) > 0 {
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

// runs says whether the instance's server runs, as its agent says.
func (i Instance) runs() bool { return i.State != nil && i.State.Phase == instanceapi.PhaseRunning }

// pendingParameters are those that wait for a restart of the instance's server, as
// that says itself.
func (i Instance) pendingParameters() []string {
	if !i.runs() {
		return nil
	}
	return i.State.PendingRestart
}

// firstBroken is a replica that has to restart and does not serve, although its
// server runs: nobody misses it meanwhile, and it may need just that. One whose
// server does not run is replaced by whyReplace, or about to serve; then it is not
// yet another's turn.
func firstBroken(o Observation, p *Plan, due []string) (string, bool) {
	if slices.ContainsFunc(p.Members, func(name string) bool { return !find(o, name).runs() }) {
		return "", false
	}
	n := slices.IndexFunc(due, func(name string) bool {
		i := find(o, name)
		return name != o.primaryName() && !i.isReady()
	})
	if n < 0 {
		return "", false
	}
	return due[n], true
}

// firstToRestart is one that does not tell the operator how it is, or else the
// first replica, or else the primary.
func firstToRestart(o Observation, due []string) string {
	isReplica := func(name string) bool { return name != o.primaryName() }
	silent := func(name string) bool { return isReplica(name) && find(o, name).State == nil }
	for _, wanted := range []func(string) bool{silent, isReplica} {
		if n := slices.IndexFunc(due, wanted); n >= 0 {
			return due[n]
		}
	}
	return due[0]
}

// firstWithoutConfiguration is an instance whose server runs with an older
// configuration than the spec asks for, and does not refuse the newest.
func firstWithoutConfiguration(o Observation, p *Plan) string {
	n := slices.IndexFunc(p.Members, func(name string) bool { return find(o, name).isBehind(p.ConfigHash) })
	if n < 0 || p.ConfigHash == "" {
		return ""
	}
	return p.Members[n]
}

func (i Instance) isBehind(want string) bool {
	return i.runs() && i.State.ConfigError == "" && i.State.ConfigHash != want
}

// whoKeepsWaiting is an instance that has to serve or to catch up before next may
// restart, and what it lacks, for people; the empty name if there is none.
func whoKeepsWaiting(o Observation, p *Plan, next string) (name, lacks string) {
	for _, name := range p.Members {
		if !find(o, name).isReady() {
			return name, "serves"
		}
		// A server that restarts in its place has nothing to do with them.
		if why := whyHeldUp(o, find(o, name)); why != "" && whyRestart(o, find(o, next)) != "" {
			return name, "runs its sidecars (" + why + ")"
		}
	}
	if !o.primaryServes() {
		return o.lastPrimary(), "takes writes, or another instance does"
	}
	for _, name := range p.Members {
		i := find(o, name)
		silent := i.State == nil
		switch lag, known := o.replayLag(i); {
		case name == o.primaryName() || name == next && silent:
		case !known:
			return name, "says how far it has replayed"
		case lag > o.maxLag() && lag >= 1<<20:
			return name, fmt.Sprintf("has caught up (more than %s behind)", coarse(lag))
		case lag > o.maxLag():
			return name, "has caught up"
		}
	}
	if next != o.primaryName() {
		return "", ""
	}
	for _, name := range p.Members {
		if served, known := find(o, name).readyFor(o.Now); known && served < servedLong {
			return name, "has served for a moment"
		}
	}
	return "", ""
}

// servedLong is for how long every instance has to serve before the primary hands
// over. kube-proxy takes in changes once a second: those that lead readers to a
// replica that is new must not delay the one that leads writers to its primary.
const servedLong = 3 * time.Second

// servedLately says whether the instance's pod is ready, or was a moment ago.
func (i Instance) servedLately(now time.Time) bool {
	for _, c := range i.Pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue || now.Sub(c.LastTransitionTime.Time) < servedLong && i.State != nil
		}
	}
	return false
}

// readyFor is for how long the instance's pod has been ready, to the second, by the
// clock of its node; false if that can't be told, or is in the future by this one.
func (i Instance) readyFor(now time.Time) (time.Duration, bool) {
	if i.Pod == nil {
		return 0, false
	}
	for _, c := range i.Pod.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue && !c.LastTransitionTime.IsZero() {
			served := now.Sub(c.LastTransitionTime.Time)
			return served, served >= 0
		}
	}
	return 0, false
}

// replayLag is how many bytes of the primary's WAL a replica has not replayed;
// false if one of them does not say.
func (o Observation) replayLag(i Instance) (int64, bool) {
	primary, _ := o.primary()
	if primary.State == nil || i.State == nil {
		return 0, false
	}
	written, err := postgres.ParseLSN(primary.State.WrittenLSN)
	replayed, errReplayed := postgres.ParseLSN(i.State.ReplayedLSN)
	if err != nil || errReplayed != nil || !i.State.Streaming {
		return 0, false
	}
	return max(0, int64(written)-int64(replayed)), true
}

// maxLag is spec.failover.maxLag in bytes.
func (o Observation) maxLag() int64 { return o.Cluster.Spec.Failover.MaxLag.Value() }

// directions says whether the primary waits for a restart with more or with less of
// what its replicas need, too.
func directions(o Observation, due []string) (raised, lowered bool) {
	primary, _ := o.primary()
	if !slices.Contains(due, primary.Name) || len(primary.pendingParameters()) == 0 {
		return false, false
	}
	return len(primary.State.Raised) > 0, len(primary.State.Lowered) > 0
}

// keeping are the parameters of which a replica has more than the configuration
// gives it, until it has replayed that its primary has less.
func (o Observation) keeping(i Instance) []string {
	primary, _ := o.primary()
	if i.State == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(i.State.Kept), func(name string) bool {
		return primary.State != nil && slices.Contains(primary.State.SystemSet, name) // it never will
	})
}

// isLowering says whether replicas are to have less of what they keep, and can't yet.
// Where a server has refused that, they never will.
func (o Observation) isLowering() bool {
	return !o.isRefused() && slices.ContainsFunc(o.Instances, func(i Instance) bool { return len(o.keeping(i)) > 0 })
}

// isRefused says whether a server refuses the newest configuration.
func (o Observation) isRefused() bool {
	return slices.ContainsFunc(o.Instances, func(i Instance) bool { return i.State != nil && i.State.ConfigError != "" })
}

// planChange decides where the change has come to, and asks a server to restart in
// its place where the pod can stay.
func planChange(o Observation, p *Plan) {
	p.Change = nextChange(o, p)
	i := find(o, p.Change.Instance)
	inPlace := p.Change.State == LoweringPrimary
	if p.Change.State == RestartingReplica || p.Change.State == RestartingPrimary {
		inPlace = whyRestart(o, i) == ""
	}
	if inPlace && !p.switchesOver() && i.State != nil {
		p.Restart = &instanceapi.Restart{Instance: i.Name, ConfigHash: i.State.ConfigHash}
	}
}

// switchesOver says whether a switchover is asked for that has not failed: nobody
// restarts meanwhile.
func (p *Plan) switchesOver() bool { return p.Switchover != nil && !p.SwitchoverFailed }

// restartInstances restarts the pod whose turn it is, and says what the change
// waits for.
func restartInstances(o Observation, p *Plan) {
	next := p.Change.Instance
	switch p.Change.State {
	case Settled:
		finishRestart(o, p)
		return
	case Distributing, Awaiting:
		if !p.deletesPods() {
			p.wait("%s", p.Change.Why)
		}
		return
	case Held, LoweringPrimary, HandingOver, ReplacingBroken:
		return // see movePrimary and replaceBrokenPods for the last two
	}
	i := find(o, next)
	missing := o.missingVolume(i)
	switch {
	case p.Restart != nil || p.deletesPods(): // one at a time
	case p.switchesOver():
		p.wait("the restart of instance %s waits until the switchover is over", next)
	case missing != "":
		p.wait("the restart of instance %s waits until its volume %s is there", next, missing)
	default:
		p.Actions = append(p.Actions, Action{
			Verb: Delete, Object: i.Pod, Successor: o.podOf(next),
			Reason: v1.ReasonInstanceRestarted, Note: fmt.Sprintf("restarting instance %s: %s", next, whyRestart(o, i)),
		})
	}
}

// restartNote is the event that a server is asked to restart; no reason if it is
// not, or was before.
func (p *Plan) restartNote(o Observation) (reason, note string) {
	told := o.told().Restart
	if p.Restart == nil || told != nil && *told == *p.Restart {
		return "", ""
	}
	parameters := find(o, p.Restart.Instance).pendingParameters()
	return v1.ReasonInstanceRestarted, fmt.Sprintf("restarting the server of instance %s in its place, so that its configuration takes effect: %s",
		p.Restart.Instance, strings.Join(parameters, ", "))
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
