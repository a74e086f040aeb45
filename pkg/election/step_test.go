package election

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/pgop/postgres-operator/pkg/postgres"
)

// bench is one instance, "a", whose surroundings a test decides.
type bench struct {
	t *testing.T
	c Settings
	s State
	// in is what the next step sees; what comes from others is taken out of it
	// after the step.
	in       Input
	versions int
}

func newBench(t *testing.T, c Settings) *bench {
	b := &bench{t: t, c: c, s: State{Me: Holder{Instance: "a", PodUID: "1"}, Address: "10.0.0.1"}}
	b.in = Input{Now: time.Hour, Fresh: true, Data: Data{ID: "da", SystemID: "7", Timeline: 1, End: 100}}
	b.see(Holder{Instance: "x", PodUID: "9"}, Record{Term: 5, Timeline: 1, SystemID: "7", HolderDataID: "dx"})
	return b
}

// see shows another version of the Lease.
func (b *bench) see(holder Holder, r Record) {
	b.versions++
	b.in.Lease = &Lease{Version: fmt.Sprint(b.versions), Holder: holder, Record: r, SeenAt: b.in.Now}
}

func (b *bench) step() Output {
	out := Step(b.c, &b.s, b.in)
	b.in.Written, b.in.Requests, b.in.Votes, b.in.Pleas, b.in.Promises = nil, nil, nil, nil, nil
	return out
}

// pass lets time go by.
func (b *bench) pass(d time.Duration) { b.in.Now += d }

// write takes a step, which must write, and carries the write out.
func (b *bench) write() Write {
	b.t.Helper()
	out := b.step()
	if out.Write == nil {
		b.t.Fatalf("nothing is written: %+v", out)
	}
	b.see(out.Write.Holder, out.Write.Record)
	b.in.Written = &Written{Outcome: Done, Version: b.in.Lease.Version}
	return *out.Write
}

// reign makes a reign of the data that reigned last, with these members by the
// votes of settings.
func (b *bench) reign(members ...Member) {
	b.t.Helper()
	b.see(Holder{}, Record{Term: 5, Timeline: 1, SystemID: "7", HolderDataID: "da"})
	b.write()
	b.step()
	if !b.s.Reigns() {
		b.t.Fatal("it does not reign")
	}
	if len(members) == 0 {
		return
	}
	var standbys []Standby
	for _, m := range members {
		standbys = append(standbys, Standby{Member: m, Flushed: 100, Address: "10.0.1." + m.Instance})
	}
	b.in.Primary = &Primary{End: 100, Timeline: 1, Sync: firstSync(b.c), SyncDone: true, SyncSince: 100, Standbys: standbys}
	b.settle()
	if got := b.s.reign.record.Members; !slices.Equal(got, members) {
		b.t.Fatalf("members are %v, want %v", got, members)
	}
}

// settle carries out whatever the steps ask for, until nothing changes.
func (b *bench) settle() {
	for range 60 {
		out := b.step()
		if out.Sync != nil && b.in.Primary != nil {
			b.in.Primary.Sync = *out.Sync
		}
		if out.Write != nil {
			b.see(out.Write.Holder, out.Write.Record)
			b.in.Written = &Written{Outcome: Done, Version: b.in.Lease.Version}
		}
		b.pass(200 * time.Millisecond)
	}
	if b.in.Written != nil {
		b.step()
	}
}

func (b *bench) wantRole(want Role) {
	b.t.Helper()
	if got := b.step().Target; got.Role != want {
		b.t.Errorf("the server shall be %+v, want %s", got, want)
	}
}

var (
	async     = settingsOf(Async, 0)
	required  = settingsOf(Required, 1)
	preferred = settingsOf(Preferred, 1)
	mb, mc    = Member{Instance: "b", DataID: "db"}, Member{Instance: "c", DataID: "dc"}
	ma        = Member{Instance: "a", DataID: "da"}
)

