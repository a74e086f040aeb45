package election

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// reignOfX is the last reign, of an instance x with two members.
var reignOfX = Record{Term: 9, Timeline: 3, SystemID: "7", HolderDataID: "dx", Members: []Member{ma, mb}, Votes: 1}

// robbed is an instance that has found the Lease without a record, and remembers.
func robbed(t *testing.T, memory Record) *bench {
	b := newBench(t, required)
	b.in.Memory, b.in.Instances = memory, []string{"a", "b", "x"}
	b.see(Holder{}, Record{})
	return b
}

// hears lets it hear an instance.
func (b *bench) hears(instance, data string, memory Record) {
	b.in.Testimonies = append(b.in.Testimonies, Testimony{Instance: instance, Version: b.in.Lease.Version, DataID: data, Record: memory})
}

func (b *bench) wantWaits(words ...string) {
	b.t.Helper()
	out := b.step()
	if out.Write != nil || out.Ask != nil || out.Target.Role != Staying {
		b.t.Errorf("it goes on: %+v", out)
	}
	for _, word := range words {
		if !strings.Contains(out.Blocked, word) {
			b.t.Errorf("%q does not say %q", out.Blocked, word)
		}
	}
}

// With the Lease lost, no reign begins before all volumes were heard, and then that
// of the newest memory goes on.
func TestLostLease(t *testing.T) {
	own, older := reignOfX, reignOfX
	own.HolderDataID = "da"
	older.Term, older.HolderDataID = 5, "da"
	t.Run("the data that reigned last waits for all, and takes it back", func(t *testing.T) {
		b := robbed(t, own)
		if out := b.step(); !slices.Equal(out.Inquire, []string{"b", "x"}) || out.Write != nil {
			t.Fatalf("got %+v", out)
		}
		b.hears("b", "db", own)
		b.wantWaits("volume of x remembers")
		b.hears("x", "", Record{})
		if w := b.write(); w.Record.Term != 10 || w.Record.HolderDataID != "da" || len(w.Record.Members) > 0 || w.Record.Timeline != 3 {
			t.Errorf("wrote %+v", w)
		}
	})
	t.Run("one of the names has never had a volume", func(t *testing.T) {
		b := robbed(t, own)
		b.in.Instances = []string{"a", "b"}
		b.step()
		b.hears("b", "db", own)
		b.write()
	})
	t.Run("alone it takes it back at once", func(t *testing.T) {
		b := robbed(t, own)
		b.in.Instances = []string{"a"}
		b.write()
	})
	t.Run("who reigned before another did does not", func(t *testing.T) {
		b := robbed(t, older)
		b.step()
		b.hears("b", "db", older)
		b.hears("x", "dx", reignOfX)
		b.wantWaits("x, which reigned last, has to take it back")
	})
	t.Run("what was heard for another version of the Lease counts no more", func(t *testing.T) {
		b := robbed(t, own)
		b.step()
		b.hears("b", "db", own)
		b.hears("x", "", Record{})
		b.see(Holder{}, Record{})
		b.wantWaits("b, x")
	})
	t.Run("another database's memory is none", func(t *testing.T) {
		b := robbed(t, own)
		foreign := reignOfX
		foreign.Term, foreign.SystemID = 99, "8"
		b.step()
		b.hears("b", "db", own)
		b.hears("x", "dx", foreign)
		b.write()
	})
	t.Run("a Lease that is older than what this volume remembers is lost, too, once it has ended", func(t *testing.T) {
		b := robbed(t, own)
		b.see(Holder{Instance: "x", PodUID: "9"}, older)
		b.wantWaits("term 5", "term 9")
		b.pass(required.LeaseDuration)
		b.hears("b", "db", own)
		b.hears("x", "dx", older)
		if w := b.write(); w.Record.Term != 10 {
			t.Errorf("wrote %+v", w)
		}
	})
	t.Run("a stopped cluster rests", func(t *testing.T) {
		b := robbed(t, own)
		b.in.Instances, b.in.Rest = []string{"a"}, true
		b.wantWaits()
	})
	t.Run("nobody counts on it", func(t *testing.T) {
		b := robbed(t, own)
		b.in.Instances = []string{"b"}
		b.wantWaits("does not count on this instance")
	})
}

