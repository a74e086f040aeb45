package instance

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/pgop/postgres-operator/pkg/election"
)

const (
	leaseDuration = 10 * time.Second
	renewEvery    = 2 * time.Second
	// leaseTimeout bounds one request: the next renewal must not wait for it.
	leaseTimeout = 1500 * time.Millisecond
)

// reign is this agent's hold on the Lease.
type reign struct {
	me   election.Holder
	kube Kubernetes
	// seen is told each version of the Lease that this agent reads or writes.
	seen func(*coordinationv1.Lease)
	log  *logrus.Entry

	mu sync.Mutex
	// lease is the version that the next renewal replaces; nil: not held.
	lease *coordinationv1.Lease
	stop  context.CancelFunc
}

// holds says whether this agent reigns by a claim of its own.
func (r *reign) holds() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lease != nil
}

// claim takes the Lease for c, which reigns from address on timeline. It
// returns the new record, or an error that says why c may not reign. It reads
// the Lease itself, so that nothing depends on how fresh the view is.
func (r *reign) claim(ctx context.Context, c election.Claimant, timeline uint32, address string) (election.Record, error) {
	lease, err := r.kube.Lease(ctx)
	if err != nil {
		return election.Record{}, fmt.Errorf("read the Lease: %w", err)
	}
	r.seen(lease)
	last, err := election.ParseRecord(lease.Annotations[election.RecordAnnotation])
	if err != nil {
		return election.Record{}, fmt.Errorf("claim the Lease: %w", err)
	}
	if ok, why := election.MayClaim(c, last, leaseHolder(lease).Instance); !ok {
		return election.Record{}, fmt.Errorf("claim the Lease: %s", why)
	}
	record := election.Record{
		// The highest term known, not just the Lease's, which may be new.
		Term:     max(last.Term, c.LastReign.Term) + 1,
		Timeline: timeline, SystemID: c.SystemID, HolderDataID: c.DataID, HolderAddress: address,
	}
	claimed, err := r.kube.UpdateLease(ctx, claimedLease(lease, r.me, record, time.Now()))
	if err != nil {
		return election.Record{}, fmt.Errorf("claim the Lease: %w", err)
	}
	r.begin(claimed)
	return record, nil
}

// begin holds the claimed Lease and renews it until it is lost or let go.
func (r *reign) begin(claimed *coordinationv1.Lease) {
	ctx, stop := context.WithCancel(context.Background())
	r.mu.Lock()
	r.lease, r.stop = claimed, stop
	r.mu.Unlock()
	r.seen(claimed)
	go r.renewForever(ctx)
}

// end stops renewing. The Lease stays as it is: who holds it may take it back.
func (r *reign) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lease != nil {
		r.stop()
		r.lease = nil
	}
}

func (r *reign) renewForever(ctx context.Context) {
	ticker := time.NewTicker(renewEvery)
	defer ticker.Stop()
	failing := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		err := r.renew(ctx)
		// Nobody may take over from a reign without members, so the server goes
		// on while the API is away.
		if err != nil && !failing {
			r.log.WithError(err).Warn("renewing the Lease fails; trying on")
		}
		if err == nil && failing {
			r.log.Info("the Lease is renewed again")
		}
		failing = err != nil
	}
}

// renew renews the Lease once. If somebody else has it, the reign ends.
func (r *reign) renew(ctx context.Context) error {
	r.mu.Lock()
	lease := r.lease
	r.mu.Unlock()
	if lease == nil {
		return nil
	}
	request, cancel := context.WithTimeout(ctx, leaseTimeout)
	defer cancel()
	renewed, err := r.kube.UpdateLease(request, renewedLease(lease, time.Now()))
	switch {
	case err == nil:
		r.keep(lease, renewed)
		return nil
	case apierrors.IsConflict(err) || apierrors.IsNotFound(err):
		return r.readAgain(request, lease)
	}
	return fmt.Errorf("renew the Lease: %w", err)
}

// readAgain looks who has changed the Lease. A write of our own whose answer
// was lost, or a change of its metadata by somebody, is no reason to give it
// up; anything else is.
func (r *reign) readAgain(ctx context.Context, ours *coordinationv1.Lease) error {
	lease, err := r.kube.Lease(ctx)
	if apierrors.IsNotFound(err) {
		// A Lease that is gone is not free; the operator makes it again.
		return fmt.Errorf("renew the Lease: %w", err)
	}
	if err != nil {
		return fmt.Errorf("read the Lease: %w", err)
	}
	if leaseHolder(lease) == r.me && lease.Annotations[election.RecordAnnotation] == ours.Annotations[election.RecordAnnotation] {
		r.keep(ours, lease)
		return nil
	}
	r.log.WithFields(logrus.Fields{"holder": leaseHolder(lease).String()}).Warn("the Lease is no longer ours")
	r.end()
	r.seen(lease)
	return nil
}

// keep replaces the version held, unless the reign has ended meanwhile.
func (r *reign) keep(old, renewed *coordinationv1.Lease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lease == old {
		r.lease = renewed
	}
}

func claimedLease(lease *coordinationv1.Lease, me election.Holder, record election.Record, now time.Time) *coordinationv1.Lease {
	claimed := renewedLease(lease, now)
	if leaseHolder(lease) != me {
		claimed.Spec.LeaseTransitions = ptr.To(ptr.Deref(lease.Spec.LeaseTransitions, 0) + 1)
	}
	claimed.Spec.HolderIdentity = ptr.To(me.String())
	claimed.Spec.LeaseDurationSeconds = ptr.To(int32(leaseDuration / time.Second))
	claimed.Spec.AcquireTime = claimed.Spec.RenewTime
	metav1.SetMetaDataAnnotation(&claimed.ObjectMeta, election.RecordAnnotation, record.String())
	return claimed
}

func renewedLease(lease *coordinationv1.Lease, now time.Time) *coordinationv1.Lease {
	renewed := lease.DeepCopy()
	renewed.Spec.RenewTime = &metav1.MicroTime{Time: now}
	return renewed
}
