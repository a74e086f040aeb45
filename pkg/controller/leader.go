package controller

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/util/retry"
)

// How the replicas of an operator contend for their Lease. A leader that is
// killed is followed after leaseDuration, and one that stops in order within
// some retryPeriods. One that can't renew gives up after renewDeadline, which
// leaves it the difference to stop before anybody else may begin.
const (
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = time.Second
	// stopTimeout bounds how long a leader that has lost its Lease waits for
	// passes under way, whose requests have been cancelled.
	stopTimeout = 3 * time.Second
	// releaseTimeout bounds the release; without it the Lease runs out.
	releaseTimeout = 10 * time.Second
)

var (
	errLostLease = errors.New("the leader's Lease is lost")
	// errGoesOn ends the process: it is the one way left to be sure that the
	// work ends.
	errGoesOn = errors.New("the leader's Lease is lost, and its work does not end")
)

// Contest is the contest of an operator's replicas for who leads.
type Contest struct {
	Leases coordinationclient.LeasesGetter
	// Namespace and Name of the Lease.
	Namespace, Name string
	// Identity is this process's own.
	Identity string
	Log      *logrus.Entry
	// Leads is told when this process begins and ends to lead.
	Leads func(bool)

	elector     atomic.Pointer[leaderelection.LeaderElector]
	knowsLeader atomic.Bool
}

// Work is what the leader does. When stopping ends it should end in order, and
// when ctx ends, because the Lease is lost, at once.
type Work func(ctx, stopping context.Context) error

// Run works while this process leads, until stopping ends or the work fails.
// The Lease is released after the work has ended, so that no other leader works
// beside it. When the Lease is lost, the work begins anew when this process
// leads again.
func (c *Contest) Run(stopping context.Context, work Work) error {
	for {
		err := c.leadOnce(stopping, work)
		if !errors.Is(err, errLostLease) || stopping.Err() != nil {
			return err
		}
		c.Log.WithError(err).Warn("contending again")
	}
}

func (c *Contest) leadOnce(stopping context.Context, work Work) error {
	contest, leave := context.WithCancel(context.WithoutCancel(stopping))
	defer leave()
	turn := make(chan context.Context, 1)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:          c.lock(),
		LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod,
		Name: c.Name,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(led context.Context) { turn <- led },
			OnStoppedLeading: func() {},
			OnNewLeader:      c.meetLeader,
		},
	})
	if err != nil {
		return fmt.Errorf("contend for Lease %s/%s: %w", c.Namespace, c.Name, err)
	}
	c.elector.Store(elector)
	left := make(chan struct{})
	go func() {
		defer close(left)
		elector.Run(contest)
	}()
	select {
	case <-stopping.Done():
		err = nil
	case led := <-turn:
		err = c.workWhile(led, stopping, work)
	}
	leave()
	<-left
	if errors.Is(err, errLostLease) || errors.Is(err, errGoesOn) {
		return err // it is not ours, or can't be reached
	}
	return errors.Join(err, c.release(contest))
}

// meetLeader hears of each leader, and of the Lease's release, which has none.
func (c *Contest) meetLeader(leader string) {
	if leader == "" {
		return
	}
	c.knowsLeader.Store(true)
	c.Log.WithField("leader", leader).Info("a leader was elected")
}

// KnowsLeader says whether this process has seen anybody lead, itself or
// another. One that can't read the Lease could not take over either.
func (c *Contest) KnowsLeader() bool { return c.knowsLeader.Load() }

// workWhile works until the work has ended, or led, since the Lease is lost.
func (c *Contest) workWhile(led, stopping context.Context, work Work) error {
	c.Leads(true)
	defer c.Leads(false)
	ended := make(chan error, 1)
	go func() { ended <- work(led, stopping) }()
	select {
	case err := <-ended:
		return err
	case <-led.Done():
	}
	select {
	case <-ended:
		return errLostLease
	case <-time.After(stopTimeout):
		return errGoesOn
	}
}

// release lets another replica lead at once. The elector could do it, too, but
// would after a failed renewal, while the work still goes on.
func (c *Contest) release(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	// A last renewal that was cancelled may still arrive in between.
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		lock := c.lock()
		record, _, err := lock.Get(ctx)
		if err != nil || record.HolderIdentity != c.Identity {
			return err
		}
		record.HolderIdentity, record.LeaseDurationSeconds = "", 1
		return lock.Update(ctx, *record)
	})
	if err != nil {
		return fmt.Errorf("release Lease %s/%s: %w", c.Namespace, c.Name, err)
	}
	return nil
}

func (c *Contest) lock() *resourcelock.LeaseLock {
	return &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: c.Namespace, Name: c.Name},
		Client:     c.Leases,
		LockConfig: resourcelock.ResourceLockConfig{Identity: c.Identity},
	}
}

// Check fails for a leader that has not renewed its Lease for so long that it
// must be stuck.
func (c *Contest) Check() error {
	elector := c.elector.Load()
	if elector == nil {
		return nil
	}
	return elector.Check(leaseDuration)
}
