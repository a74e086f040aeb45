package instance

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pgop/postgres-operator/pkg/election"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
)

// wantWALVolume wants the server's WAL to be in the only directory in use of its
// WAL volume, and the volume to hold nothing else but so many kept ones.
func (p *testPod) wantWALVolume(kept int) {
	p.world.Helper()
	t := p.world.T
	target, err := p.volume.linkedWAL(p.volume.data())
	must(t, err)
	if target == "" {
		t.Fatalf("pg_wal of %s is not on the WAL volume", p.options.Instance)
	}
	segment := ""
	p.world.eventually("a segment of WAL", func() bool {
		segment = p.query("SELECT name FROM pg_ls_waldir() WHERE name ~ '^[0-9A-F]{24}$' ORDER BY modification DESC LIMIT 1")
		return exists(filepath.Join(target, segment)) && segment != ""
	}, func() string { return segment })
	if got := p.volume.onWALVolume(t); len(got) != 1+kept {
		t.Errorf("the WAL volume of %s has %v", p.options.Instance, got)
	}
}

// A cluster with WAL volumes: the first instance makes its WAL there, others copy
// theirs there, a restart finds it, a rewind keeps it, and a clone makes other.
func TestWALVolumes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.withWAL = true
	pods, primary := w.diverge(func(former *testPod) { former.wantWALVolume(0) })
	primary.wantWALVolume(0)
	former := pods["shop-1"]
	before, err := former.volume.linkedWAL(former.volume.data())
	must(t, err)

	now := former.restart(w)
	now.wantRejoined(former.identity.ID, byRewind)
	now.wantWALVolume(0)
	if after, err := now.volume.linkedWAL(now.volume.data()); after != before || err != nil {
		t.Errorf("after the rewind WAL is in %s, %v, instead of %s", after, err, before)
	}
	w.awaitMembers(2)
	rewound := now.State(context.Background()).DataID
	w.apply(func() { w.config.Reclone = &instanceapi.Reclone{Instance: "shop-1", DataID: rewound} })
	now.wantRejoined(rewound, byClone)
	now.wantWALVolume(1)
	if !exists(before) {
		t.Error("the WAL of the former data is gone")
	}
	w.awaitMembers(2)
}

// A clone and a rewind that are interrupted leave nothing on the WAL volume once
// the instance streams, but for data that is kept aside.
func TestC04RewindThatIsInterruptedWithWALVolume(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.withWAL = true
	pods, _ := w.diverge(func(*testPod) {})
	former := pods["shop-1"]
	o := w.options("shop-1", former.options.PodIP)
	began, _ := interruptibleRewind(w, &o)
	rewinding := w.startWith(o)
	rewinding.waitFor("rewinds", func(s instanceapi.State) bool { return s.Phase == instanceapi.PhaseRewinding && began() })
	rewinding.vanish()
	v := rewinding.volume
	// And a clone that did not come far.
	half, err := v.newWAL()
	must(t, err)
	must(t, os.Mkdir(half, 0o700))
	now := rewinding.restart(w)
	now.wantRejoined(former.identity.ID, byClone)
	now.wantWALVolume(1)
	if target, err := walLink(now.formerData()); err != nil || !exists(target) {
		t.Errorf("the WAL of the former data, %s, is gone: %v", target, err)
	}
}

// Instances that get a WAL volume at a restart keep their data, the primary too.
func TestWALVolumeIsAddedAtARestart(t *testing.T) {
	t.Parallel()
	w, pods := three(t, instanceapi.HA{})
	primary := pods["shop-1"]
	must(t, primary.sql.Exec(t.Context(), "CREATE TABLE public.kept AS SELECT 43 AS i"))
	w.withWAL = true
	for _, name := range []string{"shop-3", "shop-1", "shop-2"} {
		before := pods[name].State(context.Background()).DataID
		pods[name].stop()
		pods[name] = pods[name].restart(w)
		w.eventually(name+" serves", func() bool { return isReady(pods[name].State(context.Background())) },
			func() string { return fmt.Sprintf("%+v", pods[name].State(context.Background())) })
		if now := pods[name].State(context.Background()).DataID; now != before {
			t.Errorf("%s has other data than before: %s instead of %s", name, now, before)
		}
		pods[name].wantWALVolume(0)
		w.awaitMembers(2)
	}
	for name, p := range pods {
		if got := p.query("SELECT i FROM public.kept"); got != "43" {
			t.Errorf("%s answers %q", name, got)
		}
	}
	if aside, err := filepath.Glob(primary.volume.dir() + "/*moving*"); len(aside) > 0 || err != nil {
		t.Errorf("left over: %v, %v", aside, err)
	}
}

