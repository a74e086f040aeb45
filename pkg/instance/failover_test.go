package instance

import (
	"context"
	"fmt"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/utils/ptr"

	"github.com/pgop/postgres-operator/pkg/election"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
)

// three starts a cluster of three and waits until two replicas may take over.
func three(t *testing.T, ha instanceapi.HA) (*world, map[string]*testPod) {
	t.Helper()
	return threeWith(t, ha, func(*world) {})
}

// threeWith is three with another configuration.
func threeWith(t *testing.T, ha instanceapi.HA, change func(*world)) (*world, map[string]*testPod) {
	t.Helper()
	w := newWorld(t)
	return w, w.three(ha, change)
}

// three starts a cluster of three with these changes of the configuration and
// waits until each replica can take over.
func (w *world) three(ha instanceapi.HA, changes ...func(*world)) map[string]*testPod {
	w.Helper()
	w.apply(func() {
		w.config.Members, w.config.HA = []string{"shop-1", "shop-2", "shop-3"}, ha
		for _, change := range changes {
			change(w)
		}
	})
	pods := map[string]*testPod{}
	for i := 1; i <= 3; i++ {
		name := fmt.Sprintf("shop-%d", i)
		pods[name] = w.start(name, fmt.Sprintf("127.0.%d.%d", len(w.Name()), 10+i))
	}
	for _, p := range pods {
		p.waitFor("ready", isReady)
	}
	w.awaitMembers(2)
	return pods
}

func (w *world) record() (election.Record, string) {
	lease, _ := w.kube.now()
	record, err := election.ParseRecord(lease.Annotations[election.RecordAnnotation])
	must(w.T, err)
	return record, leaseHolder(lease).Instance
}

func (w *world) awaitMembers(n int) {
	w.Helper()
	w.eventually(fmt.Sprintf("%d members", n), func() bool { r, _ := w.record(); return len(r.Members) == n },
		func() string { r, h := w.record(); return fmt.Sprintf("%s of %s", r, h) })
}

// awaitPrimary waits until another than former reigns and serves.
func (w *world) awaitPrimary(pods map[string]*testPod, former string) *testPod {
	w.Helper()
	var primary *testPod
	w.eventually("another primary than "+former, func() bool {
		_, holder := w.record()
		if holder == "" || holder == former {
			return false
		}
		primary = pods[holder]
		s := primary.State(context.Background())
		return s.Role == instanceapi.RolePrimary && isReady(s)
	}, func() string { r, h := w.record(); return fmt.Sprintf("%s of %q", r, h) })
	return primary
}

func isStreaming(s instanceapi.State) bool {
	return s.Role == instanceapi.RoleReplica && s.Streaming && s.Ready
}

// C-01: a pod that ends in order hands over first.
func TestPrimaryThatIsStoppedHandsOver(t *testing.T) {
	t.Parallel()
	w, pods := three(t, instanceapi.HA{})
	must(t, pods["shop-1"].sql.Exec(t.Context(), "CREATE TABLE public.t AS SELECT 42 AS i"))
	began := time.Now()
	pods["shop-1"].stop()
	t.Logf("stopped after %s", time.Since(began))
	primary := w.awaitPrimary(pods, "shop-1")
	t.Logf("%s took over after %s", primary.options.Instance, time.Since(began))
	if got := primary.query("SELECT i FROM public.t"); got != "42" {
		t.Error(got)
	}
	pods["shop-1"] = w.start("shop-1", "127.0.99.1")
	for name, p := range pods {
		if p != primary {
			p.waitFor("streams from "+primary.options.Instance+" as "+name, isStreaming)
		}
	}
	w.awaitMembers(2)
}

// The loop of a primary's agent hangs, and nothing else does: the alarm ends the server
// before another may reign.
func TestAlarmEndsTheServerOfALoopThatHangs(t *testing.T) {
	t.Parallel()
	w, pods := three(t, instanceapi.HA{})
	old := pods["shop-1"]
	server := old.postmasterID()
	if server == 0 || !runs(server) {
		t.Fatalf("the server is process %d", server)
	}
	old.inbox.mu.Lock() // which every pass takes
	hangs := sync.OnceFunc(old.inbox.mu.Unlock)
	t.Cleanup(hangs)
	w.eventually("another holds the Lease", func() bool { _, holder := w.record(); return holder != "shop-1" && holder != "" },
		func() string { r, h := w.record(); return fmt.Sprintf("%s of %q", r, h) })
	if runs(server) {
		t.Error("another reigns, and the server still runs")
	}
	if old.alive(time.Now()) {
		t.Error("the loop counts as alive")
	}
	hangs()
	old.waitFor("follows", isStreaming)
}

