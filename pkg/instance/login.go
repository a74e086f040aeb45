package instance

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/lib/pq"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/postgres"
	"github.com/pgop/postgres-operator/pkg/postgres/pgrun"
)

// login is a role and its password, or the verifier of it.
type login struct {
	User     string
	Password rolePassword
}

// readOwner reads the login of the application database's owner, for a database that
// is being made: nobody shall find it before the password is right. Later the declarer
// keeps it.
func (a *Agent) readOwner(ctx context.Context, config instanceapi.Config) (login, error) {
	const longest = 5 * time.Second
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	name, own := config.Owner.Of(config.Cluster)
	read := a.kube.Secret
	if own {
		read = a.kube.OwnSecret
	}
	data, err := read(ctx, name)
	var secret *corev1.Secret
	switch {
	case apierrors.IsNotFound(err) && own:
		return login{}, fmt.Errorf("read the login of role %s: the Secret %s is not there yet; the operator makes it", config.Bootstrap.Owner, name)
	case apierrors.IsNotFound(err):
	case err != nil:
		return login{}, fmt.Errorf("read the login of role %s: %w", config.Bootstrap.Owner, err)
	default:
		secret = &corev1.Secret{Data: data}
	}
	password, err := passwordIn(secret, passwordSecret{name, own}, config.Bootstrap.Owner)
	if err != nil {
		return login{}, fmt.Errorf("read the login of role %s: %w", config.Bootstrap.Owner, err)
	}
	return login{User: config.Bootstrap.Owner, Password: password}, nil
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

// createRole makes a role that may log in with a password, of which the server
// sees only the verifier.
func createRole(ctx context.Context, server *pgrun.Server, l login) error {
	password, err := l.Password.clause("")
	if err != nil {
		return err
	}
	if err := server.Exec(ctx, "CREATE ROLE "+pq.QuoteIdentifier(l.User)+" LOGIN "+password); err != nil {
		return fmt.Errorf("create role %s: %w", l.User, err)
	}
	return nil
}
