package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var serviceHosts = []string{"shop-rw.db.svc", "shop-ro.db.svc"}

// people make certificates of their own.
type people struct {
	*testing.T
	serial int64
}

// issue makes a certificate; a nil issuer lets it sign itself.
func (p *people) issue(issuer *Pair, edit func(*x509.Certificate)) Pair {
	p.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		p.Fatal(err)
	}
	p.serial++
	template := &x509.Certificate{SerialNumber: big.NewInt(p.serial), NotBefore: now.Add(-day), NotAfter: now.Add(90 * day)}
	edit(template)
	parent, signer := template, any(key)
	if issuer != nil {
		with, err := issuer.parse()
		if err != nil {
			p.Fatal(err)
		}
		parent, signer = with.Leaf, with.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		p.Fatal(err)
	}
	return pairOf(p.T, der, key)
}

func pairOf(t *testing.T, der []byte, key any) Pair {
	t.Helper()
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return Pair{pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})}
}

func asAuthority(name string) func(*x509.Certificate) {
	return func(c *x509.Certificate) {
		c.Subject, c.IsCA, c.BasicConstraintsValid, c.KeyUsage = pkix.Name{CommonName: name}, true, true, x509.KeyUsageCertSign
		c.NotAfter = now.Add(365 * day)
	}
}

func asServer(c *x509.Certificate) { c.DNSNames = serviceHosts }

// What people bring must be believed by clients under the names of the Services, and
// by the server itself.
func TestWhichCertificatesServersShow(t *testing.T) {
	p := &people{T: t}
	root, other := p.issue(nil, asAuthority("root")), p.issue(nil, asAuthority("other"))
	between := p.issue(&root, asAuthority("between"))
	leaf, below := p.issue(&root, asServer), p.issue(&between, asServer)
	weak, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	rootPair, err := root.parse()
	if err != nil {
		t.Fatal(err)
	}
	weakDER, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(99), NotBefore: now.Add(-day), NotAfter: now.Add(day), DNSNames: serviceHosts},
		rootPair.Leaf, weak.Public(), rootPair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	edited := func(edit func(*x509.Certificate)) Pair {
		return p.issue(&root, func(c *x509.Certificate) { asServer(c); edit(c) })
	}
	joined := func(pairs ...Pair) Pair { return Pair{bundle(pairs...), pairs[0].Key} }
	short := p.issue(nil, func(c *x509.Certificate) { asAuthority("short")(c); c.NotAfter = now.Add(10 * day) })

	for _, test := range []struct {
		why     string
		shown   Pair
		trusted []byte
		until   time.Time
		err     string
	}{
		{"as cert-manager writes it", leaf, root.Cert, now.Add(90 * day), ""},
		{"with what is between", joined(below, between), root.Cert, now.Add(90 * day), ""},
		{"what is between stands among the authorities", below, bundle(between, root), now.Add(90 * day), ""},
		{"a wildcard", edited(func(c *x509.Certificate) { c.DNSNames = []string{"*.db.svc"} }), root.Cert, now.Add(90 * day), ""},
		{"its authority ends before it", p.issue(&short, asServer), short.Cert, now.Add(10 * day), ""},
		{"made a moment ago by a clock that is ahead", edited(func(c *x509.Certificate) { c.NotBefore = now.Add(time.Minute) }), root.Cert, now.Add(90 * day), ""},

		{"empty", Pair{}, root.Cert, time.Time{}, "tls.crt holds no certificate in PEM"},
		{"another's key", Pair{leaf.Cert, below.Key}, root.Cert, time.Time{}, "tls.crt and tls.key: read certificate and key: tls: private key does not match public key"},
		{"no key", Pair{Cert: leaf.Cert}, root.Cert, time.Time{}, "tls.crt and tls.key: read certificate and key: tls: failed to find any PEM data in key input"},
		{"expired", edited(func(c *x509.Certificate) { c.NotAfter = now.Add(-time.Minute) }), root.Cert, time.Time{}, "tls.crt has expired on 2026-11-27T11:59:00Z"},
		{"about to end", edited(func(c *x509.Certificate) { c.NotAfter = now.Add(time.Minute) }), root.Cert, time.Time{}, "tls.crt ends in a moment, on 2026-11-27T12:01:00Z"},
		{"of the future", edited(func(c *x509.Certificate) { c.NotBefore = now.Add(day) }), root.Cert, time.Time{}, "tls.crt is not valid before 2026-11-28T12:00:00Z"},
		{"of another authority", leaf, other.Cert, time.Time{}, "no authority vouches for tls.crt: x509: certificate signed by unknown authority"},
		{"no authority", leaf, nil, time.Time{}, "no authority vouches for tls.crt: x509: certificate signed by unknown authority"},
		{"an authority that another has signed", below, between.Cert, time.Time{}, "no authority vouches for tls.crt: x509: certificate signed by unknown authority"},
		{"for clients only", edited(func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} }), root.Cert, time.Time{},
			"no authority vouches for tls.crt: x509: certificate specifies an incompatible key usage"},
		{"a name is missing", edited(func(c *x509.Certificate) { c.DNSNames = serviceHosts[:1] }), root.Cert, time.Time{},
			"tls.crt lacks the names shop-ro.db.svc among its DNS names (subjectAltName)"},
		{"too short a key", pairOf(t, weakDER, weak), root.Cert, time.Time{}, "tls.crt: its RSA key has 1024 bits; use at least 2048"},
	} {
		until, err := CheckServer(test.shown, test.trusted, serviceHosts, now)
		got := ""
		if err != nil {
			got = err.Error()
		}
		if diff := cmp.Diff(test.err, got); diff != "" || !until.Equal(test.until) {
			t.Errorf("%s: until %s, want %s:\n%s", test.why, until, test.until, diff)
		}
	}
}