// runs says whether there is such a process.
func runs(pid int) bool { return syscall.Kill(pid, 0) == nil }

func TestSwitchover(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"async", "required"} {
		t.Run(mode, func(t *testing.T) {
			w, pods := three(t, instanceapi.HA{Mode: mode, Need: 1})
			r, _ := w.record()
			began := time.Now()
			w.apply(func() { w.config.Switchover = &instanceapi.Switchover{To: "shop-3", From: "shop-1", Term: r.Term} })
			primary := w.awaitPrimary(pods, "shop-1")
			t.Logf("took %s", time.Since(began))
			if primary.options.Instance != "shop-3" {
				t.Errorf("%s took over", primary.options.Instance)
			}
			pods["shop-1"].waitFor("streams", isStreaming)
			pods["shop-2"].waitFor("streams", isStreaming)
			w.awaitMembers(2)
		})
	}
}

// C-02: the primary's pod vanishes with its server: no release, no shutdown.
func TestLostPrimaryIsReplaced(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"async", "required"} {
		t.Run(mode, func(t *testing.T) {
			w, pods := three(t, instanceapi.HA{Mode: mode, Need: 1})
			must(t, pods["shop-1"].sql.Exec(t.Context(), "CREATE TABLE public.t AS SELECT 42 AS i"))
			w.eventually("all has arrived", func() bool { // in mode async that is not a matter of course
				return pods["shop-2"].query("SELECT i FROM public.t") == "42" && pods["shop-3"].query("SELECT i FROM public.t") == "42"
			}, func() string { return "" })
			began := time.Now()
			pods["shop-1"].vanish()
			primary := w.awaitPrimary(pods, "shop-1")
			t.Logf("%s took over after %s", primary.options.Instance, time.Since(began))
			if got := primary.query("SELECT i FROM public.t"); got != "42" {
				t.Error(got)
			}
			pods["shop-1"] = w.start("shop-1", fmt.Sprintf("127.0.%d.77", len(t.Name())))
			pods["shop-1"].waitFor("streams", isStreaming)
			w.awaitMembers(2)
		})
	}
}

// C-18: the primary's server can't start, its agent lives, and nobody is a member: a
// user forces the promotion of a replica.
func TestForcedPromotionBesideALivingAgent(t *testing.T) {
	t.Parallel()
	w, pods := three(t, instanceapi.HA{})
	primary := pods["shop-1"]
	pods["shop-2"].stop()
	pods["shop-3"].stop()
	w.awaitMembers(0)
	control := primary.volume.inside("global/pg_control")
	must(t, os.Rename(control, control+".away"))
	must(t, killHolders(t.Context(), primary.lock))
	for _, name := range []string{"shop-2", "shop-3"} {
		pods[name] = w.start(name, pods[name].options.PodIP)
	}
	primary.waitFor("fails", failsWith("pg_control"))
	r, _ := w.record()
	w.apply(func() { w.config.ForcePromote = &instanceapi.ForcePromote{Instance: "shop-2", Term: r.Term} })
	if now := w.awaitPrimary(pods, "shop-1"); now != pods["shop-2"] {
		t.Errorf("%s took over", now.options.Instance)
	}
	must(t, os.Rename(control+".away", control))
	for _, name := range []string{"shop-1", "shop-3"} {
		pods[name].waitFor("streams", isStreaming)
	}
	w.awaitMembers(2)
}

// C-01: a replica that was elected ends before it was promoted. What it serves as
// afterwards is a promoted replica all the same: on a timeline of its own, since the
// former primary has gone on on the one before.
func TestC01ElectedReplicaEndsBeforeItsPromotion(t *testing.T) {
	t.Parallel()
	t.Run("before it has begun", func(t *testing.T) { endBeforePromotion(t, func(*testPod) {}) })
	t.Run("after the server has removed standby.signal", func(t *testing.T) {
		endBeforePromotion(t, func(elected *testPod) { must(t, os.Remove(elected.volume.standby())) })
	})
}

