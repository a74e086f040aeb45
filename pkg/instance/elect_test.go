package instance

import (
	"context"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pgop/postgres-operator/pkg/election"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/postgres"
)

func TestSuccessor(t *testing.T) {
	two, three := election.Member{Instance: "shop-2", DataID: "b"}, election.Member{Instance: "shop-3", DataID: "c"}
	record := election.Record{Term: 1, Members: []election.Member{two, three}}
	at := func(m election.Member, flushed postgres.LSN) election.Standby {
		return election.Standby{Member: m, Flushed: flushed}
	}
	cases := []struct {
		why      string
		want     string
		standbys []election.Standby
		expect   string
		says     string
	}{
		{"the one that has most", "", []election.Standby{at(two, 5), at(three, 9)}, "shop-3", ""},
		{"the one that is asked for", "shop-2", []election.Standby{at(two, 5), at(three, 9)}, "shop-2", ""},
		{"not who does not stream", "shop-3", []election.Standby{at(two, 5)}, "", "shop-3 can't take over"},
		{"not who has other data", "", []election.Standby{at(election.Member{Instance: "shop-2", DataID: "new"}, 5)}, "", "no replica can take over"},
		{"nobody there", "", nil, "", "no replica"},
	}
	for _, c := range cases {
		name, why := successor(c.want, record, c.standbys)
		if name != c.expect || !strings.Contains(why, c.says) || name == "" && why == "" {
			t.Errorf("%s: got %q, %q", c.why, name, why)
		}
	}
}

func newTestAgent(t *testing.T) *Agent {
	t.Helper()
	w := newWorld(t)
	log := logrus.New()
	log.SetOutput(io.Discard)
	a, err := New(w.options("shop-1", "127.0.0.31"), w.kube, log.WithField("instance", "shop-1"), io.Discard)
	must(t, err)
	return a
}

func canTakeOver(a *Agent) {
	a.view.lease = knownLease{Known: true, Record: election.Record{Term: 1, Members: []election.Member{{Instance: "shop-2", DataID: "b"}}}}
}

func runsReady() running {
	s := &server{ready: make(chan struct{}), exited: make(chan struct{})}
	close(s.ready)
	return running{Role: instanceapi.RolePrimary, Reigning: true, server: s}
}

func TestWhyGiveWay(t *testing.T) {
	t.Run("a server that has just come up is not silent", func(t *testing.T) {
		a := newTestAgent(t)
		canTakeOver(a)
		if why := a.whyGiveWay(running{}); why != "" {
			t.Errorf("it has just begun to start: %s", why)
		}
		if why := a.whyGiveWay(runsReady()); why != "" {
			t.Error(why)
		}
	})
	t.Run("a server that answers nobody", func(t *testing.T) {
		a := newTestAgent(t)
		a.upSince = time.Now().Add(-time.Minute)
		if why := a.whyGiveWay(runsReady()); !strings.Contains(why, "no new connection") {
			t.Errorf("got %q", why)
		}
		a.prober.answered()
		if why := a.whyGiveWay(runsReady()); why != "" {
			t.Error(why)
		}
	})
	t.Run("a server that does not come up", func(t *testing.T) {
		a := newTestAgent(t)
		a.downSince = time.Now().Add(-16 * time.Second)
		if why := a.whyGiveWay(running{}); why != "" {
			t.Errorf("nobody can take over, and yet: %s", why)
		}
		canTakeOver(a)
		if why := a.whyGiveWay(running{}); !strings.Contains(why, "not come up within 16s") {
			t.Errorf("got %q", why)
		}
	})
}

func TestLeaseNeverGoesBackInTime(t *testing.T) {
	a := newTestAgent(t)
	version := func(v, holder string) *coordinationv1.Lease {
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "shop", UID: "u", ResourceVersion: v},
			Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder}}
	}
	a.view.SawLease(version("10", "shop-2/b"))
	seen := a.view.knownLease().SeenAt
	a.view.SawLease(version("9", "shop-1/a")) // a watch that is behind
	a.view.SawLease(version("10", "shop-2/b"))
	if got := a.view.knownLease(); got.Holder.Instance != "shop-2" || !got.SeenAt.Equal(seen) {
		t.Errorf("got %+v", got)
	}
	// A Lease that is gone is no freer: what was known of it stays.
	a.view.SawLease(nil)
	if got := a.view.knownLease(); got.Known || got.Object == nil || !got.SeenAt.Equal(seen) {
		t.Errorf("got %+v", got)
	}
}

// A read that began before the outcome of a write was known says nothing of it.
func TestReadsBeforeAWriteAreNotFresh(t *testing.T) {
	b := &inbox{wake: func() {}}
	b.put(func() { b.fresh = time.Now() })
	b.put(func() {
		b.written, b.writtenAt = &election.Written{Outcome: election.Unknown}, time.Now().Add(time.Millisecond)
	})
	var in election.Input
	b.moveInto(&in, time.Now())
	if in.Fresh || in.Written == nil {
		t.Errorf("got %+v", in)
	}
}

// A request for a vote is shown with a Lease that was read after it came.
func TestVotesWaitForAFreshRead(t *testing.T) {
	b := &inbox{wake: func() {}}
	before := time.Now()
	request := election.VoteRequest{Term: 2, Version: "1"}
	answer := b.askVote(request)
	b.put(func() { b.fresh = before.Add(-time.Second) })
	var in election.Input
	b.moveInto(&in, time.Now())
	if len(in.Requests) > 0 || !b.wantsRead() {
		t.Error("it was shown with an old Lease")
	}
	b.put(func() { b.fresh = time.Now().Add(time.Second) })
	in = election.Input{}
	b.moveInto(&in, time.Now())
	if len(in.Requests) != 1 || b.wantsRead() {
		t.Errorf("got %+v", in)
	}
	vote := election.Vote{Request: request, End: 7}
	b.deliver([]election.Vote{vote}, nil)
	select {
	case got := <-answer:
		if got != vote {
			t.Errorf("got %+v", got)
		}
	default:
		t.Error("no answer")
	}
}

