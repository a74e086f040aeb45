package cluster

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/pki"
	"github.com/pgop/postgres-operator/pkg/postgres"
	"github.com/pgop/postgres-operator/pkg/specs"
)

// ensureSecrets keeps the authorities, the application's login and the
// certificates, and what servers show of people's own. What authorities there are is written down before anybody is
// told of it, so that a pass that is cut short forgets none that somebody
// trusts; while there is nobody yet, everything is made at once.
func ensureSecrets(o Observation, p *Plan) {
	c := o.Cluster
	name, use := c.Namespace+"/"+c.Name, useOf(o, p)
	wanted, operator := o.Secrets[specs.CASecret(c.Name)], o.Secrets[specs.OperatorSecret(c.Name)]
	a, damage, err := specs.Authorities(wanted, operator).Mend(name, use, o.Now)
	if err != nil {
		p.wait("make the certificate authority: %v", err)
		return
	}
	p.Serving = chooseServing(o, p, a.Trusted)
	if p.Serving.Waits != "" {
		p.RecheckAfter = min(p.RecheckAfter, servingRecheck)
	}
	next, step, written := a, pki.NoStep, areWritten(o, a)
	if written {
		if a.IsRotating() {
			use.Given, use.Settled = wereGiven(o, p, a), doUse(o, p)
		}
		if next, step, err = a.Next(name, use, o.RotationWaited, o.Now); err != nil {
			p.wait("make a new certificate authority: %v", err)
		}
	}
	writeCA(o, p, next, step, damage)
	writeOperatorSecret(o, p, next, step)
	if !written && len(use.Leaves) > 0 {
		return
	}
	clients := p.Serving.clients(a.Trusted)
	ensureLogins(o, p, clients)
	ensureClientCertificates(o, p, a, clients)
	for _, name := range p.Members {
		ensureCertificates(o, p, a, name)
	}
}

// useOf is what the instances were given.
func useOf(o Observation, p *Plan) pki.Use {
	var use pki.Use
	for _, name := range p.Members {
		if secret := o.Secrets[specs.TLSSecret(name)]; secret != nil {
			use.Bundles = append(use.Bundles, secret.Data[specs.CAKey])
			use.Leaves = append(use.Leaves, secret.Data[specs.CertKey], secret.Data[specs.ReplicationCertKey])
		}
	}
	return use
}

// wereGiven says whether the instances and the clients were given what a says.
func wereGiven(o Observation, p *Plan, a pki.Authorities) bool {
	o.Now = time.Time{} // a certificate that is renewed for its age delays no rotation
	clients := p.Serving.clients(a.Trusted)
	if o.Secrets[specs.AppSecret(o.Cluster.Name)] == nil || !clientsWereGiven(o, clients) || !certifiedWereGiven(o, a, clients) {
		return false
	}
	return !slices.ContainsFunc(p.Members, func(name string) bool {
		secret := o.Secrets[specs.TLSSecret(name)]
		if secret == nil {
			return hasRead(find(o, name))
		}
		return !bytes.Equal(secret.Data[specs.CAKey], a.Trusted) || areCertificatesDue(o, a, name, secret)
	})
}

// doUse says whether the instances use what they were given, which they say
// themselves. Of clients nothing is known but what their Secret holds.
func doUse(o Observation, p *Plan) bool {
	return !slices.ContainsFunc(p.Members, func(name string) bool {
		i, secret := find(o, name), o.Secrets[specs.TLSSecret(name)]
		return hasRead(i) && (secret == nil || !usesCredentials(i, secret))
	})
}

// usesCredentials says whether the instance says that it uses what the Secret has.
func usesCredentials(i Instance, secret *corev1.Secret) bool {
	return i.State != nil && i.State.Credentials == instanceapi.CredentialsHash(secret.Data)
}

// hasRead says whether the instance may have read its certificates.
func hasRead(i Instance) bool { return i.Pod != nil && !i.podIsLeaving() && i.isScheduled() }

// areWritten says whether the Secrets hold the authorities as they are here,
// and the operator a certificate.
func areWritten(o Observation, a pki.Authorities) bool {
	wanted, operator := o.Secrets[specs.CASecret(o.Cluster.Name)], o.Secrets[specs.OperatorSecret(o.Cluster.Name)]
	if operator == nil || (wanted == nil) != (len(a.Wanted.Cert) == 0) {
		return false
	}
	leaf := specs.CertificateOf(operator)
	return (wanted == nil || specs.RepairSecret(wanted, specs.NewCASecret(o.Cluster, a.Wanted)) == nil) &&
		specs.RepairSecret(operator, specs.NewOperatorSecret(o.Cluster, a, leaf)) == nil &&
		!a.IsDue(leaf, pki.OperatorName, nil, o.Now)
}

// writeCA keeps the Secret of the authority that shall sign. One that was
// deleted, while another signs, is made in the pass after.
func writeCA(o Observation, p *Plan, a pki.Authorities, step pki.Step, damage error) {
	if len(a.Wanted.Cert) == 0 {
		return
	}
	live := o.Secrets[specs.CASecret(o.Cluster.Name)]
	want := specs.NewCASecret(o.Cluster, a.Wanted)
	reason, note := authorityNews(o, a, step, damage)
	if live == nil {
		p.create(want, reason, note)
	} else if repaired := specs.RepairSecret(live, want); repaired != nil {
		p.Actions = append(p.Actions, Action{Verb: Update, Object: repaired, Reason: reason, Note: note})
	}
}

