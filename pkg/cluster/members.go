package cluster

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/election"
	"github.com/pgop/postgres-operator/pkg/specs"
)

// maxInstances is the schema's limit, for objects that got past it.
const maxInstances = 99

// chooseMembers decides which instances the cluster shall have: as many as
// asked, existing ones first, new ones under the lowest free numbers. But for
// those that were given up, none is left out as long as no primary serves: any may be the one that takes over.
// A cluster that is stopped has those that exist.
func chooseMembers(o Observation, p *Plan) {
	p.Stop = *o.Cluster.Spec.Instances == 0 || p.Rollback.stops() || p.Rollback.reverts()
	if p.Rollback.isMaking() && !o.isLed() {
		p.Members = []string{p.Rollback.instance}
		return
	}
	want := min(max(1, int(*o.Cluster.Spec.Instances)), maxInstances)
	members := slices.DeleteFunc(slices.Clone(o.Instances), o.isGivenUp)
	if p.Stop {
		want = len(members)
	}
	mayShrink := o.primaryServes() || !o.hasReigned() && !o.mayHoldData()
	if len(members) > want && !mayShrink {
		p.wait("%d of the %d instances are to be removed, which waits until a primary serves", len(members)-want, len(members))
	}
	for len(members) > want && mayShrink {
		members = dropOne(o, members)
	}
	for n := 1; len(members) < want; n++ {
		name := specs.Instance(o.Cluster.Name, n)
		taken := slices.Concat(o.Instances, o.Spares)
		if !slices.ContainsFunc(taken, func(i Instance) bool { return i.Number == n }) {
			members = append(members, Instance{Name: name, Number: n})
		}
	}
	slices.SortFunc(members, func(a, b Instance) int { return cmp.Compare(a.Number, b.Number) })
	for _, i := range members {
		p.Members = append(p.Members, i.Name)
	}
}

// hasReigned says whether an instance has ever been the primary.
func (o Observation) hasReigned() bool {
	record, _ := o.record()
	return !record.IsEmpty() || o.Cluster.Status.SystemID != ""
}

// dropOne leaves out the instance that is missed least: never the primary, or
// the one that shall become it first; last the one to which it is about to hand
// over; one that does not serve before one that does; the highest number first.
func dropOne(o Observation, members []Instance) []Instance {
	keep := o.primaryName()
	if keep == "" {
		keep = members[0].Name
	}
	candidates := slices.DeleteFunc(slices.Clone(members), func(i Instance) bool { return i.Name == keep })
	if to := o.successor(); len(candidates) > 1 {
		candidates = slices.DeleteFunc(candidates, func(i Instance) bool { return i.Name == to })
	}
	victim := slices.MinFunc(candidates, func(a, b Instance) int {
		if a.isReady() != b.isReady() {
			if b.isReady() {
				return -1
			}
			return 1
		}
		return cmp.Compare(b.Number, a.Number)
	})
	return slices.DeleteFunc(slices.Clone(members), func(i Instance) bool { return i.Name == victim.Name })
}

// removeInstances deletes the instances that are not to be, with their volumes:
// the user asked for fewer copies. A volume that was retained from an earlier
// cluster and is not used stays, and so does that of an instance that was given
// up: nobody asked for its end. It waits until the primary serves, so that no copy
// goes while it may be the only good one.
func removeInstances(o Observation, p *Plan) {
	if p.Rollback != nil && !o.isLed() {
		return // nothing goes that may come back
	}
	for _, i := range o.Instances {
		if slices.Contains(p.Members, i.Name) {
			continue
		}
		if i.Pod == nil && i.Volume != nil && specs.IsAdopted(i.Volume, o.Cluster) {
			continue // left by an earlier cluster, and not used
		}
		if !o.primaryServes() {
			p.wait("instance %s is to be removed, which waits until the primary serves", i.Name)
			continue
		}
		if o.needsVoteOf(i) && !o.isGivenUp(i) {
			p.wait("instance %s is to be removed, which waits until an election does without its vote", i.Name)
			continue
		}
		isKept := func(c *corev1.PersistentVolumeClaim) bool { return specs.IsAdopted(c, o.Cluster) || o.isGivenUp(i) }
		keepsVolume := slices.ContainsFunc(i.allClaims(), isKept)
		switch {
		case i.Pod == nil || i.podIsLeaving():
		case o.isGivenUp(i):
			p.delete(i.Pod, "", "") // the event NodeLost has told of it
		default:
			p.delete(i.Pod, v1.ReasonInstanceRemoved, removalNote(i.Name, keepsVolume))
		}
		for _, claim := range i.allClaims() {
			if !isKept(claim) {
				p.delete(claim, "", "")
			}
		}
		if secret := o.Secrets[specs.TLSSecret(i.Name)]; secret != nil {
			p.delete(secret, "", "")
		}
	}
	removeLeftoverSecrets(o, p)
}

// needsVoteOf says whether, in mode sync, the primary still counts on the vote of
// an instance, or was not told yet that it is none of the cluster's any more:
// what only that instance has acknowledged must reach another first.
func (o Observation) needsVoteOf(i Instance) bool {
	if o.Cluster.Spec.Replication.Mode != v1.ReplicationSync {
		return false
	}
	record, _ := o.record()
	return slices.Contains(o.told().Members, i.Name) ||
		slices.ContainsFunc(record.Members, func(m election.Member) bool { return m.Instance == i.Name })
}

// removeLeftoverSecrets deletes what was made for an instance of which neither
// pod nor volume came to be, since the spec was edited again at once.
func removeLeftoverSecrets(o Observation, p *Plan) {
	for _, name := range slices.Sorted(maps.Keys(o.Secrets)) {
		instance, ofInstance := o.Secrets[name].Labels[specs.InstanceLabel]
		i := find(o, instance)
		if ofInstance && name == specs.TLSSecret(instance) && i.Pod == nil && i.Volume == nil && !slices.Contains(p.Members, instance) {
			p.delete(o.Secrets[name], "", "")
		}
	}
}

func removalNote(name string, keepsVolume bool) string {
	if keepsVolume {
		return "removed instance " + name + "; its volume, which an earlier cluster left, is kept"
	}
	return "removed instance " + name + " and its volume"
}

// initialiser is the instance that may run initdb: the first one, as long as no
// database exists and no retained volume could hold one.
func initialiser(o Observation, p *Plan) string {
	if p.Rollback.isMaking() && !o.isLed() {
		return p.Rollback.instance
	}
	id, unanimous := o.systemID()
	if id != "" || p.Stop {
		return ""
	}
	if restore := o.Cluster.Spec.Bootstrap.Restore; restore != nil && restore.Store == nil {
		return "" // and nobody makes an empty one instead
	}
	if o.Cluster.Spec.Bootstrap.Clone != nil && o.cloneToTell() == nil {
		return ""
	}
	if !unanimous {
		p.wait("the volumes of this cluster hold different databases; delete those that don't belong to it")
		return ""
	}
	for _, i := range o.Instances {
		if i.Volume == nil || !specs.IsAdopted(i.Volume, o.Cluster) {
			continue
		}
		if i.State == nil || !i.State.Inspected {
			p.wait("volume %s was retained from an earlier cluster; waiting for instance %s to say what it holds", i.Name, i.Name)
			return ""
		}
	}
	return p.Members[0]
}
