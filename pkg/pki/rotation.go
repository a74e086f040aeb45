package pki

import (
	"bytes"
	"cmp"
	"crypto/x509"
	"encoding/pem"
	"time"
)

const (
	// overlap is the least time between two steps of a rotation: what a client
	// needs to see the new ca.crt, which the kubelet brings it within two minutes.
	overlap = 5 * time.Minute
	// handOut is how long after a step all may be given what it changed. If that
	// takes longer, say because the operator was away, the time begins anew.
	handOut = time.Minute
	// patience is how long a step waits for those that don't say that they are
	// ready for it. An instance that is away reads its files when it is back.
	patience = time.Hour
)

// Authorities are a cluster's: at rest one, and during a rotation the old and
// the new. A rotation has four steps, each of which is taken only when
// everybody uses what the one before has given out:
//
//	AuthorityMade      Wanted is another than Signer
//	AuthorityTrusted   Trusted holds both; Signer still signs
//	AuthorityInForce   Wanted signs; all leaves are made anew
//	AuthorityRetired   Trusted holds Wanted alone
//
// So whatever mixture of two steps any two parties have, each trusts the other.
// It does not matter how it came that Wanted is another, or whether it changes
// once more on the way.
type Authorities struct {
	// Wanted is the authority that shall sign. People may replace it, or delete
	// it to get a new one.
	Wanted Pair
	// Signer signs. It is empty when its key is lost and Wanted is not trusted by
	// all yet: leaves then stay as they are as long as they are good.
	Signer Pair
	// Trusted are the certificates of all authorities that are trusted.
	// Invariant: it holds that of whoever signs.
	Trusted []byte
	// Since is when the last step was taken, or later, so that all were given what
	// it changed soon after.
	Since time.Time
}

// Use is what the parties of the cluster were given, and whether they use it.
type Use struct {
	// Bundles are what they were told to trust, Leaves the certificates that
	// they were given.
	Bundles, Leaves [][]byte
	// Given is true when all of them were given Trusted and leaves that are not
	// due, and Settled when all use them.
	Given, Settled bool
}

// Step is what has changed, for people.
type Step string

// Steps of a rotation. NoStep: nothing has changed.
const (
	NoStep           Step = ""
	AuthorityMade    Step = "made"
	AuthorityTrusted Step = "trusted"
	AuthorityInForce Step = "in force"
	AuthorityRetired Step = "retired"
)

// Mend puts right what is missing or damaged, so that it trusts no fewer and
// leaves no less valid. A Wanted that is damaged becomes Signer again; the error
// says what was wrong with it. One that is missing stays so, as long as there is
// a Signer: Next makes it.
func (a Authorities) Mend(name string, u Use, now time.Time) (mended Authorities, damage, err error) {
	if a.Signer.checkAuthority(now) != nil {
		a.Signer = Pair{}
	}
	if wrong := a.Wanted.checkAuthority(now); wrong != nil {
		if !a.Wanted.isMissing() {
			damage = wrong
			a.Wanted = a.Signer
		}
		if a.Wanted.isMissing() && a.Signer.isMissing() {
			if a.Wanted, err = NewAuthority(name, now); err != nil {
				return Authorities{}, damage, err
			}
		}
	}
	if !trusts(a.Trusted, a.signing().Cert) {
		a.Trusted = union(append([][]byte{a.Trusted, a.Signer.Cert, a.Wanted.Cert}, u.Bundles...)...)
		a.Since = time.Time{}
	}
	if a.Signer.isMissing() && trusts(a.Trusted, a.Wanted.Cert) && !othersIssued(u.Leaves, a.Wanted, now) {
		a.Signer = a.Wanted
	}
	if a.Since.IsZero() {
		a.Since = stamp(now)
	}
	return a, damage, nil
}

