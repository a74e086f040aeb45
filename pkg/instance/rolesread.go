package instance

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lib/pq"

	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/postgres/pgrun"
)

// readServer reads what matters of roles and databases. It writes nothing.
func readServer(ctx context.Context, server *pgrun.Server, d instanceapi.Declared) (foundServer, error) {
	found := foundServer{Roles: map[string]foundRole{}, Databases: map[string]foundDatabase{}}
	if err := server.Row(ctx, "SELECT current_setting('server_version_num')::int", &found.Version); err != nil {
		return foundServer{}, fmt.Errorf("ask for the version: %w", err)
	}
	found.GrantOptions = found.Version >= 160000
	if len(d.Roles) > 0 {
		if err := readRoles(ctx, server, withLogins(d.Roles), &found); err != nil {
			return foundServer{}, err
		}
		if err := readLogins(ctx, server, d.Roles, &found); err != nil {
			return foundServer{}, err
		}
	}
	if len(d.Databases) > 0 {
		if err := readDatabases(ctx, server, d.Databases, &found); err != nil {
			return foundServer{}, err
		}
	}
	return found, nil
}

// rolesQuery reads roles by name. An end of the password before all time is the year
// 1, which nobody declares.
const rolesQuery = `
SELECT rolname, rolcanlogin, rolsuper, rolcreatedb, rolcreaterole, rolinherit, rolreplication, rolbypassrls, rolconnlimit,
  CASE WHEN rolvaliduntil = '-infinity' THEN -62135596799 WHEN isfinite(rolvaliduntil) THEN floor(extract(epoch FROM rolvaliduntil))::bigint END,
  coalesce(shobj_description(oid, 'pg_authid'), ''), coalesce(rolpassword, '')
FROM pg_authid WHERE rolname IN `

func readRoles(ctx context.Context, server *pgrun.Server, roles []instanceapi.DeclaredRole, found *foundServer) error {
	names := literals(roles, func(r instanceapi.DeclaredRole) string { return r.Name })
	if err := server.Rows(ctx, rolesQuery+names, func(scan func(...any) error) error {
		var name string
		var f foundRole
		var until sql.NullInt64
		if err := scan(&name, &f.Login, &f.Superuser, &f.CreateDB, &f.CreateRole, &f.Inherit, &f.Replication, &f.BypassRLS, &f.ConnectionLimit,
			&until, &f.Comment, &f.Verifier); err != nil {
			return err
		}
		if until.Valid {
			f.ValidUntil = time.Unix(until.Int64, 0).UTC()
		}
		found.Roles[name] = f
		return nil
	}); err != nil {
		return fmt.Errorf("read roles: %w", err)
	}
	options := "m.rolinherit, true"
	if found.GrantOptions {
		options = "g.inherit_option, g.set_option"
	}
	const firstSuperuser = "10"
	query := "SELECT m.rolname, r.rolname, coalesce(b.rolname, ''), coalesce(b.oid = " + firstSuperuser + ", true), " + options + `
		FROM pg_auth_members g JOIN pg_authid m ON m.oid = g.member JOIN pg_authid r ON r.oid = g.roleid LEFT JOIN pg_authid b ON b.oid = g.grantor
		WHERE m.rolname IN ` + names + " ORDER BY 1, 2, 3"
	if err := server.Rows(ctx, query, func(scan func(...any) error) error {
		var name string
		var m membership
		err := scan(&name, &m.Of, &m.By, &m.ByFirst, &m.Inherit, &m.Set)
		f := found.Roles[name]
		f.Memberships = append(f.Memberships, m)
		found.Roles[name] = f
		return err
	}); err != nil {
		return fmt.Errorf("read memberships: %w", err)
	}
	return nil
}

// withLogins are roles, and the logins that each may have.
func withLogins(roles []instanceapi.DeclaredRole) []instanceapi.DeclaredRole {
	all := slices.Clone(roles)
	for _, r := range roles {
		for _, login := range instanceapi.RoleLogins(r.Name) {
			all = append(all, instanceapi.DeclaredRole{Name: login})
		}
	}
	return all
}

// readLogins reads what else matters of roles that may have logins: the settings, which a
// login shares with its role, and who is logged in.
func readLogins(ctx context.Context, server *pgrun.Server, roles []instanceapi.DeclaredRole, found *foundServer) error {
	found.Settings, found.Sessions = map[string]map[foundSetting]string{}, map[string]int{}
	names := literals(withLogins(roles), func(r instanceapi.DeclaredRole) string { return r.Name })
	query := `SELECT r.rolname, coalesce(d.datname, ''), split_part(c, '=', 1), substr(c, strpos(c, '=') + 1)
		FROM pg_db_role_setting s JOIN pg_authid r ON r.oid = s.setrole LEFT JOIN pg_database d ON d.oid = s.setdatabase, unnest(s.setconfig) c
		WHERE r.rolname IN ` + names
	if err := server.Rows(ctx, query, func(scan func(...any) error) error {
		var name, value string
		var s foundSetting
		err := scan(&name, &s.Database, &s.Name, &value)
		if found.Settings[name] == nil {
			found.Settings[name] = map[foundSetting]string{}
		}
		found.Settings[name][s] = value
		return err
	}); err != nil {
		return fmt.Errorf("read the settings of roles: %w", err)
	}
	var logins []string
	for _, r := range roles {
		for _, login := range instanceapi.RoleLogins(r.Name) {
			if found.isLogin(r.Name, login) {
				logins = append(logins, login)
			}
		}
	}
	if len(logins) == 0 {
		return nil
	}
	query = "SELECT usename, count(*) FROM pg_stat_activity WHERE usename IN " + literals(logins, func(name string) string { return name }) + " GROUP BY 1"
	if err := server.Rows(ctx, query, func(scan func(...any) error) error {
		var name string
		var sessions int
		err := scan(&name, &sessions)
		found.Sessions[name] = sessions
		return err
	}); err != nil {
		return fmt.Errorf("read the sessions of logins: %w", err)
	}
	return nil
}

