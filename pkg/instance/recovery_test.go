package instance

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pgop/postgres-operator/pkg/instanceapi"
)

// restartSoon is a restartTimeout that recovery outlasts by far.
const restartSoon = 2 * time.Second

// crashBeforeCheckpoint writes WAL which only a checkpoint would make superfluous,
// and kills every process of the pod's server.
func (p *testPod) crashBeforeCheckpoint() {
	p.world.Helper()
	server, err := p.openServer()
	must(p.world.T, err)
	defer server.Close()
	must(p.world.T, server.Exec(p.world.Context(), "CREATE TABLE public.large AS SELECT n, repeat(md5(n::text), 10) AS t FROM generate_series(1, 300000) n"))
	must(p.world.T, server.Exec(p.world.Context(), "CREATE TABLE public.t AS SELECT 42 AS i"))
	must(p.world.T, killHolders(context.Background(), p.lock))
}

// slowRecovery lets the server's next recovery crawl, until the function returned
// is called, which says for how long it has done so.
func (p *testPod) slowRecovery() (end func() time.Duration) {
	ctx, stop := context.WithCancel(context.Background())
	var crawled time.Duration
	done := make(chan struct{})
	go func() {
		defer close(done)
		var began time.Time
		for ctx.Err() == nil {
			pid, err := strconv.Atoi(startupProcess(p.postmasterID(), "recovering"))
			if err != nil || syscall.Kill(pid, syscall.SIGSTOP) != nil {
				time.Sleep(time.Millisecond)
				continue
			}
			if began.IsZero() {
				began = time.Now()
			}
			crawled = time.Since(began)
			_ = pause(ctx, 300*time.Millisecond)
			_ = syscall.Kill(pid, syscall.SIGCONT) // it may have been killed
			_ = pause(ctx, 3*time.Millisecond)
		}
	}()
	end = sync.OnceValue(func() time.Duration { stop(); <-done; return crawled })
	p.world.Cleanup(func() { end() })
	return end
}

// postmasterID is the process in postmaster.pid; 0: there is none.
func (p *testPod) postmasterID() int {
	text, err := os.ReadFile(p.volume.inside("postmaster.pid"))
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(text), "\n")
	pid, _ := strconv.Atoi(first)
	return pid
}

func isRecovering(s instanceapi.State) bool {
	return s.Phase == instanceapi.PhaseStarting && !s.Ready && strings.Contains(s.Message, "recovering")
}

func rareCheckpoints(w *world) {
	w.conf["max_wal_size"], w.conf["checkpoint_timeout"] = "4GB", "1h"
}

// C-14: crash recovery takes long. The agent counts as alive, the instance is not
// ready and says what it does, and nobody starts the server anew.
func TestC14LongRecovery(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply(func() { rareCheckpoints(w); w.config.HA.RestartTimeout.Duration = restartSoon })
	p := w.start("shop-1", "127.0.0.14")
	p.waitFor("ready", isReady)
	end := p.slowRecovery()
	p.crashBeforeCheckpoint()
	p.waitFor("recovers", isRecovering)
	server := p.postmasterID()
	for began := time.Now(); time.Since(began) < 3*restartSoon; time.Sleep(50 * time.Millisecond) {
		if s := p.State(t.Context()); !isRecovering(s) {
			t.Fatalf("it ceased to recover: %+v", s)
		}
		for path, want := range map[string]int{"/healthz": 200, "/readyz": 503} {
			answer := httptest.NewRecorder()
			p.probeHandler().ServeHTTP(answer, httptest.NewRequest("GET", path, nil))
			if answer.Code != want {
				t.Fatalf("%s answers %d", path, answer.Code)
			}
		}
	}
	if crawled := end(); crawled < 2*restartSoon {
		t.Errorf("recovery was slow for %s only: the test shows nothing", crawled)
	}
	p.waitFor("ready", isReady)
	if now := p.postmasterID(); now != server {
		t.Errorf("the server was started anew meanwhile: process %d, before %d", now, server)
	}
	if got := p.query("SELECT i FROM public.t"); got != "42" {
		t.Error(got)
	}
}

// C-14: where a replica has everything and can take over, nobody waits for a long
// recovery. The former primary joins when it has recovered.
func TestC14LongRecoveryBesideAReplica(t *testing.T) {
	t.Parallel()
	ha := instanceapi.HA{Mode: "required", Need: 1}
	ha.RestartTimeout.Duration = restartSoon
	w, pods := threeWith(t, ha, rareCheckpoints)
	former := pods["shop-1"]
	end := former.slowRecovery()
	former.crashBeforeCheckpoint()
	former.waitFor("recovers", isRecovering)
	primary := w.awaitPrimary(pods, "shop-1")
	if got := primary.query("SELECT i FROM public.t"); got != "42" {
		t.Error(got)
	}
	end()
	former.waitFor("streams", isStreaming)
	w.awaitMembers(2)
	w.eventually("what was committed", func() bool { return former.query("SELECT i FROM public.t") == "42" },
		func() string { return fmt.Sprint(former.query("SELECT i FROM public.t")) })
}
