//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/test/e2e/framework"
)

// C-31: an eviction, as a drain asks for, takes the pod of a cluster of one,
// which comes back; of three instances it takes one at a time.
func TestC31Evictions(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	one, three := f.Create("one"), f.Create("three", framework.Instances(3))
	one.AwaitReady()
	three.AwaitReady()

	old := one.Pod("one-1")
	if err := evict(f, "one-1"); err != nil {
		t.Errorf("the only instance can't be evicted: %v", err)
	}
	one.AwaitNewPod("one-1", old.UID)
	one.AwaitReady()

	f.Await(framework.Patience, "one of three can be evicted", func(context.Context) error { return evict(f, "three-2") })
	if err := evict(f, "three-3"); !apierrors.IsTooManyRequests(err) {
		t.Errorf("two of three can be evicted at once: %v", err)
	}
	three.AwaitReady()
	f.Await(framework.Patience, "the next can be evicted once all serve", func(context.Context) error { return evict(f, "three-3") })
	three.AwaitReady()
}

// C-31: the primary's node is cordoned, as before a drain: the primary hands over to an
// instance on another node, before anybody takes its pod away, which stays as a replica.
// Then the node is drained, and nobody is without a primary.
func TestC31CordonedNodeHandsOver(t *testing.T) {
	framework.LocalOnly(t) // other tests need the node
	f := framework.New(t)
	c := f.Create("moved", framework.Instances(3))
	c.AwaitReady()
	c.SQL(framework.RW, "create table kept as select 1 as n")
	primary := c.Primary()
	pod := c.Pod(primary)
	f.Kubectl("cordon", pod.Spec.NodeName)
	t.Cleanup(func() { uncordon(t, f, pod.Spec.NodeName) })
	f.Await(framework.Patience, "another takes over", func(ctx context.Context) error {
		live, err := c.Get(ctx)
		if err != nil {
			return err
		}
		now := live.Status.Primary
		if now == "" || now == primary || c.Pod(now).Spec.NodeName == pod.Spec.NodeName {
			return fmt.Errorf("the primary is %q", now)
		}
		return nil
	})
	c.AwaitReady()
	if got := c.Pod(primary).UID; got != pod.UID {
		t.Error("the pod on the cordoned node was replaced")
	}
	if n := countEvents(t, c, v1.ReasonSwitchedOver); n != 1 {
		t.Errorf("%d events %s", n, v1.ReasonSwitchedOver)
	}
	wantStreaming(t, c, 3)

	leader := c.Primary()
	f.Await(framework.Patience, "the pod is evicted", func(context.Context) error { return evict(f, primary) })
	uncordon(t, f, pod.Spec.NodeName)
	c.AwaitNewPod(primary, pod.UID)
	c.AwaitReady()
	if now := c.Primary(); now != leader {
		t.Errorf("the primary is %s, and was %s", now, leader)
	}
	c.AwaitRows(framework.RW, "select n from kept", "1")
}

// uncordon may come after the test.
func uncordon(t *testing.T, f *framework.Framework, node string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	patch := []byte(`{"spec":{"unschedulable":null}}`)
	if _, err := f.Kube.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Errorf("uncordon node %s: %v", node, err)
	}
}

func evict(f *framework.Framework, pod string) error {
	return f.Kube.PolicyV1().Evictions(f.Namespace).Evict(f.T.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: pod, Namespace: f.Namespace}})
}
