//go:build e2e

package e2e

import (
	"context"
	"testing"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

func evict(f *framework.Framework, pod string) error {
	return f.Kube.PolicyV1().Evictions(f.Namespace).Evict(f.T.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: pod, Namespace: f.Namespace}})
}
