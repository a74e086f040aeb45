//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/test/e2e/framework"
)

// fiveMinutes is for how long the certificates of these tests are valid.
const fiveMinutes = 5 * time.Minute

// E-09: certificates of five minutes, which are a minute and a half old when everybody
// gets them, are renewed under load before they end, and nobody notices: no session ends, no
// login fails, no server restarts, and whoever connects after their end has new ones.
func TestE09CertificatesEndUnderLoad(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	c := createCertified(f, "ending")
	load := startLoad(f, c)
	ends := time.Now().Add(fiveMinutes - 90*time.Second).UTC().Truncate(time.Second)
	authority := secretData(f, "ending-ca")
	for _, secret := range certificatesOf(c) {
		held, given := secretData(f, secret), map[string][]byte{}
		for _, name := range []string{"tls", "replication"} {
			if cert := held[name+".crt"]; cert != nil {
				given[name+".crt"], given[name+".key"] = endingAt(t, authority, cert, ends)
			}
		}
		patchSecret(f, secret, given)
	}
	f.Await(time.Minute, "everybody uses certificates that end soon", func(ctx context.Context) error {
		lookAtSecrets(f, c)
		return endsWhere(ctx, c, ends.Equal)
	})
	f.Await(time.Until(ends)+time.Minute, "everybody uses renewed certificates", func(ctx context.Context) error {
		lookAtSecrets(f, c)
		return endsWhere(ctx, c, ends.Before)
	})
	f.Pause(time.Until(ends) + 5*time.Second)
	load.end()
}

// E-09, E-10: an operator that issues certificates of five minutes renews them again and
// again, and exchanges the authority meanwhile, in real time and with the kubelets' own
// pace. Under load no session ends because of it, no login fails, and no server restarts.
func TestE09E10CertificatesOfFiveMinutes(t *testing.T) {
	// An exchange of the authority has three waits of five minutes and more.
	const forAnExchange = 20 * time.Minute
	run := certificatesWindow(t)
	f := framework.New(t)
	f.RunOperatorWith("--certificate-lifetime=" + fiveMinutes.String())
	c := createCertified(f, "brief")
	load := startLoad(f, c)
	old := secretData(f, "brief-ca")["tls.crt"]
	exchanged := run >= forAnExchange
	if exchanged {
		f.Kubectl("delete", "secret", "brief-ca")
	} else {
		t.Logf("the authority stays: its exchange takes a run of %v", forAnExchange)
	}
	seen := map[string]map[int64]bool{}
	f.Hold(run, "certificates are valid", func(ctx context.Context) error {
		live, err := c.Get(ctx)
		if err != nil {
			return err
		}
		for _, row := range live.Status.Certificates {
			if seen[row.Secret] == nil {
				seen[row.Secret] = map[int64]bool{}
			}
			seen[row.Secret][row.NotAfter.Unix()] = true
			if !row.NotAfter.After(time.Now()) {
				return fmt.Errorf("that of %s has ended at %s and is in use", row.Secret, row.NotAfter)
			}
		}
		if valid := conditionOf(live, v1.ConditionCertificatesValid); valid.Status != metav1.ConditionTrue {
			return errors.New(valid.Message)
		}
		return nil
	})
	if exchanged {
		f.Await(10*time.Minute, "the old authority is no longer trusted", func(context.Context) error {
			wanted, operator := secretData(f, "brief-ca")["tls.crt"], secretData(f, "brief-operator")
			if len(wanted) == 0 || bytes.Equal(wanted, old) || !bytes.Equal(operator["signer.crt"], wanted) || !bytes.Equal(operator["ca.crt"], wanted) {
				return errors.New("it signs, or is trusted")
			}
			return nil
		})
	}
	for _, secret := range certificatesOf(c) {
		t.Logf("%s: %d certificates", secret, len(seen[secret]))
		if len(seen[secret]) < int(run/fiveMinutes)+1 {
			t.Errorf("in %v %s had only %d certificates", run, secret, len(seen[secret]))
		}
	}
	load.end()
}

// certificatesWindow is for how long certificates of five minutes are watched:
// CERTIFICATES. Without that the test is skipped.
func certificatesWindow(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv("CERTIFICATES")
	if text == "" {
		t.Skip("it takes long and changes the operator's flags: set CERTIFICATES=30m, or for how long else")
	}
	window, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("environment CERTIFICATES: %v", err)
	}
	return window
}

