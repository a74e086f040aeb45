package instance

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/pgop/postgres-operator/pkg/election"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
)

// diverged are the pods of a cluster whose primary, shop-1, is gone and has
// written public.lost, which nobody has received, while another wrote
// public.kept. Extra runs on shop-1 after public.lost was written.
func diverged(t *testing.T, extra func(former *testPod)) (w *world, pods map[string]*testPod, primary *testPod) {
	t.Helper()
	w = newWorld(t)
	pods, primary = w.diverge(extra)
	return w, pods, primary
}

// diverge is diverged in a world of three.
func (w *world) diverge(extra func(former *testPod)) (pods map[string]*testPod, primary *testPod) {
	w.Helper()
	t := w.T
	pods = w.three(instanceapi.HA{MaxLag: 1 << 30})
	former := pods["shop-1"]
	var receivers []int
	for _, name := range []string{"shop-2", "shop-3"} {
		pid, err := strconv.Atoi(pods[name].query("SELECT pid FROM pg_stat_wal_receiver"))
		must(t, err)
		must(t, syscall.Kill(pid, syscall.SIGSTOP))
		receivers = append(receivers, pid)
	}
	must(t, former.sql.Exec(t.Context(), "CREATE TABLE public.lost AS SELECT 42 AS i"))
	extra(former)
	former.vanish()
	for _, pid := range receivers {
		must(t, syscall.Kill(pid, syscall.SIGKILL)) // it would receive what waits for it
	}
	primary = w.awaitPrimary(pods, "shop-1")
	must(t, primary.sql.Exec(t.Context(), "CREATE TABLE public.kept AS SELECT 43 AS i"))
	return pods, primary
}

// wantRejoined waits until the instance streams other data than it had, and wants
// it to be the new primary's.
func (p *testPod) wantRejoined(former string, by origin) {
	p.world.Helper()
	p.waitFor("streams", func(s instanceapi.State) bool { return isStreaming(s) && s.DataID != former })
	if p.identity.Origin != by {
		p.world.Errorf("%s's data is by %s, want %s", p.options.Instance, p.identity.Origin, by)
	}
	p.world.eventually("what the new primary wrote", func() bool { return p.query("SELECT i FROM public.kept") == "43" },
		func() string { return p.query("SELECT i FROM public.kept") })
	if p.query("SELECT i FROM public.lost") == "42" {
		p.world.Errorf("%s still has what nobody else has", p.options.Instance)
	}
}

// formerData is the one data directory that was moved aside to be kept.
func (p *testPod) formerData() string {
	p.world.Helper()
	paths, err := filepath.Glob(p.volume.data() + ".former-*")
	must(p.world.T, err)
	if len(paths) != 1 {
		p.world.Fatalf("%d data directories were moved aside: %v", len(paths), paths)
	}
	return paths[0]
}

// A primary that wrote what nobody has received is rewound.
func TestFormerPrimaryIsRewound(t *testing.T) {
	t.Parallel()
	w, pods, _ := diverged(t, func(*testPod) {})
	pods["shop-1"].restart(w).wantRejoined(pods["shop-1"].identity.ID, byRewind)
}

// restart starts another pod of the instance.
func (p *testPod) restart(w *world) *testPod {
	w.Helper()
	return w.start(p.options.Instance, p.options.PodIP)
}

// C-03: WAL that a rewind needs is gone from the former primary.
func TestC03FormerPrimaryThatCantRewindIsCloned(t *testing.T) {
	t.Parallel()
	redo := ""
	w, pods, _ := diverged(t, func(former *testPod) {
		must(t, former.sql.Exec(t.Context(), "SELECT pg_switch_wal()"))
		must(t, former.sql.Exec(t.Context(), "CHECKPOINT"))
		redo = former.query("SELECT redo_wal_file FROM pg_control_checkpoint()")
	})
	former := pods["shop-1"]
	segments, err := filepath.Glob(former.volume.inside("pg_wal/0*"))
	must(t, err)
	removed := 0
	for _, path := range segments {
		if filepath.Base(path) < redo {
			must(t, os.Remove(path))
			removed++
		}
	}
	if removed == 0 {
		t.Fatalf("there is no WAL before %s", redo)
	}
	now := former.restart(w)
	now.wantRejoined(former.identity.ID, byClone)
	if !exists(filepath.Join(now.formerData(), "global/pg_control")) {
		t.Error("the former data is not kept")
	}
	w.awaitMembers(2)
}

// C-05: an instance that has left the primary's past knows the primary's timeline,
// since its receiver has asked for it, and then restarts before it was rewound: its
// server does not even start.
func TestC05ServerThatCantStartSinceItLeftThePast(t *testing.T) {
	t.Parallel()
	w, pods, primary := diverged(t, func(former *testPod) {
		must(t, former.sql.Exec(t.Context(), "CHECKPOINT"))
	})
	former := pods["shop-1"]
	text, err := os.ReadFile(primary.volume.inside("pg_wal/00000002.history"))
	must(t, err)
	must(t, os.WriteFile(former.volume.inside("pg_wal/00000002.history"), text, 0o600))
	now := former.restart(w)
	now.waitFor("streams", func(s instanceapi.State) bool { return isStreaming(s) && s.DataID != former.identity.ID })
	w.awaitMembers(2)
}

