package instance

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/postgres/pgrun"
)

// postmaster asks a server for its first process.
const postmaster = "SELECT split_part(pg_read_file('postmaster.pid'), E'\\n', 1)"

// E-05: a server that has no connection left to give, not even to the agent, is
// as well as it was.
func TestE05AllConnectionsTaken(t *testing.T) {
	t.Parallel()
	const unresponsive = 3 * time.Second
	ha := instanceapi.HA{Mode: "required", Need: 1}
	ha.UnresponsiveTimeout.Duration, ha.RestartTimeout.Duration = unresponsive, unresponsive
	w, pods := three(t, ha)
	primary := pods["shop-1"]
	r, _ := w.record()
	process := primary.query(postmaster)

	free := w.takeConnections(primary)
	const long = 3 * unresponsive
	time.Sleep(long) // nothing is to happen
	now, holder := w.record()
	if holder != "shop-1" || now.Term != r.Term {
		t.Errorf("%s reigns in term %d", holder, now.Term)
	}
	if !primary.State(w.Context()).ConnectionsTaken {
		t.Error("it does not tell")
	}
	if _, slice := w.kube.now(); len(slice.Endpoints) != 1 || slice.Endpoints[0].Addresses[0] != primary.options.PodIP {
		t.Errorf("clients are led to %v", slice.Endpoints)
	}
	free()
	primary.waitFor("ready", isReady)
	if got := primary.query(postmaster); got != process {
		t.Errorf("the server was started anew: process %s, before %s", got, process)
	}
	if !primary.commits("after") {
		t.Error("a commit waits")
	}
	w.awaitMembers(2)
}

// takeConnections takes every connection that the pod's server has to give, as a
// superuser, and those that its agent has, until free is called. It returns once
// nobody gets one.
func (w *world) takeConnections(p *testPod) (free func()) {
	w.Helper()
	const name = "taker"
	ctx, stop := context.WithCancel(context.Background())
	full, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		var taken []*pgrun.Server
		var once sync.Once
		for ctx.Err() == nil {
			server, err := pgrun.OpenAs(p.options.RunDir, p.options.Port, "postgres", map[string]string{"application_name": name})
			if err != nil {
				w.Error(err)
				return
			}
			if err := server.Exec(ctx, "SELECT 1"); err == nil {
				taken = append(taken, server)
				defer server.Close()
				continue
			}
			server.Close()
			var others int
			if err := taken[0].Row(ctx, "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE backend_type = 'client backend' AND application_name <> '"+name+"'", &others); err == nil && others == 0 {
				once.Do(func() { close(full) })
			}
			time.Sleep(5 * time.Millisecond)
		}
	}()
	free = func() { stop(); <-done }
	w.Cleanup(free)
	<-full
	return free
}
