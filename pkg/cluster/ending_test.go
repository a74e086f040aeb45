package cluster

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/pki"
	"github.com/pgop/postgres-operator/pkg/specs"
)

// E-09: the status has the date of the certificates in use, and not of those that are
// on their way to an instance.
func TestE09StatusShowsTheDateInUse(t *testing.T) {
	w := settledWorld(2)
	dates := func() map[string]string {
		all := map[string]string{}
		for _, c := range w.cluster.Status.Certificates {
			all[c.Secret] = c.NotAfter.UTC().Format(time.DateOnly)
			if c.Message != "" {
				all[c.Secret] += ": " + c.Message
			}
		}
		return all
	}
	want := map[string]string{"shop-ca": "2036-11-24", "shop-operator": "2027-02-25", "shop-1-tls": "2027-02-25", "shop-2-tls": "2027-02-25"}
	if diff := cmp.Diff(want, dates()); diff != "" {
		t.Errorf("made on 2026-11-27:\n%s", diff)
	}

	w.now = w.now.Add(61 * 24 * time.Hour)
	w.late["shop-2"] = true
	for range 5 {
		w.everybody(1)
	}
	want["shop-operator"], want["shop-1-tls"] = "2027-04-27", "2027-04-27"
	if diff := cmp.Diff(want, dates()); diff != "" {
		t.Errorf("renewed, and shop-2 has not got it yet:\n%s", diff)
	}
	w.now = w.now.Add(16 * 24 * time.Hour)
	w.everybody(2)
	want["shop-2-tls"] += ": shop-2 still uses a certificate that ends on 2027-02-25, since the renewed one has not reached it, or it does not answer; see the node's kubelet, or delete the pod"
	if diff := cmp.Diff(want, dates()); diff != "" {
		t.Errorf("two weeks later:\n%s", diff)
	}
	clear(w.late)
	w.settle()
	want["shop-2-tls"] = "2027-04-27"
	if diff := cmp.Diff(want, dates()); diff != "" {
		t.Errorf("it has got it:\n%s", diff)
	}
}

// E-09: what the operator does not renew people hear of 30 days ahead, once, and once
// more when it is renewed.
func TestE09WhatIsNotRenewedIsTold(t *testing.T) {
	var told []string
	pass := func(w *world, fail bool) v1.PostgresClusterStatus {
		w.catchUp(allKinds...)
		before := w.cluster.Status
		o := w.observe()
		p := Analyse(o)
		var failures []Failure
		for _, a := range p.Actions {
			if fail {
				failures = append(failures, Failure{Action: a, Reason: v1.ReasonNameConflict, Err: errors.New("forbidden")})
			} else if err := w.apply(a); err != nil {
				t.Fatal(err)
			}
		}
		w.cluster = w.cluster.DeepCopy()
		w.cluster.Status = Status(o, p, failures)
		for _, n := range newsOfCertificates(before, w.cluster.Status) {
			told = append(told, n.Kind+" "+n.Reason+": "+n.Note)
		}
		return w.cluster.Status
	}
	for _, test := range []struct {
		why, says string
		pause     bool
		of        []string
	}{
		{"paused", "is not renewed while spec.paused is true; set it to false", true, []string{"shop-1-tls", "shop-operator"}},
		// The operator's own comes first, and the others wait for it.
		{"the API server refuses", "could not be renewed; the condition Progressing says why", false, []string{"shop-operator"}},
	} {
		w := settledWorld(1)
		w.edit(func(s *v1.PostgresClusterSpec) { s.Paused = test.pause })
		told = nil
		w.now = w.now.Add(59 * 24 * time.Hour)
		pass(w, !test.pause)
		if len(told) > 0 {
			t.Errorf("%s, 31 days before: %v", test.why, told)
		}
		w.now = w.now.Add(36 * time.Hour)
		for range 3 {
			pass(w, !test.pause)
			w.now = w.now.Add(time.Hour)
		}
		var want, renewed []string
		for _, name := range test.of {
			want = append(want, "Warning CertificateEnds: the certificate of Secret "+name+": it ends on 2027-02-25 and "+test.says)
			renewed = append(renewed, "Normal CertificateRenewed: the certificate of Secret "+name+" is renewed and valid until 2027-04-27")
		}
		if diff := cmp.Diff(want, told); diff != "" {
			t.Errorf("%s:\n%s", test.why, diff)
		}
		c := meta.FindStatusCondition(w.cluster.Status.Conditions, v1.ConditionCertificatesValid)
		if c.Status != metav1.ConditionFalse || c.Reason != v1.ReasonCertificateEnds || !strings.Contains(c.Message, test.says) {
			t.Errorf("%s: the condition says %+v", test.why, c)
		}
		told = nil
		w.edit(func(s *v1.PostgresClusterSpec) { s.Paused = false })
		for range 5 {
			pass(w, false)
			w.kubernetes()
			w.agents()
		}
		if diff := cmp.Diff(renewed, told, cmpopts.SortSlices(strings.Compare)); diff != "" {
			t.Errorf("%s, and no more:\n%s", test.why, diff)
		}
	}
}