// C-04: what a rewind copies from goes away in the middle, or the pod does that
// rewinds: nobody starts what is left.
func TestC04RewindThatIsInterrupted(t *testing.T) {
	t.Parallel()
	cases := []struct {
		why       string
		interrupt func(w *world, primary, rewinding *testPod, goOn func()) *testPod
	}{
		{"the source restarts", func(w *world, primary, rewinding *testPod, goOn func()) *testPod {
			pid, err := strconv.Atoi(primary.query("SELECT split_part(pg_read_file('postmaster.pid'), E'\\n', 1)"))
			must(w.T, err)
			must(w.T, syscall.Kill(pid, syscall.SIGKILL))
			goOn()
			return rewinding
		}},
		{"the pod that rewinds is lost", func(w *world, _, rewinding *testPod, _ func()) *testPod {
			rewinding.vanish()
			return rewinding.restart(w)
		}},
	}
	for _, c := range cases {
		t.Run(c.why, func(t *testing.T) {
			w, pods, primary := diverged(t, func(*testPod) {})
			former := pods["shop-1"]
			o := w.options("shop-1", former.options.PodIP)
			began, goOn := interruptibleRewind(w, &o)
			rewinding := w.startWith(o)
			rewinding.waitFor("rewinds", func(s instanceapi.State) bool { return s.Phase == instanceapi.PhaseRewinding && began() })
			now := c.interrupt(w, primary, rewinding, goOn)
			now.wantRejoined(former.identity.ID, byClone)
			if exists(now.volume.inside("half")) {
				t.Error("what the rewind left is in use")
			}
			if !exists(filepath.Join(now.formerData(), "half")) {
				t.Error("what the rewind left is not kept")
			}
		})
	}
}

// interruptibleRewind gives a pod a pg_rewind that changes the data directory,
// waits until goOn is called, and then does what pg_rewind does. Began says
// whether one has begun.
func interruptibleRewind(w *world, o *Options) (began func() bool, goOn func()) {
	w.Helper()
	bin, mark := filepath.Join(w.dir, "bin"), filepath.Join(w.dir, "go-on")
	must(w.T, os.Mkdir(bin, 0o755))
	programs, err := os.ReadDir(w.bin)
	must(w.T, err)
	for _, program := range programs {
		if program.Name() != "pg_rewind" {
			must(w.T, os.Symlink(filepath.Join(w.bin, program.Name()), filepath.Join(bin, program.Name())))
		}
	}
	half := filepath.Join(volume{mount: o.Mount, major: o.Major}.data(), "half")
	script := "#!/bin/sh\ntouch " + half + "\nwhile ! [ -e " + mark + " ]; do sleep 0.05; done\nexec " + filepath.Join(w.bin, "pg_rewind") + " \"$@\"\n"
	must(w.T, os.WriteFile(filepath.Join(bin, "pg_rewind"), []byte(script), 0o755))
	o.Bin = bin
	return func() bool { return exists(half) }, func() { must(w.T, os.WriteFile(mark, nil, 0o600)) }
}

// C-05: a replica that was not heard in the election is ahead of who won it.
func TestC05ReplicaAheadOnTheOldTimeline(t *testing.T) {
	t.Parallel()
	w, pods := three(t, instanceapi.HA{})
	ahead, behind := pods["shop-3"], pods["shop-2"]
	behind.freeze("backend_type = 'walreceiver'")
	must(t, pods["shop-1"].sql.Exec(t.Context(), "CREATE TABLE public.lost AS SELECT 42 AS i"))
	w.eventually("shop-3 is ahead", func() bool { return ahead.query("SELECT i FROM public.lost") == "42" },
		func() string { return "" })
	found := ahead.loseKubernetes()
	pods["shop-1"].vanish()
	primary := w.awaitPrimary(pods, "shop-1")
	if primary != behind {
		t.Fatalf("%s took over", primary.options.Instance)
	}
	must(t, primary.sql.Exec(t.Context(), "CREATE TABLE public.kept AS SELECT 43 AS i"))
	before := ahead.State(context.Background()).DataID
	r, _ := w.record()
	found()
	ahead.wantRejoined(before, byRewind)
	if now, holder := w.record(); holder != "shop-2" || now.Term != r.Term {
		t.Errorf("meanwhile %s has begun term %d", holder, now.Term)
	}
}

