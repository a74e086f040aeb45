//go:build e2e

package e2e

import (
	"context"
	"errors"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/test/e2e/framework"
)

func containsAny(text string, words ...string) bool {
	for _, word := range words {
		if strings.Contains(text, word) {
			return true
		}
	}
	return false
}

// The example's sidecar reaches the server over the socket, and its variable the
// server. A sidecar whose image can't be pulled takes no client from the primary, and
// correcting it is all that it takes.
func TestSidecarOfTheExample(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	f.Kubectl("apply", "-f", "../../example/sidecar.yaml")
	c := f.Cluster("measured")
	c.AwaitReady()
	if got := c.Shell("measured-1", "tr '\\0' '\\n' < /proc/1/environ | grep MALLOC_ARENA_MAX"); got != "MALLOC_ARENA_MAX=2" {
		t.Errorf("the agent's environment has %q", got)
	}
	f.Await(framework.Patience, "the sidecar has logged a size", func(context.Context) error {
		if log := f.Kubectl("logs", "measured-1", "-c", "sizes"); !strings.Contains(log, "app|") {
			return errors.New(log)
		}
		return nil
	})
	c.SQL(framework.RW, "create table kept as select 1 as n")

	old := c.Pod("measured-1").UID
	c.Edit(func(c *v1.PostgresCluster) { c.Spec.Pod.Sidecars[0].Image = "docker.io/pgop/no-such-image:1" })
	f.Await(framework.Patience, "a new pod", func(ctx context.Context) error {
		pod, found := c.Pods()["measured-1"]
		if !found || pod.UID == old {
			return errors.New("there is none yet")
		}
		return nil
	})
	c.AwaitCondition(v1.ConditionProgressing, metav1.ConditionFalse, "container sizes is waiting")
	c.AwaitRows(framework.RW, "select n from kept", "1")
	c.AwaitCondition(v1.ConditionPrimaryAvailable, metav1.ConditionTrue)

	c.Edit(func(c *v1.PostgresCluster) { c.Spec.Pod.Sidecars = nil })
	c.AwaitCondition(v1.ConditionProgressing, metav1.ConditionFalse, "")
	f.Await(framework.Patience, "the pod has no sidecar", func(context.Context) error {
		pod, found := c.Pods()["measured-1"]
		if !found {
			return errors.New("the pod is gone, and the new one is not there yet")
		}
		return framework.Want("containers", len(pod.Spec.Containers), 1)
	})
	c.AwaitReady()
	c.AwaitRows(framework.RW, "select n from kept", "1")
}
