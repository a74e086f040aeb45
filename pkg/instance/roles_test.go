package instance

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/pgop/postgres-operator/pkg/backup"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/postgres"
	"github.com/pgop/postgres-operator/pkg/postgres/pgrun"
)

// declares changes what the spec declares.
func (w *world) declares(roles []instanceapi.DeclaredRole, databases ...instanceapi.DeclaredDatabase) {
	w.Helper()
	w.apply(func() { w.config.Declared = instanceapi.Declared{Roles: roles, Databases: databases} })
}

// startQuick starts an instance that looks at roles and databases all the time.
func (w *world) startQuick(instance, address string) *testPod {
	w.Helper()
	o := w.options(instance, address)
	o.DeclaredEvery = 100 * time.Millisecond
	return w.startWith(o)
}

// problems waits until the pod has come to what is declared, and are what it says of
// entries in trouble.
func (p *testPod) problems(when string) map[string]string {
	p.world.Helper()
	want := p.world.config.Declared.Hash()
	state := p.waitFor(when, func(s instanceapi.State) bool { return s.Declared != nil && s.Declared.Hash == want })
	return problemsIn(state)
}

func problemsIn(state instanceapi.State) map[string]string {
	problems := map[string]string{}
	for kind, entries := range map[string][]instanceapi.DeclaredEntry{"role": state.Declared.Roles, "database": state.Declared.Databases} {
		for _, e := range entries {
			if e.Problem != "" {
				problems[kind+" "+e.Name] = e.Problem
			}
		}
	}
	return problems
}

// wantAsDeclared waits until nothing is in trouble.
func (p *testPod) wantAsDeclared(when string) {
	p.world.Helper()
	want := p.world.config.Declared.Hash()
	p.waitFor(when, func(s instanceapi.State) bool {
		return s.Declared != nil && s.Declared.Hash == want && len(problemsIn(s)) == 0
	})
}

// wantProblem waits until an entry is in trouble, with these words.
func (p *testPod) wantProblem(entry string, words ...string) {
	p.world.Helper()
	p.waitFor(entry+" in trouble: "+strings.Join(words, ", "), func(s instanceapi.State) bool {
		return s.Declared != nil && !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(problemsIn(s)[entry], word) })
	})
}

func (p *testPod) wantQuery(what, query, want string) {
	p.world.Helper()
	p.world.eventually(what, func() bool { return p.query(query) == want }, func() string { return p.query(query) })
}

func (p *testPod) exec(statements ...string) {
	p.world.Helper()
	for _, s := range statements {
		must(p.world.T, p.sql.Exec(context.Background(), s))
	}
}

// open connects to a database as the superuser.
func (p *testPod) open(t *testing.T, database string) (*pgrun.Server, error) {
	t.Helper()
	return pgrun.Open(p.options.RunDir, p.options.Port, database)
}

// login says as whom a login arrives where, or why not.
func (p *testPod) login(user, password, database string) string {
	p.world.Helper()
	var who string
	db := p.connect(user, password, database)
	defer db.Close()
	err := db.QueryRow("SELECT session_user || ' in ' || current_database()").Scan(&who)
	if err != nil {
		return err.Error()
	}
	return who
}

func withSecret(name string) func(*instanceapi.DeclaredRole) {
	return func(r *instanceapi.DeclaredRole) { r.Login, r.Secret = true, name }
}

