package cluster

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/pki"
	"github.com/pgop/postgres-operator/pkg/specs"
)

// issuer is an authority of people's own.
func (w *world) issuer() pki.Pair {
	made, err := pki.NewAuthority("theirs", w.now)
	if err != nil {
		panic(err)
	}
	return made
}

// theirSecret is what cert-manager writes for the Services.
func (w *world) theirSecret(issuer pki.Pair, hosts ...string) *corev1.Secret {
	if len(hosts) == 0 {
		hosts = specs.ServiceHosts(w.cluster)
	}
	leaf, err := issuer.NewLeaf("shop", hosts, w.now)
	if err != nil {
		panic(err)
	}
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "db", Name: "theirs"}, Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{specs.CAKey: issuer.Cert, specs.CertKey: leaf.Cert, specs.KeyKey: leaf.Key},
	}
}

// bring puts people's own Secret there, and asks for it.
func (w *world) bring(secret *corev1.Secret) {
	w.theirs = map[string]*corev1.Secret{"theirs": secret}
	w.edit(func(s *v1.PostgresClusterSpec) { s.TLS.ServerSecret = "theirs" })
}

// waitUntilShown lets time go by until the way of a certificate is over.
func (w *world) waitUntilShown(t testing.TB) {
	t.Helper()
	for range 5 {
		if _, settled := w.settle(); !settled {
			t.Fatalf("does not settle: %v", planned(w))
		}
		if reasonOf(w.cluster.Status, v1.ConditionCertificatesValid) != v1.ReasonServerCertificateNotYet {
			return
		}
		w.now = w.now.Add(3 * time.Minute)
	}
	t.Fatalf("is not shown: %+v", meta.FindStatusCondition(w.cluster.Status.Conditions, v1.ConditionCertificatesValid))
}

// shown are the certificates that servers show, each once.
func (w *world) shown() [][]byte {
	var all [][]byte
	for name := range w.objects["Pod"] {
		if cert := shownBy(w.mounted[w.pod(name).UID]); !slices.ContainsFunc(all, func(c []byte) bool { return bytes.Equal(c, cert) }) {
			all = append(all, cert)
		}
	}
	return all
}

// certificateCases are of certificates that people bring, and of those that end.
var certificateCases = []analyseCase{
	{why: "a certificate of the user's own: its authority is told to everybody first", change: func(w *world) { w.bring(w.theirSecret(w.issuer())) }},
	{why: "a certificate of the user's own: everybody knows its authority, and it is shown", change: func(w *world) {
		w.bring(w.theirSecret(w.issuer()))
		w.settle()
		w.now = w.now.Add(clientsLearn)
	}},
	{why: "a certificate of the user's own is shown", change: func(w *world) { w.bringAndShow() }},
	{why: "the user has renewed the certificate: it is shown at once", change: func(w *world) {
		issuer := w.bringAndShow()
		w.now = w.now.Add(24 * time.Hour)
		w.bring(w.theirSecret(issuer))
	}},
	{why: "the Secret of the user's certificate is gone: servers go on with it", change: func(w *world) {
		w.bringAndShow()
		w.theirs = nil
	}},
	{why: "the user's certificate ends within 30 days", change: func(w *world) {
		w.bringAndShow()
		w.now = w.now.Add(50 * 24 * time.Hour)
		w.settle()
		w.now = w.now.Add(11 * 24 * time.Hour)
		w.settleLeaves()
	}},
	{why: "the user has renewed the certificate in the last moment", change: func(w *world) {
		issuer := w.bringAndShow()
		w.now = w.now.Add(61 * 24 * time.Hour)
		w.settle()
		w.bring(w.theirSecret(issuer))
		w.catchUp(allKinds...)
		w.pass()
		w.kubernetes()
		w.agents()
	}},
	{why: "spec.tls is removed: servers show the operator's certificates", change: func(w *world) {
		w.bringAndShow()
		w.edit(func(s *v1.PostgresClusterSpec) { s.TLS = v1.TLSSpec{} })
	}},
	{why: "a role gets a certificate in place of its password", change: func(w *world) {
		w.settleWith(func(s *v1.PostgresClusterSpec) { s.Roles = []v1.RoleSpec{{Name: "reporting", Login: true}} })
		w.edit(func(s *v1.PostgresClusterSpec) { s.Roles[0].ClientCertificate = true })
	}},
}

