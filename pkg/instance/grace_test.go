package instance

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pgop/postgres-operator/pkg/instanceapi"
)

// tellsOf waits until the pod says that the server lets in the other login of a role.
func (p *testPod) tellsOf(role, user, password string) {
	p.world.Helper()
	p.waitFor("a word on the login "+user, func(s instanceapi.State) bool {
		entries := s.Declared.Roles
		if s.Declared.Owner != nil {
			entries = append(entries, *s.Declared.Owner)
		}
		for _, e := range entries {
			if e.Name == role {
				return e.Next == instanceapi.LoginMark(user, password)
			}
		}
		return false
	})
}

// letsIn waits until exactly these of the three users of a role are let in, with these
// passwords.
func (p *testPod) letsIn(when, role, database string, passwords map[string]string) {
	p.world.Helper()
	logins := instanceapi.RoleLogins(role)
	outcome := func() string {
		var wrong []string
		for _, user := range []string{role, logins[0], logins[1]} {
			password, may := passwords[user]
			if !may {
				password = "first" // which every one of them has had in these tests
			}
			if got := p.login(user, password, database); (got == user+" in "+database) != may {
				wrong = append(wrong, user+": "+got)
			}
		}
		return strings.Join(wrong, "; ")
	}
	p.world.eventually(when, func() bool { return outcome() == "" }, outcome)
}

// graced is what an operator's Secret of a role holds; without other, one login.
func graced(user, password, other, otherPassword string) map[string]string {
	data := map[string]string{instanceapi.UsernameKey: user, instanceapi.PasswordKey: password}
	if other != "" {
		data[instanceapi.OtherUsernameKey], data[instanceapi.OtherPasswordKey] = other, otherPassword
	}
	return data
}

func ownSecret(r *instanceapi.DeclaredRole) { r.OwnSecret = true }