func readDatabases(ctx context.Context, server *pgrun.Server, databases []instanceapi.DeclaredDatabase, found *foundServer) error {
	var cases strings.Builder
	for _, d := range databases {
		if d.Encoding != "" {
			cases.WriteString(" WHEN " + pq.QuoteLiteral(d.Name) + " THEN encoding = pg_char_to_encoding(" + pq.QuoteLiteral(d.Encoding) + ")")
		}
	}
	same := "true"
	if cases.Len() > 0 {
		same = "CASE datname::text" + cases.String() + " ELSE true END"
	}
	names := literals(databases, func(d instanceapi.DeclaredDatabase) string { return d.Name })
	query := "SELECT datname, pg_get_userbyid(datdba), pg_encoding_to_char(encoding), " + same + ", datcollate FROM pg_database WHERE datname IN " + names
	if err := server.Rows(ctx, query, func(scan func(...any) error) error {
		var name string
		var f foundDatabase
		err := scan(&name, &f.Owner, &f.Encoding, &f.SameEncoding, &f.Locale)
		found.Databases[name] = f
		return err
	}); err != nil {
		return fmt.Errorf("read databases: %w", err)
	}
	if err := readGrants(ctx, server, "SELECT datname, datdba, coalesce(datacl, acldefault('d', datdba)) FROM pg_database WHERE datname IN "+names,
		func(name string, g foundGrant) {
			f := found.Databases[name]
			f.Grants = append(f.Grants, g)
			found.Databases[name] = f
		}); err != nil {
		return fmt.Errorf("read privileges on databases: %w", err)
	}
	return nil
}

// readGrants hands on the privileges on the objects that a query lists: name, owner
// and access list.
func readGrants(ctx context.Context, server *pgrun.Server, objects string, add func(object string, g foundGrant)) error {
	query := `SELECT o.name, CASE a.grantee WHEN 0 THEN ` + pq.QuoteLiteral(instanceapi.Public) + ` ELSE pg_get_userbyid(a.grantee) END, a.privilege_type, CASE WHEN a.grantor = o.owner THEN '' ELSE pg_get_userbyid(a.grantor) END
		FROM (` + objects + `) o(name, owner, acl), aclexplode(o.acl) a ORDER BY 1, 2, 3`
	return server.Rows(ctx, query, func(scan func(...any) error) error {
		var name string
		var g foundGrant
		err := scan(&name, &g.Role, &g.Privilege, &g.By)
		add(name, g)
		return err
	})
}

// readContent reads extensions and schemas of the database that server is connected
// to. It writes nothing.
func readContent(ctx context.Context, server *pgrun.Server, d instanceapi.DeclaredDatabase) (foundContent, error) {
	found := foundContent{Extensions: map[string]foundExtension{}, Schemas: map[string]foundSchema{}}
	if err := server.Rows(ctx, "SELECT extname, extversion, n.nspname FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace", func(scan func(...any) error) error {
		var name string
		var f foundExtension
		err := scan(&name, &f.Version, &f.Schema)
		found.Extensions[name] = f
		return err
	}); err != nil {
		return foundContent{}, fmt.Errorf("read extensions: %w", err)
	}
	if len(d.Schemas) == 0 {
		return found, nil
	}
	names := literals(d.Schemas, func(s instanceapi.DeclaredSchema) string { return s.Name })
	if err := server.Rows(ctx, "SELECT nspname, pg_get_userbyid(nspowner) FROM pg_namespace WHERE nspname IN "+names, func(scan func(...any) error) error {
		var name string
		var f foundSchema
		err := scan(&name, &f.Owner)
		found.Schemas[name] = f
		return err
	}); err != nil {
		return foundContent{}, fmt.Errorf("read schemas: %w", err)
	}
	if err := readGrants(ctx, server, "SELECT nspname, nspowner, coalesce(nspacl, acldefault('n', nspowner)) FROM pg_namespace WHERE nspname IN "+names,
		func(name string, g foundGrant) {
			f := found.Schemas[name]
			f.Grants = append(f.Grants, g)
			found.Schemas[name] = f
		}); err != nil {
		return foundContent{}, fmt.Errorf("read privileges on schemas: %w", err)
	}
	return found, nil
}

// literals is a list for IN of what name says of each; there must be one.
func literals[T any](of []T, name func(T) string) string {
	var quoted []string
	for _, one := range of {
		quoted = append(quoted, pq.QuoteLiteral(name(one)))
	}
	return "(" + strings.Join(slices.Compact(quoted), ", ") + ")"
}
