//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/test/e2e/framework"
)

// The authority is exchanged, once on request and once by hand, while a session
// writes. No container restarts, the session goes on, replicas stream, and the
// operator never loses an instance from sight. Damage is undone.
func TestE10CertificateAuthorityRotates(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	c := f.Create("certs", framework.Instances(3))
	c.AwaitReady()
	c.SQL(framework.RW, "create table written (n int, backend int default pg_backend_pid())")
	began := serverStarts(c)
	pods := c.Pods()
	phases := watchPhases(f, c)
	stop := writeInOneSession(f, c)

	first := secretData(f, "certs-ca")["tls.crt"]
	f.Kubectl("delete", "secret", "certs-ca")
	second := awaitRotation(f, c, func(now []byte) bool { return !bytes.Equal(now, first) })

	mine := newAuthority(t)
	patchSecret(f, "certs-ca", mine)
	third := awaitRotation(f, c, func(now []byte) bool { return bytes.Equal(now, mine["tls.crt"]) })
	if bytes.Equal(second, third) {
		t.Error("the authority is the same as before")
	}

	patchSecret(f, "certs-ca", map[string][]byte{"tls.key": []byte("damaged")})
	server := secretData(f, "certs-2-tls")["tls.crt"]
	patchSecret(f, "certs-2-tls", map[string][]byte{"tls.crt": []byte("damaged")})
	f.Await(framework.Patience, "the authority is put back, and the certificate made anew", func(context.Context) error {
		ca, leaf := secretData(f, "certs-ca"), secretData(f, "certs-2-tls")["tls.crt"]
		if !bytes.Equal(ca["tls.key"], mine["tls.key"]) || !bytes.Equal(ca["tls.crt"], mine["tls.crt"]) {
			return errors.New("another authority is in its Secret")
		}
		if bytes.Equal(leaf, server) || !bytes.HasPrefix(leaf, []byte("-----BEGIN CERTIFICATE")) {
			return errors.New("the certificate is not made anew")
		}
		return nil
	})
	awaitRotation(f, c, func(now []byte) bool { return bytes.Equal(now, mine["tls.crt"]) })

	if seen := phases(); slices.ContainsFunc(seen, func(p v1.Phase) bool { return p != v1.PhaseHealthy && p != v1.PhaseProgressing }) {
		t.Errorf("phases meanwhile: %v", seen)
	}

	// Whoever connects now does so by the newest certificates. That replicas do
	// not stream for a moment, the status may say.
	c.SQLIn(c.Primary(), "select pg_terminate_backend(pid) from pg_stat_replication")
	f.Await(framework.Patience, "the replicas stream again", func(ctx context.Context) error {
		got, err := c.TrySQLIn(ctx, c.Primary(), "select count(*) from pg_stat_replication where state = 'streaming'")
		return errors.Join(err, framework.Want("streaming replicas", got, "2"))
	})
	wantSecret(t, f, c)
	if err := stop(); err != nil {
		t.Errorf("the session: %v", err)
	}
	if got := c.SQL(framework.RW, "select count(distinct backend), count(*) = max(n) from written"); got != "1|t" {
		t.Errorf("backends of the session, and whether all rows are there: %s", got)
	}
	if now := serverStarts(c); now != began {
		t.Errorf("servers started at %s, and before at %s", now, began)
	}
	for name, pod := range c.Pods() {
		if pod.UID != pods[name].UID || pod.Status.ContainerStatuses[0].RestartCount != 0 {
			t.Errorf("pod %s restarted", name)
		}
	}
	messages, err := c.Messages(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	told := strings.Join(messages, "\n")
	for _, reason := range []string{"AuthorityMade", "AuthorityTrusted", "AuthorityInForce", "AuthorityRetired", "AuthorityRepaired"} {
		if !strings.Contains(told, reason+": ") {
			t.Errorf("no event %s in\n%s", reason, told)
		}
	}
}

func serverStarts(c *framework.Cluster) string {
	var all []string
	for n := range 3 {
		all = append(all, c.SQLIn(c.Instance(n+1), "select pg_postmaster_start_time()"))
	}
	return strings.Join(all, ", ")
}

// writeInOneSession writes a row five times a second, in one session that
// verifies the server. The function returned ends it and says how it went.
func writeInOneSession(f *framework.Framework, c *framework.Cluster) func() error {
	const script = `umask 077; cat >/tmp/session.crt
		n=0; while [ ! -e /tmp/session.end ]; do n=$((n+1)); echo "insert into written values ($n);"; sleep 0.2; done |
		PGSSLROOTCERT=/tmp/session.crt timeout 7200 psql -X -q -v ON_ERROR_STOP=1 -d "$1"`
	secret := c.Secret()
	uri := strings.Replace(secret["uri"], "sslmode=require", "sslmode=verify-full", 1)
	ended := make(chan error, 1)
	go func() {
		_, err := f.InClient(f.T.Context(), secret["ca.crt"], script, uri)
		ended <- err
	}()
	f.Await(framework.Patience, "the session writes", func(ctx context.Context) error {
		got, err := c.TrySQL(ctx, framework.RW, "select count(*) > 2 from written")
		return errors.Join(err, framework.Want("rows are there", got, "t"))
	})
	return func() error {
		if _, err := f.InClient(f.T.Context(), "", "touch /tmp/session.end"); err != nil {
			return err
		}
		return <-ended
	}
}

// awaitRotation waits until everybody trusts the authority in its Secret alone,
// and that is the one meant. It returns its certificate. Time is made to pass
// between the steps, and kubelets to bring Secrets, since both take minutes.
// Meanwhile the published ca.crt is good for the server at each moment.
func awaitRotation(f *framework.Framework, c *framework.Cluster, isMeant func(cert []byte) bool) []byte {
	f.T.Helper()
	const longest = 3 * time.Minute
	var cert []byte
	hurried := ""
	f.Await(longest, "everybody trusts the new authority alone", func(ctx context.Context) error {
		wantVerified(f, c)
		operator := secretData(f, c.Name+"-operator")
		if state := fmt.Sprintf("%x %x", operator["ca.crt"], operator["signer.crt"]); state != hurried {
			hurry(f, c)
			hurried = state
		}
		cert = secretData(f, c.Name+"-ca")["tls.crt"]
		if !isMeant(cert) || !bytes.Equal(operator["ca.crt"], cert) || !bytes.Equal(operator["signer.crt"], cert) {
			return errors.New("another authority is trusted, or signs")
		}
		for n := range 3 {
			instance := c.Instance(n + 1)
			mounted, err := c.TryShell(ctx, instance, "cat /pgop/tls/ca.crt /pgop/tls/tls.crt")
			if err != nil {
				return err
			}
			held := secretData(f, instance+"-tls")
			if strings.TrimSpace(mounted) != strings.TrimSpace(string(held["ca.crt"])+string(held["tls.crt"])) || !bytes.Equal(held["ca.crt"], cert) {
				return fmt.Errorf("%s has other certificates", instance)
			}
		}
		return nil
	})
	return cert
}

// hurry makes the last step look ten minutes old as soon as every Secret holds
// what it changed, and makes kubelets look at the Secrets.
func hurry(f *framework.Framework, c *framework.Cluster) {
	f.T.Helper()
	f.Await(framework.Patience, "all Secrets hold what is trusted, and certificates of who signs", func(context.Context) error {
		operator := secretData(f, c.Name+"-operator")
		for _, name := range []string{c.Name + "-app", c.Instance(1) + "-tls", c.Instance(2) + "-tls", c.Instance(3) + "-tls"} {
			data := secretData(f, name)
			if !bytes.Equal(data["ca.crt"], operator["ca.crt"]) {
				return fmt.Errorf("%s trusts others", name)
			}
			if leaf := data["tls.crt"]; leaf != nil && !isSignedBy(leaf, operator["signer.crt"]) {
				return fmt.Errorf("%s has a certificate of another", name)
			}
		}
		return nil
	})
	long := time.Now().Add(-10 * time.Minute).UTC().Format(time.RFC3339)
	f.Kubectl("annotate", "--overwrite", "secret", c.Name+"-operator", "pgop.dev/authorities-since="+long)
	f.Kubectl("annotate", "--overwrite", "pods", "-l", framework.ClusterLabel+"="+c.Name, "e2e.pgop.dev/look="+long)
}

// wantVerified connects once as a client that verifies the server.
func wantVerified(f *framework.Framework, c *framework.Cluster) {
	f.T.Helper()
	const verify = `umask 077; cat >/tmp/now.crt; PGSSLROOTCERT=/tmp/now.crt exec timeout 20 psql -X -At -d "$1" -c 'select 1'`
	secret := c.Secret()
	verified := strings.Replace(secret["uri"], "sslmode=require", "sslmode=verify-full", 1)
	if _, err := f.InClient(f.T.Context(), secret["ca.crt"], verify, verified); err != nil {
		f.T.Errorf("log in with the published CA: %v", err)
	}
}

func secretData(f *framework.Framework, name string) map[string][]byte {
	secret, err := f.Kube.CoreV1().Secrets(f.Namespace).Get(f.T.Context(), name, metav1.GetOptions{})
	if err != nil {
		return nil // not there for a moment
	}
	return secret.Data
}

func patchSecret(f *framework.Framework, name string, data map[string][]byte) {
	f.T.Helper()
	patch, err := json.Marshal(map[string]any{"data": data})
	if err != nil {
		f.T.Fatal(err)
	}
	if _, err := f.Kube.CoreV1().Secrets(f.Namespace).Patch(f.T.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		f.T.Fatal(err)
	}
}

func isSignedBy(leaf, authority []byte) bool {
	parse := func(text []byte) *x509.Certificate {
		block, _ := pem.Decode(text)
		if block == nil {
			return nil
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil
		}
		return cert
	}
	child, parent := parse(leaf), parse(authority)
	return child != nil && parent != nil && child.CheckSignatureFrom(parent) == nil
}

// newAuthority is one of somebody's own, as openssl would make it.
func newAuthority(t *testing.T) map[string][]byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "our own"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().AddDate(1, 0, 0), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return map[string][]byte{
		"tls.crt": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		"tls.key": pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}),
	}
}
