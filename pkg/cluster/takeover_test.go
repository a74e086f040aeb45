package cluster

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/specs"
)

// A Lease passes through the states in which it was seen; what is left is the
// end of the reign before the present one.
func TestReignsRememberHowTheLastOneEnded(t *testing.T) {
	at := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	type state struct {
		holder string
		second int
	}
	for why, c := range map[string]struct {
		seen []state
		// ended is the instance of the reign that ended, and its last second.
		ended string
	}{
		"the first reign":               {[]state{{"", 0}, {"shop-1/a", 1}, {"shop-1/a", 3}}, ""},
		"another took over":             {[]state{{"shop-1/a", 1}, {"shop-1/a", 3}, {"shop-2/b", 13}, {"shop-2/b", 15}}, "shop-1 3"},
		"released in order":             {[]state{{"shop-1/a", 1}, {"", 2}, {"shop-2/b", 4}}, "shop-1 2"},
		"released without another time": {[]state{{"shop-1/a", 1}, {"", 0}, {"shop-2/b", 4}}, "shop-1 1"},
		"taken back by another pod":     {[]state{{"shop-1/a", 1}, {"shop-1/c", 9}}, ""},
		"released and taken back":       {[]state{{"shop-1/a", 1}, {"", 2}, {"shop-1/c", 4}}, ""},
		"two failovers":                 {[]state{{"shop-1/a", 1}, {"shop-2/b", 12}, {"shop-3/c", 30}}, "shop-2 12"},
	} {
		r := NewReigns()
		for _, s := range c.seen {
			lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "db", Name: "shop", Labels: map[string]string{specs.ClusterLabel: "shop"}}}
			lease.Spec.HolderIdentity = ptr.To(s.holder)
			if s.second > 0 {
				lease.Spec.RenewTime = ptr.To(metav1.NewMicroTime(at.Add(time.Duration(s.second) * time.Second)))
			}
			r.Saw(lease)
		}
		got := ""
		if ended := r.lastOf(cache.NewObjectName("db", "shop")); ended != (EndedReign{}) {
			got = fmt.Sprint(ended.Instance, " ", int(ended.Renewed.Sub(at).Seconds()))
		}
		if got != c.ended {
			t.Errorf("%s: %q ended, want %q", why, got, c.ended)
		}
	}
}

func TestALeaseIsUnchangedSinceItWasFirstSeenSo(t *testing.T) {
	at := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	lease := func(version string) *coordinationv1.Lease {
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{ResourceVersion: version}}
	}
	var s sighting
	var got []time.Duration
	for n, l := range []*coordinationv1.Lease{nil, lease("1"), lease("1"), lease("2"), lease("2"), nil, lease("2")} {
		got = append(got, s.unchangedFor(l, at.Add(time.Duration(n)*10*time.Second)))
	}
	const step = 10 * time.Second
	if diff := cmp.Diff([]time.Duration{0, 0, step, 0, step, 0, 0}, got); diff != "" {
		t.Error(diff)
	}
}

// A takeover is told with the status that names the new primary: once, whoever
// the operator is, and without a time if this one did not see it.
func TestATakeoverIsToldOnce(t *testing.T) {
	w := settledWorld(3)
	w.ended = EndedReign{Instance: "shop-1", Renewed: w.now.Add(-9 * time.Second)}
	w.crown(w.pod("shop-2"))
	w.catchUp(allKinds...)
	told := func() []string {
		b := newBench(t)
		if err := b.postgres.Tracker().Update(v1.SchemeGroupVersion.WithResource("postgresclusters"), w.cluster, "db"); err != nil {
			t.Fatal(err)
		}
		o := w.observe()
		status := Status(o, Analyse(o), nil)
		if err := b.report(context.Background(), w.cluster, o, status); err != nil {
			t.Fatal(err)
		}
		w.cluster = w.cluster.DeepCopy()
		w.cluster.Status = status
		return b.announced()
	}
	want := "Normal FailedOver shop-2 took over from shop-1, after 9s without a primary"
	if got := told(); len(got) == 0 || got[0] != want {
		t.Errorf("told %q, want %q first", got, want)
	}
	w.now = w.now.Add(time.Minute)
	if got := told(); len(got) > 0 {
		t.Errorf("another operator tells %q", got)
	}
}