// awkward is a name that quoting alone makes harmless.
const awkward = `o"dd; DROP ROLE "é' -- \`

// names and passwords are what people write, whatever the order in
// which they are written.
func TestA09A10A21RolesAndDatabasesAreMade(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	passwords := map[string]string{"Report_User": appPassword, "_svc": strings.Repeat("a:b@c/d#e%f g-é", 8), awkward: "x", "example-db": "pass word", "app-new-reader": "'"}
	var roles []instanceapi.DeclaredRole
	for _, name := range []string{"app-new-reader", "Report_User", "_svc", awkward, "example-db"} {
		w.kube.setSecret("of-"+name, false, map[string]string{"username": name, "password": passwords[name]})
		roles = append(roles, plain(name, withSecret("of-"+name), memberOf("readers", "pg_monitor")))
	}
	roles = append(roles, plain("readers", func(r *instanceapi.DeclaredRole) { r.Comment = "it's a \\ comment" }))
	w.declares(roles,
		instanceapi.DeclaredDatabase{Name: "AppDB", Owner: "Report_User", Grants: []instanceapi.DeclaredGrant{
			{Role: "public", Revoked: []string{"CONNECT"}}, {Role: awkward, Privileges: []string{"CONNECT"}}}},
		instanceapi.DeclaredDatabase{Name: "example-db", Owner: "example-db", Encoding: "SQL_ASCII", Locale: "C"},
		instanceapi.DeclaredDatabase{Name: awkward, Owner: awkward,
			Schemas:    []instanceapi.DeclaredSchema{{Name: awkward, Grants: []instanceapi.DeclaredGrant{{Role: awkward + "2", Privileges: []string{"USAGE"}}}}, {Name: "public", Grants: []instanceapi.DeclaredGrant{{Role: "public", Privileges: []string{"CREATE"}}}}},
			Extensions: []instanceapi.DeclaredExtension{{Name: "uuid-ossp"}, {Name: "pg_trgm", Schema: awkward, Version: "1.6"}}})
	w.config.Declared.Roles = append(w.config.Declared.Roles, plain(awkward+"2"))
	w.apply(func() {})
	p := w.startQuick("shop-1", "127.0.0.11")
	p.wantAsDeclared("all roles and databases")

	for name, password := range passwords {
		database := map[string]string{"Report_User": "AppDB", awkward: "AppDB"}[name]
		if database == "" {
			database = "app"
		}
		if got, want := p.login(name, password, database), name+" in "+database; got != want {
			t.Errorf("logged in as %s, want %s", got, want)
		}
	}
	if got := p.login("_svc", passwords["_svc"], "AppDB"); !strings.Contains(got, "permission denied for database") {
		t.Errorf("without the privilege: %s", got)
	}
	for what, c := range map[string]struct{ query, want string }{
		"members": {"SELECT string_agg(m.rolname, ',' ORDER BY m.rolname COLLATE \"C\") FROM pg_auth_members JOIN pg_roles m ON m.oid = member JOIN pg_roles r ON r.oid = roleid WHERE r.rolname = 'readers'",
			"Report_User,_svc,app-new-reader,example-db," + awkward},
		"comment":  {"SELECT shobj_description(oid, 'pg_authid') FROM pg_roles WHERE rolname = 'readers'", "it's a \\ comment"},
		"encoding": {"SELECT pg_encoding_to_char(encoding) || ' ' || datcollate || ' ' || pg_get_userbyid(datdba) FROM pg_database WHERE datname = 'example-db'", "SQL_ASCII C example-db"},
	} {
		if got := p.query(c.query); got != c.want {
			t.Errorf("%s: %s, want %s", what, got, c.want)
		}
	}
	db := p.connect(awkward, "x", awkward)
	var got string
	must(t, db.QueryRow(`SELECT string_agg(extname || ' in ' || nspname, ', ' ORDER BY extname) FROM pg_extension JOIN pg_namespace n ON n.oid = extnamespace WHERE extname <> 'plpgsql'`).Scan(&got))
	if want := "pg_trgm in " + awkward + ", uuid-ossp in public"; got != want {
		t.Errorf("extensions: %s, want %s", got, want)
	}
	must(t, db.QueryRow(`SELECT pg_get_userbyid(nspowner) || ' ' || has_schema_privilege($1, nspname, 'USAGE') FROM pg_namespace WHERE nspname = $2`, awkward+"2", awkward).Scan(&got))
	if want := awkward + " true"; got != want {
		t.Errorf("schema: %s, want %s", got, want)
	}
}

// E-12, F-04: an idle cluster: what is as declared is read and never written. What somebody has
// changed by hand is put right, and what is not declared is left alone.
func TestE12NothingIsWrittenButWhatDiffers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.kube.setSecret("s", true, map[string]string{"username": "reader", "password": "first"})
	declared := []instanceapi.DeclaredRole{
		plain("reader", withSecret("s"), memberOf("pg_read_all_data"), func(r *instanceapi.DeclaredRole) {
			r.OwnSecret, r.ConnectionLimit, r.ValidUntil, r.Comment = true, 3, time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC), "reads"
		}),
		plain("nobody", func(r *instanceapi.DeclaredRole) { r.NoPassword = true }),
		{Name: "never", Absent: true},
	}
	reports := instanceapi.DeclaredDatabase{Name: "reports", Owner: "app", Encoding: "utf-8", Locale: "C.UTF-8",
		Extensions: []instanceapi.DeclaredExtension{{Name: "pg_trgm"}}, Schemas: []instanceapi.DeclaredSchema{{Name: "s", Grants: []instanceapi.DeclaredGrant{{Role: "reader", Privileges: []string{"USAGE"}}}}},
		Grants: []instanceapi.DeclaredGrant{{Role: "public", Revoked: []string{"CONNECT", "TEMPORARY", "CREATE"}}, {Role: "reader", Privileges: []string{"CONNECT"}}}}
	w.declares(declared, reports)
	p := w.startQuick("shop-1", "127.0.0.11")
	p.wantAsDeclared("at first")

	const writes = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text"
	const looks = "SELECT sessions FROM pg_stat_database WHERE datname = 'reports'"
	idle := func(when string) {
		t.Helper()
		for range 5 { // the agent's other tasks may write right after the start
			before, looked := p.query(writes), p.query(looks)
			w.eventually(when+": some looks", func() bool {
				p.exec("SELECT pg_stat_clear_snapshot()")
				return len(p.query(looks)) > len(looked) || p.query(looks) > looked
			}, func() string { return p.query(looks) })
			if after := p.query(writes); after == before {
				return
			}
		}
		t.Errorf("%s: each look writes", when)
	}
	idle("at first")

	drifts := []string{
		"ALTER ROLE reader CREATEDB CONNECTION LIMIT 5 VALID UNTIL 'infinity'", "ALTER ROLE reader PASSWORD 'other'", "COMMENT ON ROLE reader IS NULL",
		"GRANT pg_monitor TO reader", "REVOKE pg_read_all_data FROM reader", "ALTER ROLE nobody PASSWORD 'some'", "DROP ROLE nobody",
		"GRANT CONNECT ON DATABASE reports TO public", "REVOKE CONNECT ON DATABASE reports FROM reader", "ALTER DATABASE reports OWNER TO postgres",
	}
	const state = `SELECT concat_ws(' ', rolcreatedb, rolconnlimit, rolvaliduntil = '2099-01-01 00:00:00+00', shobj_description(oid, 'pg_authid'),
		(SELECT string_agg(r.rolname, ',') FROM pg_auth_members m JOIN pg_roles r ON r.oid = m.roleid WHERE member = a.oid),
		(SELECT rolpassword IS NULL FROM pg_authid WHERE rolname = 'nobody'),
		(SELECT pg_get_userbyid(datdba) || ' ' || datacl::text FROM pg_database WHERE datname = 'reports')) FROM pg_authid a WHERE rolname = 'reader'`
	right := "f 3 t reads pg_read_all_data t app {app=CTc/app,reader=c/app}"
	if got := p.query(state); got != right {
		t.Fatalf("at first: %s, want %s", got, right)
	}
	for _, drift := range drifts {
		p.exec(drift)
		w.eventually("repair after "+drift, func() bool {
			return p.query(state) == right && p.login("reader", "first", "reports") == "reader in reports"
		},
			func() string { return p.query(state) + "; " + p.login("reader", "first", "reports") })
	}
	idle("after repairs")

	// What is not declared.
	p.exec("CREATE ROLE mine LOGIN", "GRANT reader TO mine", "CREATE DATABASE mine OWNER mine", "ALTER ROLE app CREATEDB")
	must(t, p.connect("reader", "first", "reports").Ping())
	p.exec("ALTER DATABASE reports SET work_mem = '5MB'", "GRANT TEMPORARY ON DATABASE reports TO mine")
	idle("with other roles beside")
	p.exec("GRANT CONNECT ON DATABASE reports TO mine WITH GRANT OPTION", "SET ROLE mine; GRANT CONNECT ON DATABASE reports TO public; RESET ROLE")
	p.wantProblem("database reports", `CONNECT on DATABASE "reports" was granted to public by mine, who alone can revoke it: SET ROLE "mine"; REVOKE CONNECT ON DATABASE "reports" FROM PUBLIC`)
	p.exec(`SET ROLE "mine"; REVOKE CONNECT ON DATABASE "reports" FROM PUBLIC; RESET ROLE`)
	p.wantAsDeclared("what was granted by another is revoked")
	w.declares(nil)
	p.wantAsDeclared("nothing")
	if got := p.query("SELECT string_agg(rolname, ',' ORDER BY rolname) FROM pg_roles WHERE rolname IN ('mine', 'reader', 'nobody')"); got != "mine,nobody,reader" {
		t.Errorf("roles after the entries were removed: %s", got)
	}
	if got := p.login("reader", "first", "reports"); got != "reader in reports" {
		t.Errorf("a login whose entry was removed: %s", got)
	}
	if got := w.kube.watchedSecrets(); !slices.Equal(got, []string{"shop-app"}) {
		t.Errorf("Secrets that nobody needs are watched: %v", got)
	}
}

// Each entry's failure stands alone and is told in the server's words, and what was
// in the way may go later.
func TestEachEntryFailsAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.kube.setSecret("s", false, map[string]string{"password": "secret-of-nobody"})
	w.declares([]instanceapi.DeclaredRole{
		plain("pg_reserved", withSecret("s")), // the schema refuses it, which an older one may not
		plain("lost", memberOf("nowhere")),
		plain("good"),
		{Name: "owner", Absent: true},
	},
		instanceapi.DeclaredDatabase{Name: "orphan", Owner: "nowhere"},
		instanceapi.DeclaredDatabase{Name: "half", Owner: "good",
			Extensions: []instanceapi.DeclaredExtension{{Name: "no_such_extension"}, {Name: "pg_trgm", Version: "0.1"}, {Name: "citext"}, {Name: "plpgsql", Schema: "public"}},
			Schemas:    []instanceapi.DeclaredSchema{{Name: "a", Owner: "nowhere"}, {Name: "b"}, {Name: "full", Absent: true}}},
		instanceapi.DeclaredDatabase{Name: "other", Owner: "good", Encoding: "LATIN1", Locale: "C"},
		instanceapi.DeclaredDatabase{Name: "busy", Absent: true},
		instanceapi.DeclaredDatabase{Name: "fine", Owner: "good"},
	)
	declared := w.config.Declared
	w.declares(nil)
	p := w.startQuick("shop-1", "127.0.0.11")
	p.waitFor("ready", isReady)
	p.exec("CREATE ROLE owner", "CREATE DATABASE other", "CREATE DATABASE busy", "CREATE DATABASE half", "ALTER DATABASE app OWNER TO owner")
	busy, err := p.connect("app", appPassword, "busy").Conn(t.Context())
	must(t, err)
	half, err := p.open(t, "half")
	must(t, err)
	must(t, half.Exec(t.Context(), "CREATE SCHEMA \"full\"; CREATE TABLE \"full\".t ()"))
	half.Close()
	w.apply(func() { w.config.Declared = declared })

	got := p.problems("what can be done")
	for entry, words := range map[string][]string{
		"role pg_reserved": {"create it: ", "role name \"pg_reserved\" is reserved", "DETAIL: Role names starting with \"pg_\" are reserved"},
		"role lost":        {"make it a member of nowhere: ", "role \"nowhere\" does not exist"},
		"role owner":       {"drop it: ", "cannot be dropped because some objects depend on it", "DETAIL: owner of database app"},
		"database orphan":  {"role \"nowhere\" does not exist"},
		"database half": {"create extension no_such_extension: ", "extension \"no_such_extension\" is not available; DETAIL: ", "create extension pg_trgm: ", "has no installation script", "create schema a",
			"drop schema full", "other objects depend on it", "move extension plpgsql"},
		"database other": {"it has encoding UTF8 and not LATIN1, it has locale C.UTF-8 and not C"},
		"database busy":  {"is being accessed by other users"},
	} {
		for _, word := range words {
			if !strings.Contains(got[entry], word) {
				t.Errorf("%s: %q does not say %q", entry, got[entry], word)
			}
		}
		delete(got, entry)
	}
	if diff := cmp.Diff(map[string]string{}, got); diff != "" {
		t.Errorf("others in trouble: %s", diff)
	}
	for query, want := range map[string]string{
		"SELECT string_agg(rolname, ',' ORDER BY rolname) FROM pg_roles WHERE rolname IN ('lost', 'good', 'owner')": "good,lost,owner",
		"SELECT pg_get_userbyid(datdba) FROM pg_database WHERE datname = 'other'":                                   "good",
		"SELECT pg_get_userbyid(datdba) FROM pg_database WHERE datname = 'fine'":                                    "good",
	} {
		if got := p.query(query); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
	half, err = p.open(t, "half")
	must(t, err)
	defer half.Close()
	var made string
	must(t, half.Row(t.Context(), "SELECT (SELECT string_agg(extname, ',' ORDER BY extname) FROM pg_extension) || ' ' || (SELECT string_agg(nspname, ',' ORDER BY nspname) FROM pg_namespace WHERE nspname IN ('a', 'b', 'full'))", &made))
	if want := "citext,plpgsql b,full"; made != want {
		t.Errorf("half has %s, want %s", made, want)
	}
	if logs := w.serverLogs.String(); strings.Contains(logs, "SCRAM-SHA-256$") || strings.Contains(logs, "secret-of-nobody") {
		t.Error("the server's log holds what belongs to a password")
	}

	must(t, busy.Close())
	p.exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'busy'", "CREATE ROLE nowhere", "ALTER DATABASE app OWNER TO app")
	w.eventually("what was in the way is gone", func() bool {
		now := problemsIn(p.State(t.Context()))
		return now["role lost"] == "" && now["role owner"] == "" && now["database orphan"] == "" && now["database busy"] == ""
	}, func() string { return fmt.Sprint(problemsIn(p.State(t.Context()))) })
	if got := p.query("SELECT count(*) FROM pg_database WHERE datname = 'busy'"); got != "0" {
		t.Error("a database that is declared absent is still there")
	}
}

// E-04: a Secret of the user's own is used as it is, also with a verifier alone, and
// before the role's first login. What is of no use is told, and the password stays.
func TestE04PasswordsOfTheUsersOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	verifier, err := postgres.ScramVerifier("known to its owner")
	must(t, err)
	w.kube.setSecret("plain", false, map[string]string{"password": appPassword})
	w.kube.setSecret("verifier", false, map[string]string{"username": "hashed", "password": verifier})
	w.conf["shared_preload_libraries"] = "pg_stat_statements"
	w.declares([]instanceapi.DeclaredRole{plain("typed", withSecret("plain")), plain("hashed", withSecret("verifier")), plain("late", withSecret("missing")),
		plain("robbed", withSecret("plain"), func(r *instanceapi.DeclaredRole) { r.OwnSecret = true })},
		instanceapi.DeclaredDatabase{Name: "app", Owner: "app", Extensions: []instanceapi.DeclaredExtension{{Name: "pg_stat_statements"}}})
	p := w.startQuick("shop-1", "127.0.0.11")
	got := p.problems("at first")
	want := map[string]string{
		"role late": "the Secret missing does not exist; create it with the key password",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("problems: %s", diff)
	}
	for user, password := range map[string]string{"typed": appPassword, "hashed": "known to its owner"} {
		if got := p.login(user, password, "app"); got != user+" in app" {
			t.Errorf("first login of %s: %s", user, got)
		}
	}
	if got := p.query("SELECT rolpassword IS NULL FROM pg_authid WHERE rolname = 'robbed'"); got != "true" {
		t.Errorf("a Secret that is not the operator's was taken for one")
	}
	if got := p.query("SELECT rolpassword FROM pg_authid WHERE rolname = 'hashed'"); got != verifier {
		t.Errorf("the verifier is not as it was given")
	}
	if got := p.query("SELECT rolpassword IS NULL FROM pg_authid WHERE rolname = 'late'"); got != "true" {
		t.Errorf("a role without a Secret has a password")
	}

	w.kube.setSecret("missing", false, map[string]string{"username": "late", "password": "here"})
	p.wantProblem("role robbed", "Secret plain is not there; the operator makes it, unless another of the name is in the way")
	statements, err := p.open(t, "app")
	must(t, err)
	defer statements.Close()
	var known, hold int
	must(t, statements.Row(t.Context(), "SELECT count(*), count(*) FILTER (WHERE query LIKE '%SCRAM-SHA%') FROM public.pg_stat_statements", &known, &hold))
	if known == 0 || hold > 0 {
		t.Errorf("of %d statements in pg_stat_statements, %d hold a verifier", known, hold)
	}
	w.eventually("the Secret that came late", func() bool { return p.login("late", "here", "app") == "late in app" }, func() string { return p.login("late", "here", "app") })

	for _, c := range []struct {
		data map[string]string
		want string
	}{
		{map[string]string{"username": "typed", "password": "x"}, "Secret missing: the key username is of another role; let it be late, or remove it"},
		{map[string]string{"password": ""}, "Secret missing has nothing under the key password"},
		{map[string]string{"Password": "x"}, "Secret missing has nothing under the key password"},
		{map[string]string{"password": "a\x00b"}, "holds a zero byte"},
		{map[string]string{"password": "SCRAM-SHA-256$4096:abc"}, "begins like a verifier and is none"},
		{map[string]string{"password": "md5" + strings.Repeat("0a", 16)}, "is an md5 hash"},
		{nil, "Secret missing does not exist"},
	} {
		w.kube.setSecret("missing", false, c.data)
		p.wantProblem("role late", c.want)
		if got := p.login("late", "here", "app"); got != "late in app" {
			t.Errorf("%s: the password that it had: %s", c.want, got)
		}
	}
}

// A-21, E-02: an edit of a Secret reaches the server by itself, and nothing else
// changes.
func TestA21E02EditedPasswordsReachTheServer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.kube.setSecret("s", true, map[string]string{"username": "r", "password": "0"})
	w.declares([]instanceapi.DeclaredRole{plain("r", withSecret("s"), func(r *instanceapi.DeclaredRole) { r.OwnSecret = true })})
	p := w.start("shop-1", "127.0.0.11") // which looks every few minutes only
	p.wantAsDeclared("at first")
	last := "0"
	for _, password := range []string{appPassword, strings.Repeat("0123456789", 12), "a:b@c/d#e%f g-é", "\n", " ", "SCRAM", "md5", `\'"$$`} {
		w.kube.setSecret("s", true, map[string]string{"username": "r", "password": password})
		w.eventually(fmt.Sprintf("password %q", password), func() bool { return p.login("r", password, "app") == "r in app" }, func() string { return p.login("r", password, "app") })
		if got := p.login("r", last, "app"); !strings.Contains(got, "password authentication failed") {
			t.Errorf("the password before: %s", got)
		}
		last = password
	}
	w.declares([]instanceapi.DeclaredRole{plain("r", func(r *instanceapi.DeclaredRole) { r.Login, r.NoPassword = true, true })})
	p.wantQuery("no password", "SELECT rolpassword IS NULL FROM pg_authid WHERE rolname = 'r'", "true")
}

