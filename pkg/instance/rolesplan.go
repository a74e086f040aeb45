package instance

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lib/pq"

	"github.com/pgop/postgres-operator/pkg/instanceapi"
)

// declaredKind says what an entry of the configuration is.
type declaredKind string

const (
	aRole     declaredKind = "role"
	aDatabase declaredKind = "database"
)

// declaredEntry is one role or database of the configuration.
type declaredEntry struct {
	Kind declaredKind
	Name string
}

// change is a statement that brings the server nearer to what is declared.
type change struct {
	// For is the entry whose change it is. When one fails, the others of the entry
	// that come with it are left for the next time.
	For declaredEntry
	SQL string
	// What says in words what it does, for the log; the SQL may hold a verifier.
	What string
}

// foundRole is a role as the server has it.
type foundRole struct {
	Login, Superuser, CreateDB, CreateRole, Inherit, Replication, BypassRLS bool
	ConnectionLimit                                                         int
	// ValidUntil is zero for a password without an end.
	ValidUntil  time.Time
	Comment     string
	Verifier    string
	Memberships []membership
}

// membership is one grant of a role to another.
type membership struct {
	Of string
	// By is who granted it, and ByFirst is true if that is the server's first
	// superuser, as who the agent grants.
	By      string
	ByFirst bool
	// Inherit and Set are the grant's options. Where a grant has none, before version
	// 16, it has what the member has.
	Inherit, Set bool
}

// foundDatabase is a database as the server has it.
type foundDatabase struct {
	Owner, Encoding, Locale string
	// SameEncoding is true if Encoding is another name of what is declared.
	SameEncoding bool
	Grants       []foundGrant
}

// foundGrant is a privilege that a role, or Public, has.
type foundGrant struct {
	Role, Privilege string
	// By is who has granted it; empty: the owner of the object, as who the agent grants
	// and revokes.
	By string
}

// foundServer is as much of a server as matters for what is declared.
type foundServer struct {
	Roles     map[string]foundRole
	Databases map[string]foundDatabase
	// Settings are those of roles which have logins beside themselves, and of these, by
	// role. Sessions is how many each of the logins has.
	Settings map[string]map[foundSetting]string
	Sessions map[string]int
	// Version is the server's, as 170002 for 17.2.
	Version int
	// GrantOptions is true from version 16 on: a membership has options of its own.
	GrantOptions bool
}

// foundContent is what lies in a database.
type foundContent struct {
	Extensions map[string]foundExtension
	Schemas    map[string]foundSchema
}

type foundExtension struct{ Version, Schema string }

type foundSchema struct {
	Owner  string
	Grants []foundGrant
}

// planServer says what to do about roles and databases, in an order in which each
// finds what it needs: roles, memberships, databases. Passwords are the clauses that
// set those which differ, by role. Nothing is dropped but databases; planDrops has
// the roles.
func planServer(d instanceapi.Declared, passwords map[string]string, found foundServer) []change {
	var plan []change
	for _, w := range d.Roles {
		if !w.Absent {
			plan = append(plan, planRole(w, passwords[w.Name], found)...)
		}
	}
	for _, w := range d.Roles {
		if !w.Absent && !w.PasswordOnly {
			plan = append(plan, planMemberships(w, found)...)
		}
	}
	for _, w := range d.Databases {
		plan = append(plan, planDatabase(w, found)...)
	}
	return plan
}

// planDrops says which roles to drop. It comes last: by then what they owned may be
// another's.
func planDrops(d instanceapi.Declared, found foundServer) []change {
	var plan []change
	for _, w := range d.Roles {
		for _, login := range instanceapi.RoleLogins(w.Name) {
			if w.Absent && found.isLogin(w.Name, login) {
				plan = append(plan, dropLogin(w, login))
			}
		}
		if _, exists := found.Roles[w.Name]; w.Absent && exists {
			plan = append(plan, change{declaredEntry{aRole, w.Name}, "DROP ROLE " + pq.QuoteIdentifier(w.Name), "drop it"})
		}
	}
	return plan
}

