package election

import (
	"slices"
	"testing"
	"time"
)

// B-13: a cluster that is stopped keeps its holder, and as members those that
// have everything.
func TestB13Halt(t *testing.T) {
	halted := func(t *testing.T, c Settings, h Halt) (*bench, Output) {
		b := newBench(t, c)
		b.reign(mb, mc)
		b.in.Primary = nil
		b.in.Halt, b.in.Rest = &h, true
		return b, b.step()
	}
	wantRest := func(t *testing.T, b *bench) {
		t.Helper()
		b.wantRole(Staying)
		if b.s.Reigns() {
			t.Error("it still reigns")
		}
		b.pass(time.Hour)
		if out := b.step(); out.Write != nil || out.Ask != nil || out.Blocked != "" {
			t.Errorf("it does not rest: %+v", out)
		}
	}
	async := required
	async.Mode = Async
	for _, c := range []Settings{required, async} {
		t.Run(string(c.Mode)+": members are those that have everything, each of which may elect", func(t *testing.T) {
			b, out := halted(t, c, Halt{Orderly: true, Whole: []Member{mc}})
			if out.Write == nil || out.Write.Holder != b.s.Me || out.Write.Record.Votes != 1 || !slices.Equal(out.Write.Record.Members, []Member{mc}) {
				t.Fatalf("got %+v", out.Write)
			}
			b.see(out.Write.Holder, out.Write.Record)
			b.in.Written = &Written{Outcome: Done, Version: b.in.Lease.Version}
			wantRest(t, b)
		})
	}
	t.Run("when nobody has everything, nobody may elect", func(t *testing.T) {
		_, out := halted(t, async, Halt{Orderly: true})
		if out.Write == nil || len(out.Write.Record.Members) != 0 || out.Write.Record.Votes != 0 {
			t.Fatalf("got %+v", out.Write)
		}
	})
	t.Run("who is no member does not become one", func(t *testing.T) {
		_, out := halted(t, async, Halt{Orderly: true, Whole: []Member{mb, {Instance: "z", DataID: "dz"}}})
		if out.Write == nil || !slices.Equal(out.Write.Record.Members, []Member{mb}) {
			t.Fatalf("got %+v", out.Write)
		}
	})
	t.Run("a server that did not shut down in order leaves the members as they are", func(t *testing.T) {
		b, out := halted(t, required, Halt{})
		if out.Write != nil {
			t.Fatalf("wrote %+v", out.Write)
		}
		wantRest(t, b)
	})
	t.Run("a write of unknown outcome is written again", func(t *testing.T) {
		b, out := halted(t, required, Halt{Orderly: true, Whole: []Member{mb}})
		b.in.Written = &Written{Outcome: Unknown}
		again := b.step()
		if again.Write == nil || !again.Write.Record.Equal(out.Write.Record) {
			t.Fatalf("got %+v", again)
		}
	})
	t.Run("it takes the Lease back when people want the cluster again", func(t *testing.T) {
		b, out := halted(t, required, Halt{Orderly: true, Whole: []Member{mb, mc}})
		b.see(out.Write.Holder, out.Write.Record)
		b.in.Written = &Written{Outcome: Done, Version: b.in.Lease.Version}
		b.step()
		b.in.Halt, b.in.Rest = nil, false
		if w := b.write(); w.Record.Term != 7 || w.Holder != b.s.Me {
			t.Fatalf("wrote %+v", w)
		}
		b.wantRole(Leading)
	})
	t.Run("a member stands for election only when people want the cluster", func(t *testing.T) {
		b := newBench(t, async)
		b.see(Holder{Instance: "x", PodUID: "9"}, Record{Term: 5, Timeline: 1, SystemID: "7", HolderDataID: "dx", Members: []Member{{Instance: "a", DataID: "da"}}, Votes: 1})
		b.in.Rest = true
		b.pass(time.Hour)
		if out := b.step(); out.Ask != nil || out.Target.Role != Following {
			t.Fatalf("got %+v", out)
		}
		b.in.Rest = false
		if out := b.step(); out.Ask == nil {
			t.Fatalf("got %+v", out)
		}
	})
}
