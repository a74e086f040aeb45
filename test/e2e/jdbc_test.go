//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/pgop/postgres-operator/test/e2e/framework"
)

// PostgreSQL's JDBC driver logs in with the published URI, as docs/connecting.md has
// it for Java: once as it is, and once with the server verified.
func TestA21JDBCDriverLogsIn(t *testing.T) {
	t.Parallel()
	framework.LocalOnly(t) // the image is made by test/localcluster
	f := framework.New(t)
	c := f.Create("java")
	f.StartJDBC()
	c.AwaitReady()
	for _, password := range []string{c.Secret()["password"], `: @ / # % space ' " \ é+&?=`, strings.Repeat("0123456789abcdef-._~", 6)} {
		c.SetPassword(password)
		f.Await(framework.Patience, fmt.Sprintf("the driver logs in with %q", password), func(ctx context.Context) error {
			secret := c.Secret()
			if secret["password"] != password {
				return fmt.Errorf("the Secret's password is %q", secret["password"])
			}
			for _, uri := range []string{secret["jdbc-uri"], verifying(secret["jdbc-uri"], "/tmp/ca.crt")} {
				if err := wantJDBC(ctx, f, uri, secret["ca.crt"], "app of app over TLS"); err != nil {
					return err
				}
			}
			return nil
		})
	}
	secret := c.Secret()
	other := strings.Replace(verifying(secret["jdbc-uri"], "/tmp/ca.crt"), secret["host"], c.Pods()["java-1"].Status.PodIP, 1)
	if err := wantJDBC(t.Context(), f, other, secret["ca.crt"], "could not be verified by hostnameverifier"); err != nil {
		t.Error(err)
	}

	// E-02: a login that is deleted comes back, and the server has it.
	f.Kubectl("delete", "secret", "java-app")
	f.Await(framework.Patience, "every form of the new login logs in", func(ctx context.Context) error {
		now, err := f.Secret(ctx, "java-app")
		if err != nil {
			return err
		}
		if now["password"] == secret["password"] {
			return errors.New("it has the password of the one that was deleted")
		}
		return errors.Join(wantForms(ctx, f, now, now["password"]), wantJDBC(ctx, f, now["jdbc-uri"], now["ca.crt"], "app of app over TLS"))
	})
}

// verifying is the change of docs/connecting.md to a URI for JDBC.
func verifying(uri, authority string) string {
	return strings.Replace(uri, "sslmode=require", "sslmode=verify-full", 1) + "&sslrootcert=" + authority
}

// wantJDBC looks who the driver is logged in as.
func wantJDBC(ctx context.Context, f *framework.Framework, uri, authority, want string) error {
	const sql = "select current_user || ' of ' || current_database() || case when ssl then ' over TLS' else '' end from pg_stat_ssl where pid = pg_backend_pid()"
	got, err := f.JDBC(ctx, uri, authority, sql)
	if err != nil {
		return err
	}
	if !strings.Contains(got, want) {
		return fmt.Errorf("the driver's output lacks %q: %s", want, got)
	}
	return nil
}