// The certificate that servers show is believed no longer than its authority.
func TestE09TheAuthorityMayEndFirst(t *testing.T) {
	w := settledWorld(1)
	issuer, err := pki.NewAuthority("theirs", w.now.Add(-(10*365-20)*24*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	secret := w.theirSecret(issuer)
	w.bring(secret)
	w.waitUntilShown(t)
	row := statusOf(Observation{Cluster: w.cluster}, "theirs")
	if ends := pki.FirstEnd(issuer.Cert); row == nil || !row.NotAfter.Time.Equal(ends) {
		t.Errorf("the status says %+v, and the authority ends on %s", row, ends)
	}
	if !strings.HasPrefix(string(w.secret("shop-1-tls").Data[specs.ServerCertKey]), "-----BEGIN") {
		t.Error("it is not shown")
	}
}

// E-09: certificates of five minutes are renewed after three, by kubelets that take
// their time, while the authority is exchanged; everybody believes everybody at each
// moment, and no certificate ends in use.
func TestE09FiveMinuteCertificatesAreRenewedAtThree(t *testing.T) {
	w := settledWorld(2)
	w.leafLifetime = 5 * time.Minute
	w.remove("Secret", "shop-1-tls")
	w.remove("Secret", "shop-2-tls")
	w.remove("Secret", "shop-operator")
	w.settle()
	since := map[string]time.Time{}
	held := map[string]string{}
	var lived []time.Duration
	for turn := range 120 {
		if turn == 60 {
			w.replaceCA()
		}
		for range 2 { // an operator that has something to do looks again at once
			w.catchUp(allKinds...)
			w.pass()
		}
		w.late["shop-1"], w.late["shop-2"] = turn%3 != 0, turn%3 != 1 // a minute and a half
		w.kubernetes()
		w.agents()
		for name := range w.objects["Pod"] {
			mounted := w.mounted[w.pod(name).UID]
			for _, cert := range [][]byte{mounted.Data[specs.CertKey], mounted.Data[specs.ReplicationCertKey]} {
				if left := pki.FirstEnd(cert).Sub(w.now); left <= 0 {
					t.Fatalf("turn %d: a certificate of %s has ended in use", turn, name)
				}
			}
			if cert := string(w.tlsSecret(name).Data[specs.CertKey]); held[name] != cert {
				if !since[name].IsZero() && turn < 60 {
					lived = append(lived, w.now.Sub(since[name]))
				}
				held[name], since[name] = cert, w.now
			}
		}
		for _, c := range w.cluster.Status.Certificates {
			if c.Message != "" {
				t.Fatalf("turn %d: %+v", turn, c)
			}
		}
		if err := errors.Join(w.stream(), w.reach()); err != nil {
			t.Fatalf("turn %d: %v", turn, err)
		}
		w.now = w.now.Add(30 * time.Second)
	}
	if len(lived) < 10 {
		t.Errorf("renewed %d times in half an hour", len(lived))
	}
	for _, life := range lived {
		if life < 3*time.Minute || life > 4*time.Minute {
			t.Errorf("renewed after %s", life)
		}
	}
	if w.isRotating() {
		t.Error("the authority was not exchanged in half an hour")
	}
	// The operator looks again in time, and not when it would anyway.
	next := time.Duration(1<<63 - 1)
	clear(w.late)
	w.settle()
	for _, name := range []string{"shop-1-tls", "shop-2-tls", "shop-operator"} {
		next = min(next, pki.RenewalOf(w.secret(name).Data[specs.CertKey]).Sub(w.now))
	}
	w.now = w.now.Add(next - 7*time.Second)
	if p := Analyse(w.observe()); p.RecheckAfter != 7*time.Second {
		t.Errorf("7 s before a certificate is due, the operator looks again after %s", p.RecheckAfter)
	}
}
