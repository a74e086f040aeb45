package cluster

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/pki"
	"github.com/pgop/postgres-operator/pkg/specs"
)

func (w *world) secret(name string) *corev1.Secret {
	secret, _ := w.objects["Secret"][name].(*corev1.Secret)
	return secret
}

func (w *world) tlsSecret(instance string) *corev1.Secret { return w.secret(specs.TLSSecret(instance)) }

// isUsable says whether an agent would use what the Secret holds.
func isUsable(secret *corev1.Secret) bool {
	if secret == nil || !x509.NewCertPool().AppendCertsFromPEM(secret.Data[specs.CAKey]) {
		return false
	}
	for _, pair := range []pki.Pair{specs.CertificateOf(secret), specs.ReplicationCertificateOf(secret)} {
		if _, err := tls.X509KeyPair(pair.Cert, pair.Key); err != nil {
			return false
		}
	}
	return true
}

// verify says whether who trusts bundle believes the certificate.
func (w *world) verify(bundle, cert []byte, host string, use x509.ExtKeyUsage) error {
	key := [...]string{string(bundle), string(cert), host, fmt.Sprint(use)}
	var known verdict
	if seen, found := w.verified.Load(key); found {
		known = seen.(verdict)
	} else {
		known = verifyAtItsBest(bundle, cert, host, use)
		w.verified.Store(key, known)
	}
	if known.err == nil && w.now.After(known.ends) {
		return fmt.Errorf("it ended on %s", known.ends)
	}
	return known.err
}

// verdict is whether a certificate is believed as long as it is valid.
type verdict struct {
	ends time.Time
	err  error
}

func verifyAtItsBest(bundle, cert []byte, host string, use x509.ExtKeyUsage) verdict {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	block, _ := pem.Decode(cert)
	if block == nil {
		return verdict{err: errors.New("no certificate")}
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return verdict{err: err}
	}
	_, err = leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: host, CurrentTime: leaf.NotBefore.Add(min(2*time.Hour, leaf.NotAfter.Sub(leaf.NotBefore)/2)), KeyUsages: []x509.ExtKeyUsage{use}})
	return verdict{ends: leaf.NotAfter, err: err}
}

// shakeHands is a connection of the operator to an agent.
func (w *world) shakeHands(own, mounted *corev1.Secret, host string) error {
	if err := w.verify(own.Data[specs.CAKey], mounted.Data[specs.CertKey], host, x509.ExtKeyUsageServerAuth); err != nil {
		return fmt.Errorf("the operator does not trust the agent: %w", err)
	}
	if err := w.verify(mounted.Data[specs.CAKey], own.Data[specs.CertKey], "", x509.ExtKeyUsageClientAuth); err != nil {
		return fmt.Errorf("the agent does not trust the operator: %w", err)
	}
	return nil
}

// stream is a connection of each instance to each other, and of clients that
// read ca.crt to each.
func (w *world) stream() error {
	for _, from := range slices.Sorted(maps.Keys(w.objects["Pod"])) {
		for _, to := range slices.Sorted(maps.Keys(w.objects["Pod"])) {
			a, b := w.mounted[w.pod(from).UID], w.mounted[w.pod(to).UID]
			if a == nil || b == nil {
				continue
			}
			bundle, host := a.Data[specs.CAKey], to
			if theirs := specs.ServerTLSOf(a); len(theirs.Trusted) > 0 {
				bundle, host = theirs.Trusted, instanceapi.ServiceHost("shop", "db")
			}
			if err := w.verify(bundle, shownBy(b), host, x509.ExtKeyUsageServerAuth); err != nil {
				return fmt.Errorf("%s does not trust %s: %w", from, to, err)
			}
			if err := w.verify(b.Data[specs.CAKey], a.Data[specs.ReplicationCertKey], "", x509.ExtKeyUsageClientAuth); err != nil {
				return fmt.Errorf("%s does not let %s in: %w", to, from, err)
			}
		}
	}
	return nil
}

// shownBy is the certificate that a server shows which has these files.
func shownBy(mounted *corev1.Secret) []byte {
	if theirs := specs.ServerTLSOf(mounted); len(theirs.Shown.Cert) > 0 {
		return theirs.Shown.Cert
	}
	return mounted.Data[specs.CertKey]
}

// serve is a connection of a client that trusts a bundle to every server, through the
// Services.
func (w *world) serve(bundle []byte) error {
	for name := range w.objects["Pod"] {
		if mounted := w.mounted[w.pod(name).UID]; mounted != nil {
			for _, host := range specs.ServiceHosts(w.cluster) {
				if err := w.verify(bundle, shownBy(mounted), host, x509.ExtKeyUsageServerAuth); err != nil {
					return fmt.Errorf("a client does not trust %s: %w", name, err)
				}
			}
		}
	}
	return nil
}

