package instance

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pgop/postgres-operator/pkg/election"
)

func newReign(kube Kubernetes, me string) *reign {
	log := logrus.New()
	log.SetOutput(io.Discard)
	return &reign{me: election.ParseHolder(me), kube: kube, seen: func(*coordinationv1.Lease) {}, log: logrus.NewEntry(log)}
}

func newFakeKubernetes() *fakeKubernetes {
	f := &fakeKubernetes{
		configMap: &corev1.ConfigMap{}, slice: &discoveryv1.EndpointSlice{},
		lease: &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "shop", Annotations: map[string]string{"kept": "yes"}}},
	}
	f.set(func(*fakeKubernetes) {})
	return f
}

var first = election.Claimant{Instance: "shop-1", DataID: "one", SystemID: "7", Initialised: true}

func TestClaimWritesTheRecord(t *testing.T) {
	kube := newFakeKubernetes()
	r := newReign(kube, "shop-1/a")
	got, err := r.claim(context.Background(), first, 1, "10.0.0.1")
	must(t, err)
	defer r.end()
	want := election.Record{Term: 1, Timeline: 1, SystemID: "7", HolderDataID: "one", HolderAddress: "10.0.0.1"}
	lease, _ := kube.now()
	written, err := election.ParseRecord(lease.Annotations[election.RecordAnnotation])
	must(t, err)
	if !got.Equal(want) || !written.Equal(want) || !r.holds() {
		t.Errorf("got %v, wrote %v, want %v", got, written, want)
	}
	if lease.Annotations["kept"] != "yes" || *lease.Spec.HolderIdentity != "shop-1/a" || *lease.Spec.LeaseDurationSeconds != 10 ||
		*lease.Spec.LeaseTransitions != 1 || lease.Spec.AcquireTime == nil || !lease.Spec.AcquireTime.Equal(lease.Spec.RenewTime) {
		t.Errorf("lease: %+v", lease)
	}
}

func TestTermNeverGoesBack(t *testing.T) {
	c := first
	c.LastHolder, c.LastReign = "shop-1", election.Record{Term: 8, HolderDataID: "one"}
	r := newReign(newFakeKubernetes(), "shop-1/a")
	got, err := r.claim(context.Background(), c, 1, "10.0.0.1")
	must(t, err)
	defer r.end()
	if got.Term != 9 {
		t.Errorf("after a lost Lease the term is %d, want 9", got.Term)
	}
}

func TestWhoMayNotClaimDoesNot(t *testing.T) {
	kube := newFakeKubernetes()
	r := newReign(kube, "shop-1/a")
	_, err := r.claim(context.Background(), first, 1, "10.0.0.1")
	must(t, err)
	defer r.end()
	other := newReign(kube, "shop-2/b")
	if _, err := other.claim(context.Background(), election.Claimant{Instance: "shop-2", DataID: "two", SystemID: "7"}, 1, "10.0.0.2"); err == nil || other.holds() {
		t.Errorf("shop-2 took the Lease of shop-1: %v", err)
	}
}

// staleKubernetes reads an old version of the Lease.
type staleKubernetes struct {
	*fakeKubernetes
	stale *coordinationv1.Lease
}

func (s *staleKubernetes) Lease(context.Context) (*coordinationv1.Lease, error) { return s.stale, nil }

func TestClaimOnAnOldVersionFails(t *testing.T) {
	kube := newFakeKubernetes()
	old, _ := kube.now()
	kube.set(func(*fakeKubernetes) {})
	r := newReign(&staleKubernetes{kube, old}, "shop-1/a")
	if _, err := r.claim(context.Background(), first, 1, "10.0.0.1"); err == nil || r.holds() {
		t.Errorf("a claim swapped against an old version succeeded: %v", err)
	}
}

func TestRenewal(t *testing.T) {
	ctx := context.Background()
	begin := func(t *testing.T) (*fakeKubernetes, *reign) {
		kube := newFakeKubernetes()
		r := newReign(kube, "shop-1/a")
		_, err := r.claim(ctx, first, 1, "10.0.0.1")
		must(t, err)
		t.Cleanup(r.end)
		return kube, r
	}
	t.Run("the API is away: the reign goes on", func(t *testing.T) {
		kube, r := begin(t)
		kube.mu.Lock()
		kube.down = errors.New("no answer")
		kube.mu.Unlock()
		if err := r.renew(ctx); err == nil || !r.holds() {
			t.Errorf("err %v, holds %v", err, r.holds())
		}
	})
	t.Run("somebody labelled the Lease: the reign goes on", func(t *testing.T) {
		kube, r := begin(t)
		kube.set(func(f *fakeKubernetes) { f.lease.Labels = map[string]string{"x": "y"} })
		must(t, r.renew(ctx))
		must(t, r.renew(ctx))
		lease, _ := kube.now()
		if !r.holds() || lease.Labels["x"] != "y" {
			t.Errorf("holds %v, labels %v", r.holds(), lease.Labels)
		}
	})
	t.Run("another holder: the reign ends", func(t *testing.T) {
		kube, r := begin(t)
		kube.set(func(f *fakeKubernetes) {
			other := "shop-2/b"
			f.lease = f.lease.DeepCopy()
			f.lease.Spec.HolderIdentity = &other
		})
		must(t, r.renew(ctx))
		if r.holds() {
			t.Error("it still holds")
		}
	})
	t.Run("the record is gone: the reign ends, to be claimed anew", func(t *testing.T) {
		kube, r := begin(t)
		kube.set(func(f *fakeKubernetes) { f.lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "shop"}} })
		must(t, r.renew(ctx))
		if r.holds() {
			t.Error("it still holds")
		}
	})
}

func TestOnlyARenewalIsNews(t *testing.T) {
	v := &view{wake: func() {}}
	at := metav1.NewMicroTime(time.Unix(100, 0))
	lease := &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{RenewTime: &at}}
	v.SawLease(lease)
	seen := v.knownLease().RenewedAt
	v.SawLease(lease.DeepCopy())
	if got := v.knownLease().RenewedAt; got != seen {
		t.Error("the same renewal, seen twice, counts as two")
	}
}
