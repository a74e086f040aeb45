package cluster

import (
	"fmt"
	"slices"
	"strings"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/specs"
)

// leaseIsLost says whether a volume remembers a reign of which the Lease does not
// tell: it was deleted, or made anew with the cluster, or brought back from a copy. The
// agents find out among themselves who reigned last.
func (o Observation) leaseIsLost() bool {
	record, _ := o.record()
	remembered, _ := o.newestMemory()
	return remembered > record.Term
}

// newestMemory is the newest term that a volume remembers, and an instance that
// remembers it and has data, if there is one.
func (o Observation) newestMemory() (term uint64, name string) {
	for _, i := range o.Instances {
		if i.State == nil || !i.State.Inspected || i.State.Term < term {
			continue
		}
		if i.State.Term > term {
			term, name = i.State.Term, ""
		}
		if name == "" && i.State.HasData {
			name = i.Name
		}
	}
	return term, name
}

// blankMembers are the members that agents need not wait for while the Lease is lost:
// their volumes were never used, or went with their nodes.
func blankMembers(o Observation, p *Plan) []string {
	if !o.leaseIsLost() {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(p.Members), func(name string) bool {
		i := find(o, name)
		isUsed := i.State != nil || slices.ContainsFunc(i.allClaims(), specs.IsProvisioned)
		return isUsed && i.LostNode == ""
	})
}

// whyNotTaken says what keeps the lost Lease from being taken again, in the words of
// the agents, and the way out; empty: nothing for long.
func whyNotTaken(o Observation, p Plan) string {
	var texts []string
	for _, name := range p.Members {
		i := find(o, name)
		if i.State != nil && i.State.Role == instanceapi.RolePrimary {
			return "" // it goes on, and writes the Lease again in a moment
		}
		if i.State != nil && i.State.Election != "" {
			texts = append(texts, name+": "+i.State.Election)
		}
	}
	if len(texts) == 0 {
		return ""
	}
	text := "nobody reigns, and the Lease does not tell of the last reign: " + strings.Join(texts, "; ") +
		". When who is waited for is back, this goes on by itself"
	if _, best := o.newestMemory(); best != "" {
		text += fmt.Sprintf(". To go on with %s, which remembers the newest reign of those that answer, and lose what it lacks: kubectl annotate pg/%s %s=%s",
			best, o.Cluster.Name, v1.ForcePromoteAnnotation, best)
	}
	return text
}
