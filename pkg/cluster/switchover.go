package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/specs"
)

const (
	// refusalPatience is for how long what the primary says against a switchover
	// may be about an earlier one.
	refusalPatience = 10 * time.Second
	// switchoverPatience is for how long a switchover may not come about. One that
	// waits longer would come when nobody expects it.
	switchoverPatience = time.Minute
	// switchoverRetry is after what time the operator asks again for one that it
	// wants itself.
	switchoverRetry = 5 * time.Minute
)

// outcome is what became of a switchover.
type outcome int

const (
	// underWay: the reign in which it was asked for has not ended, or nobody
	// reigns.
	underWay outcome = iota
	// handedOver: the instance that it names reigns, or any other than before.
	handedOver
	// cameToNothing: it is void, and somebody else reigns.
	cameToNothing
)

func (o Observation) outcomeOf(s instanceapi.Switchover) outcome {
	record, holder := o.record()
	switch {
	case record.Term == s.Term && (holder.IsZero() || holder.Instance == s.From):
		return underWay
	case record.Term > s.Term && holder.IsZero():
		return underWay
	case record.Term > s.Term && holder.Instance != s.From && (s.To == "" || s.To == holder.Instance):
		return handedOver
	}
	return cameToNothing
}

// successor is the instance that the primary was told to hand over to; empty if
// it was told to hand over to none, or to any.
func (o Observation) successor() string {
	if told := o.told().Switchover; told != nil && o.outcomeOf(*told) == underWay {
		return told.To
	}
	return ""
}

// passSwitchoverOn lets the primary hand over where a user asks for it, or else
// where the operator wants it itself.
func passSwitchoverOn(o Observation, p *Plan) {
	told := o.told().Switchover
	if to, asked := o.Cluster.Annotations[v1.SwitchoverAnnotation]; asked {
		followRequest(o, p, told, to)
		return
	}
	if told != nil && mustKeep(o, *told) {
		p.keepSwitchover(o, told)
	}
	if to, why := whyMovePrimary(o, p); why != "" {
		movePrimary(o, p, told, to, why)
	}
}

// mustKeep says whether a switchover that nobody asks for any more must stay:
// as long as it is under way, or its end has no event yet, which it explains.
func mustKeep(o Observation, s instanceapi.Switchover) bool {
	if o.outcomeOf(s) == underWay {
		return !o.primaryServes()
	}
	return o.primaryName() != o.Cluster.Status.Primary
}

func (p *Plan) keepSwitchover(o Observation, s *instanceapi.Switchover) {
	p.Switchover, p.SwitchoverAsked = s, specs.SwitchoverAsked(o.ConfigMap)
	if p.SwitchoverAsked.IsZero() {
		p.SwitchoverAsked = o.Now
	}
}

func (p *Plan) askSwitchover(o Observation, to string) {
	record, holder := o.record()
	p.Switchover = &instanceapi.Switchover{To: to, From: holder.Instance, Term: record.Term}
	p.SwitchoverAsked = o.Now
}

// followRequest begins the switchover that a user asks for, and takes the
// request away when it has ended.
func followRequest(o Observation, p *Plan, told *instanceapi.Switchover, to string) {
	if told == nil || told.To != to {
		switch why := whyNotSwitchTo(o, p, to); {
		case why != "":
			p.refuse(o, v1.SwitchoverAnnotation, why)
		case !o.primaryServes():
			p.wait("the switchover to %s waits for a primary that could hand over", to)
		default:
			p.askSwitchover(o, to)
			p.wait("%s is to hand over to %s", o.primaryName(), to)
		}
		return
	}
	p.keepSwitchover(o, told)
	fail := func(why string) {
		p.clear(o, v1.SwitchoverAnnotation, v1.ReasonSwitchoverFailed, fmt.Sprintf("the switchover from %s to %s has not come about: %s", told.From, to, why))
	}
	switch o.outcomeOf(*told) {
	case handedOver:
		p.clear(o, v1.SwitchoverAnnotation, "", "") // the takeover has an event of its own
	case cameToNothing:
		fail(orElse(requestOf(o), orElse(o.primaryName(), "nobody")+" leads now"))
	case underWay:
		switch why := whyStuck(o); {
		case !slices.Contains(p.Members, to):
			fail(to + " is no instance of this cluster any more")
		case why != "":
			fail(why)
		default:
			p.wait("%s is to hand over to %s", told.From, to)
		}
	}
}

