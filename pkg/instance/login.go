package instance

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/lib/pq"

	"github.com/pgop/postgres-operator/pkg/postgres"
	"github.com/pgop/postgres-operator/pkg/postgres/pgrun"
)

// login is a role and its password, as a mounted Secret has them.
type login struct{ User, Password string }

// readLogin reads the Secret mounted at secrets/name.
func readLogin(secrets, name string) (login, error) {
	user, err := os.ReadFile(filepath.Join(secrets, name, "username"))
	if err != nil {
		return login{}, fmt.Errorf("read login %s: %w", name, err)
	}
	password, err := os.ReadFile(filepath.Join(secrets, name, "password"))
	if err != nil {
		return login{}, fmt.Errorf("read login %s: %w", name, err)
	}
	return login{User: string(user), Password: string(password)}, nil
}

// writePassFile writes the replication password where libpq looks for it.
func writePassFile(o Options) error {
	replication, err := readLogin(o.SecretsDir, "replication")
	if err != nil {
		return err
	}
	line := postgres.ConnInfo{User: postgres.ReplicationRole, Password: replication.Password}.PgPass()
	return writeFile(o.passFile(), line+"\n", 0o600)
}

// keepLogins makes the passwords of the application's and the replication role
// on a primary those of the Secrets, and makes the replication role if a
// database that was adopted has none. Roles that users have dropped stay away.
func keepLogins(ctx context.Context, server *pgrun.Server, secrets string) error {
	app, err := readLogin(secrets, "app")
	if err != nil {
		return err
	}
	replication, err := readLogin(secrets, "replication")
	if err != nil {
		return err
	}
	replication.User = postgres.ReplicationRole
	found, err := keepPassword(ctx, server, replication)
	if err == nil && !found {
		err = createRole(ctx, server, replication, "LOGIN REPLICATION")
	}
	if err != nil {
		return err
	}
	_, err = keepPassword(ctx, server, app)
	return err
}

// keepPassword alters the role's password if it is not l's. It finds out by
// the verifier, so that an idle cluster writes nothing.
func keepPassword(ctx context.Context, server *pgrun.Server, l login) (found bool, err error) {
	var verifier sql.NullString
	query := "SELECT rolpassword FROM pg_authid WHERE rolname = " + pq.QuoteLiteral(l.User)
	err = server.Row(ctx, query, &verifier)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read password verifier of role %s: %w", l.User, err)
	}
	if postgres.VerifierMatches(verifier.String, l.Password) {
		return true, nil
	}
	fresh, err := postgres.ScramVerifier(l.Password)
	if err != nil {
		return true, err
	}
	statement := "ALTER ROLE " + pq.QuoteIdentifier(l.User) + " PASSWORD " + pq.QuoteLiteral(fresh)
	if err := server.Exec(ctx, statement); err != nil {
		return true, fmt.Errorf("alter password of role %s: %w", l.User, err)
	}
	return true, nil
}

// createRole makes a role with a password, of which the server sees only the
// verifier.
func createRole(ctx context.Context, server *pgrun.Server, l login, options string) error {
	verifier, err := postgres.ScramVerifier(l.Password)
	if err != nil {
		return err
	}
	statement := "CREATE ROLE " + pq.QuoteIdentifier(l.User) + " " + options + " PASSWORD " + pq.QuoteLiteral(verifier)
	if err := server.Exec(ctx, statement); err != nil {
		return fmt.Errorf("create role %s: %w", l.User, err)
	}
	return nil
}
