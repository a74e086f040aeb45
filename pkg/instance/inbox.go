package instance

import (
	"slices"
	"sync"
	"time"

	"github.com/pgop/postgres-operator/pkg/election"
)

// inbox holds what has come from elsewhere and what the election core has not
// seen yet. Everything put in wakes the loop.
type inbox struct {
	wake func()

	mu       sync.Mutex
	requests []*question[election.VoteRequest, election.Vote]
	pleas    []*question[election.PromiseRequest, election.Promise]
	votes    []election.Vote
	promises []election.Promise
	// testimonies are what others remember, as this instance has asked.
	testimonies []election.Testimony
	written     *election.Written
	// writtenAt is when the last outcome of a write was known: an earlier read is
	// not fresh any more.
	writtenAt time.Time
	sealed    uint64
	// readBegan is when the read of the Lease began that is under way, and
	// fresh when the last one began that has succeeded since the last look.
	readBegan, fresh time.Time
}

// question is what a peer asks, and where the answer goes.
type question[Q comparable, A any] struct {
	asked  Q
	came   time.Time
	shown  bool
	answer chan A
}

// patience is for how long a peer waits for an answer.
const patience = 2 * time.Second

func (b *inbox) put(change func()) {
	b.mu.Lock()
	change()
	b.mu.Unlock()
	b.wake()
}

func (b *inbox) askVote(request election.VoteRequest) <-chan election.Vote {
	q := &question[election.VoteRequest, election.Vote]{asked: request, came: time.Now(), answer: make(chan election.Vote, 1)}
	b.put(func() { b.requests = append(b.requests, q) })
	return q.answer
}

func (b *inbox) askPromise(request election.PromiseRequest) <-chan election.Promise {
	q := &question[election.PromiseRequest, election.Promise]{asked: request, came: time.Now(), answer: make(chan election.Promise, 1)}
	b.put(func() { b.pleas = append(b.pleas, q) })
	return q.answer
}

// noteSealed notes a term that a peer says it has sealed.
func (b *inbox) noteSealed(term uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sealed = max(b.sealed, term)
}

// wantsRead says whether a question waits for a fresh look at the Lease.
func (b *inbox) wantsRead() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.ContainsFunc(b.requests, func(q *question[election.VoteRequest, election.Vote]) bool { return !q.shown })
}

// moveInto gives the core what has come. A request for a vote is shown once,
// together with a Lease that was read after it came.
func (b *inbox) moveInto(in *election.Input, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	in.Fresh = b.fresh.After(b.writtenAt)
	if in.Fresh {
		for _, q := range b.requests {
			if !q.shown && q.came.Before(b.fresh) {
				q.shown = true
				in.Requests = append(in.Requests, q.asked)
			}
		}
	}
	for _, q := range b.pleas {
		if !q.shown {
			q.shown = true
			in.Pleas = append(in.Pleas, q.asked)
		}
	}
	in.Votes, in.Promises, in.Written, in.Sealed = b.votes, b.promises, b.written, b.sealed
	in.Testimonies = b.testimonies
	b.votes, b.promises, b.testimonies, b.written, b.fresh = nil, nil, nil, nil, time.Time{}
	b.requests = slices.DeleteFunc(b.requests, func(q *question[election.VoteRequest, election.Vote]) bool { return now.Sub(q.came) > patience })
	b.pleas = slices.DeleteFunc(b.pleas, func(q *question[election.PromiseRequest, election.Promise]) bool { return now.Sub(q.came) > patience })
}

// deliver gives peers the answers that they wait for.
func (b *inbox) deliver(votes []election.Vote, promises []election.Promise) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, vote := range votes {
		b.requests = slices.DeleteFunc(b.requests, func(q *question[election.VoteRequest, election.Vote]) bool {
			if q.asked != vote.Request {
				return false
			}
			q.answer <- vote
			return true
		})
	}
	for _, promise := range promises {
		b.pleas = slices.DeleteFunc(b.pleas, func(q *question[election.PromiseRequest, election.Promise]) bool {
			if q.asked != promise.Request {
				return false
			}
			q.answer <- promise
			return true
		})
	}
}
