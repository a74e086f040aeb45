package cluster

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/pki"
	"github.com/pgop/postgres-operator/pkg/specs"
)

const (
	// theirSecretsEvery is how often, at most, people's own Secrets are read, which no watch
	// tells of.
	theirSecretsEvery = 20 * time.Second
	// theirSecretsTimeout bounds that.
	theirSecretsTimeout = 5 * time.Second
	// clientsLearn is for how long clients must have been told of an authority before a
	// server shows what it vouches for: a kubelet brings a Secret within two minutes.
	clientsLearn = 5 * time.Minute
	// instancesLearn is for how long an instance is waited for that does not say that it
	// trusts an authority. It reads its files when it is back, and tries until then.
	instancesLearn = time.Hour
	// servingRecheck is how often agents are asked while a certificate waits to be
	// shown.
	servingRecheck = 5 * time.Second
)

// theirSecrets are those that spec.tls names.
type theirSecrets struct {
	// Server and CA are nil where there is none of the name. CA is nil, too, where
	// spec.tls.caSecret is not set.
	Server, CA *corev1.Secret
	// Unknown is why they could not be read; then nothing else is known.
	Unknown error
}

// secretReader reads a Secret of anybody's.
type secretReader func(ctx context.Context, name string) (*corev1.Secret, error)

// readTheirSecrets reads what spec.tls names; nil: it names nothing.
func readTheirSecrets(ctx context.Context, read secretReader, t v1.TLSSpec) *theirSecrets {
	if t.ServerSecret == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, theirSecretsTimeout)
	defer cancel()
	var s theirSecrets
	for name, into := range map[string]**corev1.Secret{t.ServerSecret: &s.Server, t.CASecret: &s.CA} {
		if name == "" {
			continue
		}
		found, err := read(ctx, name)
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return &theirSecrets{Unknown: fmt.Errorf("read Secret %s: %w", name, err)}
		default:
			*into = found
		}
	}
	if t.CASecret == t.ServerSecret {
		s.Server = s.CA
	}
	return &s
}

// theirSecretsMemory is what a loop has read, of what, and when.
type theirSecretsMemory struct {
	of   v1.TLSSpec
	at   time.Time
	read *theirSecrets
}

// lookAtTheirSecrets reads what spec.tls names, if that was not done just now.
func (l *Loop) lookAtTheirSecrets(ctx context.Context, o *Observation) {
	m := &l.theirs
	if named := o.Cluster.Spec.TLS; m.of != named || o.Now.Sub(m.at) >= theirSecretsEvery || m.read != nil && m.read.Unknown != nil {
		read := func(ctx context.Context, name string) (*corev1.Secret, error) {
			return l.Kube.Core.Secrets(o.Cluster.Namespace).Get(ctx, name, metav1.GetOptions{})
		}
		*m = theirSecretsMemory{of: named, at: o.Now, read: readTheirSecrets(ctx, read, named)}
	}
	o.Theirs = m.read
}

// serving is what servers shall show, and by whom clients and replicas verify them.
type serving struct {
	// Wanted is what spec.tls asks for, which ends at Until; empty as long as it is not
	// known, or Refused says why it can't be.
	Wanted  pki.Pair
	Until   time.Time
	Refused string
	// Unknown is why nobody can say what is wanted.
	Unknown error
	// Trusted is what instances get to verify servers by, empty: the authorities of
	// the cluster; and Shown what servers show, empty: the operator's certificates.
	specs.ServerTLS
	// Waits is why Shown is not Wanted yet.
	Waits string
}

// clients is by whom clients verify servers, where the cluster's own authorities are
// those.
func (s serving) clients(own []byte) []byte {
	if len(s.Trusted) == 0 {
		return own
	}
	return s.Trusted
}

// chooseServing decides what servers show. An authority is trusted by replicas and
// clients before a server shows a certificate that it vouches for, and until none
// does; the cluster's own always are.
func chooseServing(o Observation, p *Plan, own []byte) serving {
	var s serving
	var authorities []byte
	s.Wanted, authorities, s.Until, s.Refused, s.Unknown = judgeTheirs(o)
	held := heldServing(o, p)
	var bundles [][]byte
	for _, h := range held {
		bundles = append(bundles, h.Trusted)
	}
	atRest := func(h specs.ServerTLS) bool { return bytes.Equal(h.Shown.Cert, s.Wanted.Cert) }
	switch {
	case s.Unknown == nil && len(s.Wanted.Cert) > 0 && allOf(held, atRest) && (doUse(o, p) || len(held) == 0):
		s.Trusted = pki.Union(own, authorities)
	case s.Unknown == nil && o.Theirs == nil && allOf(held, atRest) && doUse(o, p): // the cluster's own authorities do again
	case len(authorities) > 0 || slices.ContainsFunc(bundles, func(b []byte) bool { return len(b) > 0 }):
		s.Trusted = pki.Union(slices.Concat([][]byte{own, authorities}, bundles)...)
	}
	switch {
	case s.Unknown == nil && o.Theirs == nil:
	case len(s.Wanted.Cert) > 0:
		if s.Waits = whyNotShown(o, p, held, s, authorities); s.Waits == "" {
			s.Shown = s.Wanted
			break
		}
		s.Shown = stillGood(held, o.Now)
	default:
		s.Shown = stillGood(held, o.Now)
	}
	return s
}

