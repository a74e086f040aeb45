//go:build e2e

package e2e

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/test/e2e/framework"
)

// crashAndFreeze kills the server, and stops the process that recovers as soon as it
// does. It prints that process's id and the new server's.
const crashAndFreeze = `kill -9 "$(head -n 1 "$PGDATA/postmaster.pid")"
	for n in $(seq 3000); do
		for file in $(grep -lsaE 'startup [r]ecovering' /proc/[0-9]*/cmdline); do
			pid=${file#/proc/}; pid=${pid%/cmdline}
			kill -STOP "$pid" && echo "$pid" && head -n 1 "$PGDATA/postmaster.pid" && exit
		done
		sleep 0.01
	done
	echo "no recovery was seen" >&2; exit 1`

// C-14: recovery takes several times as long as the kubelet would bear with an agent
// that hangs, and longer than restartTimeout. No probe ends it: the pod is alive and
// not ready until all is recovered, and then it serves.
func TestC14RecoveryOutlastsTheProbe(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	c := f.Create("redo", framework.Parameter("max_wal_size", "256MB"), framework.Parameter("checkpoint_timeout", "1h"))
	c.AwaitReady()
	c.SQLIn("redo-1", "create table ballast as select repeat(md5(n::text), 10) from generate_series(1, 150000) n")
	c.SQL(framework.RW, "create table kept as select 1 as n")
	before := c.Pod("redo-1")
	recovering, server, _ := strings.Cut(c.Shell("redo-1", crashAndFreeze), "\n")
	f.T.Cleanup(func() {
		_, _ = c.TryShell(context.Background(), "redo-1", "kill -CONT "+recovering) // it may be gone, with its pod
	})
	message := c.AwaitCondition(v1.ConditionReady, metav1.ConditionFalse, "recovering")
	t.Logf("Ready says: %s", message)
	isAlive := func(ctx context.Context) error {
		pod, err := f.Kube.CoreV1().Pods(f.Namespace).Get(ctx, "redo-1", metav1.GetOptions{})
		if err != nil {
			return err
		}
		live, err := c.Get(ctx)
		if err != nil {
			return err
		}
		return errors.Join(framework.Want("the pod", pod.UID, before.UID), framework.Want("restarts", pod.Status.ContainerStatuses[0].RestartCount, 0),
			framework.Want("the pod is ready", !readySince(pod).IsZero(), false), framework.Want("ready instances", live.Status.ReadyInstances, 0))
	}
	f.Await(framework.Patience, "the pod is not ready", isAlive)
	f.Hold(25*time.Second, "it recovers, and nobody ends it", isAlive)
	if now := c.Shell("redo-1", `head -n 1 "$PGDATA/postmaster.pid"; kill -CONT `+recovering); strings.TrimSpace(now) != server {
		t.Errorf("the server was started anew: process %s, and it was %s", now, server)
	}
	c.AwaitReady()
	c.AwaitRows(framework.RW, "select n from kept", "1")
	if pod := c.Pod("redo-1"); pod.UID != before.UID || pod.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("the pod is another, or its container was restarted")
	}
}

// C-18: the only instance's server can't start: the status says so with the cause,
// and nothing is healthy or ready. Its data stays as it is, and heals by being whole
// again.
func TestC18ServerThatCantStart(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	c := f.Create("alone")
	c.AwaitReady()
	c.SQL(framework.RW, "create table kept as select 1 as n")
	const look = `cat /pgdata/17/data-id; ls "$PGDATA" | wc -l; ls /pgdata/17 | grep -c '^data[.]' || true`
	before := c.Shell("alone-1", look)
	c.Shell("alone-1", `mv "$PGDATA/global/pg_control" "$PGDATA/global/pg_control.away"; kill -9 "$(head -n 1 "$PGDATA/postmaster.pid")"`)
	message := c.AwaitCondition(v1.ConditionReady, metav1.ConditionFalse, "pg_control")
	t.Logf("Ready says: %s", message)
	c.AwaitCondition(v1.ConditionPrimaryAvailable, metav1.ConditionFalse, "pg_control")
	f.Hold(5*time.Second, "nothing is ready", func(ctx context.Context) error {
		live, err := c.Get(ctx)
		if err != nil {
			return err
		}
		if live.Status.Phase == v1.PhaseHealthy || conditionOf(live, v1.ConditionReady).Status != metav1.ConditionFalse {
			return errors.New(framework.Summary(live))
		}
		pod, err := f.Kube.CoreV1().Pods(f.Namespace).Get(ctx, "alone-1", metav1.GetOptions{})
		if err != nil {
			return err
		}
		return errors.Join(framework.Want("ready instances", live.Status.ReadyInstances, 0), framework.Want("the pod's phase", pod.Status.Phase, corev1.PodRunning))
	})
	c.Shell("alone-1", `mv "$PGDATA/global/pg_control.away" "$PGDATA/global/pg_control"`)
	c.AwaitReady()
	if after := c.Shell("alone-1", look); after != before {
		t.Errorf("the data has changed: %q, and before %q", after, before)
	}
	c.AwaitRows(framework.RW, "select n from kept", "1")
}
