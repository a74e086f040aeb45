package instance

import (
	"context"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pgop/postgres-operator/pkg/instanceapi"
)

// freeze stops the server's process of that type, or the one that a condition
// on pg_stat_activity finds, until the test's end or until what is returned is
// called.
func (p *testPod) freeze(condition string) (thaw func()) {
	p.world.Helper()
	pid, err := strconv.Atoi(p.query("SELECT pid FROM pg_stat_activity WHERE " + condition))
	must(p.world.T, err)
	must(p.world.T, syscall.Kill(pid, syscall.SIGSTOP))
	thaw = func() { _ = syscall.Kill(pid, syscall.SIGCONT) } // it may have been killed
	p.world.Cleanup(thaw)
	return thaw
}

const isCheckpointer = "backend_type = 'checkpointer'"

// syncDone says whether commits count as waiting for standbys.
func (p *testPod) syncDone() bool {
	seen := p.replication.primary()
	return seen != nil && seen.SyncDone && seen.Sync.Need > 0
}

// hold fails if something ceases to be so.
func (w *world) hold(what string, is func() bool, say func() string) {
	w.Helper()
	const long = 3 * time.Second
	for deadline := time.Now().Add(long); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if !is() {
			w.Fatalf("%s: no more: %s", what, say())
		}
	}
}

// commits says whether a transaction that needs the standbys is over in a
// moment. Each call needs a table of its own.
func (p *testPod) commits(table string) bool {
	p.world.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	db := p.connect("app", appPassword, "app")
	defer db.Close()
	_, err := db.ExecContext(ctx, "CREATE TABLE "+table+" (n int)")
	return err == nil && ctx.Err() == nil
}

// The checkpointer alone lets commits wait: as long as it has not heard of it
// they don't, whatever SHOW says, and nobody may rely on it.
func TestWaitingNeedsCheckpointer(t *testing.T) {
	t.Parallel()
	w, pods := three(t, instanceapi.HA{})
	primary := pods["shop-1"]
	thaw := primary.freeze(isCheckpointer)
	w.apply(func() { w.config.HA = instanceapi.HA{Mode: "required", Need: 1} })
	w.eventually("synchronous_standby_names", func() bool { return primary.query("SHOW synchronous_standby_names") != "" },
		func() string { return "" })
	w.hold("the change is not done, and nobody may take over", func() bool {
		r, _ := w.record()
		return !primary.syncDone() && len(r.Members) == 0
	}, func() string { r, _ := w.record(); return r.String() })
	thaw()
	w.eventually("the change is done", primary.syncDone, func() string { return "" })
	w.awaitMembers(2)
	pods["shop-2"].stop()
	pods["shop-3"].stop()
	if primary.commits("alone") {
		t.Error("a commit does not wait")
	}
}

// The same on a replica that has been promoted: it lets nobody in.
func TestPromotionNeedsCheckpointer(t *testing.T) {
	t.Parallel()
	w, pods := three(t, instanceapi.HA{Mode: "required", Need: 1})
	thaw := map[string]func(){"shop-2": pods["shop-2"].freeze(isCheckpointer), "shop-3": pods["shop-3"].freeze(isCheckpointer)}
	pods["shop-1"].vanish()
	var primary *testPod
	w.eventually("a promotion", func() bool {
		_, holder := w.record()
		primary = pods[holder]
		return holder != "shop-1" && primary != nil && primary.query("SELECT pg_is_in_recovery()") == "false"
	}, func() string { r, h := w.record(); return h + ": " + r.String() })
	w.hold("it lets nobody in", func() bool {
		return !primary.runningAs().Open && !primary.commits("early")
	}, func() string { return "it is open, or has taken a commit" })
	for _, thaw := range thaw {
		thaw()
	}
	primary.waitFor("ready", isReady)
}

