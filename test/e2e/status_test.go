//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/test/e2e/framework"
)

// A pod that fits no node: never called ready, the scheduler's words in a
// condition, and a lower request heals.
func TestF01UnschedulablePod(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	c := f.Create("huge", framework.CPU("1000"))
	message := c.AwaitCondition(v1.ConditionReady, metav1.ConditionFalse, "nodes are available", "Insufficient cpu")
	t.Logf("Ready says: %s", message)
	f.Hold(5*time.Second, "it is not called ready", func(ctx context.Context) error {
		live, err := c.Get(ctx)
		if err != nil {
			return err
		}
		return errors.Join(framework.Want("phase", live.Status.Phase, v1.PhaseCreating), framework.Want("ready instances", live.Status.ReadyInstances, 0),
			framework.Want("reason", conditionOf(live, v1.ConditionReady).Reason, v1.ReasonUnschedulable))
	})
	c.Edit(framework.CPU("10m"))
	c.AwaitReady()
}

// A quota without room: the API server's refusal is in a condition and in one
// event, and room is all that it takes.
func TestF02QuotaWithoutRoom(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	quotas := f.Kube.CoreV1().ResourceQuotas(f.Namespace)
	pods := func(n string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourcePods: resource.MustParse(n)}
	}
	quota, err := quotas.Create(t.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "few"}, Spec: corev1.ResourceQuotaSpec{Hard: pods("1")},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	f.Await(framework.Patience, "the quota is in force", func(ctx context.Context) error {
		quota, err := quotas.Get(ctx, "few", metav1.GetOptions{})
		if err != nil {
			return err
		}
		return framework.Want("limits in its status", len(quota.Status.Hard), 1)
	})
	if _, err := f.InClient(t.Context(), "", "true"); err != nil { // takes the room
		t.Fatal(err)
	}
	c := f.Create("quota")
	message := c.AwaitCondition(v1.ConditionReady, metav1.ConditionFalse, "exceeded quota: few", "quota-1")
	t.Logf("Ready says: %s", message)
	f.Pause(5 * time.Second) // while it is tried again and again
	messages, err := c.Messages(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	told := slices.DeleteFunc(messages, func(m string) bool { return !strings.Contains(m, "exceeded quota") })
	if len(told) != 1 {
		t.Errorf("%d events tell of the quota: %q", len(told), told)
	}
	quota.ResourceVersion, quota.Spec.Hard = "", pods("5")
	if _, err := quotas.Update(t.Context(), quota, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.AwaitReady()
}

// In a settled cluster nothing is written but the Lease, which is renewed.
func TestF04SettledClusterWritesNothing(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	c := f.Create("calm", framework.Instances(2), func(c *v1.PostgresCluster) {
		c.Spec.Roles = []v1.RoleSpec{{Name: "reader", Login: true, MemberOf: []string{"pg_read_all_data"}}}
		c.Spec.Databases = []v1.DatabaseSpec{{Name: "reports", Owner: "reader"}}
	})
	c.AwaitReady()
	c.AwaitCondition(v1.ConditionDatabasesReady, metav1.ConditionTrue)
	c.AwaitRows(framework.RW, "select 1", "1") // the client has settled, too
	f.Await(framework.Patience, "two looks show the same", func(ctx context.Context) error {
		before := versions(t, f)
		f.Pause(3 * time.Second)
		return sameVersions(before, versions(t, f))
	})

	before, live := versions(t, f), c.Live()
	var mark framework.AuditMark
	if framework.IsLocal() {
		mark = f.MarkAudit()
	}
	renewed, window := f.Lease("calm"), idleWindow(t)
	f.Pause(window)
	if err := sameVersions(before, versions(t, f)); err != nil {
		t.Errorf("in a settled cluster: %v", err)
	}
	if f.Lease("calm") == renewed {
		t.Errorf("the Lease has not been renewed")
	}
	if now := c.Live(); now.ResourceVersion != live.ResourceVersion {
		t.Errorf("the status was written: before\n%s\nafter\n%s", framework.Summary(live), framework.Summary(now))
	}
	if framework.IsLocal() {
		for _, r := range f.Requests(framework.OperatorUser, mark) {
			if r.Verb != "watch" {
				t.Errorf("the operator asks for something: %+v", r)
			}
		}
		// The log is the right one: the primary's renewals are in it.
		agent := "system:serviceaccount:" + f.Namespace + ":calm-instance"
		renewals := 0
		for _, r := range f.Requests(agent, mark) {
			if r.Writes() {
				renewals++
			}
		}
		if renewals < int(window.Seconds()/3) {
			t.Errorf("only %d renewals of the Lease are in the audit log", renewals)
		}
	}
}

// idleWindow is for how long a settled cluster is watched: IDLE, or a minute.
func idleWindow(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv("IDLE")
	if text == "" {
		return time.Minute
	}
	window, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("environment IDLE: %v", err)
	}
	return window
}

// versions are the resource versions of the namespace's objects, but for the
// Lease and what is the test's own, the client's pod.
func versions(t *testing.T, f *framework.Framework) map[string]string {
	t.Helper()
	objects, err := f.AllObjects(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for name, object := range objects {
		if name != "Lease/calm" && name != "Pod/client" {
			all[name] = object.ResourceVersion
		}
	}
	return all
}

func sameVersions(before, after map[string]string) error {
	var changed []string
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if before[name] != after[name] {
			changed = append(changed, fmt.Sprintf("%s (%s, %s)", name, before[name], after[name]))
		}
	}
	for name := range before {
		if after[name] == "" {
			changed = append(changed, name+" is gone")
		}
	}
	if len(changed) > 0 {
		return fmt.Errorf("changed: %s", strings.Join(changed, ", "))
	}
	return nil
}