func TestHandOver(t *testing.T) {
	resign := func(t *testing.T, nominee string) (*bench, Output) {
		b := newBench(t, required)
		b.reign(mb, mc)
		b.in.Primary = nil
		b.in.Resign = &Resign{Nominee: nominee}
		return b, b.step()
	}
	t.Run("the Lease is released with the nominee, and the server stays stopped", func(t *testing.T) {
		b, out := resign(t, "c")
		if out.Write == nil || !out.Write.Holder.IsZero() || out.Write.Record.Nominee != "c" || out.Target.Role != Staying {
			t.Fatalf("got %+v", out)
		}
		if !slices.Equal(out.Write.Record.Members, []Member{mb, mc}) {
			t.Errorf("members are %v", out.Write.Record.Members)
		}
		b.see(Holder{}, out.Write.Record)
		b.in.Written, b.in.Resign = &Written{Outcome: Done, Version: b.in.Lease.Version}, nil
		b.wantRole(Following)
		if b.s.Reigns() {
			t.Error("it still reigns")
		}
	})
	t.Run("a nominee who is no member is nobody", func(t *testing.T) {
		if _, out := resign(t, "z"); out.Write == nil || out.Write.Record.Nominee != "" {
			t.Fatalf("got %+v", out)
		}
	})
	t.Run("a release of unknown outcome keeps the server stopped until the Lease is claimed again", func(t *testing.T) {
		b, _ := resign(t, "c")
		b.in.Written, b.in.Resign, b.in.Fresh = &Written{Outcome: Unknown}, nil, false
		out := b.step()
		if out.Target.Role != Staying || !out.Read {
			t.Fatalf("got %+v", out)
		}
		b.in.Fresh = true
		if w := b.write(); w.Holder != b.s.Me {
			t.Fatalf("wrote %+v", w)
		}
		b.wantRole(Leading)
	})
	t.Run("a release that has arrived after all ends the reign", func(t *testing.T) {
		b, out := resign(t, "c")
		b.see(Holder{}, out.Write.Record)
		b.in.Written = &Written{Outcome: Unknown}
		b.wantRole(Following)
	})
	t.Run("without members nothing is released", func(t *testing.T) {
		b := newBench(t, required)
		b.reign()
		b.in.Resign = &Resign{}
		b.pass(3 * time.Second)
		if out := b.step(); out.Write == nil || out.Write.Holder != b.s.Me || out.Target.Role != Leading {
			t.Fatalf("got %+v", out)
		}
	})
	t.Run("who resigned takes back what nobody takes over", func(t *testing.T) {
		b, out := resign(t, "c")
		b.see(Holder{}, out.Write.Record)
		b.in.Written, b.in.Resign = &Written{Outcome: Done, Version: b.in.Lease.Version}, nil
		b.step()
		b.pass(required.LeaseDuration)
		if w := b.write(); w.Record.Term != 7 || len(w.Record.Members) != 0 || w.Record.Nominee != "" {
			t.Fatalf("wrote %+v", w)
		}
		b.wantRole(Leading)
	})
}

func TestNomineeStandsFirst(t *testing.T) {
	released := func(t *testing.T, nominee string) *bench {
		b := newBench(t, required)
		b.see(Holder{}, Record{Term: 5, Timeline: 1, SystemID: "7", HolderDataID: "dx", Members: []Member{ma, mb}, Votes: 2, Nominee: nominee})
		return b
	}
	vote := func(b *bench, out Output, end postgres.LSN) {
		b.in.Cut = out.Ask.Term
		b.in.Votes = []Vote{{Voter: mb, Request: *out.Ask, Timeline: 1, End: end}}
	}
	t.Run("the nominee stands at once and wins against an equal", func(t *testing.T) {
		b := released(t, "a")
		out := b.step()
		if out.Ask == nil || out.Seal != 6 || !slices.Equal(out.AskWhom, []Member{mb}) {
			t.Fatalf("got %+v", out)
		}
		vote(b, out, 100)
		if w := b.write(); w.Record.HolderDataID != "da" || w.Record.Nominee != "" {
			t.Errorf("wrote %+v", w)
		}
	})
	t.Run("the nominee yields to a better one", func(t *testing.T) {
		b := released(t, "a")
		vote(b, b.step(), 101)
		if out := b.step(); out.Write != nil {
			t.Errorf("wrote %+v", out.Write)
		}
	})
	t.Run("others wait for a while", func(t *testing.T) {
		b := released(t, "b")
		if out := b.step(); out.Ask != nil {
			t.Fatalf("got %+v", out)
		}
		b.pass(required.NomineeFirst)
		if out := b.step(); out.Ask == nil {
			t.Fatalf("got %+v", out)
		}
	})
	t.Run("others who may lack something leave the Lease to its last holder next", func(t *testing.T) {
		release := func(holder string) *bench {
			b := newBench(t, async)
			b.see(Holder{}, Record{Term: 5, Timeline: 1, SystemID: "7", HolderDataID: holder, Members: []Member{ma, mb}, Votes: 1, Nominee: "b"})
			return b
		}
		other, last := release("dx"), release("da")
		other.pass(async.LeaseDuration - 1)
		if out := other.step(); out.Ask != nil {
			t.Errorf("another stands: %+v", out)
		}
		other.pass(1)
		if out := other.step(); out.Ask == nil {
			t.Error("another does not stand though nobody takes over")
		}
		last.pass(async.LeaseDuration/2 - 1)
		if out := last.step(); out.Write != nil {
			t.Errorf("the last holder leaves the nominee no time: %+v", out)
		}
		last.pass(1)
		if w := last.write(); w.Record.HolderDataID != "da" {
			t.Errorf("the last holder wrote %+v", w)
		}
	})
	t.Run("a voter does not wait", func(t *testing.T) {
		b := released(t, "b")
		b.in.Requests = []VoteRequest{{Candidate: mb, Term: 6, Version: b.in.Lease.Version}}
		if out := b.step(); out.Seal != 6 {
			t.Fatalf("got %+v", out)
		}
	})
}

