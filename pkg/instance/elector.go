package instance

import (
	"cmp"
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sirupsen/logrus"

	"github.com/pgop/postgres-operator/pkg/election"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/postgres"
)

const (
	// leaseDuration is what spec.failover.leaseDuration defaults to.
	leaseDuration = 10 * time.Second
	// leaseTimeout bounds one request: the next renewal must not wait for it.
	leaseTimeout = 1500 * time.Millisecond
	// voteWindow, nomineeFirst and absence are as in election.Settings.
	voteWindow   = time.Second
	nomineeFirst = 3 * time.Second
	absence      = 4 * time.Second
)

// electionSettings are the core's, from what the operator says.
func electionSettings(ha instanceapi.HA) election.Settings {
	lease := cmp.Or(ha.LeaseDuration.Duration, leaseDuration)
	return election.Settings{
		Mode: cmp.Or(election.Mode(ha.Mode), election.Async), Need: max(1, ha.Need),
		LeaseDuration: lease, RenewEvery: lease / 5, Margin: lease * 3 / 10,
		VoteWindow: voteWindow, NomineeFirst: nomineeFirst, Absence: absence,
		MaxLag: postgres.LSN(cmp.Or(ha.MaxLag, 16<<20)),
	}
}

// elector carries messages, reads and writes between the election core and the
// world. Its methods never block; the loop calls step.
type elector struct {
	kube  Kubernetes
	view  *view
	peers *peers
	inbox *inbox
	log   *logrus.Entry
	// since is the zero of the core's clock.
	since time.Time

	state election.State
	// last is what the core said last.
	last election.Output
}

func (e *elector) now() election.Time { return time.Since(e.since) }

// lease is the Lease as the core sees it. As long as the API has shown none, it is
// what the volume remembers, and as long as the configuration is not known, by
// whose rules this instance would reign, it has no version: that lets this
// instance promise and nothing more.
func (e *elector) lease(memory reignMemory) *election.Lease {
	known := e.view.knownLease()
	switch {
	case known.Object != nil:
		lease := &election.Lease{Version: known.Version, Holder: known.Holder, Record: known.Record, SeenAt: known.SeenAt.Sub(e.since),
			Lasts: known.lasts()}
		if !e.view.knownConfig().Known {
			lease.Version = ""
		}
		return lease
	case !memory.Record.IsEmpty():
		return &election.Lease{Holder: election.ParseHolder(memory.Holder), Record: memory.Record, SeenAt: e.now()}
	}
	return nil
}

// step takes one step of the core and sets going what it asks for, but for the
// server and the seal, which are the loop's.
func (e *elector) step(c election.Settings, in election.Input) election.Output {
	e.inbox.moveInto(&in, time.Now())
	in.Now = e.now()
	out := election.Step(c, &e.state, in)
	e.inbox.deliver(out.Votes, out.Promises)
	if out.Write != nil {
		e.write(*out.Write)
	}
	if out.Read || e.inbox.wantsRead() {
		e.read()
	}
	if out.Ask != nil {
		e.log.WithFields(logrus.Fields{"term": out.Ask.Term}).Info("stands for election")
		for _, member := range out.AskWhom {
			go e.askVote(member, *out.Ask)
		}
	}
	if out.Plead != nil {
		for _, member := range out.PleadWith {
			go e.askPromise(member, *out.Plead)
		}
	}
	for _, name := range out.Inquire {
		go e.inquire(name, in.Lease.Version)
	}
	if out.Blocked != e.last.Blocked && out.Blocked != "" {
		e.log.WithField("why", out.Blocked).Warn("nobody reigns, and this instance can't take over")
	}
	e.last = out
	return out
}

// forgetReign lets the core know no more of a reign of its own than after a
// restart of the agent: it does not renew the Lease.
func (e *elector) forgetReign() {
	if e.state.Reigns() {
		e.state = election.State{Me: e.state.Me, Address: e.state.Address, Sealed: e.state.Sealed}
	}
}