// E-03: a volume that was kept gets the passwords of new Secrets.
func TestE03KeptVolumeGetsNewPasswords(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.kube.setSecret("s", true, map[string]string{"username": "r", "password": "of the first life"})
	w.declares([]instanceapi.DeclaredRole{plain("r", withSecret("s"), func(r *instanceapi.DeclaredRole) { r.OwnSecret = true })})
	p := w.start("shop-1", "127.0.0.11")
	p.wantAsDeclared("the first life")
	p.stop()
	w.kube.setSecret("s", true, map[string]string{"username": "r", "password": "of the second"})
	p = w.start("shop-1", "127.0.0.11")
	p.wantAsDeclared("the second life")
	if got := p.login("r", "of the second", "app"); got != "r in app" {
		t.Errorf("the new password: %s", got)
	}
	if got := p.login("r", "of the first life", "app"); !strings.Contains(got, "password authentication failed") {
		t.Errorf("the old password: %s", got)
	}
}

// D-11, E-03: restored data gets the roles of the spec and the passwords of today, and
// keeps what nobody has declared.
func TestD11RolesOfRestoredData(t *testing.T) {
	t.Parallel()
	first, p, store := source(t)
	first.kube.setSecret("s", false, map[string]string{"password": "when backed up"})
	first.declares([]instanceapi.DeclaredRole{plain("reader", withSecret("s"), memberOf("pg_monitor"))})
	p.wantAsDeclared("before the backup")
	p.exec("CREATE ROLE bystander")
	info := p.takeWell(backup.Full, "")
	p.archiveAll(store)
	p.stop()

	first.kube.setSecret("s", false, map[string]string{"password": "of today"})
	w := first.restores(instanceapi.Restore{Store: store, ID: info.ID})
	w.declares([]instanceapi.DeclaredRole{plain("reader", withSecret("s")), plain("late")}, instanceapi.DeclaredDatabase{Name: "reports", Owner: "late"})
	restored := w.start("shop-1", "127.0.66.1")
	restored.wantAsDeclared("after the restore")
	if got := restored.login("reader", "of today", "reports"); got != "reader in reports" {
		t.Errorf("the password of today: %s", got)
	}
	if got := restored.login("reader", "when backed up", "app"); !strings.Contains(got, "password authentication failed") {
		t.Errorf("the password in the backup: %s", got)
	}
	if got := restored.login("app", "another", "app"); got != "app in app" {
		t.Errorf("the application's login: %s", got)
	}
	if got := restored.query("SELECT string_agg(rolname, ' ' ORDER BY rolname) FROM pg_roles WHERE rolname IN ('reader', 'late', 'bystander') AND NOT pg_has_role(oid, 'pg_monitor', 'member')"); got != "bystander late reader" {
		t.Errorf("without pg_monitor there are %q", got)
	}
}