// endBeforePromotion lets a replica be elected that has ended, and whose volume is
// then as in a promotion that did not come far.
func endBeforePromotion(t *testing.T, stage func(elected *testPod)) {
	t.Helper()
	w, pods := three(t, instanceapi.HA{})
	former := pods["shop-1"]
	pods["shop-2"].stop()
	pods["shop-3"].stop()
	w.awaitMembers(0)
	must(t, former.sql.Exec(t.Context(), "CREATE TABLE public.lost AS SELECT 42 AS i"))
	former.vanish()
	elected, _ := w.record()
	elected.Term++
	elected.HolderDataID, elected.HolderAddress = pods["shop-2"].identity.ID, pods["shop-2"].options.PodIP
	w.kube.set(func(f *fakeKubernetes) {
		f.lease.Spec.HolderIdentity = ptr.To("shop-2/" + pods["shop-2"].options.PodUID)
		f.lease.Annotations[election.RecordAnnotation] = elected.String()
	})

	stage(pods["shop-2"])
	pods["shop-2"] = pods["shop-2"].restart(w)
	primary := w.awaitPrimary(pods, "shop-1")
	if got := primary.query("SELECT substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)"); got != "00000002" {
		t.Errorf("it writes timeline %s", got)
	}
	must(t, primary.sql.Exec(t.Context(), "CREATE TABLE public.kept AS SELECT 43 AS i"))
	former.restart(w).wantRejoined(former.identity.ID, byRewind)
	pods["shop-3"].restart(w).waitFor("streams", isStreaming)
	w.awaitMembers(2)
}

// The nominee of a switchover does not take over. In async the other member may
// lack what the old primary has, and so that one takes back.
func TestNomineeThatDoesNotTakeOver(t *testing.T) {
	t.Parallel()
	w, pods := three(t, instanceapi.HA{})
	primary, behind := pods["shop-1"], pods["shop-3"]
	pods["shop-2"].loseKubernetes()
	thaw := behind.freeze("backend_type = 'walreceiver'")
	must(t, primary.sql.Exec(t.Context(), "SELECT pg_terminate_backend(pid) FROM pg_stat_replication WHERE application_name LIKE 'shop-3.%'"))
	must(t, primary.sql.Exec(t.Context(), "CREATE TABLE public.kept AS SELECT 43 AS i"))
	before, _ := w.record()
	w.apply(func() { w.config.Switchover = &instanceapi.Switchover{To: "shop-2", From: "shop-1", Term: before.Term} })
	w.eventually("the Lease is released", func() bool {
		r, holder := w.record()
		return holder == "" && r.Nominee == "shop-2" && len(r.Members) == 2
	},
		func() string { r, h := w.record(); return fmt.Sprintf("%s of %q", r, h) })
	thaw()
	w.eventually("a primary", func() bool {
		r, holder := w.record()
		return r.Term > before.Term && holder != "" && isReady(pods[holder].State(context.Background()))
	},
		func() string { r, h := w.record(); return fmt.Sprintf("%s of %q", r, h) })
	if _, holder := w.record(); holder != "shop-1" {
		t.Errorf("%s took over", holder)
	}
	if got := primary.query("SELECT i FROM public.kept"); got != "43" {
		t.Errorf("what was written is %q", got)
	}
}

// C-05: a replica that has not followed the last primary is promoted by force. It
// begins a timeline that nobody has had, by which that primary, when it is back, tells
// that it has gone another way.
func TestC05ForcedPromotionTakesAnUnusedTimeline(t *testing.T) {
	t.Parallel()
	// Each promotion has a checkpoint, after which the server keeps no WAL that came
	// before; a rewind goes back to the checkpoint before both ways part.
	w, pods := threeWith(t, instanceapi.HA{}, func(w *world) { w.conf["wal_keep_size"] = "64MB" })
	pods["shop-3"].stop()
	w.awaitMembers(1)
	pods["shop-1"].vanish()
	former := w.awaitPrimary(pods, "shop-1")
	must(t, former.sql.Exec(t.Context(), "CREATE TABLE public.lost AS SELECT 42 AS i"))
	w.eventually("the record of timeline 2", func() bool { return first(w.record()).Timeline == 2 }, func() string { return first(w.record()).String() })
	must(t, former.sql.Exec(t.Context(), "CHECKPOINT"))
	former.vanish()
	pods["shop-3"] = pods["shop-3"].restart(w)
	w.apply(func() {
		w.config.ForcePromote = &instanceapi.ForcePromote{Instance: "shop-3", Term: first(w.record()).Term}
	})
	primary := w.awaitPrimary(pods, "shop-2")
	if got := primary.query("SELECT substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)"); got != "00000003" {
		t.Errorf("it writes timeline %s", got)
	}
	must(t, primary.sql.Exec(t.Context(), "CREATE TABLE public.kept AS SELECT 43 AS i"))
	former.restart(w).wantRejoined(former.identity.ID, byRewind)
	pods["shop-1"].restart(w).waitFor("streams", isStreaming)
	w.awaitMembers(2)
}