// bringAndShow lets servers show a certificate of the issuer that it returns.
func (w *world) bringAndShow() pki.Pair {
	issuer := w.issuer()
	w.bring(w.theirSecret(issuer))
	w.settle()
	w.now = w.now.Add(clientsLearn)
	w.settle()
	return issuer
}

// settleLeaves lets the operator renew what is its own, and report nothing yet.
func (w *world) settleLeaves() {
	before := w.cluster.Status
	w.settle()
	w.cluster = w.cluster.DeepCopy()
	w.cluster.Status = before
}

// What people name is shown if it is of use. What is not changes nothing, and the
// condition names the field and the way out.
func TestE09WhatTheConditionSaysOfPeoplesCertificates(t *testing.T) {
	base := settledWorld(2)
	ours, theirs := base.issuer(), base.issuer()
	good := base.theirSecret(theirs)
	without := func(key string) *corev1.Secret {
		s := good.DeepCopy()
		delete(s.Data, key)
		return s
	}
	for _, test := range []struct {
		why    string
		change func(*world)
		reason string
		says   []string
	}{
		{"nothing is named", func(*world) {}, v1.ReasonIssuedByOperator, nil},
		{"as cert-manager writes it", func(w *world) { w.bring(good) }, v1.ReasonServerCertificateShown, []string{"servers show the certificate of Secret theirs"}},
		{"the authority is in a Secret of its own", func(w *world) {
			w.bring(without(specs.CAKey))
			w.theirs["authority"] = &corev1.Secret{Data: map[string][]byte{specs.CertKey: theirs.Cert}}
			w.edit(func(s *v1.PostgresClusterSpec) { s.TLS.CASecret = "authority" })
		}, v1.ReasonServerCertificateShown, nil},
		{"nobody can read it", func(w *world) { w.bring(good); w.theirsUnknown = errors.New("read Secret theirs: forbidden") }, v1.ReasonServerCertificateNotYet, []string{"read Secret theirs: forbidden"}},

		{"there is none", func(w *world) { w.bring(nil) }, v1.ReasonServerCertificateRefused, []string{"spec.tls.serverSecret: Secret theirs does not exist; create it, or remove the field", "servers show certificates of the operator's"}},
		{"no authority is there", func(w *world) {
			w.bring(good)
			w.edit(func(s *v1.PostgresClusterSpec) { s.TLS.CASecret = "authority" })
		}, v1.ReasonServerCertificateRefused, []string{"spec.tls.caSecret: Secret authority does not exist"}},
		{"an authority's Secret without one", func(w *world) {
			w.bring(good)
			w.theirs["authority"] = &corev1.Secret{}
			w.edit(func(s *v1.PostgresClusterSpec) { s.TLS.CASecret = "authority" })
		}, v1.ReasonServerCertificateRefused, []string{"spec.tls.caSecret: Secret authority has no certificate under ca.crt or tls.crt"}},
		{"no authority is in it", func(w *world) { w.bring(without(specs.CAKey)) }, v1.ReasonServerCertificateRefused, []string{"has no ca.crt", "spec.tls.caSecret"}},
		{"no key", func(w *world) { w.bring(without(specs.KeyKey)) }, v1.ReasonServerCertificateRefused, []string{"tls.crt and tls.key"}},
		{"another's", func(w *world) { s := w.theirSecret(ours); s.Data[specs.CAKey] = theirs.Cert; w.bring(s) }, v1.ReasonServerCertificateRefused, []string{"no authority vouches for tls.crt"}},
		{"other names", func(w *world) { w.bring(w.theirSecret(theirs, "db.example.com", "shop-rw.db.svc")) }, v1.ReasonServerCertificateRefused, []string{"tls.crt lacks the names shop-ro.db.svc, shop-r.db.svc"}},
	} {
		w := base.clone()
		before := w.shown()
		test.change(w)
		for range 4 {
			w.settle()
			w.now = w.now.Add(3 * time.Minute)
		}
		c := meta.FindStatusCondition(w.cluster.Status.Conditions, v1.ConditionCertificatesValid)
		if c.Reason != test.reason || !containsAll(c.Message, test.says) {
			t.Errorf("%s: %s: %s", test.why, c.Reason, c.Message)
		}
		want := before
		if test.reason == v1.ReasonServerCertificateShown {
			want = [][]byte{good.Data[specs.CertKey]}
		}
		if got := w.shown(); len(got) != len(want) || !bytes.Equal(got[0], want[0]) && len(want) == 1 {
			t.Errorf("%s: servers show %d certificates, and not what is meant", test.why, len(got))
		}
		if err := errors.Join(w.stream(), w.reach(), w.serve(w.secret("shop-app").Data[specs.CAKey])); err != nil {
			t.Errorf("%s: %v", test.why, err)
		}
		if w.cluster.Status.Phase != v1.PhaseHealthy {
			t.Errorf("%s: %s", test.why, w.cluster.Status.Phase)
		}
	}
}