// Only the primary looks after roles and reads their Secrets; whoever takes over goes
// on.
func TestRolesAreThePrimarysBusiness(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply(func() { w.config.Members = []string{"shop-1", "shop-2"} })
	w.kube.setSecret("s", false, map[string]string{"password": "first"})
	w.declares([]instanceapi.DeclaredRole{plain("r", withSecret("s"))})
	primary, replica := w.startQuick("shop-1", "127.0.0.11"), w.startQuick("shop-2", "127.0.0.12")
	primary.wantAsDeclared("the primary")
	replica.waitFor("ready", isReady)
	if got := replica.State(t.Context()).Declared; got == nil || got.Hash != "" {
		t.Errorf("a replica says of roles: %+v", got)
	}
	if got := w.kube.watchedSecrets(); !slices.Equal(got, []string{"s", "shop-app"}) {
		t.Errorf("Secrets that are watched: %v", got)
	}
	replica.wantQuery("the role", "SELECT count(*) FROM pg_roles WHERE rolname = 'r'", "1")
	w.awaitMembers(1)
	primary.stop()
	replica.wantAsDeclared("the new primary")
	w.kube.setSecret("s", false, map[string]string{"password": "second"})
	w.eventually("a password on the new primary", func() bool { return replica.login("r", "second", "app") == "r in app" }, func() string { return replica.login("r", "second", "app") })
}