// roleFlags are the attributes of a role that are on or off.
var roleFlags = []struct {
	on    string
	want  func(instanceapi.DeclaredRole) bool
	found func(foundRole) bool
}{
	{"LOGIN", func(w instanceapi.DeclaredRole) bool { return w.Login }, func(f foundRole) bool { return f.Login }},
	{"SUPERUSER", func(w instanceapi.DeclaredRole) bool { return w.Superuser }, func(f foundRole) bool { return f.Superuser }},
	{"CREATEDB", func(w instanceapi.DeclaredRole) bool { return w.CreateDB }, func(f foundRole) bool { return f.CreateDB }},
	{"CREATEROLE", func(w instanceapi.DeclaredRole) bool { return w.CreateRole }, func(f foundRole) bool { return f.CreateRole }},
	{"INHERIT", func(w instanceapi.DeclaredRole) bool { return w.Inherit }, func(f foundRole) bool { return f.Inherit }},
	{"REPLICATION", func(w instanceapi.DeclaredRole) bool { return w.Replication }, func(f foundRole) bool { return f.Replication }},
	{"BYPASSRLS", func(w instanceapi.DeclaredRole) bool { return w.BypassRLS }, func(f foundRole) bool { return f.BypassRLS }},
}

// planRole makes a role, or alters of it what differs. Password is the clause that
// sets it; empty: it is right, or nobody's business.
func planRole(w instanceapi.DeclaredRole, password string, found foundServer) []change {
	entry, name := declaredEntry{aRole, w.Name}, pq.QuoteIdentifier(w.Name)
	now, exists := found.Roles[w.Name]
	if w.PasswordOnly {
		if !exists || password == "" {
			return nil // one that users have dropped stays away
		}
		return []change{{entry, "ALTER ROLE " + name + " " + password, "alter it: PASSWORD"}}
	}
	var clauses []string
	for _, flag := range roleFlags {
		switch want := flag.want(w); {
		case exists && want == flag.found(now):
		case want:
			clauses = append(clauses, flag.on)
		default:
			clauses = append(clauses, "NO"+flag.on)
		}
	}
	if !exists || now.ConnectionLimit != w.ConnectionLimit {
		clauses = append(clauses, fmt.Sprintf("CONNECTION LIMIT %d", w.ConnectionLimit))
	}
	if !now.ValidUntil.Equal(w.ValidUntil) {
		clauses = append(clauses, "VALID UNTIL "+pq.QuoteLiteral(validUntil(w.ValidUntil)))
	}
	what := strings.Join(clauses, ", ")
	if password != "" {
		clauses, what = append(clauses, password), strings.TrimPrefix(what+", PASSWORD", ", ")
	}
	var plan []change
	switch {
	case !exists:
		plan = append(plan, change{entry, "CREATE ROLE " + name + " " + strings.Join(clauses, " "), "create it: " + what})
	case len(clauses) > 0:
		plan = append(plan, change{entry, "ALTER ROLE " + name + " " + strings.Join(clauses, " "), "alter it: " + what})
	}
	if now.Comment != w.Comment {
		plan = append(plan, change{entry, "COMMENT ON ROLE " + name + " IS " + commentLiteral(w.Comment), "set its comment"})
	}
	return plan
}

func validUntil(t time.Time) string {
	if t.IsZero() {
		return "infinity"
	}
	return t.UTC().Format(time.RFC3339)
}

func commentLiteral(comment string) string {
	if comment == "" {
		return "NULL"
	}
	return pq.QuoteLiteral(comment)
}

// planMemberships grants what is missing and revokes what is too much. A membership
// that only lets its member administer a role is left: the server gives it to whoever
// creates one.
func planMemberships(w instanceapi.DeclaredRole, found foundServer) []change {
	entry, name := declaredEntry{aRole, w.Name}, pq.QuoteIdentifier(w.Name)
	var plan []change
	right := map[string]bool{}
	for _, m := range found.Roles[w.Name].Memberships {
		if !m.Inherit && !m.Set {
			continue
		}
		// One by the first superuser is put right by another grant.
		tooMuch := !slices.Contains(w.MemberOf, m.Of) || found.GrantOptions && m.Inherit && !w.Inherit && !m.ByFirst
		if tooMuch {
			revoke := "REVOKE " + pq.QuoteIdentifier(m.Of) + " FROM " + name
			if found.GrantOptions {
				revoke += " GRANTED BY " + pq.QuoteIdentifier(m.By)
			}
			plan = append(plan, change{entry, revoke, "revoke its membership of " + m.Of})
			continue
		}
		if !found.GrantOptions || m.Set && m.Inherit == w.Inherit {
			right[m.Of] = true
		}
	}
	for _, of := range w.MemberOf {
		if right[of] {
			continue
		}
		grant := "GRANT " + pq.QuoteIdentifier(of) + " TO " + name
		if found.GrantOptions {
			grant += fmt.Sprintf(" WITH INHERIT %s, SET TRUE", strings.ToUpper(fmt.Sprint(w.Inherit)))
		}
		plan = append(plan, change{entry, grant, "make it a member of " + of})
	}
	return plan
}

