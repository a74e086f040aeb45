//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/test/e2e/framework"
)

// A pod that is deleted comes back on its volume, a replica as well as the
// primary, which hands over; a replica that loses its volume, too, is cloned again, and the
// status does not call the cluster healthy meanwhile.
func TestC21DeletedPodsAndVolumesComeBack(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	c := f.Create("back", framework.Instances(2))
	c.AwaitReady()
	c.SQL(framework.RW, "create table kept as select generate_series(1, 1000) as n")
	volumes, err := c.Volumes(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	primary := c.Primary()
	replica := "back-2"
	if primary == replica {
		replica = "back-1"
	}
	for _, instance := range []string{replica, primary} {
		identity := c.Shell(instance, "cat /pgdata/17/data-id")
		old := c.Pod(instance).UID
		c.DeletePod(instance)
		c.AwaitNewPod(instance, old)
		if now := c.Shell(instance, "cat /pgdata/17/data-id"); now != identity {
			t.Errorf("instance %s has other data than before: %s instead of %s", instance, now, identity)
		}
		if c.Volume(instance).UID != volumes[instance] {
			t.Errorf("instance %s has another volume", instance)
		}
		if got := c.SQLIn(instance, `\c app
			select count(*) from kept`); got != "1000" {
			t.Errorf("instance %s has %s rows", instance, got)
		}
		wantStreaming(t, c, 2)
	}
	if c.Primary() == primary {
		t.Errorf("the primary, %s, whose pod was deleted, has not handed over", primary)
	}
	replica = primary

	phases := watchPhases(f, c)
	c.DeleteVolume(replica)
	c.DeletePod(replica)
	f.Await(framework.Patience, "the replica has a new volume and streams", func(ctx context.Context) error {
		now, err := c.Volumes(ctx)
		if err != nil {
			return err
		}
		if now[replica] == "" || now[replica] == volumes[replica] {
			return fmt.Errorf("volumes: %v", now)
		}
		return c.Ready(ctx)
	})
	wantStreaming(t, c, 2)
	c.AwaitRows(framework.RO, "select count(*) from kept", "1000")
	// It was healthy before the deletion and is at the end, and in between not.
	if seen := phases(); len(seen) < 3 || seen[0] != v1.PhaseHealthy || seen[len(seen)-1] != v1.PhaseHealthy ||
		strings.Count(fmt.Sprint(seen), string(v1.PhaseHealthy)) != 2 {
		t.Errorf("phases while the replica was cloned: %v", seen)
	}
}

// watchPhases notes the phases of a cluster from now on; the function returned
// stops that and tells them, without repetitions.
func watchPhases(f *framework.Framework, c *framework.Cluster) func() []v1.Phase {
	ctx, stop := context.WithCancel(f.T.Context())
	var phases []v1.Phase
	var mu sync.Mutex
	note := func(p v1.Phase) {
		mu.Lock()
		defer mu.Unlock()
		if len(phases) == 0 || phases[len(phases)-1] != p {
			phases = append(phases, p)
		}
	}
	live := c.Live()
	note(live.Status.Phase)
	watch, err := f.Postgres.PgopV1().PostgresClusters(f.Namespace).Watch(ctx, metav1.ListOptions{
		FieldSelector: "metadata.name=" + c.Name, ResourceVersion: live.ResourceVersion,
	})
	if err != nil {
		f.T.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for event := range watch.ResultChan() {
			if cluster, ok := event.Object.(*v1.PostgresCluster); ok {
				note(cluster.Status.Phase)
			}
		}
	}()
	return func() []v1.Phase {
		stop()
		watch.Stop()
		<-done
		mu.Lock()
		defer mu.Unlock()
		return phases
	}
}

// Services and labels that people have deleted or changed are put back.
func TestB10ServicesAndLabelsArePutBack(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	c := f.Create("mend", framework.Instances(2))
	c.AwaitReady()
	c.SQL(framework.RW, "create table kept as select 1 as n")
	services := f.Kube.CoreV1().Services(f.Namespace)

	f.Kubectl("delete", "service", "mend-rw")
	f.Await(framework.Patience, "writes go through a new mend-rw", func(ctx context.Context) error {
		_, err := c.TrySQL(ctx, framework.RW, "insert into kept values (2)")
		return err
	})

	f.Kubectl("delete", "endpointslice", "mend-rw")
	f.Await(framework.Patience, "writes go through a new slice of mend-rw", func(ctx context.Context) error {
		if _, err := f.Kube.DiscoveryV1().EndpointSlices(f.Namespace).Get(ctx, "mend-rw", metav1.GetOptions{}); err != nil {
			return err
		}
		_, err := c.TrySQL(ctx, framework.RW, "insert into kept values (3)")
		return err
	})

	primary := c.Primary()
	f.Kubectl("label", "pod", primary, framework.RoleLabel+"-")
	f.Kubectl("patch", "service", "mend-ro", "-p", `{"spec": {"selector": {"pgop.dev/role": "primary"}}}`)
	f.Kubectl("patch", "service", "mend-rw", "-p", `{"spec": {"selector": {"app": "other"}}}`)
	f.Kubectl("patch", "service", "mend-r", "-p", `{"spec": {"ports": [{"port": 5432, "name": "postgres", "targetPort": 1}]}}`)
	f.Await(framework.Patience, "label, selectors and port are back", func(ctx context.Context) error {
		pod, err := f.Kube.CoreV1().Pods(f.Namespace).Get(ctx, primary, metav1.GetOptions{})
		if err != nil {
			return err
		}
		list, err := services.List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		have := map[string]corev1.ServiceSpec{}
		for _, s := range list.Items {
			have[s.Name] = s.Spec
		}
		return errors.Join(
			framework.Want("the primary's role label", pod.Labels[framework.RoleLabel], "primary"),
			framework.Want("the selector of mend-ro", have["mend-ro"].Selector[framework.RoleLabel], "replica"),
			framework.Want("the selector of mend-rw", len(have["mend-rw"].Selector), 0),
			framework.Want("the port of mend-r", have["mend-r"].Ports[0].TargetPort.IntValue(), 5432),
		)
	})
	c.AwaitRows(framework.RO, "select pg_is_in_recovery()", "t")
	c.AwaitRows(framework.R, "select 1", "1")
	c.AwaitRows(framework.RW, "select pg_is_in_recovery()", "f")
	c.AwaitReady()
}

// All pods at once: the cluster comes back from its volumes.
func TestB11AllPodsDeleted(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	c := f.Create("fall", framework.Instances(3))
	c.AwaitReady()
	c.SQL(framework.RW, "create table kept as select generate_series(1, 1000) as n")
	volumes, err := c.Volumes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	before := c.Pods()
	// The primary may hand over on its way out, to one that goes a moment later.
	f.Kubectl("delete", "pod", "-l", framework.ClusterLabel+"=fall", "--wait=false")
	for name, pod := range before {
		c.AwaitNewPod(name, pod.UID)
	}
	now, err := c.Volumes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for name, uid := range volumes {
		if now[name] != uid {
			t.Errorf("the volume of %s was replaced", name)
		}
	}
	c.AwaitRows(framework.RW, "select count(*) from kept", "1000")
	c.AwaitRows(framework.RO, "select count(*) from kept", "1000")
	wantStreaming(t, c, 3)
}

// Pods deleted without any grace start every time again, whatever lock files
// they have left.
func TestC16ForceDeletedPodStartsAgain(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	c := f.Create("force")
	c.AwaitReady()
	c.SQL(framework.RW, "create table kept (n int)")
	for round := range 5 {
		c.SQL(framework.RW, fmt.Sprintf("insert into kept values (%d)", round))
		old := c.Pod("force-1").UID
		c.ForceDeletePod("force-1")
		c.AwaitNewPod("force-1", old)
		c.AwaitRows(framework.RW, "select count(distinct n), max(n) from kept", fmt.Sprintf("%d|%d", round+1, round))
	}
}

// A pod deleted by force while its containers still run: the new pod waits, and
// says for what, and there are never two servers on the volume.
func TestC16TwoPodsOnOneVolumeNeverRunTwoServers(t *testing.T) {
	framework.LocalOnly(t)
	t.Parallel()
	f := framework.New(t)
	c := f.Create("twice")
	c.AwaitReady()
	c.SQL(framework.RW, "create table kept as select 1 as n")
	old := c.Pod("twice-1")

	// Other processes postgres come and go: those that check a configuration.
	data, err := framework.DirectoryIn(string(old.UID), c.SQLIn("twice-1", "show data_directory"))
	if err != nil {
		t.Fatal(err)
	}
	first := postmasters(t, data)
	if len(first) != 1 {
		t.Fatalf("%d postmasters of one pod: %v", len(first), first)
	}

	release := f.HoldContainers(string(old.UID))
	c.ForceDeletePod("twice-1")

	f.Await(framework.Patience, "the new pod waits for the volume and says so", func(ctx context.Context) error {
		live, err := c.Get(ctx)
		if err != nil {
			return err
		}
		if len(live.Status.Members) == 1 && strings.Contains(live.Status.Members[0].Message, "another pod's processes still use this volume") {
			return nil
		}
		return errors.New(framework.Summary(live))
	})
	if now := c.Pod("twice-1"); now.UID == old.UID || now.Spec.NodeName != old.Spec.NodeName {
		t.Fatalf("no new pod beside the old one: %s on %s", now.UID, now.Spec.NodeName)
	}
	f.Hold(8*time.Second, "one server on the volume, the old one", func(context.Context) error {
		now, err := framework.Postmasters(data)
		if err != nil {
			return err
		}
		if len(now) != 1 || now[0].PID != first[0].PID {
			return fmt.Errorf("postmasters: %v, and at first %v", now, first)
		}
		return nil
	})
	if c.Pod("twice-1").Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("the new pod does not wait but restarts")
	}

	release()
	two := false
	f.Await(framework.Patience, "the new pod serves once the old one is gone", func(ctx context.Context) error {
		now, err := framework.Postmasters(data)
		if err != nil {
			return err
		}
		two = two || len(now) > 1
		return c.Ready(ctx)
	})
	if two {
		t.Errorf("two postmasters were seen on one volume")
	}
	if last := postmasters(t, data); len(last) != 1 || last[0].PID == first[0].PID {
		t.Errorf("postmasters in the end: %v", last)
	}
	c.AwaitRows(framework.RW, "select count(*) from kept", "1")
}

