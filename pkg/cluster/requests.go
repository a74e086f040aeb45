package cluster

import (
	"fmt"
	"slices"

	"k8s.io/utils/ptr"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
)

// passRequestsOn tells the agents what users ask for by an annotation, and takes
// the annotation away when that is done, void or refused. What the agents were
// told stays in the ConfigMap for as long as the annotation is seen: it is void
// by then, and a cache that is behind makes no second request of it.
func passRequestsOn(o Observation, p *Plan) {
	if p.Stop {
		refuseRequests(o, p)
		return
	}
	passSwitchoverOn(o, p)
	passRecloneOn(o, p)
	passForcePromotionOn(o, p)
}

// passRecloneOn lets a replica be cloned anew: the data that it had when the
// request was first seen goes, and no other.
func passRecloneOn(o Observation, p *Plan) {
	name, asked := o.Cluster.Annotations[v1.RecloneAnnotation]
	if !asked {
		return
	}
	i, told := find(o, name), o.told().Reclone
	if told == nil || told.Instance != name {
		if why := whyNotReclone(o, p, i); why != "" {
			p.refuse(o, v1.RecloneAnnotation, why)
			return
		}
		if i.State == nil {
			p.wait("%s=%s waits until the agent of %s answers", v1.RecloneAnnotation, name, name)
			return
		}
		p.Reclone = &instanceapi.Reclone{Instance: name, DataID: i.State.DataID, NewVolumes: len(o.ofOtherClass(i)) > 0}
		p.wait("%s is to be cloned anew", name)
		return
	}
	p.Reclone = told
	switch {
	case !slices.Contains(p.Members, name):
		p.refuse(o, v1.RecloneAnnotation, name+" is no instance of this cluster any more")
	case name == o.primaryName():
		p.refuse(o, v1.RecloneAnnotation, name+" has become the primary meanwhile")
	case i.State != nil && i.State.HasData && i.State.DataID != told.DataID:
		p.clear(o, v1.RecloneAnnotation, v1.ReasonRecloned, fmt.Sprintf("%s has copied the primary anew, as %s asked", name, v1.RecloneAnnotation))
	default:
		if told.NewVolumes && o.primaryServes() {
			replaceVolumes(o, p, i)
		}
		p.wait("%s is to be cloned anew%s", name, wordsOf(i))
	}
}

// replaceVolumes deletes the volumes of a replica that are not of the class that
// the spec asks for. Its pod makes way, and a new one clones on new volumes.
func replaceVolumes(o Observation, p *Plan, i Instance) {
	for _, claim := range o.ofOtherClass(i) {
		p.delete(claim, v1.ReasonVolumeReplaced, fmt.Sprintf("replacing volume %s of class %s: the spec asks for another class, and %s=%s for a new copy",
			claim.Name, ptr.Deref(claim.Spec.StorageClassName, "none"), v1.RecloneAnnotation, i.Name))
	}
}

func whyNotReclone(o Observation, p *Plan, i Instance) string {
	switch {
	case !slices.Contains(p.Members, i.Name) || i.Pod == nil:
		return whyUnknown(p, i.Name)
	case i.Name == o.lastPrimary():
		return fmt.Sprintf("%s is the primary; switch over to another instance first (%s)", i.Name, v1.SwitchoverAnnotation)
	case !o.primaryServes():
		return fmt.Sprintf("there is no primary that %s could copy; ask again when there is", i.Name)
	case i.State != nil && i.State.Inspected && i.State.DataID == "":
		return i.Name + " has no data to throw away; it copies the primary by itself"
	}
	return ""
}

// passForcePromotionOn lets a replica take over although it may lack what was
// committed, as long as nobody else reigns.
func passForcePromotionOn(o Observation, p *Plan) {
	name, asked := o.Cluster.Annotations[v1.ForcePromoteAnnotation]
	if !asked {
		return
	}
	i, told := find(o, name), o.told().ForcePromote
	record, _ := o.record()
	if told == nil || told.Instance != name {
		if why := whyNotForce(o, p, i); why != "" {
			p.refuse(o, v1.ForcePromoteAnnotation, why)
			return
		}
		if i.State == nil {
			p.wait("%s=%s waits until the agent of %s answers", v1.ForcePromoteAnnotation, name, name)
			return
		}
		p.ForcePromote = &instanceapi.ForcePromote{Instance: name, Term: record.Term}
		p.wait("%s is to take over by force", name)
		return
	}
	p.ForcePromote = told
	switch {
	case o.termHasMovedFrom(told.Term) && o.primaryName() == name:
		p.clear(o, v1.ForcePromoteAnnotation, "", "") // the takeover has an event of its own
	case o.termHasMovedFrom(told.Term) && o.primaryName() != "":
		p.refuse(o, v1.ForcePromoteAnnotation, o.primaryName()+" has taken over meanwhile")
	case o.primaryServes():
		p.refuse(o, v1.ForcePromoteAnnotation, o.primaryName()+" serves again, so nothing is forced")
	default:
		p.wait("%s is to take over by force%s", name, wordsOf(i))
	}
}

func whyNotForce(o Observation, p *Plan, i Instance) string {
	record, _ := o.record()
	switch {
	case !slices.Contains(p.Members, i.Name) || i.Pod == nil:
		return whyUnknown(p, i.Name)
	case o.primaryServes():
		return fmt.Sprintf("%s serves as the primary, so nothing is forced; to hand over in order, ask with %s", o.primaryName(), v1.SwitchoverAnnotation)
	case record.IsEmpty() && !o.leaseIsLost():
		return "there has been no primary yet"
	case i.State != nil && i.State.Inspected && !i.State.HasData:
		return i.Name + " has no data"
	}
	return ""
}

// wordsOf is what an instance says to what it was asked for, to be put at the
// end of a sentence.
func wordsOf(i Instance) string {
	switch {
	case i.State == nil:
		return ": its agent does not answer"
	case i.State.Request != "":
		return ": " + i.State.Request
	case i.State.Message != "":
		return ": " + i.State.Message
	}
	return ""
}

func whyUnknown(p *Plan, name string) string {
	return fmt.Sprintf("%q is no instance of this cluster that runs; name one of %v", name, p.Members)
}

// clear takes a request away.
func (p *Plan) clear(o Observation, annotation, reason, note string) {
	p.Actions = append(p.Actions, Action{Verb: Clear, Object: o.Cluster, Annotation: annotation, Reason: reason, Note: note})
}

// refuse takes a request away that is not carried out.
func (p *Plan) refuse(o Observation, annotation, why string) {
	p.clear(o, annotation, v1.ReasonRequestRefused, fmt.Sprintf("%s=%s: %s", annotation, o.Cluster.Annotations[annotation], why))
}