// planDatabase drops, makes or alters a database, but for what lies in it.
func planDatabase(w instanceapi.DeclaredDatabase, found foundServer) []change {
	entry, name := declaredEntry{aDatabase, w.Name}, pq.QuoteIdentifier(w.Name)
	now, exists := found.Databases[w.Name]
	var plan []change
	switch {
	case w.Absent && exists:
		return []change{{entry, "DROP DATABASE " + name, "drop it"}}
	case w.Absent:
		return nil
	case !exists:
		plan = append(plan, change{entry, createDatabase(w), "create it, owned by " + w.Owner})
		now.Owner = w.Owner
		now.Grants = defaultDatabaseGrants(w.Owner)
	case now.Owner != w.Owner:
		plan = append(plan, change{entry, "ALTER DATABASE " + name + " OWNER TO " + pq.QuoteIdentifier(w.Owner), "let " + w.Owner + " own it instead of " + now.Owner})
	}
	return append(plan, planGrants(entry, "DATABASE "+name, w.Grants, now.Grants)...)
}

func createDatabase(w instanceapi.DeclaredDatabase) string {
	create := "CREATE DATABASE " + pq.QuoteIdentifier(w.Name) + " OWNER " + pq.QuoteIdentifier(w.Owner)
	if w.Encoding != "" || w.Locale != "" {
		create += " TEMPLATE template0" // the only one that allows for others than its own
	}
	if w.Encoding != "" {
		create += " ENCODING " + pq.QuoteLiteral(w.Encoding)
	}
	if w.Locale != "" {
		create += " LOCALE " + pq.QuoteLiteral(w.Locale)
	}
	return create
}

// defaultDatabaseGrants are those of a database that was just made.
func defaultDatabaseGrants(owner string) []foundGrant {
	return []foundGrant{
		{Role: instanceapi.Public, Privilege: "CONNECT"}, {Role: instanceapi.Public, Privilege: "TEMPORARY"},
		{Role: owner, Privilege: "CONNECT"}, {Role: owner, Privilege: "CREATE"}, {Role: owner, Privilege: "TEMPORARY"},
	}
}

// differsForGood says what of a database is not as declared and can't be changed;
// empty: nothing.
func differsForGood(w instanceapi.DeclaredDatabase, now foundDatabase) string {
	var texts []string
	if w.Encoding != "" && !now.SameEncoding {
		texts = append(texts, fmt.Sprintf("it has encoding %s and not %s", now.Encoding, w.Encoding))
	}
	if w.Locale != "" && !isSameLocale(w.Locale, now.Locale) {
		texts = append(texts, fmt.Sprintf("it has locale %s and not %s", now.Locale, w.Locale))
	}
	if len(texts) == 0 {
		return ""
	}
	return strings.Join(texts, ", ") + ", which only its creation decides; correct the spec, or create another database and copy the data"
}

// isSameLocale knows that C.UTF-8 and C.utf8 are one.
func isSameLocale(a, b string) bool {
	return strings.EqualFold(strings.ReplaceAll(a, "-", ""), strings.ReplaceAll(b, "-", ""))
}

// planGrants gives and takes privileges on an object.
func planGrants(entry declaredEntry, object string, want []instanceapi.DeclaredGrant, have []foundGrant) []change {
	var plan []change
	for _, w := range want {
		role := grantee(w.Role)
		has := func(privilege string, ofOwner bool) bool {
			return slices.ContainsFunc(have, func(g foundGrant) bool {
				return g.Role == w.Role && g.Privilege == privilege && (g.By == "" || !ofOwner)
			})
		}
		for _, privilege := range w.Privileges {
			if !has(privilege, false) {
				plan = append(plan, change{entry, "GRANT " + privilege + " ON " + object + " TO " + role, "grant " + privilege + " on " + object + " to " + w.Role})
			}
		}
		for _, privilege := range w.Revoked {
			if has(privilege, true) {
				plan = append(plan, change{entry, "REVOKE " + privilege + " ON " + object + " FROM " + role, "revoke " + privilege + " on " + object + " from " + w.Role})
			}
		}
	}
	return plan
}

