package instance

import (
	"strings"
	"testing"

	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/postgres"
)

// hasNext waits until the pod says that the server has the next password of a role, or
// of the owner for whom there is no entry.
func (p *testPod) hasNext(role, next string) {
	p.world.Helper()
	p.waitFor("the next password of "+role, func(s instanceapi.State) bool {
		if s.Declared == nil {
			return false
		}
		entries := s.Declared.Roles
		if s.Declared.Owner != nil {
			entries = append(entries, *s.Declared.Owner)
		}
		for _, e := range entries {
			if e.Name == role {
				return e.Next == instanceapi.PasswordMark(next)
			}
		}
		return false
	})
}

// wantLogin tries one password that is right and one that is wrong.
func (p *testPod) wantLogin(when, role, right, wrong string) {
	p.world.Helper()
	if got, want := p.login(role, right, "app"), role+" in app"; got != want {
		p.world.Errorf("%s: %s with its password: %s", when, role, got)
	}
	if got := p.login(role, wrong, "app"); !strings.Contains(got, "password authentication failed") {
		p.world.Errorf("%s: %s with another password: %s", when, role, got)
	}
}

// The server has the next password of a Secret before the Secret has it as its
// password, and whoever leads says so for its own server: the operator may publish it
// at any moment, and both match afterwards.
func TestE01NextPasswordsReachTheServerFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply(func() { w.config.Members = []string{"shop-1", "shop-2"} })
	w.kube.setSecret("s", true, map[string]string{"username": "r", "password": "first"})
	w.declares([]instanceapi.DeclaredRole{plain("r", withSecret("s"), memberOf("nowhere"), func(r *instanceapi.DeclaredRole) { r.OwnSecret = true })})
	primary, replica := w.start("shop-1", "127.0.0.11"), w.start("shop-2", "127.0.0.12")
	primary.wantProblem("role r", "nowhere") // which is no matter of its password
	replica.waitFor("ready", isReady)
	w.awaitMembers(1)
	if s := primary.State(t.Context()).Declared; s.Roles[0].Next != "" || s.Owner == nil || s.Owner.Next != "" || s.Owner.Problem != "" {
		t.Errorf("without a next password: %+v, %+v", s.Roles, s.Owner)
	}

	for role, secret := range map[string]string{"r": "s", "app": "shop-app"} {
		before := map[string]string{"r": "first", "app": appPassword}[role]
		primary.wantLogin("before", role, before, "next")
		w.kube.setSecret(secret, true, map[string]string{"username": role, "password": before, instanceapi.NextPasswordKey: "next"})
		primary.hasNext(role, "next")
		primary.wantLogin("the server is first", role, "next", before)
	}
	// Whoever takes over says it of its own server.
	primary.stop()
	replica.hasNext("r", "next")
	replica.hasNext("app", "next")
	for role, secret := range map[string]string{"r": "s", "app": "shop-app"} {
		verifier := replica.query("SELECT rolpassword FROM pg_authid WHERE rolname = '" + role + "'")
		w.kube.setSecret(secret, true, map[string]string{"username": role, "password": "next"})
		replica.hasNoNext(role)
		replica.wantLogin("published", role, "next", "first")
		if got := replica.query("SELECT rolpassword FROM pg_authid WHERE rolname = '" + role + "'"); got != verifier {
			t.Errorf("the password of %s, which the server has, was written again", role)
		}
	}

	// A Secret of the user's own has no next password, whatever its keys are.
	w.kube.setSecret("mine", false, map[string]string{"password": "mine", instanceapi.NextPasswordKey: "not meant"})
	w.declares([]instanceapi.DeclaredRole{plain("r", withSecret("mine"))})
	replica.wantAsDeclared("a password of the user's own")
	replica.wantLogin("a Secret of the user's own", "r", "mine", "not meant")
}

// hasNoNext waits until the pod knows of no next password.
func (p *testPod) hasNoNext(role string) {
	p.world.Helper()
	p.waitFor("no next password of "+role, func(s instanceapi.State) bool {
		for _, e := range s.Declared.Roles {
			if e.Name == role {
				return e.Next == ""
			}
		}
		return s.Declared.Owner != nil && s.Declared.Owner.Next == ""
	})
}

