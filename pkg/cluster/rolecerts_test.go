package cluster

import (
	"bytes"
	"crypto/x509"
	"testing"
	"time"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/pki"
	"github.com/pgop/postgres-operator/pkg/specs"
)

// E-09, E-10: a role's certificate is issued, renewed, and made anew by another
// authority before the old one is forgotten. It goes when nobody asks for it.
func TestE10CertificatesOfRoles(t *testing.T) {
	w := settledWorld(2)
	w.edit(func(s *v1.PostgresClusterSpec) { s.Roles = []v1.RoleSpec{{Name: "reporting", Login: true}} })
	w.settle()
	if w.secret("shop-role-reporting") == nil || w.secret("shop-cert-reporting") != nil {
		t.Fatal("the role has no password, or a certificate")
	}
	w.edit(func(s *v1.PostgresClusterSpec) { s.Roles[0].ClientCertificate = true })
	w.settle()
	made := w.secret("shop-cert-reporting")
	if w.secret("shop-role-reporting") != nil || made == nil {
		t.Fatal("the role still has a password, or no certificate")
	}
	if row := w.cluster.Status.Roles[0]; row.Secret != made.Name || !row.Ready {
		t.Errorf("the status says %+v", row)
	}
	if row := statusOf(Observation{Cluster: w.cluster}, made.Name); row == nil || !row.NotAfter.Time.Equal(pki.FirstEnd(made.Data[specs.CertKey])) {
		t.Errorf("the status says of the certificate %+v", row)
	}
	// letsIn says whether every server believes the role's certificate.
	letsIn := func() error {
		for name := range w.objects["Pod"] {
			if err := w.verify(w.mounted[w.pod(name).UID].Data[specs.CAKey], w.secret(made.Name).Data[specs.CertKey], "", x509.ExtKeyUsageClientAuth); err != nil {
				return err
			}
		}
		return w.serve(w.secret(made.Name).Data[specs.CAKey])
	}
	if err := letsIn(); err != nil {
		t.Error(err)
	}

	w.now = w.now.Add(61 * 24 * time.Hour)
	w.settle()
	renewed := w.secret(made.Name)
	if bytes.Equal(renewed.Data[specs.CertKey], made.Data[specs.CertKey]) {
		t.Error("it is not renewed in the last third of its life")
	}

	w.replaceCA()
	for range 40 {
		w.everybody(1)
		if err := letsIn(); err != nil {
			t.Fatal(err)
		}
		w.now = w.now.Add(time.Minute)
	}
	if w.isRotating() || bytes.Equal(w.secret(made.Name).Data[specs.CertKey], renewed.Data[specs.CertKey]) {
		t.Error("the authority is not exchanged, or the role has a certificate of the old one")
	}

	w.edit(func(s *v1.PostgresClusterSpec) { s.Roles[0].ClientCertificate = false })
	w.settle()
	if w.secret("shop-role-reporting") == nil || w.secret(made.Name) != nil {
		t.Error("the role has no password again, or still a certificate")
	}
	w.edit(func(s *v1.PostgresClusterSpec) {
		s.Roles = []v1.RoleSpec{{Name: "operator", Login: true, ClientCertificate: true}}
	})
	w.settle()
	if reason := reasonOf(w.cluster.Status, v1.ConditionSpecAccepted); reason != v1.ReasonInvalid || w.secret("shop-cert-operator") != nil {
		t.Errorf("a role gets the operator's certificate: %s", reason)
	}
}
