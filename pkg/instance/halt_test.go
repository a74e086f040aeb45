package instance

import (
	"context"
	"fmt"
	"testing"

	"github.com/pgop/postgres-operator/pkg/instanceapi"
)

// halted is a cluster of three with a row, all of whose pods have been stopped, the
// primary first.
func halted(t *testing.T, ha instanceapi.HA) (*world, map[string]*testPod) {
	t.Helper()
	w, pods := three(t, ha)
	w.apply(func() { w.config.Stop = true })
	for _, p := range pods {
		p.waitFor("knows", func(s instanceapi.State) bool { return s.Stopping })
	}
	must(t, pods["shop-1"].sql.Exec(t.Context(), "CREATE TABLE public.t AS SELECT 42 AS i"))
	pods["shop-1"].stop()
	if r, holder := w.record(); holder != "shop-1" || len(r.Members) != 2 || r.Votes != 1 {
		t.Errorf("the Lease is that of %q: %s", holder, r)
	}
	if _, slice := w.kube.now(); len(slice.Endpoints) != 0 {
		t.Errorf("the rw slice has %v", slice.Endpoints)
	}
	return w, pods
}

func (w *world) startAgain(pods map[string]*testPod, names ...string) {
	for _, name := range names {
		pods[name] = w.start(name, pods[name].options.PodIP)
	}
}

// B-13: nobody takes over from a primary that stops with its cluster, and it leads
// on when the cluster is started again.
func TestB13StoppedAndStarted(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"async", "required"} {
		t.Run(mode, func(t *testing.T) {
			w, pods := halted(t, instanceapi.HA{Mode: mode, Need: 1})
			before, _ := w.record()
			pods["shop-2"].stop()
			pods["shop-3"].stop()
			w.apply(func() { w.config.Stop = false })
			w.startAgain(pods, "shop-1", "shop-2", "shop-3")
			pods["shop-1"].waitFor("leads", isReady)
			pods["shop-2"].waitFor("streams", isStreaming)
			pods["shop-3"].waitFor("streams", isStreaming)
			w.awaitMembers(2)
			if r, holder := w.record(); holder != "shop-1" || r.Timeline != before.Timeline {
				t.Errorf("%s leads, on timeline %d after %d", holder, r.Timeline, before.Timeline)
			}
			if got := pods["shop-1"].query("SELECT i FROM public.t"); got != "42" {
				t.Error(got)
			}
		})
	}
}

// B-13: a stopped cluster whose last primary does not come back is led by a replica,
// which has everything.
func TestB13StartedWithoutTheLastPrimary(t *testing.T) {
	t.Parallel()
	w, pods := halted(t, instanceapi.HA{LeaseDuration: instanceapi.Duration{Duration: leaseDuration}})
	pods["shop-2"].stop()
	pods["shop-3"].stop()
	w.startAgain(pods, "shop-2", "shop-3")
	for _, name := range []string{"shop-2", "shop-3"} {
		pods[name].waitFor("serves readers while nobody may be elected", func(s instanceapi.State) bool { return s.Role == instanceapi.RoleReplica && s.Stopping })
	}
	w.apply(func() { w.config.Stop = false })
	primary := w.awaitPrimary(pods, "shop-1")
	if got := primary.query("SELECT i FROM public.t"); got != "42" {
		t.Error(got)
	}
}

// A replica that lacks the end of the WAL when the cluster stops is none that may
// lead when it is started.
func TestB13ReplicaThatLacksTheEndIsNoMember(t *testing.T) {
	t.Parallel()
	w, pods := three(t, instanceapi.HA{})
	w.apply(func() { w.config.Stop = true })
	for _, p := range pods {
		p.waitFor("knows", func(s instanceapi.State) bool { return s.Stopping })
	}
	// It says that it has nothing, however much it has.
	w.addresses.Store("shop-3", fmt.Sprintf("127.0.%d.250:%d", len(t.Name()), w.peerPort))
	pods["shop-1"].stop()
	if r, _ := w.record(); len(r.Members) != 1 || r.Members[0].Instance != "shop-2" {
		t.Errorf("members are %v", r.Members)
	}
	if s := pods["shop-2"].State(context.Background()); s.Role != instanceapi.RoleReplica {
		t.Errorf("shop-2 is %q", s.Role)
	}
}
