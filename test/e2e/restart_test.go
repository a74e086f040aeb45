//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/test/e2e/framework"
)

// A restart that is asked for takes one instance at a time, the primary last
// and after it has handed over, and takes the request back when it is done.
func TestRestartOnRequest(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	c := f.Create("again", framework.Instances(3))
	c.AwaitReady()
	c.SQL(framework.RW, "create table kept as select 1 as n")
	before := podUIDs(c)
	primary := c.Primary()

	f.Kubectl("annotate", "pg/again", v1.RestartAnnotation+"=first")
	f.Await(framework.Patience, "every pod is new and the request is gone", func(context.Context) error {
		for name, uid := range podUIDs(c) {
			if before[name] == uid {
				return fmt.Errorf("pod %s is the old one", name)
			}
		}
		return framework.Want("the request", c.Live().Annotations[v1.RestartAnnotation], "")
	})
	c.AwaitReady()
	pods := c.Pods()
	for name, pod := range pods {
		if name != primary && pods[primary].CreationTimestamp.Before(&pod.CreationTimestamp) {
			t.Errorf("the primary, %s, came back before %s", primary, name)
		}
		if name != primary && readySince(pod).After(pods[primary].CreationTimestamp.Time) {
			t.Errorf("the primary, %s, was restarted before %s served", primary, name)
		}
	}
	if c.Primary() == primary {
		t.Errorf("%s, the primary, restarted in its place", primary)
	}
	c.AwaitRows(framework.RO, "select n from kept", "1")
}

// B-16: a change that no node can satisfy costs one replica, and taking it back
// heals without hands.
func TestB16UnschedulableSpecThenReverted(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	c := f.Create("nowhere", framework.Instances(3))
	c.AwaitReady()
	before := podUIDs(c)
	primary := c.Primary()

	c.Edit(nodeSelector(map[string]string{"disk": "of-gold"}))
	c.AwaitCondition(v1.ConditionReady, metav1.ConditionFalse, "can't be scheduled", "node")
	f.Hold(5*time.Second, "one pod is sacrificed and no other", func(context.Context) error {
		return framework.Want("pods replaced", replaced(before, podUIDs(c)), 1)
	})
	if podUIDs(c)[primary] != before[primary] {
		t.Errorf("the primary, %s, was sacrificed", primary)
	}
	c.SQL(framework.RW, "select 1")

	c.Edit(nodeSelector(nil))
	c.AwaitReady()
	if n := replaced(before, podUIDs(c)); n != 1 {
		t.Errorf("%d pods were replaced in the end, want 1", n)
	}
}

// B-17: a larger volume and more memory in one edit.
func TestB17TwoKindsOfChangeInOneEdit(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	c := f.Create("both", framework.Instances(2), memory("64Mi"))
	c.AwaitReady()
	c.SQL(framework.RW, "create table kept as select 1 as n")

	more := resource.MustParse("1Gi")
	more.Add(c.Live().Spec.Storage.Size)
	c.Edit(memory("96Mi"), func(c *v1.PostgresCluster) { c.Spec.Storage.Size = more })
	c.AwaitCondition(v1.ConditionUpToDate, metav1.ConditionTrue)
	c.AwaitReady()
	for name, pod := range c.Pods() {
		if got := pod.Spec.Containers[0].Resources.Requests.Memory().String(); got != "96Mi" {
			t.Errorf("pod %s asks for %s of memory", name, got)
		}
		if got := c.Volume(name).Status.Capacity.Storage(); got.Cmp(more) < 0 {
			t.Errorf("volume %s has %s, want %s", name, got, &more)
		}
	}
	c.AwaitRows(framework.RO, "select n from kept", "1")
}

func nodeSelector(labels map[string]string) framework.Modifier {
	return func(c *v1.PostgresCluster) { c.Spec.Pod.NodeSelector = labels }
}

func memory(request string) framework.Modifier {
	return func(c *v1.PostgresCluster) {
		c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(request)}
	}
}

func podUIDs(c *framework.Cluster) map[string]types.UID {
	uids := map[string]types.UID{}
	for name, pod := range c.Pods() {
		uids[name] = pod.UID
	}
	return uids
}

// replaced counts the names whose pod is another, or gone.
func replaced(before, after map[string]types.UID) int {
	n := 0
	for name, uid := range before {
		if after[name] != uid {
			n++
		}
	}
	return n
}

func readySince(pod *corev1.Pod) time.Time {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}