func TestFound(t *testing.T) {
	b := newBench(t, required)
	b.see(Holder{}, Record{})
	if out := b.step(); out.Write != nil || out.Ask != nil {
		t.Fatalf("an empty Lease is anybody's: %+v", out)
	}
	b.in.Founds, b.s.Sealed = true, 6
	b.wantRole(Staying)
	b.s.pending = nil
	if w := b.write(); w.Record.Term != 7 || w.Record.HolderDataID != "da" || len(w.Record.Members) != 0 {
		t.Errorf("wrote %+v", w)
	}
	b = newBench(t, required)
	b.in.Founds = true
	if out := b.step(); out.Write != nil {
		t.Errorf("it founds what there is: %+v", out.Write)
	}
}

func TestForce(t *testing.T) {
	forced := func(t *testing.T) *bench {
		b := newBench(t, required)
		b.in.Lease.Record.Members, b.in.Lease.Record.Votes = []Member{mb, mc}, 2
		b.in.Forced = true
		return b
	}
	t.Run("it waits until the Lease has ended, and overrules a better vote", func(t *testing.T) {
		b := forced(t)
		if out := b.step(); out.Ask != nil {
			t.Fatalf("got %+v", out)
		}
		b.pass(required.LeaseDuration)
		out := b.step()
		if out.Ask == nil || !slices.Equal(out.AskWhom, []Member{mb, mc}) {
			t.Fatalf("got %+v", out)
		}
		b.in.Votes = []Vote{{Voter: mb, Request: *out.Ask, Timeline: 1, End: 900}}
		b.pass(required.VoteWindow)
		if out := b.step(); out.Write != nil {
			t.Fatalf("it has not cut its receiver: %+v", out.Write)
		}
		b.in.Cut = 6
		b.pass(time.Minute)
		out = b.step() // its own vote was missing, so it stands again
		b.pass(required.VoteWindow)
		if w := b.write(); w.Record.HolderDataID != "da" || w.Record.Term != 6 {
			t.Errorf("wrote %+v", w)
		}
	})
	t.Run("a promise is kept", func(t *testing.T) {
		b := forced(t)
		b.in.Pleas = []PromiseRequest{{Holder: b.in.Lease.Holder, Term: 5}}
		b.pass(9 * time.Second)
		if out := b.step(); len(out.Promises) != 1 {
			t.Fatalf("got %+v", out)
		}
		b.pass(2 * time.Second)
		if out := b.step(); out.Ask != nil {
			t.Errorf("got %+v", out)
		}
	})
}

