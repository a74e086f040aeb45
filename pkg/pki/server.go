package pki

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"time"
)

// CheckServer says until when a server that shows the certificate is believed, under
// all hosts, by who trusts the authorities in trusted; the error says why it is not.
// It is as strict as OpenSSL: a server does not start with a certificate that is too
// weak, and only an authority that has signed itself ends a chain.
func CheckServer(shown Pair, trusted []byte, hosts []string, now time.Time) (until time.Time, err error) {
	chain := certificates(shown.Cert)
	if len(chain) == 0 {
		return time.Time{}, errors.New("tls.crt holds no certificate in PEM")
	}
	if _, err := shown.parse(); err != nil {
		return time.Time{}, fmt.Errorf("tls.crt and tls.key: %w", err)
	}
	leaf := chain[0]
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	for _, c := range certificates(trusted) {
		if c.CheckSignatureFrom(c) == nil {
			roots.AddCert(c)
		} else {
			between.AddCert(c)
		}
	}
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	switch {
	case now.Add(clockSkew).Before(leaf.NotBefore):
		return time.Time{}, fmt.Errorf("tls.crt is not valid before %s", leaf.NotBefore.UTC().Format(time.RFC3339))
	case !now.Before(leaf.NotAfter):
		return time.Time{}, fmt.Errorf("tls.crt has expired on %s", leaf.NotAfter.UTC().Format(time.RFC3339))
	case IsAboutToEnd(shown.Cert, now):
		return time.Time{}, fmt.Errorf("tls.crt ends in a moment, on %s", leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	if err := checkStrength(leaf); err != nil {
		return time.Time{}, fmt.Errorf("tls.crt: %w", err)
	}
	at := now
	if at.Before(leaf.NotBefore) { // by a clock that is a little behind
		at = leaf.NotBefore
	}
	chains, err := leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	if err != nil {
		return time.Time{}, fmt.Errorf("no authority vouches for tls.crt: %w", err)
	}
	if missing := missingHosts(leaf, hosts); len(missing) > 0 {
		return time.Time{}, fmt.Errorf("tls.crt lacks the names %s among its DNS names (subjectAltName)", strings.Join(missing, ", "))
	}
	for _, chain := range chains {
		if ends := endOf(chain); ends.After(until) {
			until = ends
		}
	}
	return until, nil
}

func missingHosts(leaf *x509.Certificate, hosts []string) []string {
	var missing []string
	for _, host := range hosts {
		if leaf.VerifyHostname(host) != nil {
			missing = append(missing, host)
		}
	}
	return missing
}

// checkStrength refuses what OpenSSL does not load at its usual level of security.
func checkStrength(leaf *x509.Certificate) error {
	switch leaf.SignatureAlgorithm {
	case x509.MD5WithRSA, x509.SHA1WithRSA, x509.DSAWithSHA1, x509.DSAWithSHA256, x509.ECDSAWithSHA1:
		return fmt.Errorf("its signature (%s) is too weak; use SHA-256", leaf.SignatureAlgorithm)
	}
	const fewest = 2048
	switch key := leaf.PublicKey.(type) {
	case *rsa.PublicKey:
		if key.N.BitLen() < fewest {
			return fmt.Errorf("its RSA key has %d bits; use at least %d", key.N.BitLen(), fewest)
		}
	case *ecdsa.PublicKey, ed25519.PublicKey:
	default:
		return errors.New("its key is neither RSA, ECDSA nor Ed25519")
	}
	return nil
}

func endOf(chain []*x509.Certificate) time.Time {
	ends := chain[0].NotAfter
	for _, c := range chain[1:] {
		if c.NotAfter.Before(ends) {
			ends = c.NotAfter
		}
	}
	return ends
}

const (
	// warnAhead is how long before its end people hear of a certificate that they
	// renew themselves.
	warnAhead = 30 * 24 * time.Hour
	// showUntil is how long before its end a certificate of people's own is no longer
	// shown: by then every server must show another.
	showUntil = 5 * time.Minute
)

// IsForgotten says whether people should hear that a certificate of theirs ends: in 30
// days, or in the last third of a short life. A little of that is left to whoever
// renews it just then.
func IsForgotten(cert []byte, until, now time.Time) bool {
	for _, c := range certificates(cert) {
		ahead := min(warnAhead, c.NotAfter.Sub(c.NotBefore)/leafRest)
		return now.After(until.Add(-ahead + ahead/100))
	}
	return false
}

// IsAboutToEnd says whether a server that shows the certificate will not be believed
// in a moment, or it can't be read.
func IsAboutToEnd(cert []byte, now time.Time) bool {
	for _, c := range certificates(cert) {
		rest := min(showUntil, c.NotAfter.Sub(c.NotBefore)/10)
		return !now.Before(c.NotAfter.Add(-rest))
	}
	return true
}

// FirstEnd is when the first of the leaves ends; zero if none can be read.
func FirstEnd(leaves ...[]byte) time.Time {
	var first time.Time
	for _, leaf := range leaves {
		chain := certificates(leaf)
		if len(chain) > 0 && (first.IsZero() || chain[0].NotAfter.Before(first)) {
			first = chain[0].NotAfter
		}
	}
	return first
}

// ShareAuthority says whether who believes one certificate, of those that trust
// authorities, believes the other, since the same one of them vouches for both.
func ShareAuthority(a, b Pair, authorities []byte, now time.Time) bool {
	for _, c := range certificates(authorities) {
		one := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
		_, errA := CheckServer(a, one, nil, now)
		_, errB := CheckServer(b, one, nil, now)
		if errA == nil && errB == nil {
			return true
		}
	}
	return false
}

// IsLeafEnding says whether it is time to renew a leaf, and IsAuthorityEnding an
// authority.
func IsLeafEnding(cert []byte, now time.Time) bool {
	for _, c := range certificates(cert) {
		return isLeafEnding(c, now)
	}
	return true
}

// RenewalOf is when it is time to renew a leaf; zero: it can't be read.
func RenewalOf(cert []byte) time.Time {
	for _, c := range certificates(cert) {
		return c.NotAfter.Add(-restOf(c))
	}
	return time.Time{}
}

// IsAuthorityEnding is IsLeafEnding for an authority.
func IsAuthorityEnding(cert []byte, now time.Time) bool {
	return isAuthorityEnding(Pair{Cert: cert}, now)
}

// Union is a bundle of the certificates in all bundles, each once, in their order.
func Union(bundles ...[]byte) []byte { return union(bundles...) }

// TrustsAll says whether a bundle has every certificate of another.
func TrustsAll(bundle, other []byte) bool {
	for _, c := range certificates(other) {
		found := false
		for _, known := range certificates(bundle) {
			found = found || known.Equal(c)
		}
		if !found {
			return false
		}
	}
	return true
}

// IsLate says whether one who was given the leaf should have used it long since, and
// still uses one that ends at that time: half of what a leaf has left when it is
// renewed is gone, and so is the time in which a kubelet brings it.
func IsLate(leaf []byte, end, now time.Time) bool {
	for _, c := range certificates(leaf) {
		rest := restOf(c)
		return now.After(end.Add(-max(0, min(rest/2, rest-bringing))))
	}
	return false
}