func postmasters(t *testing.T, data string) []framework.Process {
	t.Helper()
	found, err := framework.Postmasters(data)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// A pod that has failed for good, as an eviction leaves it, is replaced on the
// same volume; a container that ends by itself just starts again.
func TestC20FailedPodIsReplaced(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	c := f.Create("failed")
	c.AwaitReady()
	c.SQL(framework.RW, "create table kept as select 1 as n")
	volume := c.Volume("failed-1").UID

	old := c.Pod("failed-1").UID
	// The kubelet ends it as it ends an evicted pod: its phase is Failed.
	f.Kubectl("patch", "pod", "failed-1", "-p", `{"spec": {"activeDeadlineSeconds": 1}}`)
	c.AwaitNewPod("failed-1", old)
	c.AwaitRows(framework.RW, "select count(*) from kept", "1")

	before := c.Pod("failed-1")
	c.Shell("failed-1", "kill -TERM 1")
	f.Await(framework.Patience, "the container has ended with 0 and serves again", func(ctx context.Context) error {
		pod, err := f.Kube.CoreV1().Pods(f.Namespace).Get(ctx, "failed-1", metav1.GetOptions{})
		if err != nil {
			return err
		}
		ended := pod.Status.ContainerStatuses[0].LastTerminationState.Terminated
		if ended == nil || ended.ExitCode != 0 {
			return fmt.Errorf("the container's last end: %v", ended)
		}
		if pod.UID != before.UID {
			return errors.New("the pod was replaced")
		}
		return c.Ready(ctx)
	})
	c.AwaitRows(framework.RW, "select count(*) from kept", "1")

	if n := len(c.Pods()); n != 1 {
		t.Errorf("%d pods are there", n)
	}
	if c.Volume("failed-1").UID != volume {
		t.Errorf("the volume was replaced")
	}
}

// What a remount with fsGroup does to the data directory's mode is undone
// before the server starts, which would refuse it.
func TestC25GroupWritableDataDirectory(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	c := f.Create("mode")
	c.AwaitReady()
	old := c.Pod("mode-1").UID
	if got := c.Shell("mode-1", `chmod g+w "$PGDATA" && stat -c %a "$PGDATA"`); got != "720" {
		t.Fatalf("the mode is %s", got)
	}
	c.DeletePod("mode-1")
	c.AwaitNewPod("mode-1", old)
	if got := c.Shell("mode-1", `stat -c %a "$PGDATA"`); got != "700" {
		t.Errorf("the mode is %s", got)
	}
	if n := c.Pod("mode-1").Status.ContainerStatuses[0].RestartCount; n != 0 {
		t.Errorf("the container has restarted %d times", n)
	}
}

// A parallel query that needs more shared memory than a container runtime's
// 64 MB of /dev/shm.
func TestC30ParallelQueryNeedsSharedMemory(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	c := f.Create("shared")
	c.AwaitReady()
	plan := c.SQLIn("shared-1", `
		create unlogged table wide as select n, repeat(md5(n::text), 3) as text from generate_series(1, 700000) n;
		set work_mem = '400MB'; set max_parallel_workers_per_gather = 2; set parallel_setup_cost = 0; set parallel_tuple_cost = 0;
		set min_parallel_table_scan_size = 0; set enable_mergejoin = off; set enable_nestloop = off;
		explain (analyze, costs off, format json) select count(a.text), count(b.text) from wide a join wide b using (n);`)
	most, launched := 0, 0
	walkPlan(t, plan, func(node map[string]any) {
		if kilobytes, ok := node["Peak Memory Usage"].(float64); ok {
			most = max(most, int(kilobytes))
		}
		if workers, ok := node["Workers Launched"].(float64); ok {
			launched = max(launched, int(workers))
		}
	})
	t.Logf("a hash of %d kB, shared by %d workers", most, launched)
	if most < 64*1024 || launched < 1 {
		t.Errorf("the query did not need 64 MB of shared memory:\n%s", plan)
	}
}

func walkPlan(t *testing.T, text string, visit func(map[string]any)) {
	t.Helper()
	var plans any
	if err := json.Unmarshal([]byte(text), &plans); err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	var walk func(any)
	walk = func(value any) {
		switch value := value.(type) {
		case map[string]any:
			visit(value)
			for _, v := range value {
				walk(v)
			}
		case []any:
			for _, v := range value {
				walk(v)
			}
		}
	}
	walk(plans)
}

func conditionOf(c *v1.PostgresCluster, kind string) metav1.Condition {
	if condition := meta.FindStatusCondition(c.Status.Conditions, kind); condition != nil {
		return *condition
	}
	return metav1.Condition{}
}