func TestStepWithLittleKnown(t *testing.T) {
	t.Run("without a Lease it waits as a standby", func(t *testing.T) {
		b := newBench(t, required)
		b.in.Lease = nil
		b.in.Requests = []VoteRequest{{Candidate: mb, Term: 6}}
		b.in.Pleas = []PromiseRequest{{}}
		if out := b.step(); out.Target.Role != Following || out.Target.Upstream != "" || len(out.Votes)+len(out.Promises) > 0 || out.Seal > 0 {
			t.Errorf("got %+v", out)
		}
	})
	t.Run("what the volume remembers is good for promises, not for votes", func(t *testing.T) {
		b := newBench(t, required)
		b.in.Lease.Record.Members, b.in.Lease.Record.Votes = []Member{ma, mb}, 2
		b.in.Lease.Version = ""
		b.pass(time.Minute)
		b.in.Requests = []VoteRequest{{Candidate: mb, Term: 6, Version: ""}}
		b.in.Pleas = []PromiseRequest{{Holder: b.in.Lease.Holder, Term: 5}}
		out := b.step()
		if out.Seal > 0 || len(out.Votes) > 0 || len(out.Promises) != 1 || out.Write != nil || out.Ask != nil {
			t.Errorf("got %+v", out)
		}
		if out.Target.Upstream != "x" {
			t.Errorf("it follows %q", out.Target.Upstream)
		}
	})
	t.Run("a server that starts is no reason to end the reign", func(t *testing.T) {
		b := newBench(t, required)
		b.reign(mb)
		b.in.Primary = nil
		b.pass(3 * time.Second)
		out := b.step()
		if out.Target.Role != Leading || out.Target.Open || out.Sync != nil || out.Write == nil || !slices.Equal(out.Write.Record.Members, []Member{mb}) {
			t.Errorf("got %+v", out)
		}
	})
	t.Run("nothing changes while a value of S is on its way", func(t *testing.T) {
		b := newBench(t, required)
		b.reign(mb)
		b.in.Primary.SyncDone = false
		b.in.Primary.Standbys = append(b.in.Primary.Standbys, Standby{Member: mc, Flushed: 100})
		b.settle()
		if got := b.s.reign.record.Members; !slices.Equal(got, []Member{mb}) {
			t.Errorf("members are %v", got)
		}
	})
	t.Run("a watch that shows a later reign ends this one", func(t *testing.T) {
		b := newBench(t, required)
		b.reign(mb)
		b.see(Holder{Instance: "b", PodUID: "2"}, Record{Term: 7, HolderDataID: "db"})
		b.in.Fresh = false
		b.wantRole(Stopped)
		b.see(Holder{Instance: "x", PodUID: "9"}, Record{Term: 5, HolderDataID: "dx"})
	})
	t.Run("a watch that is behind does not", func(t *testing.T) {
		b := newBench(t, required)
		b.reign(mb)
		b.see(Holder{Instance: "x", PodUID: "9"}, Record{Term: 5, HolderDataID: "dx"})
		b.in.Fresh = false
		b.wantRole(Leading)
	})
}

