package instance

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	_ "github.com/lib/pq"

	"github.com/pgop/postgres-operator/pkg/election"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/postgres"
	"github.com/pgop/postgres-operator/pkg/postgres/pgrun"
)

// connect logs in over TLS as clients do.
func (p *testPod) connect(user, password, database string) *sql.DB {
	p.world.Helper()
	info := postgres.ConnInfo{Host: p.options.PodIP, Port: p.options.Port, DBName: database, User: user, Password: password,
		Options: map[string]string{"sslmode": "require", "connect_timeout": "5"}}
	db, err := sql.Open("postgres", info.KeyValue())
	must(p.world.T, err)
	p.world.Cleanup(func() { _ = db.Close() })
	return db
}

func (p *testPod) query(query string) string {
	p.world.Helper()
	var value sql.NullString
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := p.sql.Row(ctx, query, &value); err != nil {
		return err.Error()
	}
	return value.String
}

func TestFirstInstanceMakesTheDatabase(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply(func() {
		w.config.Bootstrap.SQL = []string{
			"CREATE TABLE greetings (text text); -- it's; a 'comment\nINSERT INTO greetings VALUES ('a;b $HOME \\ é');",
			"CREATE FUNCTION f() RETURNS int LANGUAGE plpgsql AS $$ BEGIN PERFORM 1; RETURN 2; END $$",
			"",
		}
	})
	began := time.Now()
	p := w.start("shop-1", "127.0.0.11")
	state := p.waitFor("ready", isReady)
	t.Logf("ready after %v", time.Since(began).Round(time.Millisecond))

	lease, slice := w.kube.now()
	record, err := election.ParseRecord(lease.Annotations[election.RecordAnnotation])
	must(t, err)
	want := election.Record{Term: 1, Timeline: 1, SystemID: state.SystemID, HolderDataID: state.DataID, HolderAddress: "127.0.0.11"}
	if !record.Equal(want) || *lease.Spec.HolderIdentity != "shop-1/"+p.options.PodUID {
		t.Errorf("record %v of %s, want %v", record, *lease.Spec.HolderIdentity, want)
	}
	if len(slice.Endpoints) != 1 || slice.Endpoints[0].Addresses[0] != "127.0.0.11" || slice.Annotations[instanceapi.SliceTermAnnotation] != "1" {
		t.Errorf("slice: %+v", slice)
	}
	if state.Role != instanceapi.RolePrimary || !state.HasData || state.DataID == "" || state.Phase != instanceapi.PhaseRunning ||
		state.ConfigHash != p.view.knownConfig().Settings.hash() {
		t.Errorf("state: %+v", state)
	}
	app := p.connect("app", appPassword, "app")
	var text string
	var two int
	must(t, app.QueryRow("SELECT f()").Scan(&two))
	must(t, p.connect("app", appPassword, "app").QueryRow("SELECT current_user").Scan(&text))
	if err := app.QueryRow("SELECT text FROM greetings").Scan(&text); err == nil {
		t.Error("the owner reads a table of the superuser's")
	}
	must(t, func() error { _, err := app.Exec("CREATE TABLE mine (i int)"); return err }())
	script, err := pgrun.OpenForScript(p.options.RunDir, p.options.Port, "app")
	must(t, err)
	defer script.Close()
	must(t, script.Row(context.Background(), "SELECT text FROM greetings", &text))
	if want := `a;b $HOME \ é`; text != want {
		t.Errorf("got %q, want %q byte for byte", text, want)
	}
}