func containsAll(text string, parts []string) bool {
	return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(text, part) })
}

// A new cluster shows what is named from the start; so does a new instance of one.
func TestE09ANewClusterShowsPeoplesCertificate(t *testing.T) {
	w := newWorld(2)
	secret := w.theirSecret(w.issuer())
	w.bring(secret)
	w.catchUp(allKinds...)
	w.pass()
	for _, name := range []string{"shop-1-tls", "shop-2-tls"} {
		if !bytes.Equal(w.secret(name).Data[specs.ServerCertKey], secret.Data[specs.CertKey]) {
			t.Errorf("the first pass does not give %s the certificate", name)
		}
	}
	w.settle()
	w.scale(3)
	w.settle()
	if got := w.shown(); len(got) != 1 || !bytes.Equal(got[0], secret.Data[specs.CertKey]) {
		t.Errorf("servers show %d certificates", len(got))
	}
}

// A pod that an older operator made gets its files by a restart, once.
func TestE09PodsWithoutTheFilesRestart(t *testing.T) {
	w := settledWorld(2)
	made := map[string]string{}
	for name := range w.objects["Pod"] {
		change(w, name, func(p *corev1.Pod) {
			for i := range p.Spec.Volumes {
				if p.Spec.Volumes[i].Name == "tls" {
					p.Spec.Volumes[i].Secret.Items = []corev1.KeyToPath{{Key: specs.CAKey, Path: specs.CAKey}}
				}
			}
		})
		made[name] = string(w.pod(name).UID)
	}
	w.settle()
	for name, uid := range made {
		if string(w.pod(name).UID) != uid {
			t.Fatalf("%s restarted although nobody asks for anything", name)
		}
	}
	w.bring(w.theirSecret(w.issuer()))
	w.waitUntilShown(t)
	for name, uid := range made {
		if string(w.pod(name).UID) == uid {
			t.Errorf("%s did not restart", name)
		}
	}
}

