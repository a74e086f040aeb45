package pki

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// cast gives authorities names, so that tests can tell them apart.
type cast map[string]string

func (c cast) add(t *testing.T, name string, at time.Time) Pair {
	made := newAuthority(t, at)
	c[string(made.Cert)] = name
	return made
}

// describe says who is who: wanted, signer, trusted.
func (c cast) describe(a Authorities) string {
	name := func(cert []byte) string {
		switch known := c[string(cert)]; {
		case len(cert) == 0:
			return "none"
		case known != "":
			return known
		}
		return "made"
	}
	text := fmt.Sprintf("wanted %s, signer %s, trusted", name(a.Wanted.Cert), name(a.Signer.Cert))
	for _, trusted := range certificates(a.Trusted) {
		text += " " + name(union(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: trusted.Raw})))
	}
	return text
}

func bundle(authorities ...Pair) []byte {
	var all []byte
	for _, a := range authorities {
		all = append(all, a.Cert...)
	}
	return all
}

// Every state that a pass may find, and what it makes of it. A pass that is cut
// short leaves one of these.
func TestEachStateLeadsToTheNext(t *testing.T) {
	c := cast{}
	old, fresh, third := c.add(t, "old", now), c.add(t, "new", now), c.add(t, "third", now)
	ended, ending := c.add(t, "ended", now.Add(-11*365*day)), c.add(t, "ending", now.Add(-9*365*day))
	damaged := Pair{Cert: old.Cert, Key: fresh.Key}
	leafOf := func(authority Pair) [][]byte { return [][]byte{newLeaf(t, authority, now).Cert} }
	moment, minutes, hours := now.Add(-time.Second), now.Add(-6*time.Minute), now.Add(-2*time.Hour)
	cases := []struct {
		why  string
		a    Authorities
		use  Use
		want string
		step Step
	}{
		{"a new cluster", Authorities{}, Use{}, "wanted made, signer made, trusted made", NoStep},
		{"at rest", Authorities{old, old, bundle(old), hours}, Use{Leaves: leafOf(old), Given: true, Settled: true}, "wanted old, signer old, trusted old", NoStep},
		{"the operator's Secret is not written yet", Authorities{Wanted: old}, Use{}, "wanted old, signer old, trusted old", NoStep},
		{"only the operator's Secret was written", Authorities{Signer: old, Trusted: bundle(old), Since: moment}, Use{}, "wanted made, signer old, trusted old", AuthorityMade},

		{"deleted", Authorities{Signer: old, Trusted: bundle(old), Since: hours}, Use{Leaves: leafOf(old), Given: true, Settled: true}, "wanted made, signer old, trusted old", AuthorityMade},
		{"near its end", Authorities{ending, ending, bundle(ending), hours}, Use{Given: true, Settled: true}, "wanted made, signer ending, trusted ending", AuthorityMade},
		{"replaced, or made", Authorities{fresh, old, bundle(old), hours}, Use{Leaves: leafOf(old), Given: true, Settled: true}, "wanted new, signer old, trusted old new", AuthorityTrusted},
		{"both trusted since a moment", Authorities{fresh, old, bundle(old, fresh), moment}, Use{Leaves: leafOf(old), Given: true, Settled: true}, "wanted new, signer old, trusted old new", NoStep},
		{"both trusted for minutes, not by all", Authorities{fresh, old, bundle(old, fresh), minutes}, Use{Leaves: leafOf(old), Given: true}, "wanted new, signer old, trusted old new", NoStep},
		{"both trusted for minutes, by all", Authorities{fresh, old, bundle(old, fresh), minutes}, Use{Leaves: leafOf(old), Given: true, Settled: true}, "wanted new, signer new, trusted old new", AuthorityInForce},
		{"both trusted for hours, and one does not answer", Authorities{fresh, old, bundle(old, fresh), hours}, Use{Leaves: leafOf(old), Given: true}, "wanted new, signer new, trusted old new", AuthorityInForce},
		{"both trusted for hours, and nobody was told", Authorities{fresh, old, bundle(old, fresh), hours}, Use{Leaves: leafOf(old), Settled: true}, "wanted new, signer old, trusted old new, since now", NoStep},
		{"in force since a moment", Authorities{fresh, fresh, bundle(old, fresh), moment}, Use{Leaves: leafOf(old), Given: true, Settled: true}, "wanted new, signer new, trusted old new", NoStep},
		{"in force for minutes, not used by all", Authorities{fresh, fresh, bundle(old, fresh), minutes}, Use{Leaves: leafOf(old), Given: true}, "wanted new, signer new, trusted old new", NoStep},
		{"in force for minutes, used by all", Authorities{fresh, fresh, bundle(old, fresh), minutes}, Use{Leaves: leafOf(fresh), Given: true, Settled: true}, "wanted new, signer new, trusted new", AuthorityRetired},

		{"replaced once more while both are trusted", Authorities{third, old, bundle(old, fresh), minutes}, Use{Leaves: leafOf(old), Given: true, Settled: true}, "wanted third, signer old, trusted old new third", AuthorityTrusted},
		{"replaced once more while in force", Authorities{third, fresh, bundle(old, fresh), minutes}, Use{Leaves: leafOf(old), Given: true, Settled: true}, "wanted third, signer new, trusted old new third", AuthorityTrusted},
		{"taken back while both are trusted", Authorities{old, old, bundle(old, fresh), minutes}, Use{Leaves: leafOf(old), Given: true, Settled: true}, "wanted old, signer old, trusted old", AuthorityRetired},
		{"taken back while in force", Authorities{old, fresh, bundle(old, fresh), minutes}, Use{Leaves: leafOf(fresh), Given: true, Settled: true}, "wanted old, signer old, trusted old new", AuthorityInForce},
		{"deleted while both are trusted", Authorities{Signer: old, Trusted: bundle(old, fresh), Since: minutes}, Use{Leaves: leafOf(old), Given: true, Settled: true}, "wanted made, signer old, trusted old new", AuthorityMade},

		{"damaged: put back", Authorities{damaged, old, bundle(old), hours}, Use{Leaves: leafOf(old), Given: true, Settled: true}, "wanted old, signer old, trusted old", NoStep},
		{"replaced by one that has ended: put back", Authorities{ended, old, bundle(old), hours}, Use{Leaves: leafOf(old), Given: true, Settled: true}, "wanted old, signer old, trusted old", NoStep},
		{"replaced by a leaf: put back", Authorities{newLeaf(t, old, now), old, bundle(old), hours}, Use{Leaves: leafOf(old), Given: true, Settled: true}, "wanted old, signer old, trusted old", NoStep},
		{"everything has ended", Authorities{ended, ended, bundle(ended), hours}, Use{}, "wanted made, signer made, trusted ended made", NoStep},
		{"the signer is damaged at rest", Authorities{old, damaged, bundle(old), hours}, Use{Leaves: leafOf(old), Given: true, Settled: true}, "wanted old, signer old, trusted old", NoStep},
		{"the signer is damaged while both are trusted: leaves stay", Authorities{fresh, damaged, bundle(old, fresh), minutes}, Use{Leaves: leafOf(old), Given: true}, "wanted new, signer none, trusted old new", NoStep},
		{"its key is lost, and all trust the new one", Authorities{fresh, Pair{}, bundle(old, fresh), minutes}, Use{Leaves: leafOf(old), Given: true, Settled: true}, "wanted new, signer new, trusted old new", AuthorityInForce},
		{"the operator's Secret was deleted while both were trusted", Authorities{Wanted: fresh}, Use{Leaves: leafOf(old), Bundles: [][]byte{bundle(old, fresh)}}, "wanted new, signer none, trusted new old", NoStep},
		{"the bundle is damaged: what instances trust is trusted", Authorities{old, old, []byte("x"), hours}, Use{Leaves: leafOf(old), Bundles: [][]byte{bundle(old, fresh)}}, "wanted old, signer old, trusted old new", NoStep},
		{"both Secrets were deleted", Authorities{}, Use{Leaves: leafOf(old), Bundles: [][]byte{bundle(old)}}, "wanted made, signer none, trusted made old", NoStep},
		{"nobody knows since when: the step begins anew", Authorities{fresh, old, bundle(old, fresh), time.Time{}}, Use{Leaves: leafOf(old), Given: true, Settled: true}, "wanted new, signer old, trusted old new", NoStep},
	}
	for _, test := range cases {
		mended, _, err := test.a.Mend("db/shop", test.use, now)
		if err != nil {
			t.Fatal(err)
		}
		next, step, err := mended.Next("db/shop", test.use, now.Sub(mended.Since), now)
		if err != nil {
			t.Fatal(err)
		}
		got := c.describe(next)
		if test.step == NoStep && next.Since.Equal(now) && !test.a.Since.IsZero() && mended.Since.Equal(test.a.Since) {
			got += ", since now"
		}
		if diff := cmp.Diff(test.want, got); diff != "" || step != test.step {
			t.Errorf("%s: step %q, want %q:\n%s", test.why, step, test.step, diff)
		}
		again, _, err := mended.Mend("db/shop", test.use, now)
		if diff := cmp.Diff(mended, again); err != nil || diff != "" {
			t.Errorf("%s: what is mended is mended again: %v\n%s", test.why, err, diff)
		}
	}
}

