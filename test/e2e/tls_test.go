//go:build e2e

package e2e

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/test/e2e/framework"
)

// The example's servers show a certificate of the user's own. It is renewed, and spoilt,
// under a session that writes: no server restarts, and the session goes on. A role logs
// in by its certificate, and nobody over a plain connection.
func TestE09ServersShowTheUsersCertificate(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	authority := newAuthority(t)
	first, ends := newServerCertificate(t, authority, 100*24*time.Hour, "secured-rw."+f.Namespace+".svc", "secured-ro."+f.Namespace+".svc", "secured-r."+f.Namespace+".svc")
	if _, err := f.Kube.CoreV1().Secrets(f.Namespace).Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "secured-server"}, Type: corev1.SecretTypeTLS, Data: first,
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	f.Kubectl("apply", "-f", "../../example/server-certificate.yaml")
	c := f.Cluster("secured")
	c.AwaitReady()
	c.AwaitCondition(v1.ConditionCertificatesValid, metav1.ConditionTrue, "servers show the certificate of Secret secured-server")
	wantShown(f, c, authority["tls.crt"], ends)
	wantVerified(f, c) // by ca.crt of the application's Secret
	c.SQL(framework.RW, "create table written (n int, backend int default pg_backend_pid())")
	pods, began := c.Pods(), c.SQLIn("secured-1", "select pg_postmaster_start_time()")
	stop := writeInOneSession(f, c)

	renewed, ends := newServerCertificate(t, authority, 200*24*time.Hour, "*."+f.Namespace+".svc")
	patchSecret(f, "secured-server", renewed)
	wantShown(f, c, authority["tls.crt"], ends)
	c.AwaitCondition(v1.ConditionCertificatesValid, metav1.ConditionTrue, "servers show the certificate of Secret secured-server")

	patchSecret(f, "secured-server", map[string][]byte{"tls.key": first["tls.key"]})
	c.AwaitCondition(v1.ConditionCertificatesValid, metav1.ConditionFalse, "spec.tls.serverSecret: Secret secured-server: tls.crt and tls.key", "servers go on with the certificate that they have")
	wantShown(f, c, authority["tls.crt"], ends)
	patchSecret(f, "secured-server", renewed)
	c.AwaitCondition(v1.ConditionCertificatesValid, metav1.ConditionTrue)

	// Whoever follows the primary now verifies it by the user's authority.
	c.SQLIn(c.Primary(), "select pg_terminate_backend(pid) from pg_stat_replication")
	f.Await(framework.Patience, "the replica streams again", func(ctx context.Context) error {
		got, err := c.TrySQLIn(ctx, c.Primary(), "select count(*) from pg_stat_replication where state = 'streaming'")
		return errors.Join(err, framework.Want("streaming replicas", got, "1"))
	})
	wantCertified(f)
	secret := c.Secret()
	if said, err := f.PSQL(t.Context(), strings.Replace(secret["uri"], "sslmode=require", "sslmode=disable", 1), "select 1"); err == nil || !strings.Contains(err.Error(), "no pg_hba.conf entry") {
		t.Errorf("a plain connection is not refused: %q, %v", said, err)
	}
	if err := stop(); err != nil {
		t.Errorf("the session: %v", err)
	}
	if got := c.SQL(framework.RW, "select count(distinct backend), count(*) = max(n) from written"); got != "1|t" {
		t.Errorf("backends of the session, and whether all rows are there: %s", got)
	}
	if now := c.SQLIn("secured-1", "select pg_postmaster_start_time()"); now != began {
		t.Errorf("the server started at %s, and before at %s", now, began)
	}
	for name, pod := range c.Pods() {
		if pod.UID != pods[name].UID || pod.Status.ContainerStatuses[0].RestartCount != 0 {
			t.Errorf("pod %s restarted", name)
		}
	}
}

// wantShown waits until every server shows a certificate that who trusts the authority
// alone believes, and the status says that it ends then. Kubelets are made to look.
func wantShown(f *framework.Framework, c *framework.Cluster, authority []byte, ends time.Time) {
	f.T.Helper()
	const verify = `umask 077; cat >/tmp/theirs.crt; PGSSLROOTCERT=/tmp/theirs.crt exec timeout 20 psql -X -At -d "$1" -c 'select 1'`
	uri := strings.Replace(c.Secret()["uri"], "sslmode=require", "sslmode=verify-full", 1)
	f.Await(2*time.Minute, "servers show the certificate", func(ctx context.Context) error {
		f.Kubectl("annotate", "--overwrite", "pods", "-l", framework.ClusterLabel+"="+c.Name, "e2e.pgop.dev/look="+fmt.Sprint(time.Now().Unix()))
		live, err := c.Get(ctx)
		if err != nil {
			return err
		}
		for _, row := range live.Status.Certificates {
			if row.Secret == "secured-server" && row.NotAfter.Time.Equal(ends) {
				_, err := f.InClient(ctx, string(authority), verify, uri)
				return err
			}
		}
		return fmt.Errorf("the status has %+v", live.Status.Certificates)
	})
}

// wantCertified logs in as the example's role, by its certificate.
func wantCertified(f *framework.Framework) {
	f.T.Helper()
	secret := secretData(f, "secured-cert-reporting")
	const login = `umask 077; cat >/tmp/role.pem; csplit -s -f /tmp/role. /tmp/role.pem '/^-----BEGIN .*PRIVATE KEY/' && mv /tmp/role.01 /tmp/role.key
		PGSSLROOTCERT=/tmp/theirs.crt PGSSLCERT=/tmp/role.00 PGSSLKEY=/tmp/role.key exec timeout 20 psql -X -At -d "host=$1 dbname=app user=reporting sslmode=verify-full" -c 'select current_user'`
	got, err := f.InClient(f.T.Context(), string(secret["tls.crt"])+string(secret["tls.key"]), login, string(secret["host"]))
	if err := errors.Join(err, framework.Want("the role", got, "reporting")); err != nil {
		f.T.Errorf("log in by a certificate: %v", err)
	}
}

// newServerCertificate is what cert-manager writes into a Secret, and when it ends.
func newServerCertificate(t *testing.T, authority map[string][]byte, life time.Duration, hosts ...string) (data map[string][]byte, ends time.Time) {
	t.Helper()
	parse := func(text []byte) []byte {
		block, _ := pem.Decode(text)
		return block.Bytes
	}
	issuer, err := x509.ParseCertificate(parse(authority["tls.crt"]))
	if err != nil {
		t.Fatal(err)
	}
	issuerKey, err := x509.ParseECPrivateKey(parse(authority["tls.key"]))
	if err != nil {
		t.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ends = time.Now().Add(life).UTC().Truncate(time.Second)
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), DNSNames: hosts, NotBefore: time.Now().Add(-time.Minute), NotAfter: ends}
	der, err := x509.CreateCertificate(rand.Reader, template, issuer, key.Public(), issuerKey)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return map[string][]byte{
		"ca.crt":  authority["tls.crt"],
		"tls.crt": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		"tls.key": pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}),
	}, ends
}