func TestPresentStandbys(t *testing.T) {
	old, now := Standby{Member: Member{Instance: "b", DataID: "old"}, Flushed: 50}, Standby{Member: mb, Flushed: 60}
	r := &reign{marks: map[string]mark{}}
	for _, c := range []struct {
		name     string
		standbys []Standby
		want     []Standby
	}{
		{"nobody's names do not count", []Standby{{Member: Member{Instance: "b"}}, {Member: Member{DataID: "d"}}, {Member: ma}, {}}, nil},
		{"a walsender that has come to a halt does not count", []Standby{old, now}, []Standby{now}},
		{"nor in another order", []Standby{now, old}, []Standby{now}},
		{"the same data counts by the furthest", []Standby{{Member: mb, Flushed: 5}, now, {Member: mb, Flushed: 7}}, []Standby{now}},
	} {
		if got := r.presentStandbys("a", c.standbys); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
}

func TestMembers(t *testing.T) {
	t.Run("a member that is gone for good is replaced by one that has the past", func(t *testing.T) {
		b := newBench(t, required)
		b.reign(mb)
		b.in.Primary.Standbys = []Standby{{Member: mc, Flushed: 100}}
		b.settle()
		if got := b.s.reign.record.Members; !slices.Equal(got, []Member{mc}) {
			t.Errorf("members are %v", got)
		}
	})
	t.Run("a member that comes back with other data is taken on again", func(t *testing.T) {
		b := newBench(t, required)
		b.reign(mb)
		anew := Member{Instance: "b", DataID: "new"}
		b.in.Primary.Standbys = []Standby{{Member: anew, Flushed: 100}}
		b.settle()
		if got := b.s.reign.record.Members; !slices.Equal(got, []Member{anew}) {
			t.Errorf("members are %v", got)
		}
	})
	t.Run("in mode required the only member stays while it is away", func(t *testing.T) {
		b := newBench(t, required)
		b.reign(mb)
		b.in.Primary.Standbys = nil
		b.settle()
		if got := b.s.reign.record.Members; !slices.Equal(got, []Member{mb}) || b.s.reign.sync.Need != 1 {
			t.Errorf("members are %v, sync %v", got, b.s.reign.sync)
		}
	})
	t.Run("in mode preferred the primary goes on alone", func(t *testing.T) {
		b := newBench(t, preferred)
		b.reign(mb)
		b.in.Primary.Standbys = nil
		b.settle()
		if got := b.s.reign.record.Members; len(got) != 0 || b.s.reign.sync.Need != 0 {
			t.Errorf("members are %v, sync %v", got, b.s.reign.sync)
		}
	})
	t.Run("a standby that lags is no member", func(t *testing.T) {
		b := newBench(t, required)
		b.reign(mb)
		b.in.Primary.Standbys = append(b.in.Primary.Standbys, Standby{Member: mc, Flushed: 99})
		b.settle()
		if got := b.s.reign.record.Members; !slices.Equal(got, []Member{mb}) {
			t.Errorf("members are %v", got)
		}
	})
	t.Run("addresses of members are in the record", func(t *testing.T) {
		b := newBench(t, required)
		b.reign(mb, mc)
		if got := b.s.reign.record.Addresses; got["b"] != "10.0.1.b" || got["c"] != "10.0.1.c" || len(got) != 2 {
			t.Errorf("addresses are %v", got)
		}
	})
}

// When people change the rules, nobody may take over until the new ones hold.
func TestRulesChange(t *testing.T) {
	for _, c := range []struct {
		from, to    Settings
		members     []Member
		votes, need int
	}{
		{async, required, []Member{mb, mc}, 2, 1},
		{required, async, []Member{mb, mc}, 1, 0},
		{required, settingsOf(Required, 2), []Member{mb, mc}, 1, 2},
		{settingsOf(Required, 2), required, []Member{mb, mc}, 2, 1},
		{preferred, settingsOf(Preferred, 3), nil, 0, 0},
		{preferred, settingsOf(Required, 3), nil, 0, 3},
		{required, settingsOf(Required, 0), []Member{mb, mc}, 2, 1}, // at least one
	} {
		t.Run(fmt.Sprintf("%s %d to %s %d", c.from.Mode, c.from.Need, c.to.Mode, c.to.Need), func(t *testing.T) {
			b := newBench(t, c.from)
			b.reign(mb, mc)
			b.c = c.to
			if out := b.step(); c.from.Need != max(1, c.to.Need) && (out.Write == nil || len(out.Write.Record.Members) > 0) {
				t.Fatalf("the old members stay: %+v", out.Write)
			} else if out.Write != nil {
				b.see(out.Write.Holder, out.Write.Record)
				b.in.Written = &Written{Outcome: Done, Version: b.in.Lease.Version}
			}
			b.settle()
			r := b.s.reign
			if !slices.Equal(r.record.Members, c.members) || r.record.Votes != c.votes || r.sync.Need != c.need {
				t.Errorf("members %v, votes %d, sync %v", r.record.Members, r.record.Votes, r.sync)
			}
		})
	}
}

func TestOpen(t *testing.T) {
	b := newBench(t, required)
	b.reign(mb)
	if out := b.step(); !out.Target.Open {
		t.Fatalf("it is closed: %+v", out.Target)
	}
	b.in.Primary.SyncDone = false
	if out := b.step(); !out.Target.Open {
		t.Errorf("a change of S closes it: %+v", out.Target)
	}
	b.in.Primary.SyncDone, b.in.Primary.Recovered, b.in.Primary.End = true, 120, 120
	if out := b.step(); out.Target.Open {
		t.Errorf("a server that has restarted shows what its standbys lack: %+v", out.Target)
	}
	b.in.Primary.Standbys[0].Flushed = 120
	if out := b.step(); !out.Target.Open {
		t.Errorf("it stays closed: %+v", out.Target)
	}
	b.in.Primary.Standbys = nil
	if out := b.step(); !out.Target.Open {
		t.Errorf("what is open does not stay so: %+v", out.Target)
	}
}

func TestPromises(t *testing.T) {
	t.Run("so many are enough that the others can't elect", oneOfTwoPromises)
	t.Run("a record without members needs none", promiseWhileMembersGo)
}

// promiseWhileMembersGo has a record on its way from which nobody may take over,
// while the one before may still be in force.
func promiseWhileMembersGo(t *testing.T) {
	b := newBench(t, preferred)
	b.reign(mb)
	b.in.Primary.Standbys, b.in.Fresh = nil, false
	b.pass(2 * time.Second)
	b.step() // a renewal
	b.in.Written = &Written{Outcome: Done, Version: "r"}
	b.pass(2 * time.Second)
	if out := b.step(); out.Write == nil || len(out.Write.Record.Members) > 0 {
		t.Fatalf("got %+v", out)
	}
	b.pass(4 * time.Second)
	out := b.step()
	if out.Plead == nil || !slices.Equal(out.PleadWith, []Member{mb}) {
		t.Fatalf("got %+v", out)
	}
	b.in.Promises = []Promise{{Member: mb, Request: *out.Plead}}
	b.step()
	b.pass(6 * time.Second)
	b.wantRole(Leading)
}

func oneOfTwoPromises(t *testing.T) {
	b := newBench(t, required)
	b.reign(mb, mc)
	b.in.Fresh = false
	b.pass(3 * time.Second)
	b.step() // a renewal, of which nothing is heard
	b.pass(2 * time.Second)
	out := b.step()
	if out.Plead == nil || !slices.Equal(out.PleadWith, []Member{mb, mc}) {
		t.Fatalf("got %+v", out)
	}
	plea := *out.Plead
	b.in.Promises = []Promise{{Member: mb, Request: plea}}
	b.pass(time.Second)
	b.step() // one of two promised: the other needs two votes
	b.pass(5 * time.Second)
	b.wantRole(Leading)
	b.pass(time.Second)
	b.wantRole(Stopped)
}

func TestVotesAreVoid(t *testing.T) {
	standing := func(t *testing.T) (*bench, VoteRequest) {
		b := newBench(t, required)
		b.in.Lease.Record.Members, b.in.Lease.Record.Votes = []Member{ma, mb}, 2
		b.pass(time.Minute)
		out := b.step()
		b.in.Cut = 6
		b.in.Votes = []Vote{{Voter: mb, Request: *out.Ask, Timeline: 1, End: 1}}
		return b, *out.Ask
	}
	for _, c := range []struct {
		name   string
		change func(b *bench)
		void   bool
	}{
		{"nothing has changed", func(*bench) {}, false},
		{"the holder has renewed the Lease", func(b *bench) { b.see(b.in.Lease.Holder, b.in.Lease.Record); b.in.Lease.SeenAt -= time.Hour }, true},
		{"this instance has voted for a later term", func(b *bench) { b.s.Sealed = 8 }, true},
		{"its data is other", func(b *bench) { b.in.Data.ID = "new" }, true},
		{"the vote is of data that is no member's", func(b *bench) { b.in.Votes[0].Voter.DataID = "old" }, true},
		{"the voter is ahead", func(b *bench) { b.in.Votes[0].End = 101 }, true},
		{"the voter is on a later timeline", func(b *bench) { b.in.Votes[0].Timeline = 2 }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, _ := standing(t)
			c.change(b)
			if out := b.step(); (out.Write == nil) != c.void {
				t.Errorf("wrote %+v", out.Write)
			}
		})
	}
}