// Nobody starts a server on data whose WAL is elsewhere. A replica with a new WAL
// volume is cloned again, one with the WAL volume of other data when a user says
// so, and one without any when the spec is put right.
func TestReplicaWhoseWALVolumeIsNotItsOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.withWAL = true
	pods := w.three(instanceapi.HA{})
	must(t, pods["shop-1"].sql.Exec(t.Context(), "CREATE TABLE public.kept AS SELECT 43 AS i"))
	replica := pods["shop-3"]
	mount := replica.options.WALMount
	first := replica.State(context.Background()).DataID

	w.withWAL = false
	replica.stop()
	must(t, os.Rename(mount, mount+".its-own"))
	replica = replica.restart(w)
	replica.waitFor("refuses", failsWith("put spec.storage.wal back"))
	w.withWAL = true

	replica.stop()
	other := volume{mount: t.TempDir(), major: w.major, walMount: mount}
	must(t, os.Mkdir(mount, 0o700))
	other.make(t, true)
	replica = replica.restart(w)
	replica.waitFor("refuses", failsWith("does not belong to its data", "pgop.dev/reclone=shop-3"))
	if state := replica.State(context.Background()); state.HasData || state.DataID != first {
		t.Errorf("it reports data: %+v", state)
	}
	w.apply(func() { w.config.Reclone = &instanceapi.Reclone{Instance: "shop-3", DataID: first} })
	replica.wantRejoined(first, byClone)
	replica.wantWALVolume(1) // what other data has there stays
	w.awaitMembers(2)

	second := replica.State(context.Background()).DataID
	replica.stop()
	must(t, os.RemoveAll(mount))
	replica = replica.restart(w)
	replica.wantRejoined(second, byClone)
	replica.wantWALVolume(0)
	w.awaitMembers(2)
}

// A primary without its WAL starts nothing, and a replica takes over; alone it
// refuses, and goes on when it gets its WAL volume back.
func TestPrimaryWhoseWALVolumeIsNotItsOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.withWAL = true
	alone := w.start("shop-1", "127.0.0.11")
	alone.waitFor("ready", isReady)
	must(t, alone.sql.Exec(t.Context(), "CREATE TABLE public.kept AS SELECT 43 AS i"))
	before := alone.State(context.Background()).DataID
	mount := alone.options.WALMount
	alone.stop()
	must(t, os.Rename(mount, mount+".its-own"))
	alone = alone.restart(w)
	alone.waitFor("refuses", failsWith("its WAL volume is empty", "nobody else has what was committed"))
	alone.stop()
	must(t, os.RemoveAll(mount))
	must(t, os.Rename(mount+".its-own", mount))
	alone = alone.restart(w)
	alone.waitFor("ready", isReady)
	if got := alone.query("SELECT i FROM public.kept"); got != "43" || alone.State(context.Background()).DataID != before {
		t.Errorf("it answers %q", got)
	}

	w.apply(func() { w.config.Members = []string{"shop-1", "shop-2"} })
	replica := w.start("shop-2", "127.0.0.12")
	replica.waitFor("ready", isReady)
	w.awaitMembers(1)
	alone.vanish()
	must(t, os.RemoveAll(mount))
	alone = alone.restart(w)
	w.awaitPrimary(map[string]*testPod{"shop-1": alone, "shop-2": replica}, "shop-1")
	alone.wantRejoined(before, byClone)
	alone.wantWALVolume(0)
}

func TestDecideWithoutWAL(t *testing.T) {
	t.Parallel()
	cases := []struct {
		why    string
		change func(s *situation)
		want   move
		words  string
	}{
		{"a replica with an empty WAL volume", func(*situation) {}, moveReclone, "its WAL volume is empty"},
		{"a replica with the WAL volume of other data", func(s *situation) { s.WAL = walForeign }, moveRefuse, "does not belong to its data"},
		{"the same, to be cloned", func(s *situation) {
			s.WAL = walForeign
			s.Config.Config.Reclone = &instanceapi.Reclone{Instance: "shop-2", DataID: "d2"}
		}, moveReclone, "a user asks"},
		{"the same, to be cloned on other volumes", func(s *situation) {
			s.WAL = walForeign
			s.Config.Config.Reclone = &instanceapi.Reclone{Instance: "shop-2", DataID: "d2", NewVolumes: true}
		}, moveRefuse, "does not belong to its data"},
		{"a pod without a WAL volume", func(s *situation) { s.WAL = walUnmounted }, moveRefuse, "put spec.storage.wal back"},
		{"another database", func(s *situation) { s.SystemID = "other" }, moveRefuse, "another database"},
		{"the primary of the last reign", func(s *situation) { s.Me = "shop-1" }, moveWait, "waiting for shop-2 to take over"},
		{"nobody reigns", func(s *situation) { s.Lease.Holder = election.Holder{} }, moveWait, "nobody holds the Lease"},
		{"there has been no reign", func(s *situation) { s.Lease = held("", election.Record{}) }, moveRefuse, "give the WAL volume back"},
	}
	for _, c := range cases {
		t.Run(c.why, func(t *testing.T) {
			s := complete("shop-2", "d2", byClone)
			reign := record
			reign.Members = []election.Member{{Instance: "shop-2", DataID: "d2"}}
			s.Config, s.Lease, s.Data, s.WAL = known("", "7"), held("shop-1/a", reign), dataWithoutWAL, walMissing
			c.change(&s)
			if got := decide(s); got.Move != c.want || !strings.Contains(got.Why, c.words) {
				t.Errorf("%s: %s", got.Move, got.Why)
			}
		})
	}
	if kinds := []walKind{walMissing, walForeign, walUnmounted}; slices.ContainsFunc(kinds, walKind.isWhole) {
		t.Error("WAL that is not there counts as whole")
	}
}