// E-05: while no connection is left, what is known of roles goes on being told.
func TestE05NoConnectionIsLeftForRoles(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.conf["max_connections"], w.conf["superuser_reserved_connections"] = "10", "0"
	w.declares([]instanceapi.DeclaredRole{plain("r")})
	w.apply(func() {})
	p := w.startQuick("shop-1", "127.0.0.11")
	p.wantAsDeclared("at first")
	const looks = "SELECT sessions FROM pg_stat_database WHERE datname = 'postgres'"
	var taken []*pgrun.Server
	w.eventually("no connection is left", func() bool {
		s, err := p.open(t, "postgres")
		must(t, err)
		if err := s.Exec(t.Context(), "SELECT 1"); err != nil {
			return true
		}
		taken = append(taken, s)
		return false
	}, func() string { return p.query(looks) })
	for range 20 {
		if got := p.State(t.Context()).Declared; got.Hash != w.config.Declared.Hash() || len(problemsIn(instanceapi.State{Declared: got})) > 0 {
			t.Fatalf("with no connection left: %+v", got)
		}
		time.Sleep(50 * time.Millisecond)
	}
	for _, s := range taken {
		s.Close()
	}
	w.declares([]instanceapi.DeclaredRole{plain("r", func(r *instanceapi.DeclaredRole) { r.CreateDB = true })})
	p.wantAsDeclared("with connections again")
}