// A term is asked for that nobody has sealed above, so that all can vote.
func TestCandidateAsksAboveWhatIsSealed(t *testing.T) {
	b := newBench(t, required)
	b.in.Lease.Record.Members, b.in.Lease.Record.Votes = []Member{ma, mb}, 2
	b.in.Sealed = 9
	b.pass(time.Minute)
	if out := b.step(); out.Ask == nil || out.Ask.Term != 9 {
		t.Errorf("got %+v", out)
	}
}

func FuzzStep(f *testing.F) {
	for seed := range uint64(200) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		m := monkey{rand.New(rand.NewPCG(seed, 2))}
		s, now := State{Me: m.holder()}, Time(0)
		for range 100 {
			now += Time(m.r.Int64N(int64(5 * time.Second)))
			before := s.Sealed
			out := Step(m.settings(), &s, m.input(now))
			if s.Sealed < before {
				t.Fatalf("sealed has gone from %d to %d", before, s.Sealed)
			}
			if out.Target.Role == Leading != (s.Reigns() && !s.reign.released) && out.Target.Role != Stopped {
				t.Fatalf("target %+v, reigns %v", out.Target, s.Reigns())
			}
		}
	})
}

// monkey makes up inputs that may be anything, few enough in kind to meet.
type monkey struct{ r *rand.Rand }