// judgeTheirs is the certificate that spec.tls asks for and who vouches for it, or why
// it can't be, or can't be known.
func judgeTheirs(o Observation) (wanted pki.Pair, authorities []byte, until time.Time, refused string, unknown error) {
	named, theirs := o.Cluster.Spec.TLS, o.Theirs
	server, ca := fmt.Sprintf("spec.tls.serverSecret: Secret %s", named.ServerSecret), fmt.Sprintf("spec.tls.caSecret: Secret %s", named.CASecret)
	switch {
	case theirs == nil:
		return pki.Pair{}, nil, time.Time{}, "", nil
	case theirs.Unknown != nil:
		return pki.Pair{}, nil, time.Time{}, "", theirs.Unknown
	case theirs.Server == nil:
		return pki.Pair{}, nil, time.Time{}, server + " does not exist; create it, or remove the field", nil
	case named.CASecret != "" && theirs.CA == nil:
		return pki.Pair{}, nil, time.Time{}, ca + " does not exist; create it, or remove the field", nil
	case named.CASecret != "":
		if authorities = pki.Union(specs.AuthoritiesIn(theirs.CA)); len(authorities) == 0 {
			return pki.Pair{}, nil, time.Time{}, ca + " has no certificate under ca.crt or tls.crt; put the authority there that has signed the server's certificate", nil
		}
	default:
		if authorities = pki.Union(theirs.Server.Data[specs.CAKey]); len(authorities) == 0 {
			return pki.Pair{}, nil, time.Time{}, server + " has no ca.crt, so that nobody knows by whom to verify its certificate; add it, or name the authority's Secret in spec.tls.caSecret", nil
		}
	}
	wanted = specs.CertificateOf(theirs.Server)
	until, err := pki.CheckServer(wanted, authorities, specs.ServiceHosts(o.Cluster), o.Now)
	if err != nil {
		return pki.Pair{}, nil, time.Time{}, fmt.Sprintf("%s: %v", server, err), nil
	}
	return wanted, authorities, until, "", nil
}

// heldServing is what the instances' Secrets have of people's own, of those that have
// a Secret.
func heldServing(o Observation, p *Plan) []specs.ServerTLS {
	var held []specs.ServerTLS
	for _, name := range p.Members {
		if secret := o.Secrets[specs.TLSSecret(name)]; secret != nil {
			held = append(held, specs.ServerTLSOf(secret))
		}
	}
	return held
}

// stillGood is what servers go on to show while what is wanted can't be: the
// certificate that they have, unless that is about to end. Then the operator's is
// better, which clients and replicas trust as well.
func stillGood(held []specs.ServerTLS, now time.Time) pki.Pair {
	for _, h := range held {
		if len(h.Shown.Cert) > 0 && !pki.IsAboutToEnd(h.Shown.Cert, now) {
			return h.Shown
		}
	}
	return pki.Pair{}
}

// whyNotShown is what it waits for that servers show what is wanted; empty: nothing.
func whyNotShown(o Observation, p *Plan, held []specs.ServerTLS, s serving, authorities []byte) string {
	if len(held) > 0 && allOf(held, func(h specs.ServerTLS) bool { return pki.ShareAuthority(h.Shown, s.Wanted, authorities, o.Now) }) {
		return "" // whoever trusts what is shown trusts this, too
	}
	var behind []string
	for _, name := range p.Members {
		i, secret := find(o, name), o.Secrets[specs.TLSSecret(name)]
		if !hasRead(i) || o.TrustWaited >= instancesLearn {
			continue
		}
		if secret == nil || !pki.TrustsAll(secret.Data[specs.ServerCAKey], authorities) || !usesCredentials(i, secret) {
			behind = append(behind, name)
		}
	}
	switch app := o.Secrets[specs.AppSecret(o.Cluster.Name)]; {
	case len(behind) > 0:
		return fmt.Sprintf("it is shown once every instance trusts its authority; still to come: %s", strings.Join(behind, ", "))
	case app != nil && o.anybodyHasRead(p) && (!pki.TrustsAll(app.Data[specs.CAKey], authorities) || o.TrustWaited < clientsLearn):
		return fmt.Sprintf("it is shown some minutes after its authority is in ca.crt of the Secret %s, so that programs have read that", app.Name)
	}
	return ""
}

func (o Observation) anybodyHasRead(p *Plan) bool {
	return slices.ContainsFunc(p.Members, func(name string) bool { return hasRead(find(o, name)) })
}

func allOf[T any](all []T, is func(T) bool) bool {
	return !slices.ContainsFunc(all, func(one T) bool { return !is(one) })
}