// A role that the server does not have has no next password, and says so by its
// problem; one that users have dropped, and nobody declares, waits for nothing.
func TestNextPasswordOfARoleThatIsNotThere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.kube.setSecret("s", true, map[string]string{"username": "pg_r", "password": "first", instanceapi.NextPasswordKey: "next"})
	w.declares([]instanceapi.DeclaredRole{plain("pg_r", withSecret("s"), func(r *instanceapi.DeclaredRole) { r.OwnSecret = true })})
	p := w.start("shop-1", "127.0.0.11")
	p.wantProblem("role pg_r", "reserved")
	if got := p.State(t.Context()).Declared.Roles[0].Next; got != "" {
		t.Errorf("the server does not have the role, and its next password is %q", got)
	}
	p.exec("ALTER DATABASE app OWNER TO postgres", "DROP ROLE app")
	w.kube.setSecret("shop-app", true, map[string]string{"username": "app", "password": appPassword, instanceapi.NextPasswordKey: "next"})
	p.hasNext("app", "next")
	if got := p.query("SELECT count(*) FROM pg_roles WHERE rolname = 'app'"); got != "0" {
		t.Error("a role that users have dropped is back")
	}
}

// E-04: a Secret of the user's own for the owner of the application's database is used
// from the first login on, with a password or a verifier; an edit reaches the server
// within seconds. Until it is there no database is made.
func TestE04SecretOfTheOwnersOwn(t *testing.T) {
	t.Parallel()
	verifier, err := postgres.ScramVerifier("known to its owner")
	must(t, err)
	for why, first := range map[string]string{"a password": "known to its owner", "a verifier": verifier} {
		t.Run(why, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.kube.setSecret("shop-app", true, map[string]string{"username": "app"})
			w.apply(func() { w.config.Owner.Secret = "mine" })
			p := w.start("shop-1", "127.0.0.11")
			p.waitFor("a word on what is missing", failsWith("Secret mine does not exist; create it with the key password"))
			w.kube.setSecret("mine", false, map[string]string{"username": "app", "password": first})
			p.waitFor("ready", isReady)
			p.wantLogin("the first login", "app", "known to its owner", appPassword)
			for _, password := range []string{appPassword, strings.Repeat("0123456789", 12), `: @ / # % space ' " \ é`} {
				w.kube.setSecret("mine", false, map[string]string{"password": password})
				p.wantQuery("an edit", "SELECT count(*) FROM pg_authid WHERE rolname = 'app' AND rolpassword = '"+verifier+"'", "0")
				w.eventually("the edited password", func() bool { return p.login("app", password, "app") == "app in app" }, func() string { return p.login("app", password, "app") })
			}
			w.kube.setSecret("mine", false, nil)
			w.eventually("a word on the deleted Secret", func() bool {
				owner := p.State(t.Context()).Declared.Owner
				return owner != nil && strings.Contains(owner.Problem, "Secret mine does not exist")
			}, func() string { return "none" })
			if got := p.login("app", `: @ / # % space ' " \ é`, "app"); got != "app in app" {
				t.Errorf("the password that it had: %s", got)
			}
		})
	}
}

// E-01: there is no Secret of the superuser to edit, since it has no password and is let
// in over the local socket alone. A password that an adopted database brings along is of
// no use from outside.
func TestE01SuperuserIsLocal(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.start("shop-1", "127.0.0.11")
	p.waitFor("ready", isReady)
	if got := p.query("SELECT rolpassword IS NULL FROM pg_authid WHERE rolname = 'postgres'"); got != "true" {
		t.Error("the superuser has a password")
	}
	p.exec("ALTER ROLE postgres PASSWORD 'brought along'")
	if got := p.login("postgres", "brought along", "postgres"); !strings.Contains(got, "pg_hba.conf") {
		t.Errorf("the superuser from outside: %s", got)
	}
}