// E-09: people hear of what they have to renew 30 days ahead.
func TestE09WhenPeopleHearOfAnEnd(t *testing.T) {
	p := &people{T: t}
	lasting := func(d time.Duration) []byte {
		return p.issue(nil, func(c *x509.Certificate) { c.NotBefore, c.NotAfter = now, now.Add(d) }).Cert
	}
	year, quarter, hour := lasting(365*day), lasting(90*day), lasting(time.Hour)
	for _, test := range []struct {
		why                   string
		cert                  []byte
		life, left            time.Duration
		forgotten, aboutToEnd bool
	}{
		{"a year's, 31 days before its end", year, 365 * day, 31 * day, false, false},
		{"a year's, 29 days before its end", year, 365 * day, 29 * day, true, false},
		{"90 days, as its issuer renews it", quarter, 90 * day, 30 * day, false, false},
		{"90 days, a day after its issuer should have", quarter, 90 * day, 29 * day, true, false},
		{"an hour, in its middle", hour, time.Hour, 30 * time.Minute, false, false},
		{"an hour, in its last third", hour, time.Hour, 19 * time.Minute, true, false},
		{"an hour, at its end", hour, time.Hour, 4 * time.Minute, true, true},
		{"a year's, at its end", year, 365 * day, 4 * time.Minute, true, true},
		{"ended", year, 365 * day, -time.Minute, true, true},
	} {
		at := now.Add(test.life - test.left)
		forgotten, about := IsForgotten(test.cert, now.Add(test.life), at), IsAboutToEnd(test.cert, at)
		if forgotten != test.forgotten || about != test.aboutToEnd {
			t.Errorf("%s: forgotten %v, about to end %v", test.why, forgotten, about)
		}
	}
}

// E-09: a leaf has two minutes left at least when it is renewed, since kubelets take as
// long; as long as they may take, nobody who has the old one is late.
func TestE09WhenLeavesAreRenewed(t *testing.T) {
	authority, err := NewAuthority("shop", now)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		life, renewed, late time.Duration
	}{
		{90 * day, 60*day - 20*time.Minute, 75*day - 10*time.Minute},
		{time.Hour, 38 * time.Minute, 49 * time.Minute},
		{5 * time.Minute, 3 * time.Minute, 5 * time.Minute},
		{2 * time.Minute, 54 * time.Second, 2 * time.Minute}, // whose authority ends
	} {
		leaf, err := authority.newLeaf("a", nil, test.life, now)
		if err != nil {
			t.Fatal(err)
		}
		at := now.Add(test.renewed)
		if got := RenewalOf(leaf.Cert).Sub(now); got != test.renewed || !IsLeafEnding(leaf.Cert, at) || IsLeafEnding(leaf.Cert, at.Add(-time.Second)) {
			t.Errorf("one of %s is renewed after %s, want %s", test.life, got, test.renewed)
		}
		end, late := now.Add(test.life), now.Add(test.late)
		if IsLate(leaf.Cert, end, late) || !IsLate(leaf.Cert, end, late.Add(time.Second)) {
			t.Errorf("one of %s is not late after %s", test.life, test.late)
		}
	}
}
