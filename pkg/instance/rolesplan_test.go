package instance

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pgop/postgres-operator/pkg/instanceapi"
)

// plain is a role that is as CREATE ROLE makes it, but for what with changes.
func plain(name string, with ...func(*instanceapi.DeclaredRole)) instanceapi.DeclaredRole {
	r := instanceapi.DeclaredRole{Name: name, Inherit: true, ConnectionLimit: -1}
	for _, change := range with {
		change(&r)
	}
	return r
}

func memberOf(roles ...string) func(*instanceapi.DeclaredRole) {
	return func(r *instanceapi.DeclaredRole) { r.MemberOf = roles }
}

// asMade is what a server has of a role that is as plain declares it.
func asMade(memberships ...membership) foundRole {
	return foundRole{Inherit: true, ConnectionLimit: -1, Memberships: memberships}
}

func statements(plan []change) []string {
	var texts []string
	for _, c := range plan {
		texts = append(texts, string(c.For.Kind)+" "+c.For.Name+": "+c.SQL)
	}
	return texts
}

func TestPlanServer(t *testing.T) {
	end := time.Date(2027, 1, 31, 0, 0, 0, 0, time.UTC)
	everything := plain("all", func(r *instanceapi.DeclaredRole) {
		r.Login, r.Superuser, r.CreateDB, r.CreateRole, r.Inherit, r.Replication, r.BypassRLS = true, true, true, true, false, true, true
		r.ConnectionLimit, r.ValidUntil, r.Comment = 5, end, `it's a \ comment`
	})
	has := foundRole{Login: true, Superuser: true, CreateDB: true, CreateRole: true, Replication: true, BypassRLS: true,
		ConnectionLimit: 5, ValidUntil: end, Comment: `it's a \ comment`}
	byPostgres := func(of string, inherit, set bool) membership {
		return membership{Of: of, By: "postgres", ByFirst: true, Inherit: inherit, Set: set}
	}
	byOther := func(of string, inherit, set bool) membership {
		return membership{Of: of, By: "other", Inherit: inherit, Set: set}
	}
	cases := []struct {
		why       string
		declared  instanceapi.Declared
		passwords map[string]string
		found     foundServer
		want      []string
	}{
		{why: "nothing declared: everything is left alone", found: foundServer{Roles: map[string]foundRole{"a": asMade()}}},
		{
			why:      "a role is made with all it has at once, so that its first login works",
			declared: instanceapi.Declared{Roles: []instanceapi.DeclaredRole{everything}}, passwords: map[string]string{"all": "PASSWORD 'x'"},
			want: []string{
				`role all: CREATE ROLE "all" LOGIN SUPERUSER CREATEDB CREATEROLE NOINHERIT REPLICATION BYPASSRLS CONNECTION LIMIT 5 VALID UNTIL '2027-01-31T00:00:00Z' PASSWORD 'x'`,
				`role all: COMMENT ON ROLE "all" IS  E'it''s a \\ comment'`,
			},
		},
		{
			why:      "an unchanged role gets no statement",
			declared: instanceapi.Declared{Roles: []instanceapi.DeclaredRole{everything, plain("p")}},
			found:    foundServer{Roles: map[string]foundRole{"all": has, "p": asMade()}},
		},
		{
			why:      "what is plain loses what somebody gave it, and nothing else is named",
			declared: instanceapi.Declared{Roles: []instanceapi.DeclaredRole{plain("all")}},
			found:    foundServer{Roles: map[string]foundRole{"all": has}},
			want: []string{
				`role all: ALTER ROLE "all" NOLOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE INHERIT NOREPLICATION NOBYPASSRLS CONNECTION LIMIT -1 VALID UNTIL 'infinity'`,
				`role all: COMMENT ON ROLE "all" IS NULL`,
			},
		},
		{
			why:      "only the password differs",
			declared: instanceapi.Declared{Roles: []instanceapi.DeclaredRole{plain("p")}}, passwords: map[string]string{"p": "PASSWORD 'x'"},
			found: foundServer{Roles: map[string]foundRole{"p": asMade()}},
			want:  []string{`role p: ALTER ROLE "p" PASSWORD 'x'`},
		},
		{
			why: "dependencies in any order: members before the roles they are members of, databases before their owners, all drops where they can work",
			declared: instanceapi.Declared{
				Roles: []instanceapi.DeclaredRole{plain("a", memberOf("b", "pg_monitor")), plain("b"), {Name: "gone", Absent: true}, {Name: "never", Absent: true}},
				Databases: []instanceapi.DeclaredDatabase{
					{Name: "d", Owner: "b", Encoding: "UTF8", Locale: "C"}, {Name: "moved", Owner: "a"}, {Name: "old", Absent: true}, {Name: "none", Absent: true}},
			},
			found: foundServer{
				Roles:     map[string]foundRole{"gone": asMade()},
				Databases: map[string]foundDatabase{"old": {Owner: "gone"}, "moved": {Owner: "gone"}},
			},
			want: []string{
				`role a: CREATE ROLE "a" NOLOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE INHERIT NOREPLICATION NOBYPASSRLS CONNECTION LIMIT -1`,
				`role b: CREATE ROLE "b" NOLOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE INHERIT NOREPLICATION NOBYPASSRLS CONNECTION LIMIT -1`,
				`role a: GRANT "b" TO "a"`,
				`role a: GRANT "pg_monitor" TO "a"`,
				`database d: CREATE DATABASE "d" OWNER "b" TEMPLATE template0 ENCODING 'UTF8' LOCALE 'C'`,
				`database moved: ALTER DATABASE "moved" OWNER TO "a"`,
				`database old: DROP DATABASE "old"`,
				`role gone: DROP ROLE "gone"`,
			},
		},
		{
			why:      "before 16, memberships have no options",
			declared: instanceapi.Declared{Roles: []instanceapi.DeclaredRole{plain("p", memberOf("kept", "new"))}},
			found:    foundServer{Roles: map[string]foundRole{"p": asMade(byOther("kept", true, true), byOther("extra", true, true))}},
			want:     []string{`role p: REVOKE "extra" FROM "p"`, `role p: GRANT "new" TO "p"`},
		},
		{
			why:      "from 16 on, a grant says whether it inherits, and whose grant is revoked",
			declared: instanceapi.Declared{Roles: []instanceapi.DeclaredRole{plain("p", memberOf("kept", "new", "dull"))}},
			found: foundServer{GrantOptions: true, Roles: map[string]foundRole{"p": asMade(
				byOther("extra", true, true), byPostgres("kept", true, true), byPostgres("dull", false, true))}},
			want: []string{`role p: REVOKE "extra" FROM "p" GRANTED BY "other"`, `role p: GRANT "new" TO "p" WITH INHERIT TRUE, SET TRUE`,
				`role p: GRANT "dull" TO "p" WITH INHERIT TRUE, SET TRUE`},
		},
		{
			why: "from 16 on, one that shall not inherit does so by nobody's grant",
			declared: instanceapi.Declared{Roles: []instanceapi.DeclaredRole{plain("p", memberOf("a", "b"), func(r *instanceapi.DeclaredRole) {
				r.Inherit = false
			})}},
			found: foundServer{GrantOptions: true, Roles: map[string]foundRole{"p": {ConnectionLimit: -1, Memberships: []membership{
				byOther("a", true, true), byPostgres("a", false, true), byPostgres("b", true, true)}}}},
			want: []string{`role p: REVOKE "a" FROM "p" GRANTED BY "other"`, `role p: GRANT "b" TO "p" WITH INHERIT FALSE, SET TRUE`},
		},
		{
			why:      "from 16 on, who creates a role administers it, which is left",
			declared: instanceapi.Declared{Roles: []instanceapi.DeclaredRole{plain("p")}},
			found:    foundServer{GrantOptions: true, Roles: map[string]foundRole{"p": asMade(byPostgres("made", false, false))}},
		},
		{
			why: "privileges: what is missing is granted, what is too much is revoked, and what nobody names is left",
			declared: instanceapi.Declared{Databases: []instanceapi.DeclaredDatabase{{Name: "d", Owner: "o", Grants: []instanceapi.DeclaredGrant{
				{Role: "public", Revoked: []string{"CONNECT", "TEMPORARY"}}, {Role: "r", Privileges: []string{"CONNECT", "CREATE"}}}}}},
			found: foundServer{Databases: map[string]foundDatabase{"d": {Owner: "o", Grants: []foundGrant{
				{Role: "public", Privilege: "CONNECT"}, {Role: "public", Privilege: "TEMPORARY", By: "other"}, {Role: "r", Privilege: "CONNECT", By: "other"}, {Role: "x", Privilege: "CONNECT"}}}}},
			want: []string{`database d: REVOKE CONNECT ON DATABASE "d" FROM PUBLIC`, `database d: GRANT CREATE ON DATABASE "d" TO "r"`},
		},
		{
			why: "a new database has the server's own privileges",
			declared: instanceapi.Declared{Databases: []instanceapi.DeclaredDatabase{{Name: "d", Owner: "o", Grants: []instanceapi.DeclaredGrant{
				{Role: "public", Privileges: []string{"TEMPORARY"}, Revoked: []string{"CONNECT", "CREATE"}}, {Role: "o", Privileges: []string{"CREATE"}}}}}},
			want: []string{`database d: CREATE DATABASE "d" OWNER "o"`, `database d: REVOKE CONNECT ON DATABASE "d" FROM PUBLIC`},
		},
		{
			why: "A-09, A-10: names stay as they are, and are quoted everywhere",
			declared: instanceapi.Declared{
				Roles:     []instanceapi.DeclaredRole{plain(`Re"port; DROP`, memberOf(`a"b`)), {Name: `g"one`, Absent: true}},
				Databases: []instanceapi.DeclaredDatabase{{Name: `d"b`, Owner: `o"o`, Grants: []instanceapi.DeclaredGrant{{Role: `r"r`, Privileges: []string{"CONNECT"}}}}},
			},
			found: foundServer{Roles: map[string]foundRole{`g"one`: asMade()}},
			want: []string{
				`role Re"port; DROP: CREATE ROLE "Re""port; DROP" NOLOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE INHERIT NOREPLICATION NOBYPASSRLS CONNECTION LIMIT -1`,
				`role Re"port; DROP: GRANT "a""b" TO "Re""port; DROP"`,
				`database d"b: CREATE DATABASE "d""b" OWNER "o""o"`,
				`database d"b: GRANT CONNECT ON DATABASE "d""b" TO "r""r"`,
				`role g"one: DROP ROLE "g""one"`,
			},
		},
	}
	for _, c := range cases {
		got := statements(append(planServer(c.declared, c.passwords, c.found), planDrops(c.declared, c.found)...))
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: %s", c.why, diff)
		}
	}
}

