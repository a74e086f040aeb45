package pki

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var (
	now   = time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	hosts = []string{"shop-1", "shop-1.shop-pods.db.svc", "localhost"}
)

const day = 24 * time.Hour

func newAuthority(t *testing.T, at time.Time) Pair {
	t.Helper()
	authority, err := NewAuthority("db/shop", at)
	if err != nil {
		t.Fatal(err)
	}
	return authority
}

func newLeaf(t *testing.T, authority Pair, at time.Time) Pair {
	t.Helper()
	leaf, err := authority.NewLeaf("shop-1", hosts, at)
	if err != nil {
		t.Fatal(err)
	}
	return leaf
}

func certificate(t *testing.T, p Pair) *x509.Certificate {
	t.Helper()
	parsed, err := p.parse()
	if err != nil {
		t.Fatal(err)
	}
	return parsed.Leaf
}

func TestLeafIsVerifiedByItsAuthority(t *testing.T) {
	authority, other := newAuthority(t, now), newAuthority(t, now)
	leaf := certificate(t, newLeaf(t, authority, now))
	verify := func(authority Pair, host string, use x509.ExtKeyUsage, at time.Time) bool {
		roots := x509.NewCertPool()
		roots.AddCert(certificate(t, authority))
		_, err := leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: host, CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{use}})
		return err == nil
	}
	cases := []struct {
		why       string
		authority Pair
		host      string
		use       x509.ExtKeyUsage
		at        time.Time
		want      bool
	}{
		{"as a server", authority, "shop-1", x509.ExtKeyUsageServerAuth, now, true},
		{"by its host name", authority, "shop-1.shop-pods.db.svc", x509.ExtKeyUsageServerAuth, now, true},
		{"as a client", authority, "", x509.ExtKeyUsageClientAuth, now, true},
		{"under another name", authority, "shop-2", x509.ExtKeyUsageServerAuth, now, false},
		{"by another authority", other, "shop-1", x509.ExtKeyUsageServerAuth, now, false},
		{"for signing code", authority, "shop-1", x509.ExtKeyUsageCodeSigning, now, false},
		{"by a clock that is half an hour behind", authority, "shop-1", x509.ExtKeyUsageServerAuth, now.Add(-30 * time.Minute), true},
		{"by a clock that is a day behind", authority, "shop-1", x509.ExtKeyUsageServerAuth, now.Add(-day), false},
		{"on its last day", authority, "shop-1", x509.ExtKeyUsageServerAuth, now.Add(89 * day), true},
		{"after its end", authority, "shop-1", x509.ExtKeyUsageServerAuth, now.Add(91 * day), false},
	}
	for _, c := range cases {
		if got := verify(c.authority, c.host, c.use, c.at); got != c.want {
			t.Errorf("%s: valid is %v, want %v", c.why, got, c.want)
		}
	}
	client, err := authority.NewLeaf("streaming_replica", nil, now)
	if err != nil {
		t.Fatal(err)
	}
	leaf = certificate(t, client)
	if !verify(authority, "", x509.ExtKeyUsageClientAuth, now) || verify(authority, "", x509.ExtKeyUsageServerAuth, now) {
		t.Error("a leaf without hosts is not for clients only")
	}
}

func TestLeafIsNoAuthority(t *testing.T) {
	authority := newAuthority(t, now)
	leaf := newLeaf(t, authority, now)
	below, err := leaf.NewLeaf("shop-2", []string{"shop-2"}, now)
	if err != nil {
		t.Fatal(err)
	}
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	roots.AddCert(certificate(t, authority))
	between.AddCert(certificate(t, leaf))
	if _, err := certificate(t, below).Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, CurrentTime: now}); err == nil {
		t.Error("an instance can sign certificates that others accept")
	}
}

