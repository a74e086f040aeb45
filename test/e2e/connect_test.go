//go:build e2e

package e2e

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/test/e2e/framework"
)

// The program in docs/connecting.md is that of example/connect, and logs in with the
// variables that the page names.
func TestTheGoExampleConnects(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	c := f.Create("program", framework.Instances(1))
	const source = "../../example/connect/main.go"
	program, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/connecting.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), "```go\n"+string(program)+"```") {
		t.Error("docs/connecting.md has another program")
	}
	binary := filepath.Join(t.TempDir(), "connect")
	build := exec.CommandContext(t.Context(), "go", "build", "-ldflags", "-s -w", "-o", binary, source)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v: %s", source, err, output)
	}
	content, err := os.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	c.AwaitReady()
	secret := c.Secret()
	if _, err := f.InClient(t.Context(), base64.StdEncoding.EncodeToString(content), "base64 -d >/tmp/connect && chmod +x /tmp/connect"); err != nil {
		t.Fatal(err)
	}
	const run = `umask 077; cat >/tmp/program.crt
		PGHOST=$1 PGPORT=$2 PGDATABASE=$3 PGUSER=$4 PGPASSWORD=$5 PGSSLROOTCERT=/tmp/program.crt exec timeout 60 /tmp/connect`
	said, err := f.InClient(t.Context(), secret["ca.crt"], run, secret["host"], secret["port"], secret["dbname"], secret["username"], secret["password"])
	if err != nil || !strings.HasPrefix(said, "app on PostgreSQL 17") {
		t.Errorf("it said %q: %v", said, err)
	}
}

// A load balancer's address leads to the primary, and the server proves that it is
// its own; annotations come and go as the spec asks, those of others stay.
func TestServicesForClientsOutside(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	const name, address = "balanced-rw", "192.0.2.77"
	c := f.Create("balanced", framework.Instances(2), func(c *v1.PostgresCluster) {
		c.Spec.Services.RW = v1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Annotations: map[string]string{"example.com/internal": "true", "example.com/idle": "60"}}
		c.Spec.Services.RO.Type = corev1.ServiceTypeNodePort
	})
	c.AwaitReady()
	started := c.SQLIn("balanced-1", "select pg_postmaster_start_time()")
	services := f.Kube.CoreV1().Services(f.Namespace)

	// What a cloud's controller does, which is not there.
	f.Await(framework.Patience, "the load balancer has an address", func(ctx context.Context) error {
		rw, err := services.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		rw.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: address}, {Hostname: "db.example.com"}}
		rw.Annotations["cloud.example.com/id"] = "lb-7"
		if rw, err = services.Update(ctx, rw, metav1.UpdateOptions{}); err != nil {
			return err
		}
		rw.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: address}, {Hostname: "db.example.com"}}
		_, err = services.UpdateStatus(ctx, rw, metav1.UpdateOptions{})
		return err
	})
	secret := c.Secret()
	const connect = `umask 077; cat >/tmp/balanced.crt
		PGPASSWORD=$2 PGCONNECT_TIMEOUT=5 exec timeout 20 psql -X -At -d "host=$1 dbname=app user=app sslmode=verify-full sslrootcert=/tmp/balanced.crt" -c 'select not pg_is_in_recovery()'`
	f.Await(framework.Patience, "the primary is reached there, and verified", func(ctx context.Context) error {
		got, err := f.InClient(ctx, secret["ca.crt"], connect, address, secret["password"])
		return errors.Join(err, framework.Want("it is the primary", got, "t"))
	})
	if got := c.SQLIn("balanced-1", "select pg_postmaster_start_time()"); got != started {
		t.Error("the server was restarted for another certificate")
	}

	ro, err := services.Get(t.Context(), "balanced-ro", metav1.GetOptions{})
	if err != nil || ro.Spec.Type != corev1.ServiceTypeNodePort || ro.Spec.Ports[0].NodePort == 0 {
		t.Errorf("balanced-ro is %+v: %v", ro.Spec, err)
	}
	c.Edit(func(c *v1.PostgresCluster) {
		c.Spec.Services.RW = v1.ServiceSpec{Annotations: map[string]string{"example.com/idle": "90"}}
		c.Spec.Services.RO = v1.ServiceSpec{}
	})
	f.Await(framework.Patience, "the Services are as before", func(ctx context.Context) error {
		for _, want := range []struct{ name, annotations string }{
			{name, "map[cloud.example.com/id:lb-7 example.com/idle:90 pgop.dev/annotations:example.com/idle]"},
			{"balanced-ro", "map[]"},
		} {
			s, err := services.Get(ctx, want.name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if s.Spec.Type != corev1.ServiceTypeClusterIP || s.Spec.Ports[0].NodePort != 0 || fmt.Sprint(s.Annotations) != want.annotations {
				return fmt.Errorf("%s is of type %s, port %d, with %v", s.Name, s.Spec.Type, s.Spec.Ports[0].NodePort, s.Annotations)
			}
		}
		return nil
	})
	c.AwaitRows(framework.RW, "select 1", "1")
}