// C-06, C-10: the slot of a replica that is away keeps WAL up to its cap. After
// that the replica is cloned again by itself.
func TestC06ReplicaWhoseWALIsGoneIsCloned(t *testing.T) {
	t.Parallel()
	w, pods := three(t, instanceapi.HA{})
	w.apply(func() {
		w.conf["max_slot_wal_keep_size"], w.conf["max_wal_size"], w.conf["min_wal_size"] = "16MB", "32MB", "32MB"
	})
	primary := pods["shop-1"]
	primary.waitFor("the cap", func(instanceapi.State) bool { return primary.query("SHOW max_slot_wal_keep_size") == "16MB" })
	before := pods["shop-3"].State(context.Background()).DataID
	pods["shop-3"].stop()
	// The name of what begins at a segment's end is that of the segment that ends.
	needed := primary.query("SELECT pg_walfile_name(restart_lsn + 1) FROM pg_replication_slots WHERE slot_name = 'shop_3'")
	for range 6 {
		must(t, primary.sql.Exec(t.Context(), "SELECT pg_logical_emit_message(false, 'test', 'x'); SELECT pg_switch_wal()"))
		must(t, primary.sql.Exec(t.Context(), "CHECKPOINT"))
	}
	// It goes when the archiver, too, is done with it.
	w.eventually("the primary has the WAL no more", func() bool {
		must(t, primary.sql.Exec(t.Context(), "CHECKPOINT"))
		return !exists(primary.volume.inside("pg_wal/" + needed))
	}, func() string { return needed })
	must(t, primary.sql.Exec(t.Context(), "CREATE TABLE public.kept AS SELECT 43 AS i"))
	now := pods["shop-3"].restart(w)
	now.wantRejoined(before, byClone)
	w.awaitMembers(2)
}

// C-07: a replica that answers and does not stream serves no readers, takes over
// from nobody, and streams again once it can.
func TestC07ReplicaThatDoesNotStream(t *testing.T) {
	t.Parallel()
	w, pods := three(t, instanceapi.HA{})
	broken := pods["shop-3"]
	broken.stop()
	w.awaitMembers(1)
	ctx, release := context.WithCancel(t.Context())
	defer release()
	thief := exec.CommandContext(ctx, filepath.Join(w.bin, "pg_receivewal"), "--slot=shop_3", "--directory="+t.TempDir(),
		"--dbname="+conninfo(broken.options, ownServerFiles(broken.options), upstream{Instance: "shop-1", Address: pods["shop-1"].options.PodIP}, "thief", "postgres"))
	thief.Stderr = &testLog{t}
	must(t, thief.Start())
	w.eventually("the slot is taken", func() bool {
		return pods["shop-1"].query("SELECT application_name FROM pg_stat_replication JOIN pg_replication_slots ON pid = active_pid WHERE slot_name = 'shop_3'") == "thief"
	}, func() string { return "" })

	broken = broken.restart(w)
	broken.waitFor("answers", func(s instanceapi.State) bool {
		return s.Phase == instanceapi.PhaseRunning && broken.query("SELECT 1") == "1"
	})
	r, _ := w.record()
	w.apply(func() { w.config.Switchover = &instanceapi.Switchover{To: "shop-3", From: "shop-1", Term: r.Term} })
	pods["shop-1"].waitFor("refuses", func(s instanceapi.State) bool { return strings.Contains(s.Request, "shop-3 can't take over") })
	asks := 0
	w.hold("its server says at no moment that it streams", func() bool {
		for range 500 {
			asks++
			if seen, err := broken.observer.look(t.Context()); err != nil || seen.Streaming {
				return false
			}
		}
		return true
	}, func() string { return fmt.Sprintf("at question %d", asks) })
	w.hold("it is neither ready nor a member", func() bool {
		r, holder := w.record()
		isMember := slices.ContainsFunc(r.Members, func(m election.Member) bool { return m.Instance == "shop-3" })
		state := broken.State(context.Background())
		return holder == "shop-1" && !isMember && !state.Ready && !state.Streaming
	}, func() string {
		r, h := w.record()
		return fmt.Sprintf("%s of %s; %+v", r, h, broken.State(context.Background()))
	})
	w.apply(func() { w.config.Switchover = nil })

	release()
	_ = thief.Wait() // it was killed
	broken.waitFor("streams", isStreaming)
	w.awaitMembers(2)
}

// A receiver that is cut off and reconnects at once is no news: the replica counts
// as streaming all the while. One that can't reconnect is.
func TestReplicaThatReconnectsCountsAsStreaming(t *testing.T) {
	t.Parallel()
	w, pods := three(t, instanceapi.HA{})
	primary, replica := pods["shop-1"], pods["shop-2"]
	cut := 0
	w.hold("it counts as streaming", func() bool {
		if primary.query("SELECT bool_or(pg_terminate_backend(pid)) FROM pg_stat_replication WHERE application_name LIKE 'shop-2.%' AND backend_start < now() - interval '500 ms'") == "true" {
			cut++
		}
		return isStreaming(replica.State(context.Background()))
	}, func() string { return fmt.Sprintf("%+v", replica.State(context.Background())) })
	if cut == 0 {
		t.Error("it was never cut off")
	}
	primary.freeze("backend_type = 'walsender' AND application_name LIKE 'shop-2.%'")
	must(t, replica.sql.Exec(t.Context(), "SELECT pg_terminate_backend(pid) FROM pg_stat_wal_receiver"))
	w.eventually("it counts as streaming no more", func() bool { return !replica.State(context.Background()).Streaming },
		func() string { return fmt.Sprintf("%+v", replica.State(context.Background())) })
}