// whyNotSwitchTo says why nobody can hand over to the named instance, or nothing.
func whyNotSwitchTo(o Observation, p *Plan, to string) string {
	i := find(o, to)
	switch {
	case !slices.Contains(p.Members, to) || i.Pod == nil:
		return whyUnknown(p, to)
	case to == o.primaryName():
		return to + " is the primary already"
	case o.primaryServes() && !canLead(i):
		return fmt.Sprintf("%s does not stream from %s%s; ask again when it does", to, o.primaryName(), wordsOf(i))
	}
	return ""
}

// whyStuck says why a switchover has not begun in time, or nothing.
func whyStuck(o Observation) string {
	switch why := requestOf(o); {
	case why != "" && o.SwitchoverWaited >= refusalPatience:
		return why
	case o.SwitchoverWaited >= switchoverPatience && o.primaryServes():
		return fmt.Sprintf("%s has not begun within %s", o.primaryName(), switchoverPatience)
	}
	return ""
}

// requestOf is what the primary says against what it was asked for.
func requestOf(o Observation) string {
	if primary, found := o.primary(); found && primary.State != nil {
		return primary.State.Request
	}
	return ""
}

// whyMovePrimary says why another instance should be the primary, and which;
// the empty name is whichever is best fit. Without a reason nothing should
// change.
func whyMovePrimary(o Observation, p *Plan) (to, why string) {
	primary, _ := o.primary()
	if !o.primaryServes() {
		return "", ""
	}
	best := bestReplica(o, p)
	switch {
	case best == "":
	case o.isLeavingItsNode(primary):
		return best, fmt.Sprintf("its node, %s, is cordoned", primary.Pod.Spec.NodeName)
	case primary.volumeIsLeaving():
		return best, "its volume is being deleted"
	case nextChange(o, p).State == HandingOver:
		return "", "it is to restart" // all others have, so anyone may take over
	}
	return "", ""
}

// movePrimary asks the primary to hand over. When it has not done so, a restart
// goes on in its place; for other reasons it is asked again later.
func movePrimary(o Observation, p *Plan, told *instanceapi.Switchover, to, why string) {
	if told == nil || told.From != o.primaryName() {
		p.askSwitchover(o, to)
		p.wait("%s is to hand over, since %s", o.primaryName(), why)
		return
	}
	p.keepSwitchover(o, told)
	failure := whyStuck(o)
	if o.outcomeOf(*told) == cameToNothing {
		failure = orElse(requestOf(o), o.primaryName()+" leads on")
	}
	if failure != "" {
		p.SwitchoverFailed = true
		if o.SwitchoverWaited >= switchoverRetry {
			p.askSwitchover(o, to)
		}
		failure = "; it has not come about yet: " + failure
	}
	p.wait("%s is to hand over, since %s%s", o.primaryName(), why, failure)
}

// bestReplica is the replica to hand over to: one that streams, on a node that
// stays, rather one that does not have to restart itself, with the least lag; or
// nobody.
func bestReplica(o Observation, p *Plan) string {
	primary, _ := o.primary()
	lag := map[string]int64{}
	if primary.State != nil {
		for _, s := range primary.State.Standbys {
			lag[s.Name] = s.LagBytes
		}
	}
	var fit []Instance
	for _, name := range p.Members {
		if i := find(o, name); name != primary.Name && canLead(i) && !o.isLeavingItsNode(i) && !i.volumeIsLeaving() {
			fit = append(fit, i)
		}
	}
	if len(fit) == 0 {
		return ""
	}
	due := dueForRestart(o, p)
	isDue := func(i Instance) int {
		if slices.Contains(due, i.Name) {
			return 1
		}
		return 0
	}
	return slices.MinFunc(fit, func(a, b Instance) int {
		return cmp.Or(cmp.Compare(isDue(a), isDue(b)), cmp.Compare(lag[a.Name], lag[b.Name]), cmp.Compare(a.Number, b.Number))
	}).Name
}

// canLead says whether the instance is a replica that streams.
func canLead(i Instance) bool {
	return i.isReady() && i.State != nil && i.State.Role == instanceapi.RoleReplica && i.State.Streaming
}

// isLeavingItsNode says whether the instance's node takes no new pods, as when it
// is to be drained.
func (o Observation) isLeavingItsNode(i Instance) bool {
	if !i.isScheduled() {
		return false
	}
	node := o.Nodes[i.Pod.Spec.NodeName]
	return node != nil && node.Spec.Unschedulable
}