func (m monkey) yes() bool { return m.r.IntN(2) == 0 }

func (m monkey) of(values ...string) string { return values[m.r.IntN(len(values))] }

func (m monkey) term() uint64 { return m.r.Uint64N(5) }

func (m monkey) lsn() postgres.LSN { return postgres.LSN(m.r.Uint64N(5)) }

func (m monkey) holder() Holder { return Holder{m.of("a", "b", ""), m.of("1", "")} }

func (m monkey) member() Member { return Member{m.of("a", "b", "c", ""), m.of("d1", "d2", "")} }

func many[T any](m monkey, one func() T) []T {
	var all []T
	for range m.r.IntN(4) {
		all = append(all, one())
	}
	return all
}

func maybe[T any](m monkey, one func() T) *T {
	if m.yes() {
		return nil
	}
	x := one()
	return &x
}

func (m monkey) settings() Settings {
	c := settingsOf(Mode(m.of("async", "required", "preferred", "")), m.r.IntN(4)-1)
	if m.r.IntN(10) == 0 {
		return Settings{}
	}
	return c
}

func (m monkey) record() Record {
	return Record{
		Term: m.term(), Timeline: m.r.Uint32N(3), HolderDataID: m.of("d1", "d2", ""), Members: many(m, m.member), Votes: m.r.IntN(4) - 1,
		Nominee: m.of("a", "b", ""),
	}
}

func (m monkey) lease() Lease {
	return Lease{Version: m.of("1", "2", ""), Holder: m.holder(), Record: m.record(), SeenAt: Time(m.r.Int64N(int64(time.Minute)))}
}

func (m monkey) sync() Sync { return Sync{Need: m.r.IntN(3), Standbys: many(m, m.member)} }

func (m monkey) standby() Standby {
	return Standby{Member: m.member(), Flushed: m.lsn(), Address: m.of("", "x")}
}

func (m monkey) primary() Primary {
	return Primary{
		End: m.lsn(), Timeline: m.r.Uint32N(3), Sync: m.sync(), SyncDone: m.yes(), SyncSince: m.lsn(), Recovered: m.lsn(),
		Standbys: many(m, m.standby),
	}
}

func (m monkey) request() VoteRequest { return VoteRequest{m.member(), m.term(), m.of("1", "2", "")} }

func (m monkey) vote() Vote {
	return Vote{Voter: m.member(), Request: m.request(), Timeline: m.r.Uint32N(3), End: m.lsn()}
}

func (m monkey) plea() PromiseRequest { return PromiseRequest{Holder: m.holder(), Term: m.term()} }

func (m monkey) promise() Promise { return Promise{m.member(), m.plea()} }

func (m monkey) testimony() Testimony {
	return Testimony{Instance: m.of("a", "b", "c"), Version: m.of("1", "2"), DataID: m.of("d1", "d2", ""), Record: m.record(), Sealed: m.term()}
}