func TestPlanContent(t *testing.T) {
	cases := []struct {
		why   string
		want  instanceapi.DeclaredDatabase
		found foundContent
		plan  []string
	}{
		{why: "nothing declared: what is there stays", found: foundContent{
			Extensions: map[string]foundExtension{"plpgsql": {"1.0", "pg_catalog"}}, Schemas: map[string]foundSchema{"a": {}}}},
		{
			why: "schemas come before what lies in them, and extensions without one go into public",
			want: instanceapi.DeclaredDatabase{Owner: "o",
				Extensions: []instanceapi.DeclaredExtension{{Name: "a", Schema: "s"}, {Name: "b", Version: "1.2"}, {Name: "c", Absent: true}, {Name: "old", Absent: true}},
				Schemas: []instanceapi.DeclaredSchema{{Name: "s"}, {Name: "t", Owner: "x", Grants: []instanceapi.DeclaredGrant{{Role: "r", Privileges: []string{"USAGE"}}}},
					{Name: "none", Absent: true}, {Name: "gone", Absent: true}}},
			found: foundContent{Extensions: map[string]foundExtension{"old": {}}, Schemas: map[string]foundSchema{"gone": {}}},
			plan: []string{
				`database d: DROP EXTENSION "old"`,
				`database d: CREATE SCHEMA "s" AUTHORIZATION "o"`,
				`database d: CREATE SCHEMA "t" AUTHORIZATION "x"`,
				`database d: GRANT USAGE ON SCHEMA "t" TO "r"`,
				`database d: DROP SCHEMA "gone"`,
				`database d: CREATE EXTENSION "a" SCHEMA "s"`,
				`database d: SET LOCAL search_path = public; CREATE EXTENSION "b" VERSION '1.2'`,
			},
		},
		{
			why: "what differs is altered, where the spec says something of it",
			want: instanceapi.DeclaredDatabase{Owner: "o",
				Extensions: []instanceapi.DeclaredExtension{{Name: "a", Schema: "s", Version: "2"}, {Name: "any"}},
				Schemas: []instanceapi.DeclaredSchema{{Name: "s", Owner: "x", Grants: []instanceapi.DeclaredGrant{{Role: "public", Revoked: []string{"CREATE"}}}},
					{Name: "any"}}},
			found: foundContent{Extensions: map[string]foundExtension{"a": {"1", "public"}, "any": {"1", "elsewhere"}},
				Schemas: map[string]foundSchema{"s": {Owner: "y", Grants: []foundGrant{{Role: "public", Privilege: "CREATE"}}}, "any": {Owner: "z"}}},
			plan: []string{
				`database d: ALTER SCHEMA "s" OWNER TO "x"`,
				`database d: REVOKE CREATE ON SCHEMA "s" FROM PUBLIC`,
				`database d: ALTER EXTENSION "a" UPDATE TO '2'`,
				`database d: ALTER EXTENSION "a" SET SCHEMA "s"`,
			},
		},
	}
	for _, c := range cases {
		c.want.Name = "d"
		if diff := cmp.Diff(c.plan, statements(planContent(c.want, c.found))); diff != "" {
			t.Errorf("%s: %s", c.why, diff)
		}
	}
}

func TestDifferencesForGood(t *testing.T) {
	now := foundDatabase{Encoding: "UTF8", SameEncoding: true, Locale: "C.UTF-8"}
	cases := []struct {
		want instanceapi.DeclaredDatabase
		now  foundDatabase
		text string
	}{
		{instanceapi.DeclaredDatabase{}, foundDatabase{Encoding: "LATIN1", Locale: "C"}, ""},
		{instanceapi.DeclaredDatabase{Encoding: "utf-8", Locale: "C.utf8"}, now, ""},
		{instanceapi.DeclaredDatabase{Encoding: "LATIN1", Locale: "de_DE"}, foundDatabase{Encoding: "UTF8", Locale: "C"},
			"it has encoding UTF8 and not LATIN1, it has locale C and not de_DE, which only its creation decides; correct the spec, or create another database and copy the data"},
	}
	for _, c := range cases {
		if got := differsForGood(c.want, c.now); got != c.text {
			t.Errorf("%+v: %q, want %q", c.want, got, c.text)
		}
	}
}
