//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/pgop/postgres-operator/test/e2e/framework"
)

// wantLogins looks whether every form of the published login has the password
// and logs in.
func wantLogins(ctx context.Context, f *framework.Framework, c *framework.Cluster, password string) error {
	return wantForms(ctx, f, c.Secret(), password)
}

// wantForms looks whether every form of a login has the password and logs in.
func wantForms(ctx context.Context, f *framework.Framework, secret map[string]string, password string) error {
	if _, err := f.PSQL(ctx, secret["uri"], "select 1"); err != nil {
		return fmt.Errorf("uri: %w", err)
	}
	if secret["password"] != password {
		return fmt.Errorf("the Secret's password is %q instead of %q", secret["password"], password)
	}
	keyValue := fmt.Sprintf("host=%s port=%s dbname=%s user=%s password=%s sslmode=require", quoted(secret["host"]), quoted(secret["port"]),
		quoted(secret["dbname"]), quoted(secret["username"]), quoted(secret["password"]))
	_, keyValueErr := f.PSQL(ctx, keyValue, "select 1")
	// No password is asked for: what libpq does not find in the file, it does
	// not have.
	const pgpass = `umask 077; cat >/tmp/pgpass.$5; PGPASSFILE=/tmp/pgpass.$5 exec timeout 20 psql -X -w -At -h "$1" -p "$2" -U "$3" -d "$4" -c 'select 1'`
	_, pgpassErr := f.InClient(ctx, secret["pgpass"]+"\n", pgpass, secret["host"], secret["port"], secret["username"], secret["dbname"], secret["host"])
	return errors.Join(wrap("key/value", keyValueErr), wrap("pgpass", pgpassErr), wantJDBCPassword(secret["jdbc-uri"], password))
}

func quoted(value string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(value) + "'"
}

// wantJDBCPassword looks at the URI as pgjdbc does; that the driver logs in with it is
// TestA21JDBCDriverLogsIn's.
func wantJDBCPassword(text, password string) error {
	uri, err := url.Parse(strings.TrimPrefix(text, "jdbc:"))
	if err != nil {
		return fmt.Errorf("jdbc-uri: %w", err)
	}
	// pgjdbc decodes as URLDecoder does, in which + is a blank.
	return framework.Want("the password in jdbc-uri", uri.Query().Get("password"), password)
}

func wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}
