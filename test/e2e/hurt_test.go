//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/test/e2e/framework"
)

func memoryLimit(limit string) framework.Modifier {
	return func(c *v1.PostgresCluster) {
		c.Spec.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(limit)}
	}
}

// useUpMemory fills /dev/shm, and then takes what is left by many small processes,
// so that the kernel kills larger ones.
const useUpMemory = `dd if=/dev/zero of=/dev/shm/ballast bs=1M count=400 2>/dev/null
	for n in $(seq 150); do (x=$(head -c 2000000 /dev/zero | tr '\0' x); sleep 30) & done; wait`

// C-19: the primary's memory is used up, by a file in /dev/shm and by processes,
// until the kernel ends it. The cluster is healthy again without hands, an event
// says why, and it stays so although that file outlives the container.
func TestC19OOMKill(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	c := f.Create("oom", framework.Instances(2), memoryLimit("300Mi"))
	c.AwaitReady()
	c.SQL(framework.RW, "create table kept as select 1 as n")
	primary := c.Primary()
	before := c.Pod(primary).Status.ContainerStatuses[0].RestartCount
	c.Shell(primary, "echo of the life before > /dev/shm/relic")
	f.Await(framework.Patience, "the container was killed for want of memory", func(ctx context.Context) error {
		// Whoever the kernel chooses, it goes on until the agent is gone.
		filling, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		_, said := c.TryShell(filling, primary, useUpMemory)
		status := c.Pod(primary).Status.ContainerStatuses[0]
		if status.RestartCount == before {
			return fmt.Errorf("it has not restarted; filling the memory: %w", said)
		}
		if last := status.LastTerminationState.Terminated; last == nil || last.Reason != "OOMKilled" {
			return fmt.Errorf("its last end: %v", last)
		}
		return nil
	})
	// The last try may have filled the memory of a container that was new already.
	f.Await(framework.Patience, "the memory is free again", func(ctx context.Context) error {
		_, err := c.TryShell(ctx, primary, "rm -f /dev/shm/ballast")
		return err
	})
	f.Await(framework.Patience, "an event says so", func(ctx context.Context) error {
		messages, err := c.Messages(ctx)
		if err != nil {
			return err
		}
		if !strings.Contains(strings.Join(messages, "\n"), "OOMKilled") {
			return fmt.Errorf("told %q", messages)
		}
		return nil
	})
	c.AwaitReady()
	wantStreaming(t, c, 2)
	restarts := c.Pod(primary).Status.ContainerStatuses[0].RestartCount
	spent := agentTicks(c, primary)
	const quiet = 10 * time.Second
	f.Hold(quiet, "nothing is killed any more", func(ctx context.Context) error {
		return errors.Join(c.Ready(ctx), framework.Want("restarts", c.Pod(primary).Status.ContainerStatuses[0].RestartCount, restarts))
	})
	if ticks := agentTicks(c, primary) - spent; ticks > int(quiet/time.Second)*100/2 {
		t.Errorf("the agent has used %d ticks of 10 ms within %s", ticks, quiet)
	}
	if left := c.Shell(primary, "ls /dev/shm | grep -c relic || true"); strings.TrimSpace(left) != "0" {
		t.Error("what was in the memory of the container before is still there")
	}
	c.AwaitRows(framework.RW, "select n from kept", "1")
	c.AwaitRows(framework.RO, "select n from kept", "1")
}

// agentTicks is how long the agent has run on a processor, in hundredths of a
// second.
func agentTicks(c *framework.Cluster, instance string) int {
	ticks, _ := strconv.Atoi(strings.TrimSpace(c.Shell(instance, `cut -d ' ' -f 14 /proc/1/stat`)))
	return ticks
}

// writeWAL lets the primary write more WAL than replicas have files for.
const writeWAL = "create table if not exists ballast (t text); truncate ballast; insert into ballast select repeat(md5(n::text), 20) from generate_series(1, 60000) n; truncate ballast"