// People may bring an authority of another make.
func TestWhatCanBeAnAuthority(t *testing.T) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	make := func(edit func(*x509.Certificate)) Pair {
		template := &x509.Certificate{
			SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "mine"}, IsCA: true, BasicConstraintsValid: true,
			NotBefore: now.Add(-day), NotAfter: now.Add(30 * day),
		}
		edit(template)
		der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
		if err != nil {
			t.Fatal(err)
		}
		keyDER, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		return Pair{pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})}
	}
	usual := make(func(*x509.Certificate) {})
	below, err := usual.NewLeaf("shop-1", hosts, now)
	if err != nil {
		t.Fatal(err)
	}
	if end := certificate(t, below).NotAfter; end.After(now.Add(30 * day)) {
		t.Errorf("the leaf ends on %s, after its authority", end)
	}
	for why, c := range map[string]struct {
		pair Pair
		want string
	}{
		"usual":                      {usual, ""},
		"with a purpose":             {make(func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageCertSign }), ""},
		"a clock that is ahead":      {make(func(c *x509.Certificate) { c.NotBefore = now.Add(time.Minute) }), ""},
		"a leaf":                     {make(func(c *x509.Certificate) { c.IsCA = false }), "it is no authority's certificate (CA:TRUE)"},
		"for signatures of messages": {make(func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageDigitalSignature }), "it may not sign certificates"},
		"signed by another":          {below, "it is no authority's certificate (CA:TRUE)"},
		"of the future":              {make(func(c *x509.Certificate) { c.NotBefore = now.Add(day) }), "it is not valid before 2026-11-28T12:00:00Z"},
		"of the past":                {make(func(c *x509.Certificate) { c.NotAfter = now.Add(-time.Hour) }), "it has expired on 2026-11-27T11:00:00Z"},
		"another's key":              {Pair{usual.Cert, newAuthority(t, now).Key}, "read certificate and key: tls: private key type does not match public key type"},
	} {
		got := ""
		if err := c.pair.checkAuthority(now); err != nil {
			got = err.Error()
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s:\n%s", why, diff)
		}
	}
}
