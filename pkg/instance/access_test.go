package instance

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

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