// authorityNews says why there is another authority now; empty: there is not.
func authorityNews(o Observation, a pki.Authorities, step pki.Step, damage error) (reason, note string) {
	name := specs.CASecret(o.Cluster.Name)
	live, operator := o.Secrets[name], o.Secrets[specs.OperatorSecret(o.Cluster.Name)]
	const made = "made a new certificate authority"
	switch {
	case damage != nil && operator != nil && bytes.Equal(a.Wanted.Cert, operator.Data[specs.SignerCertKey]):
		return v1.ReasonAuthorityRepaired, fmt.Sprintf("put the certificate authority back, since Secret %s was of no use: %v", name, damage)
	case damage != nil:
		return v1.ReasonAuthorityMade, fmt.Sprintf(made+", since Secret %s was of no use: %v", name, damage)
	case step == pki.AuthorityMade && live != nil:
		return v1.ReasonAuthorityMade, fmt.Sprintf(made+", since the one in Secret %s ends on %s", name, pki.Ends(live.Data[specs.CertKey]))
	case live == nil && o.Cluster.Status.SystemID != "":
		return v1.ReasonAuthorityMade, fmt.Sprintf(made+", since Secret %s was deleted", name)
	}
	return "", ""
}

// writeOperatorSecret keeps the operator's own Secret.
func writeOperatorSecret(o Observation, p *Plan, a pki.Authorities, step pki.Step) {
	live := o.Secrets[specs.OperatorSecret(o.Cluster.Name)]
	var leaf pki.Pair
	if live != nil {
		leaf = specs.CertificateOf(live)
	}
	if a.IsDue(leaf, pki.OperatorName, nil, o.Now) {
		made, err := a.NewLeaf(pki.OperatorName, nil, o.LeafLifetime, o.Now)
		if err != nil {
			p.wait("make the operator's certificate: %v", err)
			return
		}
		leaf = made
	}
	want := specs.NewOperatorSecret(o.Cluster, a, leaf)
	if live == nil {
		p.create(want, "", "")
	} else if repaired := specs.RepairSecret(live, want); repaired != nil {
		reason, note := news(step)
		p.Actions = append(p.Actions, Action{Verb: Update, Object: repaired, Reason: reason, Note: note})
	}
}

// news is what a step of a rotation means for people.
func news(step pki.Step) (reason, note string) {
	switch step {
	case pki.AuthorityTrusted:
		return v1.ReasonAuthorityTrusted, "the new certificate authority is trusted beside the old one; certificates stay as they are until every instance trusts both"
	case pki.AuthorityInForce:
		return v1.ReasonAuthorityInForce, "the new certificate authority signs; every certificate is made anew"
	case pki.AuthorityRetired:
		return v1.ReasonAuthorityRetired, "the old certificate authority is no longer trusted; every instance uses a certificate of the new one"
	}
	return "", ""
}

func areCertificatesDue(o Observation, a pki.Authorities, instance string, live *corev1.Secret) bool {
	hosts := specs.CertificateHosts(o.Cluster, instance, o.Services)
	return a.IsDue(specs.CertificateOf(live), instance, hosts, o.Now) ||
		a.IsDue(specs.ReplicationCertificateOf(live), postgres.ReplicationRole, nil, o.Now)
}

// ensureCertificates keeps an instance's certificates and whom it trusts. Both
// of its certificates are made together, so that it reads new ones once.
func ensureCertificates(o Observation, p *Plan, a pki.Authorities, instance string) {
	live := o.Secrets[specs.TLSSecret(instance)]
	var server, replication pki.Pair
	if live != nil && !areCertificatesDue(o, a, instance, live) {
		server, replication = specs.CertificateOf(live), specs.ReplicationCertificateOf(live)
	} else {
		var err error
		if server, err = a.NewLeaf(instance, specs.CertificateHosts(o.Cluster, instance, o.Services), o.LeafLifetime, o.Now); err == nil {
			replication, err = a.NewLeaf(postgres.ReplicationRole, nil, o.LeafLifetime, o.Now)
		}
		if err != nil {
			p.wait("make the certificates of instance %s: %v", instance, err)
			return
		}
	}
	want := specs.NewTLSSecret(o.Cluster, instance, a.Trusted, server, replication, p.Serving.ServerTLS)
	if live == nil {
		p.create(want, "", "")
	} else if repaired := specs.RepairTLSSecret(live, want); repaired != nil {
		p.update(repaired)
	}
}

// renewalRecheck is when the next certificate is due for its age, since short ones can't
// wait.
func renewalRecheck(o Observation, p Plan) time.Duration {
	var leaves [][]byte
	if operator := o.Secrets[specs.OperatorSecret(o.Cluster.Name)]; operator != nil {
		leaves = append(leaves, operator.Data[specs.CertKey])
	}
	for _, name := range p.Members {
		if secret := o.Secrets[specs.TLSSecret(name)]; secret != nil {
			leaves = append(leaves, secret.Data[specs.CertKey], secret.Data[specs.ReplicationCertKey])
		}
	}
	for _, r := range o.Cluster.Spec.Roles {
		if secret := o.Secrets[specs.ClientSecret(o.Cluster.Name, r.Name)]; secret != nil {
			leaves = append(leaves, secret.Data[specs.CertKey])
		}
	}
	after := idleRecheck
	for _, leaf := range leaves {
		if until := pki.RenewalOf(leaf).Sub(o.Now); until > 0 {
			after = min(after, max(until, busyRecheck))
		}
	}
	return after
}
