//go:build e2e

package api

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/test/api/framework"
)

// Three instances, one, and two as soon as the first pod is going; then five
// edits in a row. The last one wins, and nothing is left of the others.
func TestB18TheLastEditWins(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	f.StartOperator()
	c := f.Create("shop", framework.Instances(3))
	c.AwaitReady()
	c.Edit(framework.Instances(1))
	f.Await("a pod is going", func(ctx context.Context) error {
		pods, err := c.Pods(ctx)
		if err != nil {
			return err
		}
		for _, pod := range pods {
			if pod.DeletionTimestamp != nil {
				return nil
			}
		}
		if len(pods) < 3 {
			return nil
		}
		return errors.New("all are there")
	})
	c.Edit(framework.Instances(2))
	c.AwaitReady()
	wantInstances(f, 2)

	for _, n := range []int32{3, 1, 4, 1, 3} {
		c.Edit(framework.Instances(n), framework.Parameter("work_mem", fmt.Sprintf("%dMB", n)))
		f.Pause(300 * time.Millisecond)
	}
	c.AwaitReady()
	wantInstances(f, 3)
	c.AwaitCondition(v1.ConditionProgressing, metav1.ConditionFalse)
	before := framework.Versions(f.MustObjects())
	f.Hold(2*time.Second, "it is settled", unchanged(f, before))
}

// wantInstances checks that there are n pods, volumes and certificates.
func wantInstances(f *framework.Framework, n int) {
	f.T.Helper()
	f.Await(fmt.Sprintf("there are the parts of %d instances", n), func(ctx context.Context) error {
		objects, err := f.Objects(ctx)
		if err != nil {
			return err
		}
		counts := map[string]int{}
		for _, o := range objects {
			if _, ofInstance := o.GetLabels()["pgop.dev/instance"]; ofInstance {
				counts[o.GetKind()]++
			}
		}
		want := map[string]int{"Pod": n, "PersistentVolumeClaim": n, "Secret": n}
		return framework.Want("parts of instances", fmt.Sprint(counts), fmt.Sprint(want))
	})
}

// A request above the limit is refused with the cluster, or the API server's
// refusal of the pod is in the status; and correcting it is all that it takes.
func TestA14RequestAboveItsLimit(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	f.StartOperator()
	greedy := func(c *v1.PostgresCluster) {
		c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("256Mi")}
		c.Spec.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("128Mi")}
	}
	corrected := func(c *v1.PostgresCluster) {
		c.Spec.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("512Mi")}
	}
	_, err := f.Postgres.PgopV1().PostgresClusters(f.Namespace).Create(t.Context(), framework.Manifest("shop", greedy), metav1.CreateOptions{})
	c := f.Cluster("shop")
	if apierrors.IsInvalid(err) {
		t.Logf("refused: %v", err)
		f.Create("shop", greedy, corrected)
	} else if err != nil {
		t.Fatal(err)
	} else {
		c.AwaitCondition(v1.ConditionReady, metav1.ConditionFalse, "memory", "limit")
		c.Edit(corrected)
	}
	c.AwaitReady()
}

// The namespace's own limits are nothing that a schema knows: the refusal is in
// the status and in one event, no other cluster waits, and the fix works by
// itself.
func TestA14F02PodAboveTheNamespacesLimits(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	f.StartOperator()
	_, err := f.Kube.CoreV1().LimitRanges(f.Namespace).Create(t.Context(), &corev1.LimitRange{
		ObjectMeta: metav1.ObjectMeta{Name: "small"},
		Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
			Type: corev1.LimitTypeContainer, Max: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")},
			Default: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("512Mi")},
		}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c := f.Create("shop", memory("2Gi"))
	ready := c.AwaitCondition(v1.ConditionReady, metav1.ConditionFalse, "create Pod shop-1", "maximum memory usage per Container is 1Gi")
	if ready.Reason != v1.ReasonCreateFailed {
		t.Errorf("reason %s", ready.Reason)
	}
	f.Create("other").AwaitReady()
	c.Edit(memory("1Gi"))
	c.AwaitReady()
}

func memory(quantity string) framework.Modifier {
	return func(c *v1.PostgresCluster) {
		c.Spec.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(quantity)}
	}
}