// reach is a connection of the operator to every agent.
func (w *world) reach() error {
	own, _ := w.cached["Secret"]["shop-operator"].(*corev1.Secret)
	for name := range w.objects["Pod"] {
		mounted := w.mounted[w.pod(name).UID]
		if own == nil || mounted == nil {
			continue
		}
		if err := w.shakeHands(own, mounted, specs.InstanceHost("shop", "db", name)); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// replaceCA puts a good authority of somebody's own into the Secret.
func (w *world) replaceCA() {
	made, err := pki.NewAuthority("mine", w.now)
	if err != nil {
		panic(err)
	}
	change(w, "shop-ca", func(s *corev1.Secret) {
		s.Data = map[string][]byte{specs.CertKey: made.Cert, specs.KeyKey: made.Key}
	})
}

func (w *world) damage(secret, key string) {
	change(w, secret, func(s *corev1.Secret) {
		s.Data = maps.Clone(s.Data)
		s.Data[key] = bytes.ToUpper(s.Data[key])
	})
}

// everybody takes so many turns.
func (w *world) everybody(turns int) {
	for range turns {
		w.catchUp(allKinds...)
		w.pass()
		w.kubernetes()
		w.agents()
	}
}

func (w *world) isRotating() bool {
	return specs.Authorities(w.secret("shop-ca"), w.secret("shop-operator")).IsRotating()
}

// rotate lets time go by until a rotation is through.
func (w *world) rotate(t *rapid.T) {
	for steps := 0; ; steps++ {
		if _, settled := w.settle(); !settled || steps > 4 {
			t.Fatalf("still at work after %d steps: %v", steps, planned(w))
		}
		if !w.isRotating() {
			return
		}
		w.now = w.now.Add(time.Hour)
	}
}

// E-10: whatever becomes of the authority's Secret and of the instances', in
// whatever order kubelets bring what is new, whoever is to trust each other
// does, at each moment. In the end there is one authority, the Secret's.
func TestE10AuthoritiesAreExchangedInMutualTrust(t *testing.T) {
	pure(t)
	checkFewer(t, "15")
	rapid.Check(t, func(t *rapid.T) {
		w := settledWorld(3)
		check := func(t *rapid.T) {
			if err := errors.Join(w.stream(), w.reach()); err != nil {
				t.Error(err)
			}
		}
		// A node is not away for longer than this, or its instance is on its own.
		const longest = 45 * time.Minute
		seen := map[string]time.Time{}
		drawLate := func(t *rapid.T) {
			for n := range 4 {
				name := specs.Instance("shop", n+1)
				w.late[name] = w.now.Sub(seen[name]) < longest && rapid.Bool().Draw(t, name+" is late")
			}
		}
		deliver := func() {
			w.kubernetes()
			w.agents()
			for n := range 4 {
				if name := specs.Instance("shop", n+1); !w.late[name] {
					seen[name] = w.now
				}
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"":     check,
			"pass": func(*rapid.T) { w.catchUp(allKinds...); w.pass() },
			"stale pass": func(t *rapid.T) {
				w.catchUp(rapid.SliceOfDistinct(rapid.SampledFrom([]string{"Secret", "Pod", "Lease"}), rapid.ID).Draw(t, "kinds")...)
				w.pass()
			},
			"kubelets": func(t *rapid.T) { drawLate(t); deliver(); clear(w.late) },
			"minutes": func(t *rapid.T) {
				drawLate(t)
				for range rapid.IntRange(1, 8).Draw(t, "minutes") {
					w.catchUp(allKinds...)
					w.pass()
					deliver()
					check(t)
					w.now = w.now.Add(time.Minute)
				}
				clear(w.late)
			},
			"an hour without the operator": func(*rapid.T) { deliver(); w.now = w.now.Add(time.Hour); deliver() },
			"weeks": func(*rapid.T) {
				w.everybody(2)
				w.now = w.now.Add(20 * 24 * time.Hour)
				w.everybody(2)
				deliver()
			},
			"cut or reach": func(t *rapid.T) { w.cut[drawInstance(t)] = rapid.Bool().Draw(t, "cut") },
			"replace":      func(*rapid.T) { w.replaceCA() },
			"delete":       func(*rapid.T) { w.remove("Secret", "shop-ca") },
			"damage":       func(t *rapid.T) { w.damage("shop-ca", drawKey(t, specs.CertKey, specs.KeyKey, specs.CAKey)) },
			"delete or damage an instance's": func(t *rapid.T) {
				if name := specs.TLSSecret(drawInstance(t)); rapid.Bool().Draw(t, "delete") {
					w.remove("Secret", name)
				} else {
					w.damage(name, drawKey(t, specs.CAKey, specs.CertKey, specs.KeyKey, specs.ReplicationCertKey, specs.ReplicationKeyKey))
				}
			},
			"scale": func(*rapid.T) { w.scale(4) },
		})
		clear(w.cut)
		w.rotate(t)
		checkOneAuthority(t, w)
		checkIdle(t, w)
	})
}

// The operator's own Secret is nobody's to touch. Should somebody do so, and
// that in the midst of a rotation, the operator may be blind until kubelets have
// brought what is new, and nothing else.
func TestAuthoritiesComeToRestFromAnything(t *testing.T) {
	pure(t)
	checkFewer(t, "25")
	rapid.Check(t, func(t *rapid.T) {
		w := settledWorld(2)
		t.Repeat(map[string]func(*rapid.T){
			"pass":       func(*rapid.T) { w.catchUp(allKinds...); w.pass() },
			"kubernetes": func(*rapid.T) { w.kubernetes() },
			"agents":     func(*rapid.T) { w.agents() },
			"time":       func(*rapid.T) { w.now = w.now.Add(7 * time.Minute) },
			"everybody":  func(*rapid.T) { w.everybody(1) },
			"replace":    func(*rapid.T) { w.replaceCA() },
			"delete": func(t *rapid.T) {
				w.remove("Secret", rapid.SampledFrom([]string{"shop-ca", "shop-operator", "shop-1-tls", "shop-2-tls", "shop-app"}).Draw(t, "secret"))
			},
			"damage": func(t *rapid.T) {
				w.damage(rapid.SampledFrom([]string{"shop-ca", "shop-operator", "shop-1-tls", "shop-2-tls", "shop-app"}).Draw(t, "secret"),
					drawKey(t, specs.CAKey, specs.CertKey, specs.KeyKey, specs.SignerCertKey, specs.SignerKeyKey))
			},
			"forget when": func(t *rapid.T) {
				change(w, "shop-operator", func(s *corev1.Secret) { s.Annotations = nil })
			},
			"years": func(*rapid.T) { w.now = w.now.Add(9 * 365 * 24 * time.Hour) },
		})
		w.rotate(t)
		checkOneAuthority(t, w)
		checkIdle(t, w)
	})
}

// checkFewer lets rapid try fewer times than it does by default, since every
// signature takes its time. -rapid.checks asks for more.
func checkFewer(t *testing.T, times string) {
	checks := flag.Lookup("rapid.checks")
	if before := checks.Value.String(); before == checks.DefValue {
		if err := checks.Value.Set(times); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = checks.Value.Set(before) })
	}
}