func TestReplicasCloneInParallelAndFollow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply(func() { w.config.Members = []string{"shop-1", "shop-2", "shop-3"} })
	// The replicas wait for the primary to appear.
	replicas := []*testPod{w.start("shop-2", "127.0.0.12"), w.start("shop-3", "127.0.0.13")}
	began := time.Now()
	primary := w.start("shop-1", "127.0.0.11")
	primary.waitFor("ready", isReady)
	t.Logf("primary ready after %v", time.Since(began).Round(time.Millisecond))
	ids := map[string]bool{primary.State(context.Background()).DataID: true}
	for _, replica := range replicas {
		state := replica.waitFor("ready", isReady)
		if state.Role != instanceapi.RoleReplica || !state.Streaming || state.LastHolder != "shop-1" || state.Term != 1 {
			t.Errorf("state of %s: %+v", replica.options.Instance, state)
		}
		ids[state.DataID] = true
	}
	t.Logf("three ready after %v", time.Since(began).Round(time.Millisecond))
	if len(ids) != 3 {
		t.Errorf("the instances share data ids: %v", ids)
	}
	primary.waitFor("two standbys and active slots", func(s instanceapi.State) bool {
		return len(s.Standbys) == 2 && len(s.Slots) == 2 && s.Slots[0].Active && s.Slots[1].Active && s.Slots[0].Name == "shop_2"
	})

	t.Run("a row reaches the replicas", func(t *testing.T) {
		must(t, primary.sql.Exec(context.Background(), "CREATE TABLE public.t AS SELECT 42 AS i"))
		for _, replica := range replicas {
			w.eventually("the row", func() bool { return replica.query("SELECT i FROM public.t") == "42" },
				func() string { return replica.query("SELECT i FROM public.t") })
		}
	})
	pods := map[string]*testPod{"shop-1": primary, "shop-2": replicas[0], "shop-3": replicas[1]}
	t.Run("the primary's pod ends, and comes back with another address", func(t *testing.T) {
		w.awaitMembers(2)
		primary.stop()
		former := primary
		primary = w.awaitPrimary(pods, "shop-1")
		// What a killed pod leaves behind (C-16), and what a mount with fsGroup does (C-25).
		must(t, os.WriteFile(former.volume.inside("postmaster.pid"), []byte("1\n/pgdata\n0\n5432\n"), 0o600))
		must(t, os.Chmod(former.volume.data(), 0o770))
		pods["shop-1"] = w.start("shop-1", "127.0.0.21")
		pods["shop-1"].waitFor("streams", isStreaming)
		must(t, primary.sql.Exec(context.Background(), "CREATE TABLE public.u AS SELECT 43 AS i"))
		for _, p := range pods {
			w.eventually("a row of the new primary", func() bool { return p.query("SELECT i FROM public.u") == "43" },
				func() string { return p.query("SELECT i FROM public.u") })
		}
	})
	t.Run("the postmaster is killed", func(t *testing.T) {
		pid := primary.query("SELECT split_part(pg_read_file('postmaster.pid'), E'\\n', 1)")
		number, err := strconv.Atoi(pid)
		must(t, err)
		must(t, syscall.Kill(number, syscall.SIGKILL))
		w.eventually("another postmaster", func() bool {
			return primary.query("SELECT i FROM public.u") == "43" && primary.query("SELECT split_part(pg_read_file('postmaster.pid'), E'\\n', 1)") != pid
		}, func() string { return primary.query("SELECT i FROM public.u") })
		primary.waitFor("ready", isReady)
	})
	t.Run("a replica that lost its data clones again (C-21)", func(t *testing.T) {
		before := pods["shop-1"].State(context.Background()).DataID
		pods["shop-1"].stop()
		must(t, os.RemoveAll(pods["shop-1"].options.Mount))
		pods["shop-1"] = w.start("shop-1", "127.0.0.22")
		if state := pods["shop-1"].waitFor("ready", isReady); state.DataID == before {
			t.Error("new data bears the old data id")
		}
	})
	t.Run("a member that goes takes its slot along (C-10)", func(t *testing.T) {
		primary.query("SELECT pg_create_physical_replication_slot('mine')")
		pods["shop-1"].stop()
		w.apply(func() { w.config.Members = []string{"shop-2", "shop-3"} })
		primary.waitFor("one slot and mine", func(s instanceapi.State) bool {
			return len(s.Slots) == 2 && s.Slots[0].Name == "mine" && s.Slots[1].Name != "shop_1"
		})
	})
}

// E-08: a configuration or a line of pg_hba.conf that the server refuses is held back,
// with the line; what was in force stays so over a restart, and the corrected one comes.
func TestE08ConfigurationIsAppliedOrHeldBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.start("shop-1", "127.0.0.11")
	p.waitFor("ready", isReady)
	first := p.State(context.Background()).ConfigHash

	w.apply(func() { w.conf["work_mem"] = "7MB" })
	p.waitFor("the new hash", func(s instanceapi.State) bool { return s.ConfigHash != first && s.ConfigError == "" })
	if got := p.query("SHOW work_mem"); got != "7MB" {
		t.Errorf("work_mem is %s", got)
	}
	w.apply(func() { w.conf["max_connections"] = "30" })
	p.waitFor("a parameter that waits for a restart", func(s instanceapi.State) bool {
		return len(s.PendingRestart) == 1 && s.PendingRestart[0] == "max_connections"
	})
	good := p.State(context.Background()).ConfigHash

	w.apply(func() { w.conf["work_mem"] = "lots" })
	p.waitFor("refusal of work_mem", func(s instanceapi.State) bool {
		return strings.Contains(s.ConfigError, "work_mem") && s.ConfigHash == good
	})
	w.apply(func() { w.conf["work_mem"] = "8MB"; w.hba = []string{"host all all 300.0.0.0/8 trust"} })
	p.waitFor("refusal of the address", func(s instanceapi.State) bool {
		return strings.Contains(s.ConfigError, "hba line 1 (") && strings.Contains(s.ConfigError, "300.0.0.0") && s.ConfigHash == good
	})
	if got := p.query("SHOW work_mem"); got != "7MB" {
		t.Errorf("work_mem is %s", got)
	}
	// The good one is in force over a restart, too.
	p.stop()
	p = w.start("shop-1", "127.0.0.11")
	state := p.waitFor("ready with the good one", isReady)
	if !strings.Contains(state.ConfigError, "300.0.0.0") || !strings.Contains(state.ConfigError, "hba line 1 (") || state.ConfigHash == "" {
		t.Errorf("state: %+v", state)
	}
	w.apply(func() { w.hba = []string{"host all all 127.0.0.0/8 trust"} })
	p.waitFor("the corrected one", func(s instanceapi.State) bool { return s.ConfigError == "" && s.ConfigHash != good })
	if got := p.query("SHOW work_mem"); got != "8MB" {
		t.Errorf("work_mem is %s", got)
	}
	// What only a start can refuse is taken back at the start.
	w.apply(func() { w.conf["shared_preload_libraries"] = "no_such_library" })
	p.waitFor("a parameter that waits for a restart", func(s instanceapi.State) bool {
		return slices.Contains(s.PendingRestart, "shared_preload_libraries")
	})
	p.stop()
	p = w.start("shop-1", "127.0.0.11")
	if state := p.waitFor("ready without it", isReady); !strings.Contains(state.ConfigError, "no_such_library") {
		t.Errorf("state: %+v", state)
	}
	if got := p.query("SHOW max_connections"); got != "30" {
		t.Errorf("max_connections is %s, and its restart has come", got)
	}
}