// A database into which nobody can connect any more is told of, and no other suffers.
func TestClosedDatabase(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.declares(nil, instanceapi.DeclaredDatabase{Name: "closed", Owner: "app", Schemas: []instanceapi.DeclaredSchema{{Name: "s"}}},
		instanceapi.DeclaredDatabase{Name: "app", Owner: "app", Schemas: []instanceapi.DeclaredSchema{{Name: "s"}}})
	p := w.startQuick("shop-1", "127.0.0.11")
	p.wantAsDeclared("at first")
	p.exec("ALTER DATABASE closed ALLOW_CONNECTIONS false")
	p.wantProblem("database closed", "is not currently accepting connections")
	if got := problemsIn(p.State(t.Context())); len(got) != 1 {
		t.Errorf("problems: %v", got)
	}
	p.exec("ALTER DATABASE closed ALLOW_CONNECTIONS true")
	p.wantAsDeclared("once it is open again")
	if got := p.query("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pgop-roles'"); got != "0" && got != "1" && got != "2" {
		t.Errorf("connections that are left: %s", got)
	}
}

// whatever a name is made of, the server reads it as it is, and nothing of
// it as SQL.
func TestA09A10NamesStayWhole(t *testing.T) {
	hard := []rune("\"'\\;-/*$E aé\u00a0")
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.OneOf(rapid.StringOfN(rapid.SampledFrom(hard), 1, 20, 63), rapid.StringOfN(rapid.Rune(), 1, 20, 63)).Draw(t, "name")
		if strings.ContainsRune(name, 0) || name == instanceapi.Public {
			t.Skip("the schema refuses it")
		}
		d := instanceapi.Declared{Roles: []instanceapi.DeclaredRole{plain(name, memberOf(name), func(r *instanceapi.DeclaredRole) { r.Comment = name })},
			Databases: []instanceapi.DeclaredDatabase{{Name: name, Owner: name, Encoding: name, Locale: name, Grants: []instanceapi.DeclaredGrant{{Role: name, Privileges: []string{"CONNECT"}}}}}}
		plan := planServer(d, nil, foundServer{})
		content := d.Databases[0]
		content.Schemas = []instanceapi.DeclaredSchema{{Name: name, Owner: name, Grants: []instanceapi.DeclaredGrant{{Role: name, Privileges: []string{"USAGE"}}}}}
		content.Extensions = []instanceapi.DeclaredExtension{{Name: name, Schema: name, Version: name}}
		for _, c := range append(plan, planContent(content, foundContent{})...) {
			rest, names := outsideQuotes(c.SQL)
			if strings.ContainsAny(rest, `;"'\`) || strings.Contains(rest, "--") || strings.Contains(rest, "/*") {
				t.Errorf("%s: unquoted: %s", c.SQL, rest)
			}
			for _, got := range names {
				if got != name {
					t.Errorf("%s: the server reads %q instead of %q", c.SQL, got, name)
				}
			}
		}
	})
}

// outsideQuotes reads SQL as the server does: what is outside of quotes, and what
// each quoted part means. It knows nothing of how the SQL was written.
func outsideQuotes(sql string) (rest string, quoted []string) {
	var outside, inside strings.Builder
	for i := 0; i < len(sql); i++ {
		c := sql[i]
		if c != '"' && c != '\'' {
			outside.WriteByte(c)
			continue
		}
		escapes := c == '\'' && strings.HasSuffix(outside.String(), "E")
		inside.Reset()
		for i++; i < len(sql); i++ {
			if escapes && sql[i] == '\\' {
				i++
			} else if sql[i] == c {
				if i+1 == len(sql) || sql[i+1] != c {
					break
				}
				i++
			}
			if i < len(sql) {
				inside.WriteByte(sql[i])
			}
		}
		quoted = append(quoted, inside.String())
	}
	return outside.String(), quoted
}