// createCertified makes a cluster with a role that logs in by a certificate.
func createCertified(f *framework.Framework, name string) *framework.Cluster {
	f.T.Helper()
	c := f.Create(name, framework.Instances(3), func(c *v1.PostgresCluster) {
		c.Spec.Roles = []v1.RoleSpec{{Name: "reporting", Login: true, ClientCertificate: true}}
	})
	c.AwaitReady()
	c.AwaitCondition(v1.ConditionDatabasesReady, metav1.ConditionTrue)
	return c
}

// certificatesOf are the Secrets with certificates that the operator renews.
func certificatesOf(c *framework.Cluster) []string {
	all := []string{c.Name + "-operator", c.Name + "-cert-reporting"}
	for n := range 3 {
		all = append(all, c.Instance(n+1)+"-tls")
	}
	return all
}

// endsWhere says which certificate in use has another end than wanted.
func endsWhere(ctx context.Context, c *framework.Cluster, wanted func(time.Time) bool) error {
	live, err := c.Get(ctx)
	if err != nil {
		return err
	}
	for _, secret := range certificatesOf(c) {
		i := slices.IndexFunc(live.Status.Certificates, func(row v1.CertificateStatus) bool { return row.Secret == secret })
		if i < 0 || !wanted(live.Status.Certificates[i].NotAfter.Time) {
			return fmt.Errorf("%s has another certificate: %+v", secret, live.Status.Certificates)
		}
	}
	return nil
}

// lookAtSecrets makes kubelets look at what pods mount, which takes them a minute else.
func lookAtSecrets(f *framework.Framework, c *framework.Cluster) {
	f.T.Helper()
	now := fmt.Sprint(time.Now().Unix())
	f.Kubectl("annotate", "--overwrite", "pods", "-l", framework.ClusterLabel+"="+c.Name, "e2e.pgop.dev/look="+now)
	f.Kubectl("annotate", "--overwrite", "pod", verifyingClient, "e2e.pgop.dev/look="+now)
}

// endingAt is a certificate as the one given, which is valid for five minutes and ends
// then, with its key.
func endingAt(t *testing.T, authority map[string][]byte, like []byte, ends time.Time) (cert, key []byte) {
	t.Helper()
	block, _ := pem.Decode(like)
	template, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	block, _ = pem.Decode(authority["tls.crt"])
	issuer, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	block, _ = pem.Decode(authority["tls.key"])
	issuerKey, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber, template.NotBefore, template.NotAfter = big.NewInt(time.Now().UnixNano()), ends.Add(-fiveMinutes), ends
	der, err := x509.CreateCertificate(rand.Reader, template, issuer, own.Public(), issuerKey)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(own)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
}

// load is what goes on while certificates are exchanged: a session that writes, and
// a client that logs in again and again.
type load struct {
	f      *framework.Framework
	c      *framework.Cluster
	pods   map[string]*corev1.Pod
	began  string
	phases func() []v1.Phase
	stop   func() error
}

// startLoad returns when the session writes and the client logs in. The cluster has
// three instances, and is one of createCertified.
func startLoad(f *framework.Framework, c *framework.Cluster) load {
	f.T.Helper()
	c.SQL(framework.RW, "create table written (n int, backend int default pg_backend_pid())")
	l := load{f: f, c: c, pods: c.Pods(), began: serverStarts(c), phases: watchPhases(f, c), stop: writeInOneSession(f, c)}
	startVerifyingClient(f, c)
	f.Await(2*time.Minute, "a client logs in, in both ways", func(ctx context.Context) error {
		in, refused, err := loginsWays(ctx, f)
		if err != nil || len(in) < 2 {
			return errors.Join(err, fmt.Errorf("logins %v, refused %q", in, refused))
		}
		return nil
	})
	return l
}