func TestPasswordsFollowTheSecret(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.start("shop-1", "127.0.0.11")
	p.waitFor("ready", isReady)
	long := strings.Repeat("ü/", 60)
	w.setPassword(long)
	w.eventually("the new password to log in", func() bool {
		return p.connect("app", long, "app").Ping() == nil
	}, func() string { return "it does not" })
}

func TestFailedBootstrapSaysWhyAndTriesAgain(t *testing.T) {
	t.Parallel()
	cases := []struct {
		why     string
		broken  func(*instanceapi.Bootstrap)
		message []string
	}{
		{"a statement that fails", func(b *instanceapi.Bootstrap) {
			b.SQL = []string{"SELECT 1", "SELECT 2;\nSELEC 3;"}
		}, []string{"sql[1]", "line 2", "syntax error", "SELEC 3"}},
		{"a command of psql", func(b *instanceapi.Bootstrap) {
			b.SQL = []string{"SELECT 1;\n\\connect x"}
		}, []string{"sql[0]", `\connect`, "not SQL"}},
		{"a locale that is none", func(b *instanceapi.Bootstrap) { b.Locale = "UTF8" }, []string{"initdb", "locale"}},
	}
	for _, c := range cases {
		t.Run(c.why, func(t *testing.T) {
			w := newWorld(t)
			right := w.config.Bootstrap
			w.apply(func() { c.broken(&w.config.Bootstrap) })
			p := w.start("shop-1", "127.0.0.11")
			p.waitFor("the failure", failsWith(c.message...))
			w.apply(func() { w.config.Bootstrap = right })
			p.waitFor("ready", isReady)
		})
	}
}

func TestVolumeThatHoldsOtherDataIsLeftAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.options("shop-1", "127.0.0.11")
	v := volume{mount: o.Mount, major: o.Major}
	must(t, os.MkdirAll(v.data(), 0o700))
	must(t, os.WriteFile(v.inside("PG_VERSION"), []byte("15\n"), 0o600))
	p := w.startWith(o)
	p.waitFor("refusal", failsWith(v.data(), "empty volume"))
	if kind, _, _ := v.lookAtData(); kind != dataForeign {
		t.Errorf("the data is %s now", kind)
	}
}

func TestUnfinishedInitdbIsMadeAnew(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.options("shop-1", "127.0.0.11")
	v := volume{mount: o.Mount, major: o.Major}
	v.mustBegin(t, byInitdb)
	must(t, os.WriteFile(v.inside("PG_VERSION"), []byte("15\n"), 0o600))
	w.startWith(o).waitFor("ready", isReady)
}

func TestImageOfAnotherVersionIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.options("shop-1", "127.0.0.11")
	o.Major++
	w.startWith(o).waitFor("refusal", failsWith(fmt.Sprintf("the image has PostgreSQL %d", w.major), "spec.postgres.version"))
	if exists(filepath.Join(o.Mount, fmt.Sprint(o.Major))) {
		t.Error("the volume was touched")
	}
}

func TestTwoPodsOnOneVolume(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.start("shop-1", "127.0.0.11")
	first.waitFor("ready", isReady)
	o := w.options("shop-1", "127.0.0.12")
	o.RunDir += "2"
	must(t, os.MkdirAll(o.RunDir, 0o700))
	second := w.startWith(o)
	second.waitFor("waiting for the volume", func(s instanceapi.State) bool {
		return s.Phase == instanceapi.PhaseWaiting && strings.Contains(s.Message, "another pod's processes still use this volume")
	})
	first.stop()
	if state := second.waitFor("ready", isReady); state.Term != 2 {
		t.Errorf("state: %+v", state)
	}
}