// C-27: a change from some standbys to others needs no checkpointer: commits wait
// already. It needs every walsender, since each goes by its own copy.
func TestOtherStandbysNeedWalsenders(t *testing.T) {
	t.Parallel()
	w, pods := three(t, instanceapi.HA{Mode: "required", Need: 1})
	primary := pods["shop-1"]
	w.eventually("both acknowledge", func() bool {
		seen := primary.replication.primary()
		return seen != nil && seen.SyncDone && len(seen.Sync.Standbys) == 2
	}, func() string { return primary.query("SHOW synchronous_standby_names") })
	primary.freeze(isCheckpointer)
	thaw := primary.freeze("backend_type = 'walsender' AND application_name LIKE 'shop-2.%'")
	pods["shop-3"].stop()
	w.eventually("a change", func() bool { return !strings.Contains(primary.query("SHOW synchronous_standby_names"), "shop-3") },
		func() string { return primary.query("SHOW synchronous_standby_names") })
	w.hold("the change is not done", func() bool {
		seen := primary.replication.primary()
		return seen == nil || !seen.SyncDone || len(seen.Sync.Standbys) == 2
	}, func() string { return "it is" })
	thaw()
	w.awaitMembers(1)
	w.eventually("the change is done", primary.syncDone, func() string { return "" })
	if !primary.commits("together") {
		t.Error("a commit waits for nobody")
	}
	pods["shop-2"].stop()
	if primary.commits("alone") {
		t.Error("a commit does not wait")
	}
}

// C-08: on a full volume the file can't be written that says who acknowledges. As
// long as it is not, nobody may rely on the change, whatever the agent wanted.
func TestC08ChangeOfStandbysThatIsNotWritten(t *testing.T) {
	t.Parallel()
	w, pods := three(t, instanceapi.HA{Mode: "required", Need: 1})
	primary := pods["shop-1"]
	w.eventually("both acknowledge", primary.acknowledgedBy("shop-2", "shop-3"), primary.syncNames)
	must(t, os.Chmod(primary.config.path, 0o500)) // much as if there were no room
	t.Cleanup(func() { _ = os.Chmod(primary.config.path, 0o700) })
	pods["shop-3"].stop()
	w.eventually("an attempt", func() bool { return !strings.Contains(primary.replication.names(), "shop-3") }, primary.replication.names)
	w.hold("who may still acknowledge is a member", func() bool {
		r, _ := w.record()
		return len(r.Members) == 2 && strings.Contains(primary.syncNames(), "shop-3")
	}, func() string { return first(w.record()).String() + "; " + primary.syncNames() })
	must(t, os.Chmod(primary.config.path, 0o700))
	w.awaitMembers(1)
	w.eventually("the change", primary.acknowledgedBy("shop-2"), primary.syncNames)
}

// A superuser may say who acknowledges, against the agent: it takes that back.
func TestAlterSystemDoesNotChangeWhoAcknowledges(t *testing.T) {
	t.Parallel()
	w, pods := three(t, instanceapi.HA{Mode: "required", Need: 1})
	primary := pods["shop-1"]
	w.eventually("both acknowledge", primary.acknowledgedBy("shop-2", "shop-3"), primary.syncNames)
	must(t, primary.sql.Exec(context.Background(), "ALTER SYSTEM SET synchronous_standby_names = ''"))
	must(t, primary.sql.Exec(context.Background(), "SELECT pg_reload_conf()"))
	w.eventually("what the superuser wanted", func() bool {
		return primary.syncNames() == "" || strings.Contains(w.serverLogs.String(), `"synchronous_standby_names" changed to ""`)
	},
		primary.syncNames)
	w.eventually("both acknowledge again", primary.acknowledgedBy("shop-2", "shop-3"), primary.syncNames)
	pods["shop-2"].stop()
	pods["shop-3"].stop()
	if primary.commits("alone") {
		t.Error("a commit does not wait")
	}
}

func (p *testPod) syncNames() string { return p.query("SHOW synchronous_standby_names") }

// acknowledgedBy says whether commits count as waiting for those and nobody else,
// and the server agrees.
func (p *testPod) acknowledgedBy(instances ...string) func() bool {
	return func() bool {
		seen, names := p.replication.primary(), p.syncNames()
		return seen != nil && seen.SyncDone && len(seen.Sync.Standbys) == len(instances) && strings.Count(names, "shop-") == len(instances) &&
			!slices.ContainsFunc(instances, func(i string) bool { return !strings.Contains(names, i) })
	}
}