// Next takes at most one step of a rotation, if it is time for it. a must be
// mended, and stored as it is: nobody may be given what might be forgotten. waited
// is how long ago Since was, by whatever clock the caller trusts.
func (a Authorities) Next(name string, u Use, waited time.Duration, now time.Time) (Authorities, Step, error) {
	mayGoOn := u.Given && (waited >= overlap && u.Settled || waited >= patience)
	step := NoStep
	switch {
	case a.Wanted.isMissing() || isAuthorityEnding(a.Wanted, now):
		made, err := NewAuthority(name, now)
		if err != nil {
			return a, NoStep, err
		}
		a.Wanted = made
		return a, AuthorityMade, nil
	case !trusts(a.Trusted, a.Wanted.Cert):
		a.Trusted, step = union(a.Trusted, a.Wanted.Cert), AuthorityTrusted
	case a.IsRotating() && !u.Given && waited >= handOut:
		a.Since = stamp(now)
	case !isSame(a.Signer, a.Wanted):
		if mayGoOn {
			a.Signer, step = a.Wanted, AuthorityInForce
		}
	case len(certificates(a.Trusted)) > 1:
		if mayGoOn {
			a.Trusted, step = union(a.Wanted.Cert), AuthorityRetired
		}
	}
	if step != NoStep {
		a.Since = stamp(now)
	}
	return a, step, nil
}

// IsRotating says whether a rotation is under way, which waits for everybody.
func (a Authorities) IsRotating() bool {
	return !isSame(a.Signer, a.Wanted) || len(certificates(a.Trusted)) > 1
}

// IsDue says whether a leaf must be made anew: it is in the last third of its
// life, it names another or lacks one of hosts, it can't be read, or Signer has
// not signed it.
func (a Authorities) IsDue(leaf Pair, name string, hosts []string, now time.Time) bool {
	issuers := certificates(a.Signer.Cert)
	if a.Signer.isMissing() {
		issuers = certificates(a.Trusted)
	}
	return isLeafDue(leaf, issuers, name, hosts, now)
}

// NewLeaf makes a leaf as Pair.NewLeaf does, which lasts so long; 0: 90 days. When the
// key of the authority that all trust is lost, Wanted signs.
func (a Authorities) NewLeaf(name string, hosts []string, lifetime time.Duration, now time.Time) (Pair, error) {
	return a.signing().newLeaf(name, hosts, cmp.Or(lifetime, leafLifetime), now)
}

// signing is the authority that signs what can't wait.
func (a Authorities) signing() Pair {
	if a.Signer.isMissing() {
		return a.Wanted
	}
	return a.Signer
}

// Ends is when the authority in the certificate ends, for people.
func Ends(cert []byte) string {
	for _, c := range certificates(cert) {
		return c.NotAfter.UTC().Format(time.DateOnly)
	}
	return "an unknown day"
}

// stamp is a time as it can be stored.
func stamp(now time.Time) time.Time { return now.UTC().Truncate(time.Second) }

func isAuthorityEnding(p Pair, now time.Time) bool {
	for _, c := range certificates(p.Cert) {
		return isEnding(c, authorityRest, now)
	}
	return true
}

// othersIssued says whether a leaf that is still valid is by another authority.
func othersIssued(leaves [][]byte, authority Pair, now time.Time) bool {
	issuers := certificates(authority.Cert)
	for _, leaf := range leaves {
		for _, c := range certificates(leaf) {
			if now.Before(c.NotAfter) && !isSignedByOne(c, issuers) {
				return true
			}
		}
	}
	return false
}

func isSame(a, b Pair) bool {
	return !a.isMissing() && bytes.Equal(union(a.Cert), union(b.Cert))
}

func trusts(bundle, cert []byte) bool {
	wanted := certificates(cert)
	for _, c := range certificates(bundle) {
		if len(wanted) > 0 && c.Equal(wanted[0]) {
			return true
		}
	}
	return false
}

// certificates are those in a bundle. What can't be read is left out.
func certificates(bundle []byte) []*x509.Certificate {
	var all []*x509.Certificate
	for {
		var block *pem.Block
		if block, bundle = pem.Decode(bundle); block == nil {
			return all
		}
		if c, err := x509.ParseCertificate(block.Bytes); err == nil && block.Type == "CERTIFICATE" {
			all = append(all, c)
		}
	}
}

// union is a bundle of the certificates in all bundles, each once, in their
// order. Of one bundle it is the bundle in its plain form.
func union(bundles ...[]byte) []byte {
	var all bytes.Buffer
	seen := map[string]bool{}
	for _, bundle := range bundles {
		for _, c := range certificates(bundle) {
			if !seen[string(c.Raw)] {
				seen[string(c.Raw)] = true
				_ = pem.Encode(&all, &pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}) // a buffer takes everything
			}
		}
	}
	return all.Bytes()
}
