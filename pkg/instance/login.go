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

// keepLogins makes the password of the application's role on a primary that of
// the Secret, and the replication role as replicas need it. A role that users
// have dropped stays away.
func keepLogins(ctx context.Context, server *pgrun.Server, secrets string) error {
	replication := keepReplicationRole(ctx, server)
	app, err := readLogin(secrets, "app")
	if err == nil {
		err = keepPassword(ctx, server, app)
	}
	return errors.Join(replication, err)
}

// rewindFunctions are what pg_rewind calls in the database postgres. Who may
// stream may read every file by a base backup as well.
var rewindFunctions = []string{
	"pg_catalog.pg_ls_dir(text, boolean, boolean)", "pg_catalog.pg_stat_file(text, boolean)",
	"pg_catalog.pg_read_binary_file(text)", "pg_catalog.pg_read_binary_file(text, bigint, bigint, boolean)",
}

// keepReplicationRole makes the role as which replicas stream and rewind, or what
// a database that was adopted has of it, into what they need. It has no password:
// pg_hba.conf asks for a certificate. The server's database is postgres.
func keepReplicationRole(ctx context.Context, server *pgrun.Server) error {
	if err := keepStreamingRole(ctx, server); err != nil {
		return err
	}
	for _, function := range rewindFunctions {
		var may bool
		query := "SELECT has_function_privilege(" + pq.QuoteLiteral(postgres.ReplicationRole) + ", " + pq.QuoteLiteral(function) + ", 'EXECUTE')"
		if err := server.Row(ctx, query, &may); err != nil {
			return fmt.Errorf("see whether role %s may rewind: %w", postgres.ReplicationRole, err)
		}
		if may {
			continue
		}
		if err := server.Exec(ctx, "GRANT EXECUTE ON FUNCTION "+function+" TO "+pq.QuoteIdentifier(postgres.ReplicationRole)); err != nil {
			return fmt.Errorf("let role %s rewind: %w", postgres.ReplicationRole, err)
		}
	}
	return nil
}

func keepStreamingRole(ctx context.Context, server *pgrun.Server) error {
	role := pq.QuoteIdentifier(postgres.ReplicationRole)
	var right bool
	query := "SELECT rolcanlogin AND rolreplication AND rolpassword IS NULL FROM pg_authid WHERE rolname = " + pq.QuoteLiteral(postgres.ReplicationRole)
	err := server.Row(ctx, query, &right)
	statement := "ALTER ROLE " + role + " LOGIN REPLICATION PASSWORD NULL"
	switch {
	case errors.Is(err, sql.ErrNoRows):
		statement = "CREATE ROLE " + role + " LOGIN REPLICATION"
	case err != nil:
		return fmt.Errorf("look at role %s: %w", postgres.ReplicationRole, err)
	case right:
		return nil
	}
	if err := server.Exec(ctx, statement); err != nil {
		return fmt.Errorf("make role %s fit for replication: %w", postgres.ReplicationRole, err)
	}
	return nil
}

// keepPassword alters the role's password if it is not l's. It finds out by
// the verifier, so that an idle cluster writes nothing.
func keepPassword(ctx context.Context, server *pgrun.Server, l login) error {
	var verifier sql.NullString
	query := "SELECT rolpassword FROM pg_authid WHERE rolname = " + pq.QuoteLiteral(l.User)
	err := server.Row(ctx, query, &verifier)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read password verifier of role %s: %w", l.User, err)
	}
	if postgres.VerifierMatches(verifier.String, l.Password) {
		return nil
	}
	fresh, err := postgres.ScramVerifier(l.Password)
	if err != nil {
		return err
	}
	statement := "ALTER ROLE " + pq.QuoteIdentifier(l.User) + " PASSWORD " + pq.QuoteLiteral(fresh)
	if err := server.Exec(ctx, statement); err != nil {
		return fmt.Errorf("alter password of role %s: %w", l.User, err)
	}
	return nil
}

// createRole makes a role that may log in with a password, of which the server
// sees only the verifier.
func createRole(ctx context.Context, server *pgrun.Server, l login) error {
	verifier, err := postgres.ScramVerifier(l.Password)
	if err != nil {
		return err
	}
	statement := "CREATE ROLE " + pq.QuoteIdentifier(l.User) + " LOGIN PASSWORD " + pq.QuoteLiteral(verifier)
	if err := server.Exec(ctx, statement); err != nil {
		return fmt.Errorf("create role %s: %w", l.User, err)
	}
	return nil
}