// E-01: with a grace time the server lets in both logins of a Secret and no other of the
// role. They act as the role, whatever a pooler does to their sessions, with its settings
// and limits. Nothing is written as long as nothing changes; whoever leads next comes to
// the same. Without a grace time one logs in as the role again, and the logins go.
func TestE01LoginsByTurns(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const role = `o"wner of-all`
	names := instanceapi.RoleLogins(role)
	w.kube.setSecret("s", true, graced(role, "first", "", ""))
	limited := func(r *instanceapi.DeclaredRole) { r.ConnectionLimit, r.CreateDB, r.Replication = 7, true, true }
	// What fails for the role otherwise is no matter of its logins.
	w.apply(func() { w.config.Members = []string{"shop-1", "shop-2"} })
	w.declares([]instanceapi.DeclaredRole{plain(role, withSecret("s"), ownSecret, limited, memberOf("nowhere"))},
		instanceapi.DeclaredDatabase{Name: "d", Owner: role})
	p, replica := w.startQuick("shop-1", "127.0.0.11"), w.startQuick("shop-2", "127.0.0.12")
	p.wantProblem("role "+role, "nowhere")
	p.letsIn("before", role, "d", map[string]string{role: "first"})
	p.wantQuery("no login is made in advance", "SELECT count(*) FROM pg_authid WHERE rolname LIKE '%\\_1'", "0")
	p.exec(`ALTER ROLE "o""wner of-all" SET search_path TO "$user", "od'd, one", public`, `ALTER ROLE "o""wner of-all" IN DATABASE d SET statement_timeout TO '17min'`, `ALTER ROLE "o""wner of-all" SET my.tenant TO 'é'`)
	w.declares([]instanceapi.DeclaredRole{plain(role, withSecret("s"), ownSecret, limited)}, instanceapi.DeclaredDatabase{Name: "d", Owner: role})
	p.wantAsDeclared("the role")

	w.kube.setSecret("s", true, graced(role, "first", names[0], "second"))
	p.tellsOf(role, names[0], "second")
	p.letsIn("the next login", role, "d", map[string]string{role: "first", names[0]: "second"})
	p.wantQuery("its limit", "SELECT rolconnlimit || ' ' || rolreplication FROM pg_authid WHERE rolname = "+literal(names[0]), "7 true")
	db := p.connect(names[0], "second", "d")
	defer db.Close()
	db.SetMaxOpenConns(1)
	stays, err := db.Conn(t.Context())
	must(t, err)
	defer stays.Close()
	ask := func(query string) string {
		t.Helper()
		var got string
		if err := stays.QueryRowContext(t.Context(), query).Scan(&got); err != nil {
			return err.Error()
		}
		return got
	}
	const who = "SELECT session_user || ' as ' || current_user"
	for _, pooler := range []string{"SELECT 1", "RESET ALL", "DISCARD ALL", "RESET ROLE", "SET SESSION AUTHORIZATION DEFAULT"} {
		_, err := stays.ExecContext(t.Context(), pooler)
		must(t, err)
		if got, want := ask(who), names[0]+" as "+role; got != want {
			t.Errorf("after %s: %s, want %s", pooler, got, want)
		}
	}
	_, err = stays.ExecContext(t.Context(), "CREATE SCHEMA s CREATE TABLE t(i int)")
	must(t, err)
	_, err = stays.ExecContext(t.Context(), "CREATE DATABASE another")
	must(t, err)
	for query, want := range map[string]string{
		"SELECT tableowner FROM pg_tables WHERE tablename = 't'":                    role,
		"SELECT pg_get_userbyid(datdba) FROM pg_database WHERE datname = 'another'": role,
		"SHOW search_path":       `"$user", "od'd, one", public`,
		"SHOW statement_timeout": "17min",
		"SHOW my.tenant":         "é",
	} {
		if got := ask(query); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}

	w.kube.setSecret("s", true, graced(names[0], "second", "", ""))
	p.letsIn("the grace time of the role itself is over", role, "d", map[string]string{names[0]: "second"})
	w.kube.setSecret("s", true, graced(names[0], "second", names[1], "third"))
	p.tellsOf(role, names[1], "third")
	p.letsIn("the other login", role, "d", map[string]string{names[0]: "second", names[1]: "third"})
	w.kube.setSecret("s", true, graced(names[1], "third", names[0], "second"))
	p.wantAsDeclared("published")
	before := p.rolesAsTheyAre()
	looks := p.query("SELECT now()")
	p.wantQuery("a look later", "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'pgop-roles' AND backend_start > "+literal(looks)+")", "true")
	if diff := cmp.Diff(before, p.rolesAsTheyAre()); diff != "" {
		t.Errorf("what was as it should be was written: %s", diff)
	}
	p.exec("ALTER ROLE "+quoted(names[0])+" RESET role", "REVOKE "+quoted(role)+" FROM "+quoted(names[0]), "ALTER ROLE "+quoted(names[0])+" SET work_mem TO '99MB'", "ALTER ROLE "+quoted(names[0])+" NOLOGIN")
	p.letsIn("what somebody has changed is put right", role, "d", map[string]string{names[0]: "second", names[1]: "third"})
	settings := func(login string) string {
		return "SELECT string_agg(c, ' ' ORDER BY c) FROM pg_db_role_setting, unnest(setconfig) c WHERE setdatabase = 0 AND setrole = " + literal(quoted(login)) + "::regrole"
	}
	p.wantQuery("its settings", settings(names[0]), p.query(settings(names[1])))

	replica.waitFor("ready", isReady)
	w.awaitMembers(1)
	p.stop()
	w.kube.setSecret("s", true, graced(names[1], "third", "", ""))
	replica.waitFor("the next primary", func(s instanceapi.State) bool { return s.Role == instanceapi.RolePrimary && s.Ready })
	replica.letsIn("the grace time has ended elsewhere", role, "d", map[string]string{names[1]: "third"})

	db = replica.connect(names[1], "third", "d")
	defer db.Close()
	stays, err = db.Conn(t.Context())
	must(t, err)
	if got, want := ask(who), names[1]+" as "+role; got != want {
		t.Errorf("on the next primary: %s, want %s", got, want)
	}
	w.kube.setSecret("s", true, graced(names[1], "third", role, "fourth"))
	replica.tellsOf(role, role, "fourth")
	w.kube.setSecret("s", true, graced(role, "fourth", names[1], "third"))
	replica.letsIn("back to the role", role, "d", map[string]string{role: "fourth", names[1]: "third"})
	w.kube.setSecret("s", true, graced(role, "fourth", "", ""))
	replica.letsIn("the role alone", role, "d", map[string]string{role: "fourth"})
	replica.wantQuery("the login without sessions is dropped", "SELECT string_agg(rolname, ',') FROM pg_authid WHERE shobj_description(oid, 'pg_authid') LIKE 'a login of%'", names[1])
	if got, want := ask(who), names[1]+" as "+role; got != want {
		t.Errorf("a session that stays: %s, want %s", got, want)
	}
	must(t, stays.Close())
	must(t, db.Close())
	replica.wantQuery("and the other when its sessions are gone", "SELECT count(*) FROM pg_authid WHERE shobj_description(oid, 'pg_authid') LIKE 'a login of%'", "0")
}

// rolesAsTheyAre identifies the versions of all rows that tell of roles.
func (p *testPod) rolesAsTheyAre() string {
	p.world.Helper()
	return p.query("SELECT (SELECT string_agg(rolname || xmin, ',' ORDER BY 1) FROM pg_authid) || (SELECT string_agg(roleid || ' ' || member || ' ' || xmin::text, ',' ORDER BY 1) FROM pg_auth_members)" +
		" || (SELECT string_agg(setrole || ' ' || xmin::text, ',' ORDER BY 1) FROM pg_db_role_setting)")
}

