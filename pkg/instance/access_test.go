package instance

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pgop/postgres-operator/pkg/backup"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/postgres"
)

// hasPassword says whether the server has that password of a role.
func (p *testPod) hasPassword(role, password string) bool {
	return postgres.VerifierMatches(p.query("SELECT rolpassword FROM pg_authid WHERE rolname = '"+role+"'"), password)
}

// E-07: rules that let one network in and nobody else. Outsiders are refused, and no
// line after the user's own lets them in; replicas and the agents get in as before.
func TestE07DenyByDefault(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.config.Members = []string{"shop-1", "shop-2"}
	insiders := func(network string) {
		w.apply(func() {
			w.hba = []string{"hostssl app app " + network + " scram-sha-256", "host all all all reject", "local all all reject"}
		})
	}
	insiders("127.0.0.0/8")
	primary := w.start("shop-1", "127.0.0.11")
	primary.waitFor("ready", isReady)
	primary.exec("CREATE ROLE outsider LOGIN PASSWORD 'x'")
	if got := primary.login("app", appPassword, "app"); got != "app in app" {
		t.Errorf("an insider: %s", got)
	}
	if got := primary.login("outsider", "x", "app"); !strings.Contains(got, "pg_hba.conf rejects") {
		t.Errorf("another role: %s", got)
	}
	replica := w.start("shop-2", "127.0.0.12")
	replica.waitFor("streams", isStreaming)

	insiders("10.1.2.0/24")
	w.eventually("an outsider is refused", func() bool {
		return strings.Contains(primary.login("app", appPassword, "app"), "pg_hba.conf rejects")
	}, func() string { return primary.login("app", appPassword, "app") })
	primary.query("SELECT pg_terminate_backend(pid) FROM pg_stat_replication")
	replica.waitFor("streams anew", isStreaming)
	w.setPassword("edited") // the agent's own way in goes on
	w.eventually("an edited password", func() bool { return primary.hasPassword("app", "edited") }, func() string { return "it is the old one" })
	w.awaitMembers(1)
	primary.stop()
	replica.waitFor("takes over", func(s instanceapi.State) bool { return s.Role == instanceapi.RolePrimary && s.Ready })
}

// E-06: backups that fail one after the other leave no connection behind, and the agent
// answers as before.
func TestE06FailedBackupsLeaveNoConnection(t *testing.T) {
	t.Parallel()
	w, p := alone(t)
	w.apply(func() { w.config.Backups = &instanceapi.Backups{Store: w.onVolume("shop"), MaxRate: 512 << 10} })
	const backends = "SELECT count(*) FROM pg_stat_activity WHERE backend_type IN ('client backend', 'walsender')"
	count := func() int {
		n, err := strconv.Atoi(p.query(backends))
		must(t, err)
		return n
	}
	before := count()
	const failures = 5
	for range failures {
		id := p.ask(backup.Full, "")
		p.waitFor("is under way", func(s instanceapi.State) bool { return s.Backup != nil && s.Backup.ID == id && s.Backup.Done > 0 })
		w.apply(func() { w.config.TakeBackup = nil })
		p.waitFor("has failed", func(s instanceapi.State) bool { return s.Backup.ID == id && s.Backup.Failed != "" })
	}
	const kept = 2 // by the agent, which opens them when it needs them first
	w.eventually("no more connections than before", func() bool { return count() <= before+kept }, func() string { return fmt.Sprintf("%d, and before %d", count(), before) })
	if s := p.State(t.Context()); !isReady(s) {
		t.Errorf("after failures: %+v", s)
	}
}

// Maps of names are applied while the server runs. Those that it refuses are held back
// with their line, also at a start, which would leave it without any, and the agent
// outside.
func TestMapsOfNamesAreAppliedOrHeldBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const bad = "people /( app"
	w.apply(func() {
		w.hba = []string{"local all app peer map=people"}
		w.ident = []string{bad}
	})
	p := w.start("shop-1", "127.0.0.11")
	p.waitFor("ready without the map", isReady)
	refused := func(s instanceapi.State) bool {
		return strings.Contains(s.ConfigError, "ident line 1 (pg_ident.conf, line 4)") && strings.Contains(s.ConfigError, "regular expression")
	}
	p.waitFor("the refusal of the first map", refused)
	if got := p.loginByName(); !strings.Contains(got, "Peer authentication failed") {
		t.Errorf("without a map: %s", got)
	}

	w.apply(func() { w.ident = []string{"# of the machine", "people /^.*$ app"} })
	p.waitFor("the map", func(s instanceapi.State) bool { return s.ConfigError == "" && s.ConfigHash == w.configHash() })
	if got := p.loginByName(); got != "app" {
		t.Errorf("with a map: %s", got)
	}
	good := w.configHash()
	w.apply(func() { w.ident = []string{bad} })
	p.waitFor("the refusal of the next map", func(s instanceapi.State) bool { return refused(s) && s.ConfigHash == good })

	p.stop()
	p = w.start("shop-1", "127.0.0.11")
	p.waitFor("ready again", isReady)
	p.waitFor("the refusal again", refused)
	if got := p.loginByName(); got != "app" {
		t.Errorf("with the map before: %s", got)
	}
	launched := p.query("SELECT pg_postmaster_start_time()")
	w.apply(func() { w.ident = []string{"people /^(.*)$ app"} })
	p.waitFor("the corrected map", func(s instanceapi.State) bool { return s.ConfigError == "" && s.ConfigHash == w.configHash() })
	if got := p.loginByName(); got != "app" {
		t.Errorf("with the corrected map: %s", got)
	}
	if again := p.query("SELECT pg_postmaster_start_time()"); again != launched {
		t.Error("the server was restarted for it")
	}
}

// loginByName is who a login as app over the socket, without a password, leads to, or
// what is said against it.
func (p *testPod) loginByName() string {
	p.world.Helper()
	ctx, cancel := context.WithTimeout(p.world.Context(), 20*time.Second)
	defer cancel()
	output, err := exec.CommandContext(ctx, filepath.Join(p.world.bin, "psql"), "-XAtw", "-h", p.options.RunDir, "-p", fmt.Sprint(p.options.Port),
		"-U", "app", "-d", "app", "-c", "SELECT session_user").CombinedOutput()
	if err != nil && len(output) == 0 {
		return err.Error()
	}
	return strings.TrimSpace(string(output))
}
