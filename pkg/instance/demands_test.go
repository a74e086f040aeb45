package instance

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pgop/postgres-operator/pkg/instanceapi"
)

// restarted asks for a restart of the server as the operator does, and waits until
// nothing waits for one any more.
func (p *testPod) restarted() instanceapi.State {
	p.world.Helper()
	before := p.query("SELECT pg_postmaster_start_time()")
	p.world.apply(func() {
		p.world.config.Restart = &instanceapi.Restart{Instance: p.options.Instance, ConfigHash: p.State(context.Background()).ConfigHash}
	})
	return p.waitFor("a restarted server", func(s instanceapi.State) bool {
		return isReady(s) && len(s.PendingRestart) == 0 && p.query("SELECT pg_postmaster_start_time()") != before
	})
}

func (p *testPod) wantSetting(name, value string) {
	p.world.Helper()
	if got := p.query("SHOW " + name); got != value {
		p.world.Errorf("%s: %s is %s, want %s", p.options.Instance, name, got, value)
	}
}

func waitsFor(raised, lowered []string) func(instanceapi.State) bool {
	return func(s instanceapi.State) bool {
		return cmp.Equal(s.Raised, raised) && cmp.Equal(s.Lowered, lowered) && len(s.PendingRestart) == len(raised)+len(lowered)
	}
}

// C-11, C-12: the parameters of which a standby needs as much as its primary are
// raised on standbys first and lowered on the primary first, and whoever starts at
// any moment in between does start.
func TestC11C12WhatStandbysNeed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply(func() { w.config.Members = []string{"shop-1", "shop-2", "shop-3"} })
	primary := w.start("shop-1", "127.0.0.11")
	primary.waitFor("ready", isReady)
	replica := w.start("shop-2", "127.0.0.12")
	replica.waitFor("streams", isStreaming)
	must(t, primary.sql.Exec(context.Background(), "CREATE TABLE public.t (i int)"))
	rows := 0
	wantRow := func(replicas ...*testPod) {
		t.Helper()
		rows++
		must(t, primary.sql.Exec(context.Background(), fmt.Sprintf("INSERT INTO public.t VALUES (%d)", rows)))
		for _, r := range replicas {
			count := func() string { return r.query("SELECT count(*) FROM public.t") }
			w.eventually(r.options.Instance+" has the row", func() bool { return count() == fmt.Sprint(rows) }, count)
		}
	}

	w.apply(func() { w.conf["max_connections"] = "30" })
	raised := []string{"max_connections"}
	primary.waitFor("what is raised", waitsFor(raised, nil))
	replica.waitFor("what is raised", waitsFor(raised, nil))
	third := w.start("shop-3", "127.0.0.13") // cloned from a primary that still has less
	third.waitFor("streams", isStreaming)
	third.wantSetting("max_connections", "30")
	replica.restarted()
	replica.wantSetting("max_connections", "30")
	wantRow(replica, third)
	if state := primary.restarted(); state.Role != instanceapi.RolePrimary || state.Term != 1 {
		t.Errorf("the primary has not stayed what it was: %+v", state)
	}
	primary.wantSetting("max_connections", "30")
	wantRow(replica, third)

	w.apply(func() { w.conf["max_connections"] = "25"; w.conf["max_worker_processes"] = "6" })
	lowered := []string{"max_connections", "max_worker_processes"}
	primary.waitFor("what is lowered", waitsFor(nil, lowered))
	replica.waitFor("the newest configuration, with as much as the primary has", func(s instanceapi.State) bool {
		return s.ConfigHash == primary.State(context.Background()).ConfigHash && len(s.PendingRestart) == 0
	})
	replica.waitFor("what it keeps", func(s instanceapi.State) bool { return cmp.Equal(s.Kept, lowered) })
	third.stop()
	third = w.start("shop-3", "127.0.0.13") // a standby that starts meanwhile
	third.waitFor("streams", isStreaming)
	third.wantSetting("max_connections", "30")
	wantRow(replica, third)
	primary.restarted()
	primary.wantSetting("max_connections", "25")
	for _, r := range []*testPod{replica, third} {
		r.waitFor("what is lowered, once it has replayed that the primary has less", waitsFor(nil, lowered))
		r.restarted()
		r.wantSetting("max_connections", "25")
		r.wantSetting("max_worker_processes", "6")
	}
	wantRow(replica, third)

	// A primary that starts again by itself has more than its standbys: their
	// replay stops, and they start again.
	w.apply(func() { w.conf["max_connections"] = "35" })
	replica.waitFor("what is raised", waitsFor(raised, nil))
	third.waitFor("what is raised", waitsFor(raised, nil))
	primary.waitFor("what is raised", waitsFor(raised, nil))
	primary.restarted()
	wantRow(replica, third)
	replica.wantSetting("max_connections", "35")

	// The one that takes over has what the old primary had until it is restarted.
	third.stop()
	w.apply(func() { w.config.Members = []string{"shop-1", "shop-2"} })
	w.apply(func() { delete(w.conf, "max_connections"); w.conf["superuser_reserved_connections"] = "2" }) // 100 by default
	replica.waitFor("what is raised", func(s instanceapi.State) bool { return cmp.Equal(s.Raised, raised) })
	w.apply(func() { w.conf["max_connections"] = "20"; delete(w.conf, "superuser_reserved_connections") })
	primary.waitFor("what is lowered", waitsFor(nil, raised))
	w.awaitMembers(1)
	primary.vanish()
	state := replica.waitFor("the lead, and what is lowered", func(s instanceapi.State) bool {
		return s.Role == instanceapi.RolePrimary && isReady(s) && waitsFor(nil, raised)(s)
	})
	if state.Term != 2 {
		t.Errorf("term %d", state.Term)
	}
	replica.wantSetting("max_connections", "35")
	replica.restarted()
	replica.wantSetting("max_connections", "20")
}