func TestReleasedLeaseNamesNobody(t *testing.T) {
	holder := "shop-1/a"
	lease := &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder}}
	record := election.Record{Term: 3, Nominee: "shop-2"}
	got := writtenLease(lease, election.Write{Record: record}, time.Now())
	if got.Spec.HolderIdentity != nil || *got.Spec.LeaseTransitions != 1 || got.Annotations[election.RecordAnnotation] != record.String() {
		t.Errorf("got %+v", got)
	}
	renewed := writtenLease(lease, election.Write{Holder: election.ParseHolder(holder), Record: record, Lasts: 10 * time.Second}, time.Now())
	if *renewed.Spec.HolderIdentity != holder || renewed.Spec.LeaseTransitions != nil || *renewed.Spec.LeaseDurationSeconds != 10 {
		t.Errorf("got %+v", renewed)
	}
}

// An interrupted rewind leaves data that nobody believes in, and that is kept.
func TestHalfRewoundDataIsKeptAside(t *testing.T) {
	v := newVolume(t)
	v.mustBegin(t, byClone)
	v.fill(t)
	_, err := v.finish(identity{Origin: byClone})
	must(t, err)
	must(t, v.beginRewind())
	if kind, id, err := v.lookAtData(); kind != dataUnfinished || id.ID != "" || err != nil || !v.isHalfRewound() {
		t.Errorf("got %s, %v, %v", kind, id, err)
	}
	path, err := v.giveUp(time.Now())
	must(t, err)
	if kind, _, _ := v.lookAtData(); kind != dataNone || !exists(path) {
		t.Errorf("got %s; aside: %v", kind, exists(path))
	}
	// Only one is kept: they take room.
	v.mustBegin(t, byClone)
	v.fill(t)
	_, err = v.finish(identity{Origin: byClone})
	must(t, err)
	_, err = v.giveUp(time.Now().Add(time.Minute))
	must(t, err)
	if _, err := os.Stat(path); err == nil {
		t.Error("the first is still there")
	}
}

func TestSealedTermIsRemembered(t *testing.T) {
	v := newVolume(t)
	if term, err := v.readSealed(); term != 0 || err != nil {
		t.Errorf("got %d, %v", term, err)
	}
	must(t, os.MkdirAll(v.dir(), 0o700))
	must(t, v.writeSealed(7))
	if term, err := v.readSealed(); term != 7 || err != nil {
		t.Errorf("got %d, %v", term, err)
	}
}

// By whose rules it would reign, an instance must know before it claims anything.
func TestLeaseIsNotClaimedWithoutConfiguration(t *testing.T) {
	a := newTestAgent(t)
	holder := "shop-1/a"
	a.view.SawLease(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "10"}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder}})
	if got := a.elector.lease(reignMemory{}); got.Version != "" || got.Holder.Instance != "shop-1" {
		t.Errorf("without configuration: %+v", got)
	}
	a.view.config.Known = true
	if got := a.elector.lease(reignMemory{}); got.Version != "10" {
		t.Errorf("with it: %+v", got)
	}
}

// C-03: an instance that was asked for its vote, and whose server does not start,
// can't be cut off. That must not keep it from what heals it once there is a reign
// of that term; nor may the holder of an older one not hear of it.
func TestC03SealThatCantBeDone(t *testing.T) {
	a := newTestAgent(t)
	a.data, a.sealing = dataComplete, 7
	must(t, os.MkdirAll(a.volume.dir(), 0o700))
	a.view.lease = knownLease{Known: true, Holder: election.Holder{Instance: "shop-2"}, Record: election.Record{Term: 6}}
	a.carryOut(t.Context(), election.Target{}, wait("nothing"))
	if a.job == nil || a.job.name != "seal" {
		t.Fatalf("nobody seals: %+v", a.job)
	}
	<-a.job.done
	if a.job.err == nil || a.cut != 0 {
		t.Fatalf("it was cut off without a server (%v)", a.job.err)
	}
	if got := a.status.snapshot().Sealed; got != 7 {
		t.Errorf("others hear that it has sealed %d", got)
	}
	a.finish()
	a.retry = time.Time{}
	a.view.lease.Record.Term = 7
	a.carryOut(t.Context(), election.Target{}, wait("nothing"))
	if a.job != nil {
		t.Errorf("it goes on with %s although the reign has the term", a.job.name)
	}
}

// The same when the seal does not come to an end.
func TestC03SealIsGivenUp(t *testing.T) {
	a := newTestAgent(t)
	a.sealing = 7
	a.view.lease = knownLease{Known: true, Holder: election.Holder{Instance: "shop-2"}, Record: election.Record{Term: 6}}
	a.start(t.Context(), "seal", func(ctx context.Context) error {
		<-ctx.Done()
		return context.Cause(ctx)
	})
	a.reconsider()
	select {
	case <-a.job.done:
		t.Fatalf("it was given up while the election goes on: %v", a.job.err)
	case <-time.After(50 * time.Millisecond):
	}
	a.view.lease.Record.Term = 7
	a.reconsider()
	select {
	case <-a.job.done:
	case <-time.After(10 * time.Second):
		t.Fatal("it goes on although the reign has the term")
	}
}
