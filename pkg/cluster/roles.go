package cluster

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/pki"
	"github.com/pgop/postgres-operator/pkg/specs"
)

// ensureClientCertificates keeps the logins of roles that show a certificate. One that
// nobody asks for any more goes, since it would not be renewed.
func ensureClientCertificates(o Observation, p *Plan, a pki.Authorities, trusted []byte) {
	c := o.Cluster
	wanted := map[string]bool{}
	for _, r := range c.Spec.Roles {
		if !specs.HasCertificate(r) || p.SpecError != "" && o.Secrets[specs.ClientSecret(c.Name, r.Name)] == nil {
			continue
		}
		name := specs.ClientSecret(c.Name, r.Name)
		wanted[name] = true
		live := o.Secrets[name]
		var leaf pki.Pair
		if live != nil {
			leaf = specs.CertificateOf(live)
		}
		if a.IsDue(leaf, r.Name, nil, o.Now) {
			made, err := a.NewLeaf(r.Name, nil, o.LeafLifetime, o.Now)
			if err != nil {
				p.wait("make the certificate of role %s: %v", r.Name, err)
				continue
			}
			leaf = made
		}
		want := specs.NewClientSecret(c, r, leaf, trusted)
		if live == nil {
			p.create(want, "", "")
		} else if repaired := specs.RepairSecret(live, want); repaired != nil {
			p.update(repaired)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(o.Secrets)) {
		if specs.IsClientSecret(c.Name, name) && !wanted[name] && p.SpecError == "" {
			p.delete(o.Secrets[name], "", "")
		}
	}
}

// certifiedWereGiven says whether the roles that show a certificate have one of who
// signs, and know whom to trust.
func certifiedWereGiven(o Observation, a pki.Authorities, trusted []byte) bool {
	return allOf(o.Cluster.Spec.Roles, func(r v1.RoleSpec) bool {
		live := o.Secrets[specs.ClientSecret(o.Cluster.Name, r.Name)]
		return !specs.HasCertificate(r) || live == nil ||
			bytes.Equal(live.Data[specs.CAKey], trusted) && !a.IsDue(specs.CertificateOf(live), r.Name, nil, o.Now)
	})
}

// clientsWereGiven says whether the logins name the authorities that are trusted.
func clientsWereGiven(o Observation, trusted []byte) bool {
	return !slices.ContainsFunc(specs.Logins(o.Cluster), func(l specs.Login) bool {
		live := o.Secrets[l.Secret]
		return live != nil && !bytes.Equal(live.Data[specs.CAKey], trusted)
	})
}

// declared is what the agents are told, or were told last if the spec is refused.
func (o Observation) declared(p Plan) instanceapi.Declared {
	if p.SpecError != "" {
		return o.told().Declared
	}
	return specs.DeclaredOf(o.Cluster)
}

// declaredState is what the primary says of roles and databases; nil while no
// primary that serves does.
func (o Observation) declaredState() *instanceapi.DeclaredState {
	primary, found := o.primary()
	if !found || primary.State == nil || !o.primaryServes() {
		return nil
	}
	if primary.State.Declared == nil {
		return &instanceapi.DeclaredState{}
	}
	return primary.State.Declared
}

// primaryKnowsRoles says whether the primary's agent is of a version that looks after
// roles and databases.
func (o Observation) primaryKnowsRoles() bool {
	primary, found := o.primary()
	return !found || primary.State == nil || primary.State.Declared != nil
}

// isApplyingDeclared says whether the primary is yet to come to what is declared.
func (o Observation) isApplyingDeclared(p Plan) bool {
	want, state := o.declared(p), o.declaredState()
	return state != nil && o.primaryKnowsRoles() && state.Hash != want.Hash() && !(state.Hash == "" && want.IsEmpty())
}

// databasesReady says whether the roles and databases of the spec are in the server
// as declared. While nobody can say, it stays as it was.
func databasesReady(o Observation, p Plan) metav1.Condition {
	const kind = v1.ConditionDatabasesReady
	state := o.declaredState()
	before := meta.FindStatusCondition(o.Cluster.Status.Conditions, kind)
	switch {
	case o.declared(p).IsEmpty() && ownerProblem(state) != "":
		return no(kind, v1.ReasonDeclaredRefused, limit(ownerProblem(state)))
	case o.declared(p).IsEmpty():
		return yes(kind, v1.ReasonNothingDeclared, "")
	case state == nil && before != nil && before.Reason != v1.ReasonNothingDeclared && before.ObservedGeneration == o.Cluster.Generation:
		return metav1.Condition{Type: kind, Status: before.Status, Reason: before.Reason, Message: before.Message}
	case state == nil:
		return no(kind, v1.ReasonApplyingDeclared, "waiting for a primary that takes writes and says how far it is with roles and databases")
	case !o.primaryKnowsRoles():
		return no(kind, v1.ReasonAgentOutdated, fmt.Sprintf("the agent of %s was brought by an operator that did not know of roles and databases; restart the instances with kubectl annotate pg/%s --overwrite %s=$(date +%%s)",
			o.primaryName(), o.Cluster.Name, v1.RestartAnnotation))
	case o.isApplyingDeclared(p):
		return no(kind, v1.ReasonApplyingDeclared, "the newest roles and databases are on their way to "+o.primaryName())
	}
	var problems []string
	for _, e := range state.Roles {
		if e.Problem != "" {
			problems = append(problems, "role "+e.Name+": "+e.Problem)
		}
	}
	if text := ownerProblem(state); text != "" {
		problems = append(problems, text)
	}
	for _, e := range state.Databases {
		if e.Problem != "" {
			problems = append(problems, "database "+e.Name+": "+e.Problem)
		}
	}
	if len(problems) > 0 {
		return no(kind, v1.ReasonDeclaredRefused, limit(strings.Join(problems, "; ")))
	}
	return yes(kind, v1.ReasonAsDeclared, "")
}

// ownerProblem is what keeps the application database's owner from its password, if
// the role has no entry; empty: nothing.
func ownerProblem(state *instanceapi.DeclaredState) string {
	if state == nil || state.Owner == nil || state.Owner.Problem == "" {
		return ""
	}
	return "role " + state.Owner.Name + ": " + state.Owner.Problem
}

// roleStatuses has a row for each role of the spec. What nobody can say now stays as
// it was.
func roleStatuses(o Observation, p Plan) []v1.RoleStatus {
	var rows []v1.RoleStatus
	for _, r := range o.Cluster.Spec.Roles {
		row := v1.RoleStatus{Name: r.Name, Secret: specs.SecretOfRole(o.Cluster, r)}
		if specs.HasCertificate(r) {
			row.Secret = specs.ClientSecret(o.Cluster.Name, r.Name)
		}
		i := slices.IndexFunc(o.Cluster.Status.Roles, func(s v1.RoleStatus) bool { return s.Name == r.Name })
		if i >= 0 {
			row.Ready, row.Message, row.NextRotation = o.Cluster.Status.Roles[i].Ready, o.Cluster.Status.Roles[i].Message, o.Cluster.Status.Roles[i].NextRotation
		}
		rotationStatus(o, p, &row)
		row.Ready, row.Message = o.entryStatus(p, r.Name, row.Ready, row.Message, func(s *instanceapi.DeclaredState) []instanceapi.DeclaredEntry { return s.Roles })
		rows = append(rows, row)
	}
	return rows
}

// databaseStatuses does for databases what roleStatuses does for roles.
func databaseStatuses(o Observation, p Plan) []v1.DatabaseStatus {
	var rows []v1.DatabaseStatus
	for _, d := range o.Cluster.Spec.Databases {
		row := v1.DatabaseStatus{Name: d.Name}
		i := slices.IndexFunc(o.Cluster.Status.Databases, func(s v1.DatabaseStatus) bool { return s.Name == d.Name })
		if i >= 0 {
			row = o.Cluster.Status.Databases[i]
		}
		row.Ready, row.Message = o.entryStatus(p, d.Name, row.Ready, row.Message, func(s *instanceapi.DeclaredState) []instanceapi.DeclaredEntry { return s.Databases })
		rows = append(rows, row)
	}
	return rows
}

// entryStatus is what the primary says of an entry; as it was before if it speaks of
// another spec, or of none.
func (o Observation) entryStatus(p Plan, name string, ready bool, message string, of func(*instanceapi.DeclaredState) []instanceapi.DeclaredEntry) (bool, string) {
	state := o.declaredState()
	if state == nil || state.Hash != o.declared(p).Hash() {
		return ready, message
	}
	entries := of(state)
	i := slices.IndexFunc(entries, func(e instanceapi.DeclaredEntry) bool { return e.Name == name })
	if i < 0 {
		return ready, message // the spec is refused, and what is in force has no such entry
	}
	return entries[i].Problem == "", limit(entries[i].Problem)
}

// entryNews is an entry whose state has changed in a way that people are told of.
type entryNews struct {
	Entry, Kind, Reason, Note string
}

// newsOfEntries are the entries that have got into trouble, or out of it.
func newsOfEntries(before, after v1.PostgresClusterStatus) []entryNews {
	was := map[string]string{}
	for _, r := range before.Roles {
		was["role "+r.Name] = r.Message
	}
	for _, d := range before.Databases {
		was["database "+d.Name] = d.Message
	}
	var news []entryNews
	add := func(what string, ready bool, message string) {
		switch {
		case message != "" && message != was[what]:
			news = append(news, entryNews{what, corev1.EventTypeWarning, v1.ReasonDeclaredRefused, what + ": " + message})
		case ready && was[what] != "":
			news = append(news, entryNews{what, corev1.EventTypeNormal, v1.ReasonAsDeclared, what + " is as declared"})
		}
	}
	for _, r := range after.Roles {
		add("role "+r.Name, r.Ready, r.Message)
	}
	for _, d := range after.Databases {
		add("database "+d.Name, d.Ready, d.Message)
	}
	return news
}

// announceEntries makes an event of each. Their action names the entry: events that
// differ in their note alone would be counted as one.
func (l *Loop) announceEntries(c *v1.PostgresCluster, before, after v1.PostgresClusterStatus) {
	for _, n := range newsOfEntries(before, after) {
		l.log.WithField("reason", n.Reason).Info(n.Note)
		l.Events.Eventf(c, nil, n.Kind, n.Reason, "Observe "+n.Entry, "%s", noteOf(n.Note))
	}
}