// grantedByOthers says which privileges are to be revoked and are granted by others
// than the owner, who alone can revoke them; empty: none.
func grantedByOthers(object string, want []instanceapi.DeclaredGrant, have []foundGrant) string {
	var texts []string
	for _, w := range want {
		for _, g := range have {
			if g.Role == w.Role && g.By != "" && slices.Contains(w.Revoked, g.Privilege) {
				texts = append(texts, fmt.Sprintf("%s on %s was granted to %s by %s, who alone can revoke it: SET ROLE %s; REVOKE %s ON %s FROM %s",
					g.Privilege, object, g.Role, g.By, pq.QuoteIdentifier(g.By), g.Privilege, object, grantee(g.Role)))
			}
		}
	}
	return strings.Join(texts, "; ")
}

// grantee is a role as GRANT and REVOKE take it.
func grantee(role string) string {
	if role == instanceapi.Public {
		return "PUBLIC"
	}
	return pq.QuoteIdentifier(role)
}

// planContent says what to do in a database: schemas first, since extensions may lie
// in them; but what is dropped goes in the other order.
func planContent(w instanceapi.DeclaredDatabase, found foundContent) []change {
	entry := declaredEntry{aDatabase, w.Name}
	var plan []change
	for _, e := range w.Extensions {
		if _, exists := found.Extensions[e.Name]; e.Absent && exists {
			plan = append(plan, change{entry, "DROP EXTENSION " + pq.QuoteIdentifier(e.Name), "drop extension " + e.Name})
		}
	}
	for _, s := range w.Schemas {
		plan = append(plan, planSchema(entry, w.Owner, s, found)...)
	}
	for _, e := range w.Extensions {
		if !e.Absent {
			plan = append(plan, planExtension(entry, e, found)...)
		}
	}
	return plan
}

func planSchema(entry declaredEntry, databaseOwner string, w instanceapi.DeclaredSchema, found foundContent) []change {
	name := pq.QuoteIdentifier(w.Name)
	now, exists := found.Schemas[w.Name]
	var plan []change
	switch {
	case w.Absent && exists:
		return []change{{entry, "DROP SCHEMA " + name, "drop schema " + w.Name}}
	case w.Absent:
		return nil
	case !exists:
		owner := w.Owner
		if owner == "" {
			owner = databaseOwner
		}
		plan = append(plan, change{entry, "CREATE SCHEMA " + name + " AUTHORIZATION " + pq.QuoteIdentifier(owner), "create schema " + w.Name + ", owned by " + owner})
	case w.Owner != "" && w.Owner != now.Owner:
		plan = append(plan, change{entry, "ALTER SCHEMA " + name + " OWNER TO " + pq.QuoteIdentifier(w.Owner), "let " + w.Owner + " own schema " + w.Name + " instead of " + now.Owner})
	}
	return append(plan, planGrants(entry, "SCHEMA "+name, w.Grants, now.Grants)...)
}

// planExtension creates or alters an extension. Where it says nothing of a schema it
// goes into public, which is on no search path of the agent's, within the one query.
func planExtension(entry declaredEntry, w instanceapi.DeclaredExtension, found foundContent) []change {
	name := pq.QuoteIdentifier(w.Name)
	now, exists := found.Extensions[w.Name]
	var plan []change
	if !exists {
		create := "CREATE EXTENSION " + name
		if w.Schema != "" {
			create += " SCHEMA " + pq.QuoteIdentifier(w.Schema)
		} else {
			create = "SET LOCAL search_path = public; " + create
		}
		if w.Version != "" {
			create += " VERSION " + pq.QuoteLiteral(w.Version)
		}
		return []change{{entry, create, "create extension " + w.Name}}
	}
	if w.Version != "" && w.Version != now.Version {
		plan = append(plan, change{entry, "ALTER EXTENSION " + name + " UPDATE TO " + pq.QuoteLiteral(w.Version), "update extension " + w.Name + " from " + now.Version + " to " + w.Version})
	}
	if w.Schema != "" && w.Schema != now.Schema {
		plan = append(plan, change{entry, "ALTER EXTENSION " + name + " SET SCHEMA " + pq.QuoteIdentifier(w.Schema), "move extension " + w.Name + " from schema " + now.Schema + " to " + w.Schema})
	}
	return plan
}