func (m monkey) input(now Time) Input {
	return Input{
		Now: now, Lease: maybe(m, m.lease), Fresh: m.yes(), Data: Data{ID: m.of("d1", "d2", ""), Timeline: m.r.Uint32N(3), End: m.lsn()},
		Cut: m.term(), Primary: maybe(m, m.primary), Resign: maybe(m, func() Resign { return Resign{m.of("a", "b", "")} }),
		Halt: maybe(m, func() Halt { return Halt{m.yes(), many(m, m.member)} }), Rest: m.yes(),
		Founds: m.yes(), Memory: m.record(), Instances: many(m, func() string { return m.of("a", "b", "c") }), Forced: m.yes(), Sealed: m.term(),
		Written:  maybe(m, func() Written { return Written{Outcome(m.r.IntN(4)), m.of("1", "2")} }),
		Requests: many(m, m.request), Votes: many(m, m.vote), Pleas: many(m, m.plea), Promises: many(m, m.promise),
		Testimonies: many(m, m.testimony),
	}
}

// Settings change, and not everywhere at once: whoever counts the shorter length,
// the holder stops before another may take over.
func TestLengthOfTheLeaseChanges(t *testing.T) {
	told := func(c Settings, length time.Duration) Settings {
		c.LeaseDuration, c.RenewEvery, c.Margin = length, length/5, length*3/10
		return c
	}
	t.Run("a shorter one counts from the first write that says so", func(t *testing.T) {
		b := newBench(t, told(async, time.Minute))
		b.reign(mb)
		b.write() // until then it lasts a minute
		b.step()
		b.c = told(async, 10*time.Second)
		b.pass(3 * time.Second)
		b.step() // a write whose outcome nobody hears
		if until, ends := b.s.MustStopAt(); !ends || until-b.in.Now != 7*time.Second {
			t.Errorf("it stops in %s (%v)", until-b.in.Now, ends)
		}
	})
	t.Run("a longer one counts once it is written", func(t *testing.T) {
		b := newBench(t, async)
		b.reign(mb)
		b.pass(3 * time.Second)
		written := b.write() // by the rules before
		b.c = told(async, time.Minute)
		b.step()
		if until, _ := b.s.MustStopAt(); until != written.StartedAt+7*time.Second {
			t.Errorf("it stops %s after a write that says 10s", until-written.StartedAt)
		}
	})
	t.Run("who elects waits as long as the holder counts", func(t *testing.T) {
		b := newBench(t, async)
		b.see(Holder{Instance: "x", PodUID: "9"}, Record{Term: 5, HolderDataID: "dx", Members: []Member{ma}, Votes: 1})
		b.in.Lease.Lasts = time.Minute
		b.pass(59 * time.Second)
		if out := b.step(); out.Seal != 0 {
			t.Error("it elects while the holder may write")
		}
		b.pass(time.Second)
		if out := b.step(); out.Seal == 0 {
			t.Error("it does not elect")
		}
	})
	t.Run("a promise lasts as long as the holder counts", func(t *testing.T) {
		b := newBench(t, async)
		holder := Holder{Instance: "x", PodUID: "9"}
		b.see(holder, Record{Term: 5, HolderDataID: "dx", Members: []Member{ma}, Votes: 1})
		b.in.Pleas = []PromiseRequest{{Holder: holder, Term: 5, Lasts: time.Minute}}
		if out := b.step(); len(out.Promises) != 1 {
			t.Fatalf("got %+v", out)
		}
		b.pass(59 * time.Second)
		if out := b.step(); out.Seal != 0 {
			t.Error("it breaks its promise")
		}
	})
}

// A write that was sent twice on its way is refused because it has succeeded.
func TestRefusedWriteMayHaveSucceeded(t *testing.T) {
	b := newBench(t, async)
	b.reign()
	b.in.Primary = &Primary{End: 100, Timeline: 1, Standbys: []Standby{{Member: mb, Flushed: 100}}}
	out := b.step()
	if out.Write == nil || len(out.Write.Record.Members) != 1 {
		t.Fatalf("got %+v", out)
	}
	b.see(out.Write.Holder, out.Write.Record)
	b.in.Written = &Written{Outcome: Refused}
	b.in.Fresh = false // and the API is away from now on
	b.step()
	if _, ends := b.s.MustStopAt(); !ends {
		t.Error("its right has no end, though a member may take over")
	}
	b.in.Fresh = true
	b.in.Primary.Standbys = nil
	b.step()
	if _, ends := b.s.MustStopAt(); !ends {
		t.Error("its right has no end after a read, though a member may take over")
	}
}