// E-09: people's authority changes, their certificate is renewed, forgotten, and asked
// for no more. Servers are believed at each minute, and each certificate is shown when
// everybody who connects knows its authority, or at once if they do already.
func TestE09TheWayOfPeoplesCertificates(t *testing.T) {
	w := settledWorld(2)
	issuers := []pki.Pair{w.issuer(), w.issuer()}
	since := w.now
	var known [][]byte
	var told []string
	// until lets minutes go by until servers show the certificate, and says how many.
	until := func(why string, cert []byte) time.Duration {
		t.Helper()
		for start := w.now; w.now.Sub(start) < 30*time.Minute; w.now = w.now.Add(time.Minute) {
			before := w.cluster.Status
			w.settle()
			for _, n := range newsOfCertificates(before, w.cluster.Status) {
				told = append(told, n.Reason)
			}
			known = append(known, w.secret("shop-app").Data[specs.CAKey])
			known = known[max(0, len(known)-3):] // what clients may have read last
			errs := []error{w.stream(), w.reach()}
			for _, bundle := range known {
				errs = append(errs, w.serve(bundle))
			}
			if err := errors.Join(errs...); err != nil {
				t.Fatalf("%s, after %s: %v", why, w.now.Sub(start), err)
			}
			if got := w.shown(); cert != nil && len(got) == 1 && bytes.Equal(got[0], cert) || cert == nil && len(got) == 2 {
				return w.now.Sub(start)
			}
		}
		t.Fatalf("%s: not shown after %s: %+v", why, w.now.Sub(since), meta.FindStatusCondition(w.cluster.Status.Conditions, v1.ConditionCertificatesValid))
		return 0
	}
	first, renewed, second := w.theirSecret(issuers[0]), w.theirSecret(issuers[0]), w.theirSecret(issuers[1])
	for _, step := range []struct {
		why   string
		bring *corev1.Secret
		waits bool
	}{
		{"theirs", first, true}, {"renewed", renewed, false}, {"of another authority", second, true}, {"of the first again", first, true},
	} {
		w.bring(step.bring)
		if waited := until(step.why, step.bring.Data[specs.CertKey]); (waited >= clientsLearn) != step.waits {
			t.Errorf("%s: shown after %s", step.why, waited)
		}
	}
	row := statusOf(Observation{Cluster: w.cluster}, "theirs")
	if row == nil || row.Message != "" || !row.NotAfter.Equal(&metav1.Time{Time: pki.FirstEnd(first.Data[specs.CertKey])}) {
		t.Errorf("the status says %+v", row)
	}

	// It is forgotten. People hear of it once, 30 days ahead; in the end servers show the
	// operator's again, which nobody has to learn.
	end := row.NotAfter.Time
	for _, left := range []time.Duration{31 * 24 * time.Hour, 29 * 24 * time.Hour, 28 * 24 * time.Hour, time.Hour} {
		w.now = end.Add(-left)
		until("forgotten", first.Data[specs.CertKey])
	}
	if diff := cmp.Diff([]string{v1.ReasonCertificateEnds}, told); diff != "" {
		t.Errorf("events:\n%s", diff)
	}
	if c := meta.FindStatusCondition(w.cluster.Status.Conditions, v1.ConditionCertificatesValid); c.Reason != v1.ReasonCertificateEnds || !strings.Contains(c.Message, "Secret theirs: it ends on "+end.Format(time.DateOnly)) {
		t.Errorf("the condition says %+v", c)
	}
	w.now = end.Add(-4 * time.Minute)
	if waited := until("about to end", nil); waited > time.Minute {
		t.Errorf("servers show it for another %s", waited)
	}
	w.now = end.Add(time.Minute)
	until("ended", nil)
	if c := meta.FindStatusCondition(w.cluster.Status.Conditions, v1.ConditionCertificatesValid); c.Reason != v1.ReasonServerCertificateRefused || !strings.Contains(c.Message, "tls.crt has expired on") {
		t.Errorf("the condition says %+v", c)
	}
	late := w.theirSecret(issuers[0])
	w.bring(late)
	until("renewed late", late.Data[specs.CertKey])

	w.edit(func(s *v1.PostgresClusterSpec) { s.TLS = v1.TLSSpec{} })
	until("asked for no more", nil)
	w.settle()
	for _, name := range []string{"shop-1-tls", "shop-2-tls"} {
		if theirs := specs.ServerTLSOf(w.secret(name)); theirs.Trusted != nil || theirs.Shown.Cert != nil {
			t.Errorf("%s still has %+v", name, theirs)
		}
	}
	if statusOf(Observation{Cluster: w.cluster}, "theirs") != nil {
		t.Error("the status still has it")
	}
}