func quoted(name string) string  { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }
func literal(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

// A role of somebody's that has the name of a login is never touched, and says so by the
// role's problem; the logins of a role that is dropped go with it, and those of the
// application database's owner, for whom there is no entry, are kept as well.
func TestE01LoginsOfOthersAndOfTheOwner(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.kube.setSecret("s", true, graced("r", "first", "", ""))
	r := plain("r", withSecret("s"), ownSecret)
	w.declares([]instanceapi.DeclaredRole{r})
	p := w.startQuick("shop-1", "127.0.0.11")
	p.wantAsDeclared("the role")
	p.exec("CREATE ROLE r_1 LOGIN PASSWORD 'theirs'")
	w.kube.setSecret("s", true, graced("r", "first", "r_1", "second"))
	p.wantProblem("role r", "the login r_1 can't be made, since another role has the name", `ALTER ROLE "r_1" RENAME TO`)
	p.letsIn("theirs", "r", "app", map[string]string{"r": "first", "r_1": "theirs"})
	if got := p.State(t.Context()).Declared.Roles[0].Next; got != "" {
		t.Error("the server has no login of the role, and says so")
	}
	w.kube.setSecret("s", true, graced("r", "first", "", ""))
	p.wantAsDeclared("nothing is asked of it")
	p.letsIn("theirs still", "r", "app", map[string]string{"r": "first", "r_1": "theirs"})
	p.exec("ALTER ROLE r_1 RENAME TO theirs")
	w.kube.setSecret("s", true, graced("r", "first", "r_1", "second"))
	p.tellsOf("r", "r_1", "second")
	w.kube.setSecret("s", true, graced("r", "first", "somebody", "second"))
	p.wantProblem("role r", "other-username is of no other login of the role")
	p.letsIn("a Secret of no use changes nothing", "r", "app", map[string]string{"r": "first", "r_1": "second"})
	w.declares([]instanceapi.DeclaredRole{{Name: "r", Absent: true}})
	p.wantAsDeclared("dropped")
	p.wantQuery("nothing is left of it", "SELECT string_agg(rolname, ',') FROM pg_authid WHERE rolname IN ('r', 'r_1', 'theirs')", "theirs")

	w.kube.setSecret("shop-app", true, graced("app", "first", "app_1", "second"))
	p.tellsOf("app", "app_1", "second")
	w.kube.setSecret("shop-app", true, graced("app_1", "second", "", ""))
	p.letsIn("the owner's login", "app", "app", map[string]string{"app_1": "second"})
	w.kube.setSecret("shop-app", true, graced("app", "third", "", "")) // as when the Secret was deleted
	p.letsIn("the owner itself", "app", "app", map[string]string{"app": "third"})
}

// Names of logins are none that a server would cut, and no two roles share them.
func TestNamesOfLogins(t *testing.T) {
	long := strings.Repeat("é", 31)
	for role, want := range map[string][2]string{
		"loader":                {"loader_1", "loader_2"},
		strings.Repeat("x", 61): {strings.Repeat("x", 61) + "_1", strings.Repeat("x", 61) + "_2"},
		long:                    instanceapi.RoleLogins(long),
		strings.Repeat("x", 63): instanceapi.RoleLogins(strings.Repeat("x", 63)),
	} {
		got := instanceapi.RoleLogins(role)
		if got != want {
			t.Errorf("%s: %v, want %v", role, got, want)
		}
		for _, name := range got {
			if len(name) > 63 || strings.ToValidUTF8(name, "?") != name || !instanceapi.IsLoginOf(role, name) {
				t.Errorf("%s has the login %s", role, name)
			}
		}
	}
	if a, b := instanceapi.RoleLogins(strings.Repeat("x", 62)), instanceapi.RoleLogins(strings.Repeat("x", 63)); a == b {
		t.Errorf("two roles have the logins %v", a)
	}
}

// E-01: servers that forget as whom a login is to act get none.
func TestE01MinorVersionsThatForgetTheRole(t *testing.T) {
	loader := plain("loader", withSecret("s"), ownSecret)
	logins := roleLogins{Known: true, Passwords: map[string]rolePassword{"loader": {}, "loader_1": {}}}
	for version, may := range map[int]bool{150008: true, 150009: false, 150010: true, 160005: false, 170001: false, 170002: true, 180000: true} {
		plan, problem := planLogins(loader, logins, nil, foundServer{Version: version, Roles: map[string]foundRole{"loader": asMade()}})
		if (len(plan) > 0) != may || strings.Contains(problem, "spec.roles[loader].rotation.grace") == may {
			t.Errorf("%d: %v, problem %q", version, plan, problem)
		}
	}
}