// C-13: a configuration with which the server does not start costs its instance one
// restart: it serves on with the last good one, and is not tried again before it
// is another.
func TestC13ConfigurationRefusedAtARestart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply(func() { w.config.Members = []string{"shop-1", "shop-2"} })
	primary := w.start("shop-1", "127.0.0.11")
	primary.waitFor("ready", isReady)
	replica := w.start("shop-2", "127.0.0.12")
	replica.waitFor("streams", isStreaming)
	good := replica.State(context.Background()).ConfigHash

	w.apply(func() { w.conf["shared_preload_libraries"] = "nope"; w.conf["work_mem"] = "5MB" })
	for _, p := range []*testPod{primary, replica} {
		p.waitFor("what waits for a restart", func(s instanceapi.State) bool {
			return cmp.Equal(s.PendingRestart, []string{"shared_preload_libraries"}) && s.ConfigError == "" && s.ConfigHash == w.configHash()
		})
		began := p.query("SELECT pg_postmaster_start_time()")
		w.apply(func() {
			w.config.Restart = &instanceapi.Restart{Instance: p.options.Instance, ConfigHash: p.State(context.Background()).ConfigHash}
		})
		p.waitFor("the server's words, and the last good configuration", func(s instanceapi.State) bool {
			return isReady(s) && s.ConfigHash == good && len(s.PendingRestart) == 0 && strings.Contains(s.ConfigError, `could not access file "nope"`)
		})
		since := p.query("SELECT pg_postmaster_start_time()")
		if since == began {
			t.Errorf("%s has not restarted", p.options.Instance)
		}
		w.apply(func() { w.hba = append(w.hba, "host all all 10.0.0.0/8 reject") })
		p.waitFor("another configuration with the library, which is tried", func(s instanceapi.State) bool {
			return cmp.Equal(s.PendingRestart, []string{"shared_preload_libraries"})
		})
		w.apply(func() { w.hba = w.hba[:len(w.hba)-1] })
		p.waitFor("what was refused is held back", func(s instanceapi.State) bool {
			return strings.Contains(s.ConfigError, "nope")
		})
		if now := p.query("SELECT pg_postmaster_start_time()"); now != since {
			t.Errorf("%s has restarted again, at %s instead of %s", p.options.Instance, now, since)
		}
	}
	if lease, _ := w.kube.now(); !strings.HasPrefix(*lease.Spec.HolderIdentity, "shop-1/") {
		t.Errorf("the Lease is held by %s", *lease.Spec.HolderIdentity)
	}
	w.apply(func() { delete(w.conf, "shared_preload_libraries"); w.conf["work_mem"] = "6MB" })
	for _, p := range []*testPod{primary, replica} {
		p.waitFor("the corrected configuration", func(s instanceapi.State) bool { return s.ConfigError == "" && len(s.PendingRestart) == 0 })
		p.wantSetting("work_mem", "6MB")
	}
}