func drawKey(t *rapid.T, keys ...string) string { return rapid.SampledFrom(keys).Draw(t, "key") }

// checkOneAuthority looks whether everybody trusts the Secret's authority alone,
// and has a certificate of it.
func checkOneAuthority(t *rapid.T, w *world) {
	t.Helper()
	ca := w.secret("shop-ca").Data
	want := string(ca[specs.CertKey])
	got := map[string]string{"shop-ca": string(ca[specs.CAKey]), "shop-app": string(w.secret("shop-app").Data[specs.CAKey]), "shop-operator": string(w.secret("shop-operator").Data[specs.CAKey])}
	for name := range w.objects["Pod"] {
		got[name] = string(w.mounted[w.pod(name).UID].Data[specs.CAKey])
	}
	for name, bundle := range got {
		if diff := cmp.Diff(want, bundle); diff != "" {
			t.Errorf("%s trusts:\n%s", name, diff)
		}
	}
	if err := w.stream(); err != nil {
		t.Error(err)
	}
	if err := w.reach(); err != nil {
		t.Error(err)
	}
}

// The steps, one by one, as events tell them.
func TestARotationTellsItsSteps(t *testing.T) {
	pure(t)
	w := settledWorld(3)
	var told []string
	turn := func() {
		w.catchUp(allKinds...)
		_, p, _ := w.pass()
		for _, a := range p.Actions {
			if a.Reason != "" {
				told = append(told, a.Reason)
			}
		}
		w.kubernetes()
		w.agents()
		w.now = w.now.Add(30 * time.Second)
	}
	w.remove("Secret", "shop-ca")
	for range 60 {
		turn()
	}
	want := []string{v1.ReasonAuthorityMade, v1.ReasonAuthorityTrusted, v1.ReasonAuthorityInForce, v1.ReasonAuthorityRetired}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Error(diff)
	}
	told = nil
	w.damage("shop-ca", specs.KeyKey)
	for range 30 {
		turn()
	}
	if diff := cmp.Diff([]string{v1.ReasonAuthorityRepaired}, told); diff != "" {
		t.Error(diff)
	}
	told = nil
	w.now = w.now.Add(7 * 365 * 24 * time.Hour)
	w.settle() // the leaves, which nobody has renewed
	w.now = w.now.Add(2 * 365 * 24 * time.Hour)
	for range 60 {
		turn()
	}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Errorf("near its end:\n%s", diff)
	}
}