// E-09, E-10: whatever becomes of people's Secrets and of the cluster's authority, and
// in whatever order kubelets bring what is new, replicas, clients and the operator
// believe every server at each moment. In the end servers show what is asked for.
func TestE09PeoplesCertificatesChangeInMutualTrust(t *testing.T) {
	checkFewer(t, "8")
	issuers := []pki.Pair{settledWorld(2).issuer(), settledWorld(2).issuer()}
	rapid.Check(t, func(t *rapid.T) {
		w := settledWorld(2)
		// known are what clients may have read of ca.crt within two minutes.
		var known [][]byte
		read := func() {
			known = append(known, w.secret("shop-app").Data[specs.CAKey])
			known = known[max(0, len(known)-3):]
		}
		read()
		check := func(t *rapid.T) {
			errs := []error{w.stream(), w.reach()}
			for _, bundle := range known {
				errs = append(errs, w.serve(bundle))
			}
			if err := errors.Join(errs...); err != nil {
				t.Error(err)
			}
		}
		const longest = 45 * time.Minute
		seen := map[string]time.Time{"shop-1": w.now, "shop-2": w.now}
		late := map[string]bool{}
		turn := func(t *rapid.T) {
			w.catchUp(allKinds...)
			w.pass()
			for name := range seen {
				w.late[name] = w.now.Sub(seen[name]) < longest && late[name]
			}
			w.kubernetes()
			w.agents()
			for name := range seen {
				if !w.late[name] {
					seen[name] = w.now
				}
			}
			clear(w.late)
			check(t)
			w.now = w.now.Add(time.Minute)
			read()
		}
		t.Repeat(map[string]func(*rapid.T){
			"": check,
			"minutes": func(t *rapid.T) {
				late["shop-1"], late["shop-2"] = rapid.Bool().Draw(t, "shop-1 is late"), rapid.Bool().Draw(t, "shop-2 is late")
				w.cut["shop-1"] = rapid.IntRange(0, 4).Draw(t, "shop-1 is cut off") == 4
				if rapid.IntRange(0, 4).Draw(t, "nobody can read Secrets") == 4 {
					w.theirsUnknown = errors.New("no answer")
				}
				for range rapid.SampledFrom([]int{1, 4, 15}).Draw(t, "minutes") {
					turn(t)
				}
				clear(w.cut)
				w.theirsUnknown = nil
			},
			"bring": func(t *rapid.T) {
				w.bring(w.theirSecret(issuers[rapid.IntRange(0, 1).Draw(t, "issuer")]))
			},
			"damage": func(t *rapid.T) {
				if s := w.theirs["theirs"]; s != nil {
					w.theirs["theirs"] = s.DeepCopy()
					key := drawKey(t, specs.CAKey, specs.CertKey, specs.KeyKey)
					w.theirs["theirs"].Data[key] = bytes.ToUpper(s.Data[key])
				}
			},
			"delete":            func(*rapid.T) { w.theirs = nil },
			"ask no more":       func(*rapid.T) { w.edit(func(s *v1.PostgresClusterSpec) { s.TLS = v1.TLSSpec{} }) },
			"another authority": func(*rapid.T) { w.replaceCA() },
		})
		clear(late)
		secret := w.theirSecret(issuers[0])
		w.bring(secret)
		for range 25 {
			turn(t)
		}
		w.rotate(t)
		if got := w.shown(); len(got) != 1 || !bytes.Equal(got[0], secret.Data[specs.CertKey]) {
			t.Errorf("servers show %d certificates, and not the Secret's alone", len(got))
		}
		checkIdle(t, w)
		w.edit(func(s *v1.PostgresClusterSpec) { s.TLS = v1.TLSSpec{} })
		for range 20 {
			turn(t)
		}
		checkOneAuthority(t, w)
		for _, name := range []string{"shop-1-tls", "shop-2-tls"} {
			if theirs := specs.ServerTLSOf(w.secret(name)); theirs.Trusted != nil || theirs.Shown.Cert != nil {
				t.Errorf("%s still has %+v", name, theirs)
			}
		}
		checkIdle(t, w)
	})
}

// A cluster that shows people's certificates can be copied: its servers are verified by
// the name of the Service, and by people's authority as well.
func TestACopyOfAClusterThatShowsPeoplesCertificates(t *testing.T) {
	for _, shows := range []bool{false, true} {
		w := newWorld(1)
		w.copies()
		w.otherServes(asItIs, "primary")
		theirs, issuer := specs.ServerTLS{}, w.issuer()
		wantHost, wantTrusted := "other-1.other-pods.db.svc", otherCA.Cert
		if shows {
			theirs.Trusted = pki.Union(otherCA.Cert, issuer.Cert)
			wantHost, wantTrusted = "other-rw.db.svc", theirs.Trusted
		}
		w.others = append(w.others, specs.NewTLSSecret(w.others[0].(*v1.PostgresCluster), "other-1", otherCA.Cert, otherCA, otherCA, theirs))
		w.catchUp(allKinds...)
		_, p, _ := w.pass()
		for _, a := range p.Actions {
			switch o := a.Object.(type) {
			case *corev1.Secret:
				if o.Name == specs.CloneSecret("shop") && !bytes.Equal(o.Data[specs.CAKey], wantTrusted) {
					t.Errorf("shows %v: the copy trusts others", shows)
				}
			case *corev1.ConfigMap:
				if config := (Observation{ConfigMap: o}).told().Bootstrap.Clone; config == nil || config.Host != wantHost {
					t.Errorf("shows %v: the copy is told of %+v, want the host %s", shows, config, wantHost)
				}
			}
		}
	}
}