func (e *elector) askVote(member election.Member, request election.VoteRequest) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	vote, err := e.peers.vote(ctx, member.Instance, request)
	if err != nil {
		e.log.WithError(err).WithField("member", member.Instance).Warn("got no vote")
		return
	}
	e.inbox.put(func() { e.inbox.votes = append(e.inbox.votes, vote) })
}

func (e *elector) askPromise(member election.Member, plea election.PromiseRequest) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	promise, err := e.peers.promise(ctx, member.Instance, plea)
	if err != nil {
		e.log.WithError(err).WithField("member", member.Instance).Warn("got no promise")
		return
	}
	e.inbox.put(func() { e.inbox.promises = append(e.inbox.promises, promise) })
}

// inquire asks an instance what its volume remembers, for a Lease of that version.
func (e *elector) inquire(instance, version string) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	peer, err := e.peers.peer(ctx, instance)
	if err != nil || !peer.Inspected {
		return // it is asked again, and who waits for it says so
	}
	testimony := election.Testimony{Instance: instance, Version: version, DataID: peer.DataID, Record: peer.LastReign, Sealed: peer.Sealed}
	e.inbox.put(func() { e.inbox.testimonies = append(e.inbox.testimonies, testimony) })
}

// read reads the Lease, unless a read is under way that began after everything
// that waits for it.
func (e *elector) read() {
	began := time.Now()
	e.inbox.mu.Lock()
	busy := !e.inbox.readBegan.IsZero()
	if !busy {
		e.inbox.readBegan = began
	}
	e.inbox.mu.Unlock()
	if busy {
		return // its end wakes the loop, which reads again if it must
	}
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), leaseTimeout)
		defer cancel()
		lease, err := e.kube.Lease(ctx)
		if err == nil {
			e.view.SawLease(lease)
		} else if apierrors.IsNotFound(err) {
			e.view.SawLease(nil)
		}
		if err != nil {
			// It is wanted again at the next beat.
			e.inbox.mu.Lock()
			e.inbox.readBegan = time.Time{}
			e.inbox.mu.Unlock()
			return
		}
		e.inbox.put(func() { e.inbox.readBegan, e.inbox.fresh = time.Time{}, began })
	}()
}

// write writes the Lease once, if it still has the version that the core knows.
func (e *elector) write(w election.Write) {
	known := e.view.knownLease()
	done := func(result election.Written) {
		e.inbox.put(func() { e.inbox.written, e.inbox.writtenAt = &result, time.Now() })
	}
	if known.Object == nil || known.Version != w.Version {
		go done(election.Written{Outcome: election.Refused})
		return
	}
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), leaseTimeout)
		defer cancel()
		updated, err := e.kube.UpdateLease(ctx, writtenLease(known.Object, w, time.Now()))
		switch {
		case err == nil:
			e.view.SawLease(updated)
			done(election.Written{Outcome: election.Done, Version: updated.ResourceVersion})
		case apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsInvalid(err):
			e.log.WithError(err).Warn("the Lease was not written")
			done(election.Written{Outcome: election.Refused})
		default:
			e.log.WithError(err).Warn("the Lease may not have been written")
			done(election.Written{Outcome: election.Unknown})
		}
	}()
}

// writtenLease is the Lease after a write.
func writtenLease(lease *coordinationv1.Lease, w election.Write, now time.Time) *coordinationv1.Lease {
	written := lease.DeepCopy()
	written.Spec.RenewTime = &metav1.MicroTime{Time: now}
	if leaseHolder(lease) != w.Holder {
		written.Spec.LeaseTransitions = ptr.To(ptr.Deref(lease.Spec.LeaseTransitions, 0) + 1)
		written.Spec.AcquireTime = written.Spec.RenewTime
	}
	written.Spec.HolderIdentity = nil
	if !w.Holder.IsZero() {
		written.Spec.HolderIdentity = ptr.To(w.Holder.String())
	}
	written.Spec.LeaseDurationSeconds = ptr.To(int32((w.Lasts + time.Second - 1) / time.Second))
	metav1.SetMetaDataAnnotation(&written.ObjectMeta, election.RecordAnnotation, w.Record.String())
	return written
}