// Where the data that reigned last is gone for good, those who remember its reign
// elect, provided that they have everything.
func TestLostLeaseAndItsHolder(t *testing.T) {
	heard := func(t *testing.T, memory Record, ofB Record, dataOfB string) *bench {
		b := robbed(t, memory)
		b.step()
		b.hears("b", dataOfB, ofB)
		b.hears("x", "new", Record{})
		return b
	}
	t.Run("all of them vote, and the furthest wins", func(t *testing.T) {
		b := heard(t, reignOfX, reignOfX, "db")
		out := b.step()
		if out.Ask == nil || out.Ask.Term != 10 || !slices.Equal(out.AskWhom, []Member{mb}) {
			t.Fatalf("got %+v", out)
		}
		b.in.Cut = 10
		b.pass(required.VoteWindow)
		if out := b.step(); out.Write != nil {
			t.Errorf("one vote of two was enough: %+v", out.Write)
		}
		b.pass(required.VoteWindow)
		out = b.step()
		b.in.Votes = []Vote{{Voter: mb, Request: *out.Ask, Timeline: 1, End: 101}}
		if out := b.step(); out.Write != nil {
			t.Errorf("it does not yield: %+v", out.Write)
		}
		b.pass(3 * required.VoteWindow)
		out = b.step()
		b.in.Votes = []Vote{{Voter: mb, Request: *out.Ask, Timeline: 1, End: 99}}
		if w := b.write(); w.Record.HolderDataID != "da" {
			t.Errorf("wrote %+v", w)
		}
	})
	t.Run("one whose memory is older is no heir", func(t *testing.T) {
		older := reignOfX
		older.Term = 5
		b := heard(t, reignOfX, older, "db")
		if out := b.step(); out.Ask == nil || len(out.AskWhom) > 0 {
			t.Errorf("got %+v", out)
		}
	})
	t.Run("nobody could take over", func(t *testing.T) {
		alone := reignOfX
		alone.Members, alone.Votes = nil, 0
		heard(t, alone, reignOfX, "db").wantWaits("whose data is gone", "nobody could take over")
	})
	t.Run("the votes do not suffice, by what another remembers", func(t *testing.T) {
		both := reignOfX
		both.Votes = 2
		heard(t, both, reignOfX, "other").wantWaits("2 of its members elect, of which 1")
	})
	t.Run("by force", func(t *testing.T) {
		b := robbed(t, reignOfX)
		b.in.Forced = true
		b.wantWaits("b, x")
		b.pass(required.VoteWindow)
		out := b.step()
		if out.Ask == nil || out.Ask.Term <= 1000 {
			t.Fatalf("what was not heard may be newer: %+v", out.Ask)
		}
		b.in.Cut = out.Ask.Term
		b.pass(required.VoteWindow)
		b.write()
	})
}

// A reign goes on whose Lease is lost, as long as nobody can have been elected.
func TestReignGoesOnOverALostLease(t *testing.T) {
	lose := func(t *testing.T, members ...Member) *bench {
		b := newBench(t, required)
		b.reign(members...)
		b.see(Holder{}, Record{})
		b.pass(3 * time.Second)
		if b.step().Write == nil {
			t.Fatal("nothing is written")
		}
		b.in.Written = &Written{Outcome: Refused}
		return b
	}
	t.Run("without members nobody can", func(t *testing.T) {
		if w := lose(t).write(); w.Holder != (Holder{Instance: "a", PodUID: "1"}) || w.Record.Term != 6 {
			t.Errorf("wrote %+v", w)
		}
	})
	t.Run("of two of whom two elect, one is enough", func(t *testing.T) {
		b := lose(t, mb, mc)
		if out := b.step(); !slices.Equal(out.Inquire, []string{"b", "c"}) || out.Write != nil || out.Target.Role != Leading {
			t.Fatalf("got %+v", out)
		}
		b.hears("b", "db", b.s.reign.record)
		if w := b.write(); len(w.Record.Members) != 2 {
			t.Errorf("wrote %+v", w)
		}
	})
	t.Run("an answer counts that comes between two looks at the Lease", func(t *testing.T) {
		b := lose(t, mb, mc)
		b.step()
		b.hears("b", "db", b.s.reign.record)
		b.in.Fresh = false
		b.step()
		b.in.Testimonies, b.in.Fresh = nil, true
		if w := b.write(); len(w.Record.Members) != 2 {
			t.Errorf("wrote %+v", w)
		}
	})
	t.Run("one that has sealed a later term, or has other data, says nothing", func(t *testing.T) {
		b := lose(t, mb, mc)
		b.step()
		b.hears("b", "other", b.s.reign.record)
		b.hears("c", "dc", b.s.reign.record)
		b.in.Testimonies[1].Sealed = 7
		if out := b.step(); out.Write != nil || out.Target.Role != Leading {
			t.Errorf("got %+v", out)
		}
		b.pass(required.LeaseDuration)
		b.wantRole(Stopped)
	})
	t.Run("a newer reign ends it", func(t *testing.T) {
		b := lose(t, mb, mc)
		b.step()
		b.hears("b", "db", reignOfX)
		b.wantRole(Stopped)
	})
}