// C-13: an instance that is made while the configuration is one that servers refuse
// begins with that of its source.
func TestC13CopyWhileTheConfigurationIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply(func() { w.config.Members = []string{"shop-1", "shop-2"} })
	primary := w.start("shop-1", "127.0.0.11")
	primary.waitFor("ready", isReady)
	good := primary.State(context.Background()).ConfigHash
	w.apply(func() { w.conf["shared_preload_libraries"] = "nope" })
	primary.waitFor("what waits for a restart", func(s instanceapi.State) bool { return len(s.PendingRestart) > 0 })
	replica := w.start("shop-2", "127.0.0.12")
	replica.waitFor("streams, and says what is refused", func(s instanceapi.State) bool {
		return isStreaming(s) && s.ConfigHash == good && strings.Contains(s.ConfigError, "nope")
	})
	w.apply(func() { delete(w.conf, "shared_preload_libraries"); w.conf["work_mem"] = "6MB" })
	replica.waitFor("the corrected configuration", func(s instanceapi.State) bool { return s.ConfigError == "" && len(s.PendingRestart) == 0 })
	replica.wantSetting("work_mem", "6MB")
}

// C-13: the same for what a server finds out only when it recovers.
func TestC13ConfigurationRefusedInRecovery(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply(func() { w.conf["max_prepared_transactions"] = "2" })
	p := w.start("shop-1", "127.0.0.11")
	p.waitFor("ready", isReady)
	app := p.connect("app", appPassword, "app")
	_, err := app.Exec("BEGIN; CREATE TABLE t (i int); PREPARE TRANSACTION 'kept'")
	must(t, err)
	w.apply(func() { w.conf["max_prepared_transactions"] = "0" })
	p.waitFor("what is lowered", waitsFor(nil, []string{"max_prepared_transactions"}))
	w.apply(func() {
		w.config.Restart = &instanceapi.Restart{Instance: "shop-1", ConfigHash: p.State(context.Background()).ConfigHash}
	})
	p.waitFor("the server's words, and the configuration before", func(s instanceapi.State) bool {
		return isReady(s) && strings.Contains(s.ConfigError, "max_prepared_transactions") && len(s.PendingRestart) == 0
	})
	p.wantSetting("max_prepared_transactions", "2")
}

// What ALTER SYSTEM has set waits until somebody restarts the server.
func TestAlterSystemIsNotTheConfigurations(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.start("shop-1", "127.0.0.11")
	p.waitFor("ready", isReady)
	must(t, p.sql.Exec(context.Background(), "ALTER SYSTEM SET max_connections = 33"))
	w.apply(func() { w.conf["max_locks_per_transaction"] = "70" })
	state := p.waitFor("both", func(s instanceapi.State) bool { return len(s.PendingSystem) == 1 && len(s.PendingRestart) == 1 })
	if state.PendingSystem[0] != "max_connections" || len(state.SystemSet) > 0 || state.PendingRestart[0] != "max_locks_per_transaction" {
		t.Errorf("state: %+v", state)
	}
	p.restarted()
	p.wantSetting("max_connections", "33")
	p.waitFor("what ALTER SYSTEM has set", func(s instanceapi.State) bool { return cmp.Equal(s.SystemSet, []string{"max_connections"}) })
	p.wantSetting("max_locks_per_transaction", "70")
}
