package instance

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pgop/postgres-operator/pkg/instanceapi"
)

const (
	isReceiver = "backend_type = 'walreceiver'"
	receivers  = "SELECT count(*) FROM pg_stat_wal_receiver WHERE status = 'streaming'"
)

// While a client writes, people ask for another durability again and again: each
// change is carried out whole, commits wait for as many replicas as are asked for
// and no more, and nothing restarts.
func TestModeChangesWhileAClientWrites(t *testing.T) {
	t.Parallel()
	w, pods := three(t, instanceapi.HA{})
	primary := pods["shop-1"]
	reign, _ := w.record()
	servers := map[string]string{}
	for name, p := range pods {
		servers[name] = p.query(postmaster)
	}
	writer := w.writeTo(primary)

	// Each looks other than the one before.
	for n, c := range []struct {
		ha instanceapi.HA
		// names is how synchronous_standby_names begins, votes of the two members
		// elect, and commits wait once so many replicas are silent; 3: never.
		names         string
		votes, silent int
	}{
		{instanceapi.HA{Mode: "required", Need: 1}, "ANY 1 (", 2, 2},
		{instanceapi.HA{Mode: "required", Need: 2}, "ANY 2 (", 1, 1},
		{instanceapi.HA{Mode: "preferred", Need: 1}, "ANY 1 (", 2, 2},
		{instanceapi.HA{Mode: "preferred", Need: 2}, "ANY 2 (", 1, 1},
		{instanceapi.HA{Mode: "required", Need: 1}, "ANY 1 (", 2, 2},
		{instanceapi.HA{}, "", 1, 3},
		{instanceapi.HA{Mode: "preferred", Need: 1}, "ANY 1 (", 2, 2},
		{instanceapi.HA{Mode: "async"}, "", 1, 3},
	} {
		what := fmt.Sprintf("change %d, to %s with %d", n+1, c.ha.Mode, c.ha.Need)
		w.apply(func() { w.config.HA = c.ha })
		w.eventually(what+" is carried out", func() bool {
			seen, r := primary.replication.primary(), first(w.record())
			names := primary.query("SHOW synchronous_standby_names")
			return seen != nil && seen.SyncDone && seen.Sync.Need == c.ha.Need && len(r.Members) == 2 && r.Votes == c.votes &&
				strings.HasPrefix(names, c.names) && (c.names == "") == (names == "") && strings.Count(names, "shop-") == len(seen.Sync.Standbys)
		}, func() string {
			return fmt.Sprintf("%s; %s; %+v", first(w.record()), primary.query("SHOW synchronous_standby_names"), primary.replication.primary())
		})
		for silent := range 3 {
			var thaw []func()
			for _, name := range []string{"shop-2", "shop-3"}[:silent] {
				w.eventually(name+" streams", func() bool { return pods[name].query(receivers) == "1" }, func() string { return pods[name].query(receivers) })
				thaw = append(thaw, pods[name].freeze(isReceiver))
			}
			if got, want := primary.commits(fmt.Sprintf("t%d_%d", n, silent)), silent < c.silent; got != want {
				t.Errorf("%s, with %d silent replicas: a commit goes on: %v", what, silent, got)
			}
			for _, f := range thaw {
				f()
			}
		}
		last := writer.last()
		w.eventually(what+": the client writes on", func() bool { return writer.last() > last+1 }, func() string { return fmt.Sprint(writer.last()) })
	}

	acknowledged := writer.end()
	if now, holder := w.record(); holder != "shop-1" || now.Term != reign.Term {
		t.Errorf("%s reigns in term %d", holder, now.Term)
	}
	for name, p := range pods {
		if got := p.query(postmaster); got != servers[name] {
			t.Errorf("%s was started anew: %s, before %s", name, got, servers[name])
		}
		w.eventually(name+" has all rows", func() bool { return p.rowsIn() >= acknowledged }, func() string { return fmt.Sprint(p.rowsIn(), " of ", acknowledged) })
	}
}

// A primary whose replicas are all gone goes on alone in mode preferred, and
// nobody may take over from it; it waits in mode required. So it is, too, when
// people change from one to the other meanwhile.
func TestC29ModeChangesWithoutReplicas(t *testing.T) {
	t.Parallel()
	w, pods := three(t, instanceapi.HA{Mode: "required", Need: 1})
	primary := pods["shop-1"]
	pods["shop-2"].stop()
	pods["shop-3"].stop()
	if primary.commits("required") {
		t.Error("a commit waits for nobody in mode required")
	}
	w.apply(func() { w.config.HA = instanceapi.HA{Mode: "preferred", Need: 1} })
	w.awaitMembers(0)
	w.eventually("commits go on alone", func() bool { return primary.query("SHOW synchronous_standby_names") == "" },
		func() string { return primary.query("SHOW synchronous_standby_names") })
	if !primary.commits("preferred") {
		t.Error("a commit waits in mode preferred")
	}
	w.apply(func() { w.config.HA = instanceapi.HA{Mode: "required", Need: 1} })
	w.eventually("commits wait", primary.syncDone, func() string { return primary.query("SHOW synchronous_standby_names") })
	if primary.commits("again") {
		t.Error("a commit waits for nobody in mode required, after preferred")
	}
	pods["shop-2"] = w.start("shop-2", pods["shop-2"].options.PodIP)
	w.awaitMembers(1)
	if !primary.commits("together") {
		t.Error("a commit waits although a replica is back")
	}
}

// first is the first of two values.
func first[A, B any](a A, _ B) A { return a }
