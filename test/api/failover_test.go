//go:build e2e

package api

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	autoscalingv1 "k8s.io/api/autoscaling/v1"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/test/api/framework"
)

// countOf counts the messages of a reason.
func countOf(t *testing.T, c *framework.Cluster, reason string) int {
	t.Helper()
	messages, err := c.Messages(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, m := range messages {
		if strings.HasPrefix(m, reason+": ") {
			n++
		}
	}
	return n
}

// A switchover is asked for, carried out by the agents, and told once; the same
// can be asked again.
func TestSwitchoverOnRequest(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	f.StartOperator()
	c := f.Create("shop", framework.Instances(3))
	c.AwaitReady()
	c.AwaitCondition(v1.ConditionFailoverReady, metav1.ConditionTrue, "shop-2, shop-3 can take over")
	for n, to := range []string{"shop-3", "shop-1"} {
		c.Ask(v1.SwitchoverAnnotation, to)
		c.AwaitAnswer(v1.SwitchoverAnnotation, v1.ReasonSwitchedOver, n+1, to+" took over from", "as asked, after", "without a primary")
		c.AwaitPrimary(to)
		c.AwaitReady()
	}
	if n := countOf(t, c, v1.ReasonFailedOver) + countOf(t, c, v1.ReasonRequestRefused); n > 0 {
		t.Errorf("%d other events tell of it", n)
	}
}

func TestRequestsThatCantBe(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	f.StartOperator()
	c := f.Create("shop", framework.Instances(2))
	c.AwaitReady()
	n := 0
	refused := func(annotation, value string, words ...string) {
		t.Helper()
		n++
		c.Ask(annotation, value)
		c.AwaitAnswer(annotation, v1.ReasonRequestRefused, n, words...)
	}
	refused(v1.SwitchoverAnnotation, "shop-7", `"shop-7" is no instance of this cluster`, "[shop-1 shop-2]")
	refused(v1.SwitchoverAnnotation, "", `"" is no instance`)
	refused(v1.SwitchoverAnnotation, "shop-1", "is the primary already")
	refused(v1.RecloneAnnotation, "shop-1", "is the primary", v1.SwitchoverAnnotation)
	refused(v1.ForcePromoteAnnotation, "shop-2", "shop-1 serves as the primary")
	f.Kubelet.Script("shop-2", framework.Script{State: func(s *instanceapi.State) {
		s.Ready, s.Streaming, s.Message = false, false, "its slot is gone"
	}})
	c.AwaitCondition(v1.ConditionReplicating, metav1.ConditionFalse, "shop-2")
	refused(v1.SwitchoverAnnotation, "shop-2", "does not stream", "its slot is gone")
	c.AwaitPrimary("shop-1")
}

// What the primary says against a switchover ends it.
func TestSwitchoverThatFails(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	f.StartOperator()
	c := f.Create("shop", framework.Instances(2))
	c.AwaitReady()
	f.Kubelet.Script("shop-1", framework.Script{KeepsTheLead: true, State: func(s *instanceapi.State) { s.Request = "shop-2 is 3 GiB behind" }})
	c.Ask(v1.SwitchoverAnnotation, "shop-2")
	c.AwaitAnswer(v1.SwitchoverAnnotation, v1.ReasonSwitchoverFailed, 1, "shop-2 is 3 GiB behind")
	c.AwaitPrimary("shop-1")
}

// A replica is cloned anew once, although caches may still hold the request when
// it is done.
func TestRecloneOnRequest(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	f.StartOperator()
	c := f.Create("shop", framework.Instances(2))
	c.AwaitReady()
	dataID := func() string {
		var id string
		f.Await("the record has shop-2", func(ctx context.Context) error {
			members, err := f.MembersOf(ctx, "shop")
			if err == nil && len(members) != 1 {
				err = fmt.Errorf("members are %v", members)
			}
			if err == nil {
				id = members[0].DataID
			}
			return err
		})
		return id
	}
	before := dataID()
	c.Ask(v1.RecloneAnnotation, "shop-2")
	c.AwaitAnswer(v1.RecloneAnnotation, v1.ReasonRecloned, 1, "shop-2 has copied the primary anew")
	var after string
	f.Await("the primary knows of other data", func(context.Context) error {
		if after = dataID(); after == before {
			return fmt.Errorf("data is still %s", after)
		}
		return nil
	})
	f.Hold(2*time.Second, "it is cloned once", func(context.Context) error { return framework.Want("data", dataID(), after) })
}

// A promotion is forced only while nobody serves.
func TestForcePromote(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	f.StartOperator()
	c := f.Create("shop", framework.Instances(3))
	c.AwaitReady()
	f.Kubelet.Script("shop-1", framework.Script{State: func(s *instanceapi.State) {
		s.Role, s.Ready, s.Phase, s.Message = instanceapi.RoleNone, false, instanceapi.PhaseFailed, "could not open pg_control"
	}})
	c.AwaitCondition(v1.ConditionPrimaryAvailable, metav1.ConditionFalse, "pg_control")
	c.Ask(v1.ForcePromoteAnnotation, "shop-3")
	c.AwaitAnswer(v1.ForcePromoteAnnotation, v1.ReasonFailedOver, 1, "shop-3 took over from shop-1, as "+v1.ForcePromoteAnnotation+" asked")
	c.AwaitCondition(v1.ConditionPrimaryAvailable, metav1.ConditionTrue, "shop-3")
}

// B-28: agents elect without an operator; one that comes back tells of it, once.
func TestB28FailoverIsToldOnce(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	op := f.StartOperator()
	c := f.Create("shop", framework.Instances(3))
	c.AwaitReady()
	f.Kubelet.TakeOver("shop-2")
	c.AwaitPrimary("shop-2")
	c.AwaitAnswer("none", v1.ReasonFailedOver, 1, "shop-2 took over from shop-1, after", "without a primary")
	op.Stop()
	f.Kubelet.TakeOver("shop-3")
	f.StartOperator()
	c.AwaitPrimary("shop-3")
	c.AwaitAnswer("none", v1.ReasonFailedOver, 2, "shop-3 took over from shop-2")
	c.AwaitReady()
	f.Hold(2*time.Second, "it is told once", func(context.Context) error {
		return framework.Want("events", countOf(t, c, v1.ReasonFailedOver), 2)
	})
}

// The primary hands over before it restarts, and no instance restarts twice.
func TestRestartHandsOverFirst(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	f.StartOperator()
	c := f.Create("shop", framework.Instances(3))
	c.AwaitReady()
	c.Ask(v1.RestartAnnotation, "now")
	c.AwaitAnswer(v1.RestartAnnotation, v1.ReasonRestarted, 1)
	c.AwaitReady()
	messages, err := c.Messages(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var restarted []string
	for _, m := range messages {
		if note, found := strings.CutPrefix(m, v1.ReasonInstanceRestarted+": restarting instance "); found {
			name, _, _ := strings.Cut(note, ":")
			restarted = append(restarted, name)
		}
	}
	if want := []string{"shop-2", "shop-3", "shop-1"}; !slices.Equal(restarted, want) {
		t.Errorf("%v restarted, want %v", restarted, want)
	}
	if n := countOf(t, c, v1.ReasonSwitchedOver); n != 1 {
		t.Errorf("%d switchovers", n)
	}
	c.AwaitPrimary("shop-2")
}

// B-14: the primary stays, whatever its number.
func TestB14ScaleDownSparesThePrimary(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	f.StartOperator()
	c := f.Create("shop", framework.Instances(3))
	c.AwaitReady()
	f.Kubelet.TakeOver("shop-3")
	c.AwaitPrimary("shop-3")
	c.Edit(framework.Instances(1))
	f.Await("shop-3 is left alone", func(ctx context.Context) error {
		pods, err := c.Pods(ctx)
		if err != nil {
			return err
		}
		if len(pods) != 1 || pods["shop-3"] == nil {
			return fmt.Errorf("%d pods are left", len(pods))
		}
		return c.Ready(ctx)
	})
}

// C-28: no replica less than commits need, by whichever way it is asked.
func TestC28SyncNeedsReplicas(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	const way = "spec.replication.need: must be less than spec.instances with mode sync and durability required"
	expectRefusal(t, "one instance", post(f, f.Postgres, "one", "{postgres: {version: 17}, storage: {size: 1Gi}, replication: {mode: sync}}", "Strict"), way)
	f.StartOperator()
	c := f.Create("shop", framework.Instances(2), func(c *v1.PostgresCluster) {
		c.Spec.Replication = v1.ReplicationSpec{Mode: v1.ReplicationSync}
	})
	c.AwaitReady()
	scale := &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Name: "shop", Namespace: f.Namespace}, Spec: autoscalingv1.ScaleSpec{Replicas: 1}}
	_, err := f.Postgres.PgopV1().PostgresClusters(f.Namespace).UpdateScale(t.Context(), "shop", scale, metav1.UpdateOptions{})
	expectRefusal(t, "scaling down", err, way)
	expectRefusal(t, "an edit", c.TryEdit(framework.Instances(1)), way)
	expectRefusal(t, "more need", c.TryEdit(func(c *v1.PostgresCluster) { c.Spec.Replication.Need = ptr.To[int32](2) }), way)
	c.Edit(func(c *v1.PostgresCluster) { c.Spec.Replication.Durability = v1.DurabilityPreferred }, framework.Instances(1))
	c.AwaitReady()
}
