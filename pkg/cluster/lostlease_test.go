package cluster

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/specs"
)

// lostLease is a cluster of three that has lost its Lease, and the operator has made
// it again. The instance shop-2 remembers the newest reign, and waits for shop-3.
func lostLease() Observation {
	o := settledWorld(3).observe()
	o.Lease = specs.NewLease(o.Cluster)
	for n := range o.Instances {
		state := *o.Instances[n].State
		state.Term, state.Role, state.Ready = 5, "", false
		if o.Instances[n].Name == "shop-2" {
			state.Term, state.Election = 7, "it waits for what the volume of shop-3 remembers"
		}
		o.Instances[n].State = &state
	}
	return o
}

// C-22: while the Lease is lost, people are told who is waited for, and the way out.
func TestC22LostLeaseIsTold(t *testing.T) {
	o := lostLease()
	c := failoverReady(o, Analyse(o))
	if c.Status != metav1.ConditionFalse || c.Reason != v1.ReasonFailoverBlocked {
		t.Errorf("got %+v", c)
	}
	for _, words := range []string{"does not tell of the last reign", "shop-2: it waits for what the volume of shop-3 remembers",
		"kubectl annotate pg/shop pgop.dev/force-promote=shop-2"} {
		if !strings.Contains(c.Message, words) {
			t.Errorf("%q does not say %q", c.Message, words)
		}
	}
	for n := range o.Instances {
		o.Instances[n].State.Term, o.Instances[n].State.Election = 0, ""
	}
	if c := failoverReady(o, Analyse(o)); c.Reason != v1.ReasonBootstrapping {
		t.Errorf("nobody remembers a reign, and yet %+v", c)
	}
}

// The way out is open: a promotion is forced in no term.
func TestC22LostLeaseIsTakenByForce(t *testing.T) {
	o := lostLease()
	o.Cluster.Annotations = map[string]string{v1.ForcePromoteAnnotation: "shop-2"}
	p := Analyse(o)
	if p.ForcePromote == nil || p.ForcePromote.Instance != "shop-2" || p.ForcePromote.Term != 0 {
		t.Errorf("got %+v", p.ForcePromote)
	}
	for n := range o.Instances {
		o.Instances[n].State.Term = 0
	}
	if p := Analyse(o); p.ForcePromote != nil {
		t.Errorf("nobody has reigned, and yet %+v", p.ForcePromote)
	}
}

// Nobody waits for a volume that was never used or that is gone with its node; and
// nobody is told of one while the Lease tells of the last reign.
func TestC22BlankMembers(t *testing.T) {
	o := lostLease()
	three := &o.Instances[2]
	unused := three.Volume.DeepCopy()
	unused.Spec.VolumeName, unused.Status.Phase = "", corev1.ClaimPending
	used := *three
	for why, c := range map[string]struct {
		change func()
		want   []string
	}{
		"its volume is used and its agent is away": {func() { three.State = nil }, []string{}},
		"its volume was never used":                {func() { three.State, three.Volume = nil, unused }, []string{"shop-3"}},
		"it has neither pod nor volume":            {func() { *three = Instance{Name: "shop-3", Number: 3} }, []string{"shop-3"}},
		"its volume went with its node":            {func() { three.State, three.LostNode = nil, "node-3" }, []string{"shop-3"}},
	} {
		*three = used
		c.change()
		if diff := cmp.Diff(c.want, blankMembers(o, &Plan{Members: []string{"shop-1", "shop-2", "shop-3"}})); diff != "" {
			t.Errorf("%s: %s", why, diff)
		}
	}
	settled := settledWorld(3).observe()
	if got := blankMembers(settled, &Plan{Members: []string{"shop-4"}}); got != nil {
		t.Errorf("while the Lease is there: %v", got)
	}
}
