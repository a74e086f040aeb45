package instance

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pgop/postgres-operator/pkg/election"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/internal/wallclock"
)

// jumps are how far people and NTP move the hands of a clock.
var jumps = map[string]time.Duration{"five minutes back": -5 * time.Minute, "an hour ahead": time.Hour}

// C-24: what an agent goes by is how much time has passed, wherever the hands of
// its wall clock are put meanwhile.
func TestC24AgentsGoByTheMonotonicClock(t *testing.T) {
	for why, jump := range jumps {
		t.Run(why, func(t *testing.T) {
			a := newTestAgent(t)
			a.beats()
			now := time.Now()
			later := func(d time.Duration) time.Time { return wallclock.Move(now.Add(d), jump) }
			if !a.alive(later(2 * time.Second)) {
				t.Error("a loop that runs does not count as alive: the kubelet would end the agent")
			}
			if a.alive(later(8 * time.Second)) {
				t.Error("a loop that hangs counts as alive: the kubelet would not end the agent")
			}
			r := readiness{Role: instanceapi.RoleReplica, Answers: true, StreamedAt: now, RenewedAt: now.Add(6 * time.Second), Lasts: leaseDuration}
			if !r.isReady(later(time.Second)) {
				t.Error("a replica that streams is not ready")
			}
			if r.isReady(later(7 * time.Second)) {
				t.Error("a replica that streams no more is ready")
			}
			b := &inbox{wake: func() {}}
			b.askVote(election.VoteRequest{Term: 2, Version: "1"})
			b.put(func() { b.fresh = later(time.Millisecond) })
			var in election.Input
			b.moveInto(&in, later(time.Second))
			if len(in.Requests) != 1 || len(b.requests) != 1 {
				t.Error("a request for a vote is not heard")
			}
			b.moveInto(&in, later(patience+time.Second))
			if len(b.requests) != 0 {
				t.Error("a request that nobody waits for is kept")
			}
		})
	}
}

// C-24: when a Lease was renewed is what others have seen, not what its holder
// wrote.
func TestC24RenewalsAreSeenNotRead(t *testing.T) {
	a := newTestAgent(t)
	began := time.Now()
	for n, written := range []time.Duration{0, -5 * time.Minute, time.Hour, time.Minute} {
		holder := "shop-2/b"
		a.view.SawLease(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "shop", ResourceVersion: string(rune('1' + n))},
			Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, RenewTime: &metav1.MicroTime{Time: began.Add(written)}}})
		lease := a.view.knownLease()
		for what, at := range map[string]time.Time{"seen": lease.SeenAt, "renewed": lease.RenewedAt} {
			if since := time.Since(at); since < 0 || since > time.Since(began) {
				t.Errorf("a Lease that was renewed at %s by its holder's clock counts as %s %s ago", written, what, since)
			}
		}
		began = time.Now()
		if seen := a.elector.lease(reignMemory{}).SeenAt; seen < 0 || seen > a.elector.now() {
			t.Errorf("seen at %s, and it is %s", seen, a.elector.now())
		}
	}
}

// C-24: the clock of the primary's node jumps. Nobody takes over, and nothing
// restarts; when the primary is lost, others take over as soon as ever.
func TestC24PrimarysClockJumps(t *testing.T) {
	t.Parallel()
	const lease = 3 * time.Second
	ha := instanceapi.HA{Mode: "async"}
	ha.LeaseDuration.Duration = lease
	w, pods := three(t, ha)
	r, _ := w.record()
	server := pods["shop-1"].query(postmaster)
	for why, jump := range jumps {
		skewed := w.skew(jump)
		w.eventually("the Lease has a time that is "+why, skewed, func() string { l, _ := w.kube.now(); return l.Spec.RenewTime.String() })
		for began := time.Now(); time.Since(began) < 2*lease; time.Sleep(20 * time.Millisecond) {
			if now, holder := w.record(); holder != "shop-1" || now.Term != r.Term {
				t.Fatalf("%s: %q reigns in term %d", why, holder, now.Term)
			}
		}
	}
	if got := pods["shop-1"].query(postmaster); got != server {
		t.Errorf("the server was started anew: %s, before %s", got, server)
	}
	w.awaitMembers(2)
	pods["shop-1"].vanish()
	w.awaitPrimary(pods, "shop-1")
}

// skew moves the hands of the clock by which the primary writes the Lease, and
// returns how to see whether it has done so.
func (w *world) skew(by time.Duration) (seen func() bool) {
	w.kube.set(func(f *fakeKubernetes) { f.skew = by })
	return func() bool {
		lease, _ := w.kube.now()
		off := time.Until(lease.Spec.RenewTime.Time)
		return (off - by).Abs() < time.Minute
	}
}