// end lets replicas connect anew, ends the load, and fails the test if it was
// disturbed.
func (l load) end() {
	l.f.T.Helper()
	t := l.f.T
	if seen := l.phases(); slices.ContainsFunc(seen, func(p v1.Phase) bool { return p != v1.PhaseHealthy && p != v1.PhaseProgressing }) {
		t.Errorf("phases meanwhile: %v", seen)
	}
	// That replicas do not stream for a moment, the status may say.
	l.c.SQLIn(l.c.Primary(), "select pg_terminate_backend(pid) from pg_stat_replication")
	l.f.Await(framework.Patience, "the replicas stream again", func(ctx context.Context) error {
		got, err := l.c.TrySQLIn(ctx, l.c.Primary(), "select count(*) from pg_stat_replication where state = 'streaming'")
		return errors.Join(err, framework.Want("streaming replicas", got, "2"))
	})
	if err := l.stop(); err != nil {
		t.Errorf("the session: %v", err)
	}
	if got := l.c.SQL(framework.RW, "select count(distinct backend), count(*) = max(n) from written"); got != "1|t" {
		t.Errorf("backends of the session, and whether all rows are there: %s", got)
	}
	in, refused, err := loginsWays(t.Context(), l.f)
	if t.Logf("logins: %v", in); err != nil || len(refused) > 0 {
		t.Errorf("logins that failed: %q, %v", refused, err)
	}
	if now := serverStarts(l.c); now != l.began {
		t.Errorf("servers started at %s, and before at %s", now, l.began)
	}
	for name, pod := range l.c.Pods() {
		if pod.UID != l.pods[name].UID || pod.Status.ContainerStatuses[0].RestartCount != 0 {
			t.Errorf("pod %s restarted", name)
		}
	}
}

// verifyingClient is the pod of startVerifyingClient.
const verifyingClient = "verifying"

// startVerifyingClient starts a pod that logs in twice a second, verifies the server,
// and reads its mounted Secrets each time: once by the owner's password and once by the
// role's certificate. A try under which the kubelet has exchanged files counts for
// nothing, since psql may have read the half of each.
func startVerifyingClient(f *framework.Framework, c *framework.Cluster) {
	f.T.Helper()
	const script = `try() {
			way=$1 files=$2; shift 2
			was=$(readlink $files/..data)
			if why=$("$@" 2>&1); then echo "in $way"
			elif [ "$was" = "$(readlink $files/..data)" ]; then echo "refused $way: $(echo "$why" | tr '\n' ' ')"
			fi
		}
		export PGCONNECT_TIMEOUT=5
		while :; do
			reach="host=$(cat /app/host) dbname=$(cat /app/dbname) sslmode=verify-full"
			try password /app env PGPASSWORD="$(cat /app/password)" psql -X -w -At -d "$reach user=app sslrootcert=/app/ca.crt" -c 'select 1'
			try certificate /role psql -X -w -At -d "$reach user=reporting sslrootcert=/role/ca.crt sslcert=/role/tls.crt sslkey=/role/tls.key" -c 'select 1'
			sleep 0.5
		done`
	mounted := func(name, secret string) corev1.Volume {
		return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: secret, DefaultMode: ptr.To[int32](0o440)}}}
	}
	_, err := f.Kube.CoreV1().Pods(f.Namespace).Create(f.T.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: verifyingClient},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: ptr.To[int64](0),
			AutomountServiceAccountToken:  ptr.To(false),
			SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To[int64](999), FSGroup: ptr.To[int64](999),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
			Containers: []corev1.Container{{
				Name: "client", Image: "docker.io/library/postgres:17", Command: []string{"sh", "-c", script},
				SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: ptr.To(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}},
				VolumeMounts:    []corev1.VolumeMount{{Name: "app", MountPath: "/app", ReadOnly: true}, {Name: "role", MountPath: "/role", ReadOnly: true}},
			}},
			Volumes: []corev1.Volume{mounted("app", c.Name+"-app"), mounted("role", c.Name+"-cert-reporting")},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		f.T.Fatal(err)
	}
}

// loginsWays are how often the verifying client was let in, by the way, and what was
// said where it was not.
func loginsWays(ctx context.Context, f *framework.Framework) (in map[string]int, refused []string, err error) {
	text, err := f.Kube.CoreV1().Pods(f.Namespace).GetLogs(verifyingClient, &corev1.PodLogOptions{}).DoRaw(ctx)
	if err != nil {
		return nil, nil, err
	}
	in = map[string]int{}
	for line := range strings.Lines(string(text)) {
		if way, is := strings.CutPrefix(strings.TrimSpace(line), "in "); is {
			in[way]++
		} else {
			refused = append(refused, strings.TrimSpace(line))
		}
	}
	return in, refused, nil
}
