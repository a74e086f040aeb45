//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/test/e2e/framework"
)

// Without an operator databases serve, and start again when they die. The
// operator that comes back, and a newer one after it, adopt them and restart
// nothing.
func TestB09OperatorAwayAndBack(t *testing.T) {
	f := framework.New(t)
	c := f.Create("alone", framework.Instances(2))
	c.AwaitReady()
	c.SQL(framework.RW, "create table kept (n int)")
	deployment := f.UninstallOperator()

	primary := c.Primary()
	c.Shell(primary, `kill -9 "$(head -n 1 "$PGDATA/postmaster.pid")"`)
	c.SQL(framework.RW, "insert into kept values (1)")
	c.Shell(primary, "kill -TERM 1") // the container's end, in order
	f.Await(framework.Patience, "writes go on after the container's restart", func(ctx context.Context) error {
		pod, err := f.Kube.CoreV1().Pods(f.Namespace).Get(ctx, primary, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if n := pod.Status.ContainerStatuses[0].RestartCount; n != 1 {
			return fmt.Errorf("the container has restarted %d times", n)
		}
		_, err = c.TrySQL(ctx, framework.RW, "insert into kept values (2)")
		return err
	})
	c.AwaitRows(framework.RO, "select count(distinct n) from kept", "2")

	f.Await(framework.Patience, "both servers answer", func(ctx context.Context) error {
		for name := range c.Pods() {
			if _, err := c.TrySQLIn(ctx, name, "select 1"); err != nil {
				return err
			}
		}
		return nil
	})
	before := lives(t, c)
	f.InstallOperator(deployment)
	c.AwaitReady()
	wantSameLives(t, f, c, before, "after the operator is back")

	// A newer operator would give new pods another agent; those that run keep
	// theirs until they restart for another reason, or somebody asks for it.
	newer := ""
	f.RestartOperator(func(template *corev1.PodTemplateSpec) {
		for i, env := range template.Spec.Containers[0].Env {
			if env.Name == "OPERATOR_IMAGE" {
				newer = env.Value + "-newer"
				template.Spec.Containers[0].Env[i].Value = newer
				if framework.IsLocal() {
					f.TagImage(env.Value, newer)
				}
			}
		}
	})
	c.AwaitReady()
	wantSameLives(t, f, c, before, "after a newer operator has come")
	c.Edit(framework.Parameter("work_mem", "7MB")) // it is at work
	c.AwaitRows(framework.RW, "show work_mem", "7MB")
	wantSameLives(t, f, c, before, "after the newer operator has worked")

	if !framework.IsLocal() {
		return // there is no such image to restart with
	}
	f.Kubectl("annotate", "pg/alone", v1.RestartAnnotation+"=newer")
	f.Await(framework.Patience, "the agents come from the newer operator's image", func(context.Context) error {
		for name, pod := range c.Pods() {
			if image := pod.Spec.InitContainers[0].Image; image != newer {
				return fmt.Errorf("the agent of %s comes from %s", name, image)
			}
		}
		return framework.Want("the request", c.Live().Annotations[v1.RestartAnnotation], "")
	})
	c.AwaitReady()
	c.AwaitRows(framework.RO, "select count(distinct n) from kept", "2")
}

// lives says of each instance which pod, container and server it is.
func lives(t *testing.T, c *framework.Cluster) map[string]string {
	t.Helper()
	lives := map[string]string{}
	for name, pod := range c.Pods() {
		lives[name] = fmt.Sprintf("pod %s, container %s, server since %s", pod.UID, pod.Status.ContainerStatuses[0].ContainerID,
			c.SQLIn(name, "select pg_postmaster_start_time()"))
	}
	return lives
}

func wantSameLives(t *testing.T, f *framework.Framework, c *framework.Cluster, before map[string]string, when string) {
	t.Helper()
	f.Pause(3 * time.Second) // anything to be done would have begun
	for name, life := range lives(t, c) {
		if before[name] != life {
			t.Errorf("%s: instance %s was %s and is %s", when, name, before[name], life)
		}
	}
}

// A replica that waits for a new volume, while the number of instances goes
// 3 -> 1 -> 3 and the operator restarts.
func TestC21WaitingReplicaScaledWhileOperatorRestarts(t *testing.T) {
	f := framework.New(t)
	c := f.Create("pending", framework.Instances(3))
	c.AwaitReady()
	c.SQL(framework.RW, "create table kept as select generate_series(1, 1000) as n")
	primary, victim := c.Primary(), c.Instance(3)
	if primary == victim {
		victim = c.Instance(2)
	}
	old := c.Volume(victim).UID

	// Without room for another claim the instance can't come back.
	quotas := f.Kube.CoreV1().ResourceQuotas(f.Namespace)
	if _, err := quotas.Create(t.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "claims"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePersistentVolumeClaims: resource.MustParse("2")}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.DeleteVolume(victim)
	c.DeletePod(victim)
	f.Await(framework.Patience, "the volume is gone, and the quota's refusal is in the status", func(ctx context.Context) error {
		volumes, err := c.Volumes(ctx)
		if err != nil {
			return err
		}
		live, err := c.Get(ctx)
		if err != nil {
			return err
		}
		if volumes[victim] != "" || !strings.Contains(conditionOf(live, v1.ConditionReady).Message, "exceeded quota: claims") {
			return fmt.Errorf("volumes %v (before: %s); %s", volumes, old, framework.Summary(live))
		}
		return framework.Want("ready instances", live.Status.ReadyInstances, 2)
	})
	c.Edit(framework.Instances(1))
	f.RestartOperator(nil)
	c.Edit(framework.Instances(3))
	live := c.Live()
	if live.Status.Phase == v1.PhaseHealthy && live.Status.ObservedGeneration == live.Generation {
		t.Errorf("called healthy: %s", framework.Summary(live))
	}
	if err := quotas.Delete(t.Context(), "claims", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.AwaitReady()
	if c.Primary() != primary {
		t.Errorf("the primary is %s instead of %s", c.Primary(), primary)
	}
	wantStreaming(t, c, 3)
	c.AwaitRows(framework.RO, "select count(*) from kept", "1000")
}