// C-09: the volume of one of two synchronous standbys is full: it counts as
// healthy no more and the status says why, and commits go on with the other. When
// both are full, commits wait, and a condition says so. Room is all that it takes.
func TestC09DiskFullOnSynchronousStandbys(t *testing.T) {
	framework.LocalOnly(t)
	t.Parallel()
	f := framework.New(t)
	c := f.Create("nospace", framework.Instances(3), replication(v1.ReplicationSync, 1, v1.DurabilityRequired))
	c.AwaitReady()
	c.SQL(framework.RW, "create table kept (n int)")
	primary := c.Primary()
	const start = "select pg_postmaster_start_time()"
	began := c.SQLIn(primary, start)
	replicas := []string{}
	for instance := range c.Pods() {
		if instance != primary {
			replicas = append(replicas, instance)
		}
	}
	write := func(ctx context.Context) error {
		writing, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		_, err := c.TrySQL(writing, framework.RW, writeWAL)
		return err
	}

	free := []func(){f.FillVolume(replicas[0])}
	f.Await(framework.Patience, "the replica counts no more, and commits go on", func(ctx context.Context) error {
		if err := write(ctx); err != nil {
			return err
		}
		live, err := c.Get(ctx)
		if err != nil {
			return err
		}
		ready := conditionOf(live, v1.ConditionReady)
		if live.Status.ReadyInstances != 2 || ready.Reason != v1.ReasonDiskFull || !strings.Contains(ready.Message, replicas[0]) {
			return errors.New(framework.Summary(live))
		}
		r, err := recordOf(ctx, f, c)
		if err != nil {
			return err
		}
		if len(r.Members) != 1 || r.Members[0].Instance != replicas[1] {
			return fmt.Errorf("who may take over: %s", r)
		}
		return nil
	})
	c.AwaitCondition(v1.ConditionFailoverReady, metav1.ConditionTrue, replicas[1]+" can take over")
	c.SQL(framework.RW, "insert into kept values (1)")

	free = append(free, f.FillVolume(replicas[1]))
	f.Await(framework.Patience, "commits wait, and the status says so", func(ctx context.Context) error {
		_ = write(ctx) // it waits sooner or later
		live, err := c.Get(ctx)
		if err != nil {
			return err
		}
		if conditionOf(live, v1.ConditionReplicating).Reason != v1.ReasonCommitsWait {
			return errors.New(framework.Summary(live))
		}
		return nil
	})
	for _, f := range free {
		f()
	}
	c.AwaitReady()
	wantStreaming(t, c, 3)
	c.SQL(framework.RW, "insert into kept values (2)")
	c.AwaitRows(framework.RO, "select count(*) from kept", "2")
	if c.Primary() != primary || c.SQLIn(primary, start) != began {
		t.Error("the primary was disturbed")
	}
}

// C-26: the primary's volume turns read only and its server ends. Another takes
// over, and the status says why the former primary does not serve. When the
// volume is writable again, it joins by itself, and there is one primary.
func TestC26VolumeReadOnlyForAWhile(t *testing.T) {
	framework.LocalOnly(t)
	t.Parallel()
	f := framework.New(t)
	c := f.Create("readonly", framework.Instances(2))
	c.AwaitReady()
	c.SQL(framework.RW, "create table kept as select 1 as n")
	c.AwaitRows(framework.RO, "select n from kept", "1")
	former := c.Pod(c.Primary())

	release := f.HoldContainers(string(former.UID))
	killServer(f, string(former.UID))
	writable := f.RemountReadOnly(former.Name)
	release()
	f.Await(framework.Patience, "another primary takes writes", func(ctx context.Context) error {
		served, err := c.TrySQL(ctx, framework.RW, "insert into kept values (2) returning current_setting('cluster_name')")
		if err == nil && served == former.Name {
			t.Errorf("%s writes to a volume that is read only", served)
		}
		return err
	})
	f.Await(framework.Patience, "the status says why, and that another serves", func(ctx context.Context) error {
		live, err := c.Get(ctx)
		if err != nil {
			return err
		}
		for _, m := range live.Status.Members {
			if m.Name == former.Name && !m.Ready && strings.Contains(m.Message, "read-only file system") && live.Status.Phase == v1.PhaseDegraded {
				return nil
			}
		}
		return errors.New(framework.Summary(live))
	})
	f.Hold(10*time.Second, "one primary, and the former is not ready", func(ctx context.Context) error {
		live, err := c.Get(ctx)
		if err != nil {
			return err
		}
		return errors.Join(framework.Want("ready instances", live.Status.ReadyInstances, 1), framework.Want("phase", live.Status.Phase, v1.PhaseDegraded))
	})
	writable()
	c.AwaitReady()
	wantStreaming(t, c, 2)
	if c.Primary() == former.Name {
		t.Errorf("the primary is %s again", former.Name)
	}
	if now := c.Pod(former.Name); now.UID != former.UID {
		t.Error("its pod was replaced")
	}
	c.SQL(framework.RW, "insert into kept values (3)")
	c.AwaitRows(framework.RO, "select count(distinct n) from kept", "3")
}