func TestWhenALeafIsDue(t *testing.T) {
	authority := newAuthority(t, now)
	leaf := newLeaf(t, authority, now)
	cases := []struct {
		why       string
		authority Pair
		leaf      Pair
		hosts     []string
		at        time.Time
		want      bool
	}{
		{"just made", authority, leaf, hosts, now, false},
		{"with two thirds of its life behind it", authority, leaf, hosts, now.Add(59 * day), false},
		{"a third before its end", authority, leaf, hosts, now.Add(61 * day), true},
		{"expired", authority, leaf, hosts, now.Add(100 * day), true},
		{"fewer names are asked", authority, leaf, hosts[:1], now, false},
		{"a name is missing", authority, leaf, append([]string{"shop-rw"}, hosts...), now, true},
		{"of another authority", newAuthority(t, now), leaf, hosts, now, true},
		{"nothing", authority, Pair{}, hosts, now, true},
		{"no key", authority, Pair{Cert: leaf.Cert}, hosts, now, true},
		{"another's key", authority, Pair{Cert: leaf.Cert, Key: newLeaf(t, authority, now).Key}, hosts, now, true},
		{"not PEM", authority, Pair{Cert: []byte("x"), Key: []byte("y")}, hosts, now, true},
		{"an unreadable authority", Pair{Cert: []byte("x")}, leaf, hosts, now, true},
	}
	for _, c := range cases {
		if got := (Authorities{Signer: c.authority}).IsDue(c.leaf, "shop-1", c.hosts, c.at); got != c.want {
			t.Errorf("%s: due is %v, want %v", c.why, got, c.want)
		}
	}
	if !(Authorities{Signer: authority}).IsDue(leaf, "shop-2", hosts, now) {
		t.Error("another's leaf is not due")
	}
	lost := Authorities{Wanted: newAuthority(t, now), Trusted: authority.Cert}
	if lost.IsDue(leaf, "shop-1", hosts, now) {
		t.Error("the signer's key is lost, and a leaf that all trust is due")
	}
	if !lost.IsDue(newLeaf(t, newAuthority(t, now), now), "shop-1", hosts, now) {
		t.Error("a leaf that nobody trusts is not due")
	}
}

func TestUnreadableAuthorityIssuesNothing(t *testing.T) {
	authority := newAuthority(t, now)
	for why, broken := range map[string]Pair{
		"empty":         {},
		"no key":        {Cert: authority.Cert},
		"another's key": {Cert: authority.Cert, Key: newAuthority(t, now).Key},
	} {
		if _, err := broken.NewLeaf("shop-1", hosts, now); err == nil {
			t.Errorf("%s: issues a certificate", why)
		}
		if _, err := ClientConfig(broken, authority.Cert); err == nil {
			t.Errorf("%s: makes a client", why)
		}
	}
}

func TestSerialNumbersDiffer(t *testing.T) {
	authority := newAuthority(t, now)
	seen := map[string]bool{certificate(t, authority).SerialNumber.String(): true}
	for range 20 {
		serial := certificate(t, newLeaf(t, authority, now)).SerialNumber.String()
		if seen[serial] {
			t.Fatalf("serial number %s comes twice", serial)
		}
		seen[serial] = true
	}
}

// The operator calls agents by their address and names whom it expects; each
// side refuses whom its authority did not sign.
func TestOperatorAndAgentTrustOnlyTheirAuthority(t *testing.T) {
	at := time.Now()
	ours, theirs := newAuthority(t, at), newAuthority(t, at)
	cases := []struct {
		why                  string
		client, server       Pair
		expected             string
		clientOK, clientSeen bool
	}{
		{"one authority", ours, ours, "shop-1", true, true},
		{"another instance answers", ours, ours, "shop-2", false, false},
		{"another cluster's agent answers", ours, theirs, "shop-1", false, false},
	}
	for _, c := range cases {
		got, err := handshake(t, c.client, c.server, c.expected, at)
		if (err == nil) != c.clientOK {
			t.Errorf("%s: %v", c.why, err)
		}
		want := ""
		if c.clientSeen {
			want = OperatorName
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: the agent sees (-want +got):\n%s", c.why, diff)
		}
	}
}

// handshake returns whom the server saw, and the client's error.
func handshake(t *testing.T, client, server Pair, expected string, at time.Time) (string, error) {
	t.Helper()
	leaf, err := client.NewLeaf(OperatorName, nil, at)
	if err != nil {
		t.Fatal(err)
	}
	config, err := ClientConfig(leaf, client.Cert)
	if err != nil {
		t.Fatal(err)
	}
	config.ServerName = expected
	own, err := newLeaf(t, server, at).parse()
	if err != nil {
		t.Fatal(err)
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(server.Cert)
	near, far := net.Pipe()
	defer near.Close()
	seen := make(chan string, 1)
	go func() {
		defer far.Close()
		conn := tls.Server(far, &tls.Config{Certificates: []tls.Certificate{own}, ClientCAs: trusted, ClientAuth: tls.RequireAndVerifyClientCert})
		name := ""
		if conn.Handshake() == nil {
			name = conn.ConnectionState().PeerCertificates[0].Subject.CommonName
		}
		seen <- name
	}()
	conn := tls.Client(near, config)
	err = conn.Handshake()
	if err == nil {
		// With TLS 1.3 the server's refusal comes after the client's handshake.
		if _, err = conn.Read(make([]byte, 1)); errors.Is(err, io.EOF) {
			err = nil
		}
	}
	near.Close()
	return <-seen, err
}
