package instance

import (
	"context"
	"database/sql"
	"sync"
	"testing"
	"time"

	"github.com/pgop/postgres-operator/pkg/instanceapi"
)

// writer writes rows through one primary, each number once, as long as it can.
type writer struct {
	db   *sql.DB
	stop context.CancelFunc
	done chan struct{}

	mu sync.Mutex
	// acknowledged is the last number whose commit was acknowledged.
	acknowledged int
}

// writeTo makes the table rows and writes to it until the pod's server ends.
func (w *world) writeTo(p *testPod) *writer {
	w.Helper()
	ctx, stop := context.WithCancel(context.Background())
	wr := &writer{db: p.connect("app", appPassword, "app"), stop: stop, done: make(chan struct{})}
	_, err := wr.db.Exec("CREATE TABLE rows (n int)")
	must(w.T, err)
	go func() {
		defer close(wr.done)
		for n := 1; ; n++ {
			// A commit whose wait is cancelled is told as done, with a warning.
			if _, err := wr.db.ExecContext(ctx, "INSERT INTO rows VALUES ($1)", n); err != nil || ctx.Err() != nil {
				return
			}
			wr.mu.Lock()
			wr.acknowledged = n
			wr.mu.Unlock()
		}
	}()
	w.Cleanup(func() { wr.end() })
	return wr
}

func (w *writer) last() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.acknowledged
}

// end returns the last number that was acknowledged.
func (w *writer) end() int {
	w.stop()
	<-w.done
	return w.last()
}

// rowsIn is how many rows of a writer a server has, as its application sees it.
func (p *testPod) rowsIn() int {
	p.world.Helper()
	var n int
	must(p.world.T, p.connect("app", appPassword, "app").QueryRow("SELECT count(*) FROM rows").Scan(&n))
	return n
}

// The primary is cut from the API and goes on writing while the others elect:
// what a sealed member receives after its vote would be acknowledged and lost.
// Its receiver has to go although replay stands still, which keeps a receiver
// from hearing that it has nobody to follow any more.
func TestSealCutsReceiver(t *testing.T) {
	t.Parallel()
	cases := []struct {
		why string
		// hold lets replay stand still on a replica.
		hold func(w *world, primary, replica *testPod)
	}{
		{"replay goes on", func(*world, *testPod, *testPod) {}},
		{"replay is paused", func(w *world, _, replica *testPod) {
			must(w.T, replica.sql.Exec(context.Background(), "SELECT pg_wal_replay_pause()"))
		}},
		{"replay is in conflict with a query", holdByQuery},
	}
	for _, c := range cases {
		t.Run(c.why, func(t *testing.T) {
			w, pods := three(t, instanceapi.HA{Mode: "required", Need: 1})
			w.apply(func() { w.conf["max_standby_streaming_delay"] = "-1" })
			former := pods["shop-1"]
			rows := w.writeTo(former)
			for _, name := range []string{"shop-2", "shop-3"} {
				pods[name].waitFor("the new configuration", func(instanceapi.State) bool {
					return pods[name].query("SHOW max_standby_streaming_delay") == "-1"
				})
				c.hold(w, former, pods[name])
			}
			before := rows.last()
			w.eventually("more rows", func() bool { return rows.last() > before+20 }, func() string { return "" })

			former.loseKubernetes()
			began := time.Now()
			w.kube.set(func(f *fakeKubernetes) { f.lease.Spec.HolderIdentity = nil })
			primary := w.awaitPrimary(pods, "shop-1")
			took := time.Since(began)
			if former.query("SELECT NOT pg_is_in_recovery()") != "true" {
				t.Error("the former primary has ended already: nothing is shown")
			}
			if got := former.query("SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'"); got != "0" {
				t.Errorf("%s still stream from the former primary", got)
			}
			const quick = 6 * time.Second // less than the former primary's right to write lasts
			if took > quick {
				t.Errorf("it took %s", took)
			}
			acknowledged := rows.end()
			t.Logf("%s took over after %s; %d rows were acknowledged", primary.options.Instance, took, acknowledged)
			if got := primary.rowsIn(); got < acknowledged {
				t.Errorf("%d rows were acknowledged, and %d are there", acknowledged, got)
			}
		})
	}
}

// holdByQuery lets a query on the replica, which reads a table that the primary
// drops, hold replay up.
func holdByQuery(w *world, primary, replica *testPod) {
	w.Helper()
	ctx := context.Background()
	table := "read_by_" + replica.options.Instance[len("shop-"):]
	writing := primary.connect("app", appPassword, "app")
	_, err := writing.Exec("CREATE TABLE " + table + " AS SELECT 1 AS n")
	must(w.T, err)
	reading, err := replica.connect("app", appPassword, "app").Conn(ctx)
	must(w.T, err)
	_, err = reading.ExecContext(ctx, "BEGIN")
	must(w.T, err)
	w.eventually("the table on "+replica.options.Instance, func() bool {
		_, err := reading.ExecContext(ctx, "SELECT n FROM "+table)
		if err != nil {
			_, _ = reading.ExecContext(ctx, "ROLLBACK; BEGIN")
		}
		return err == nil
	}, func() string { return "" })
	_, err = writing.Exec("DROP TABLE " + table)
	must(w.T, err)
	w.eventually("replay that stands still", func() bool {
		return replica.query(`SELECT wait_event_type = 'Lock' OR wait_event = 'RecoveryConflictSnapshot'
			FROM pg_stat_activity WHERE backend_type = 'startup'`) == "true"
	}, func() string {
		return replica.query("SELECT concat(wait_event_type, ' ', wait_event) FROM pg_stat_activity WHERE backend_type = 'startup'")
	})
}
