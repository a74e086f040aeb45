//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/test/e2e/framework"
)

// B-17: a later minor version, memory and a parameter of three instances in one edit,
// while a client writes: each pod restarts once, the primary hands over once, and no
// row that was acknowledged is lost.
func TestB17RollingChangeUnderAWritingClient(t *testing.T) {
	framework.LocalOnly(t) // the nodes have to have the image of the earlier version
	t.Parallel()
	f := framework.New(t)
	earlier := f.LoadEarlierImage()
	c := f.Create("roll", framework.Instances(3), framework.Version(15), framework.Image(earlier), memory("64Mi"))
	c.AwaitReady()
	c.SQL(framework.RW, "create table rows (n bigint primary key)")
	began := c.SQL(framework.RW, "show server_version")
	before, primary := podUIDs(c), c.Primary()
	pods := watchPods(f, "roll")
	stop := write(f, c)

	c.Edit(framework.Image(postgres15), memory("96Mi"), framework.Parameter("max_connections", "120"))
	c.AwaitCondition(v1.ConditionUpToDate, metav1.ConditionTrue)
	c.AwaitReady()
	acknowledged, longest := stop()

	made := map[string]int{}
	for uid, pod := range pods() {
		if uid != before[pod.Name] {
			made[pod.Name]++
		}
		for _, s := range pod.Status.ContainerStatuses {
			if s.RestartCount > 0 {
				t.Errorf("a container of pod %s has restarted", pod.Name)
			}
		}
	}
	if len(made) != 3 || made["roll-1"] != 1 || made["roll-2"] != 1 || made["roll-3"] != 1 {
		t.Errorf("new pods: %v, want one for each instance", made)
	}
	for _, reason := range []string{v1.ReasonSwitchedOver, v1.ReasonFailedOver} {
		want := map[string]int{v1.ReasonSwitchedOver: 1}[reason]
		if got := countEvents(t, c, reason); got != want {
			t.Errorf("%d events %s, want %d", got, reason, want)
		}
	}
	if c.Primary() == primary {
		t.Errorf("%s is the primary as before", primary)
	}
	for name, pod := range c.Pods() {
		if got := pod.Spec.Containers[0].Image; got != postgres15 {
			t.Errorf("pod %s has image %s", name, got)
		}
		if got := c.SQLIn(name, "show max_connections"); got != "120" {
			t.Errorf("%s has max_connections %s", name, got)
		}
		// The two are the same version for the weeks after a point release of Debian.
		t.Logf("%s: PostgreSQL %s, before %s", name, c.SQLIn(name, "show server_version"), began)
	}
	there := map[string]bool{}
	for _, n := range strings.Fields(c.SQL(framework.RW, "select n from rows")) {
		there[n] = true
	}
	lost := slices.DeleteFunc(slices.Clone(acknowledged), func(n string) bool { return there[n] })
	if len(lost) > 0 || len(acknowledged) < 20 { // too few to judge by
		t.Errorf("%d of %d acknowledged rows are lost: %v", len(lost), len(acknowledged), lost)
	}
	t.Logf("%d rows acknowledged; the longest time without was %s", len(acknowledged), longest)
}

// write lets a client insert rows one by one, each over a new connection, until the
// function returned is called, which tells the rows that were acknowledged and the
// longest time between two.
func write(f *framework.Framework, c *framework.Cluster) func() (acknowledged []string, longest time.Duration) {
	f.T.Helper()
	const script = `rm -f /tmp/stop; n=0
		while [ ! -e /tmp/stop ]; do n=$((n+1))
			PGCONNECT_TIMEOUT=2 psql -X -q -d "$1" -c "insert into rows values ($n)" >/dev/null 2>&1 && echo "$n $(date +%s%3N)"
			sleep 0.1
		done`
	type result struct {
		output string
		err    error
	}
	ended, uri := make(chan result, 1), c.Secret()["uri"]
	go func() {
		output, err := f.InClient(f.T.Context(), "", script, uri)
		ended <- result{output, err}
	}()
	f.Await(framework.Patience, "the client writes", func(ctx context.Context) error {
		n, err := c.TrySQL(ctx, framework.RW, "select count(*) > 0 from rows")
		if err != nil {
			return err
		}
		return framework.Want("rows are there", n, "t")
	})
	return func() (acknowledged []string, longest time.Duration) {
		f.T.Helper()
		if _, err := f.InClient(f.T.Context(), "", "touch /tmp/stop"); err != nil {
			f.T.Fatal(err)
		}
		r := <-ended
		if r.err != nil {
			f.T.Fatalf("the client: %v", r.err)
		}
		last := int64(0)
		for line := range strings.Lines(r.output) {
			var n, at int64
			if _, err := fmt.Sscan(line, &n, &at); err != nil {
				f.T.Fatalf("the client says %q: %v", line, err)
			}
			if last > 0 {
				longest = max(longest, time.Duration(at-last)*time.Millisecond)
			}
			last = at
			acknowledged = append(acknowledged, fmt.Sprint(n))
		}
		return acknowledged, longest
	}
}

func countEvents(t *testing.T, c *framework.Cluster, reason string) int {
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

// C-12: max_connections is raised while a replica is being cloned: standbys first,
// then a switchover. C-11: it is lowered: the primary first, in its place. Servers
// restart and no pod does, and no standby ever has less than its primary.
func TestC11C12MaxConnectionsUpAndDown(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	c := f.Create("slots", framework.Instances(2), framework.Parameter("max_connections", "60"))
	c.AwaitReady()
	c.SQL(framework.RW, "create table kept as select 1 as n")
	before, primary := podUIDs(c), c.Primary()

	c.Edit(framework.Instances(3), framework.Parameter("max_connections", "120"))
	c.AwaitCondition(v1.ConditionUpToDate, metav1.ConditionTrue)
	c.AwaitReady()
	wantEverywhere(t, c, "max_connections", "120")
	if c.Primary() == primary {
		t.Errorf("%s, the primary, has not handed over", primary)
	}
	primary = c.Primary()

	c.Edit(framework.Parameter("max_connections", "60"))
	c.AwaitCondition(v1.ConditionUpToDate, metav1.ConditionTrue)
	c.AwaitReady()
	wantEverywhere(t, c, "max_connections", "60")
	if c.Primary() != primary {
		t.Errorf("the primary, %s, has handed over to %s", primary, c.Primary())
	}
	started := map[string]string{}
	for name := range c.Pods() {
		started[name] = c.SQLIn(name, "select extract(epoch from pg_postmaster_start_time())::bigint")
		if name != primary && started[name] < c.SQLIn(primary, "select extract(epoch from pg_postmaster_start_time())::bigint") {
			t.Errorf("%s was restarted before the primary, %s: %v", name, primary, started)
		}
		if log := f.Kubectl("logs", name, "-c", framework.Container); strings.Contains(log, "insufficient parameter settings") {
			t.Errorf("%s once had less than its primary:\n%s", name, log)
		}
	}
	if n := replaced(before, podUIDs(c)); n > 0 {
		t.Errorf("%d pods were replaced", n)
	}
	wantStreaming(t, c, 3)
	c.AwaitRows(framework.RO, "select n from kept", "1")
}

func wantEverywhere(t *testing.T, c *framework.Cluster, parameter, value string) {
	t.Helper()
	for name := range c.Pods() {
		if got := c.SQLIn(name, "show "+parameter); got != value {
			t.Errorf("%s: %s is %s, want %s", name, parameter, got, value)
		}
	}
}

// C-13: a library that is not there costs one replica one restart; the status has
// the server's words, nobody else tries it, and taking it back heals by itself.
func TestC13LibraryThatDoesNotExist(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	c := f.Create("library", framework.Instances(3))
	c.AwaitReady()
	before := podUIDs(c)
	starts := func() map[string]string {
		all := map[string]string{}
		for name := range before {
			all[name] = c.SQLIn(name, "select pg_postmaster_start_time()")
		}
		return all
	}
	at := starts()
	c.Edit(framework.Parameter("shared_preload_libraries", "nope"), framework.Parameter("work_mem", "5MB"))
	message := c.AwaitCondition(v1.ConditionUpToDate, metav1.ConditionFalse, `could not access file "nope"`, "spec.postgres")
	t.Logf("UpToDate says: %s", message)
	c.AwaitReady() // on the configuration before
	f.Hold(10*time.Second, "one replica has tried it and no other", func(context.Context) error {
		var tried []string
		for name, since := range starts() {
			if since != at[name] {
				tried = append(tried, name)
			}
		}
		if len(tried) != 1 || tried[0] == c.Primary() {
			return fmt.Errorf("servers restarted: %v", tried)
		}
		return nil
	})
	c.Edit(func(c *v1.PostgresCluster) { delete(c.Spec.Postgres.Parameters, "shared_preload_libraries") })
	c.AwaitCondition(v1.ConditionUpToDate, metav1.ConditionTrue)
	c.AwaitReady()
	wantEverywhere(t, c, "work_mem", "5MB")
	if n := replaced(before, podUIDs(c)); n > 0 {
		t.Errorf("%d pods were replaced", n)
	}
	for name, pod := range c.Pods() {
		if n := pod.Status.ContainerStatuses[0].RestartCount; n > 0 {
			t.Errorf("the container of %s has restarted %d times", name, n)
		}
	}

	c.Edit(framework.Parameter("shared_preload_libraries", "auto_explain"))
	c.AwaitCondition(v1.ConditionUpToDate, metav1.ConditionTrue)
	c.AwaitReady()
	wantEverywhere(t, c, "shared_preload_libraries", "auto_explain")
}

// B-16: an image that can't be pulled costs one replica, the condition says what
// the kubelet says, and taking it back heals without hands.
func TestB16ImageThatCantBePulled(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	c := f.Create("pulled", framework.Instances(3))
	c.AwaitReady()
	before, primary := podUIDs(c), c.Primary()
	c.Edit(framework.Image("localhost:5000/no-such-image:17"))
	message := c.AwaitCondition(v1.ConditionUpToDate, metav1.ConditionFalse, "Image", "localhost:5000/no-such-image:17")
	t.Logf("UpToDate says: %s", message)
	f.Hold(5*time.Second, "one pod is sacrificed and no other", func(context.Context) error {
		return framework.Want("pods replaced", replaced(before, podUIDs(c)), 1)
	})
	if podUIDs(c)[primary] != before[primary] {
		t.Errorf("the primary, %s, was sacrificed", primary)
	}
	c.SQL(framework.RW, "select 1")
	c.Edit(framework.Image(""))
	c.AwaitCondition(v1.ConditionUpToDate, metav1.ConditionTrue)
	c.AwaitReady()
	if n := replaced(before, podUIDs(c)); n != 1 {
		t.Errorf("%d pods were replaced in the end, want 1", n)
	}
}

// B-18: edits of parameters and memory that follow each other at once, the last two
// during a failover: the last one wins.
func TestB18EditsInARow(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	c := f.Create("row", framework.Instances(3), memory("64Mi"))
	c.AwaitReady()
	for n, edit := range [][]framework.Modifier{
		{framework.Parameter("max_connections", "120")},
		{framework.Parameter("max_connections", "50"), memory("80Mi")},
		{framework.Parameter("shared_preload_libraries", "auto_explain"), memory("96Mi")},
		{framework.Parameter("max_connections", "70")},
		{framework.Parameter("max_worker_processes", "12"), memory("112Mi")},
	} {
		c.Edit(edit...)
		if n == 2 {
			c.DeletePod(c.Primary())
		}
		f.Hold(time.Second, "time goes by between edits", func(context.Context) error { return nil })
	}
	c.AwaitCondition(v1.ConditionUpToDate, metav1.ConditionTrue)
	c.AwaitReady()
	c.AwaitCondition(v1.ConditionProgressing, metav1.ConditionFalse)
	for parameter, value := range map[string]string{"max_connections": "70", "shared_preload_libraries": "auto_explain", "max_worker_processes": "12"} {
		wantEverywhere(t, c, parameter, value)
	}
	for name, pod := range c.Pods() {
		if got := pod.Spec.Containers[0].Resources.Requests[corev1.ResourceMemory]; got.String() != "112Mi" {
			t.Errorf("pod %s asks for %s", name, &got)
		}
	}
	wantStreaming(t, c, 3)
}

// B-18: edits while a replica's node is away. Writes go on, the status tells what is
// waited for, and once the node is back, everybody comes to what the last edit asks for.
func TestB18EditsWhileANodeIsAway(t *testing.T) {
	framework.LocalOnly(t)
	f := framework.New(t)
	c := f.Create("away", framework.Instances(3), memory("64Mi"))
	c.AwaitReady()
	c.SQL(framework.RW, "create table kept (n int)")
	primary, pods := c.Primary(), c.Pods()
	away := ""
	for name, pod := range pods {
		if pod.Spec.NodeName != pods[primary].Spec.NodeName {
			away = name
		}
	}
	node := pods[away].Spec.NodeName
	f.LocalCluster("node", "stop", node)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if _, err := framework.RunLocal(ctx, "node", "start", node); err != nil {
			t.Error(err)
		}
	})
	for _, edit := range [][]framework.Modifier{
		{framework.Parameter("max_connections", "120"), memory("80Mi")},
		{framework.Parameter("work_mem", "7MB")},
		{framework.Parameter("max_connections", "70"), memory("96Mi")},
	} {
		c.Edit(edit...)
		f.Hold(2*time.Second, "time goes by between edits", func(context.Context) error { return nil })
	}
	message := c.AwaitCondition(v1.ConditionUpToDate, metav1.ConditionFalse, away)
	t.Logf("UpToDate says: %s", message)
	// The client's own node may be the one that is away.
	c.Shell(primary, "psql -X -q -d app -c 'insert into kept values (1)'")
	f.Await(framework.Patience, "the status is of the last edit", func(ctx context.Context) error {
		live, err := c.Get(ctx)
		if err != nil {
			return err
		}
		return framework.Want("status.observedGeneration", live.Status.ObservedGeneration, live.Generation)
	})

	f.LocalCluster("node", "start", node)
	c.AwaitCondition(v1.ConditionUpToDate, metav1.ConditionTrue)
	c.AwaitReady()
	wantEverywhere(t, c, "max_connections", "70")
	wantEverywhere(t, c, "work_mem", "7MB")
	for name, pod := range c.Pods() {
		if got := pod.Spec.Containers[0].Resources.Requests[corev1.ResourceMemory]; got.String() != "96Mi" {
			t.Errorf("pod %s asks for %s", name, &got)
		}
	}
	wantStreaming(t, c, 3)
	c.AwaitRows(framework.RO, "select n from kept", "1")
}

// C-15: sessions that sit idle, and one in a transaction, hold up neither a restart
// for a parameter, nor the end of the primary's pod, nor a switchover; and each
// time the server was asked for a fast shutdown and ended by it.
func TestC15ShutdownWaitsForNobody(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	c := f.Create("idle", framework.Instances(2))
	c.AwaitReady()
	occupy := func() {
		t.Helper()
		const script = `for n in $(seq 20); do (sleep 120 | psql -X -q -d "$1" >/dev/null 2>&1) & done
			( (echo "begin; select 1;"; sleep 120) | psql -X -q -d "$1" >/dev/null 2>&1) &`
		uri := c.Secret()["uri"]
		go func() {
			// It ends when the sessions have, in its own time.
			_, _ = f.InClient(t.Context(), "", script, uri)
		}()
		f.Await(framework.Patience, "the sessions are there", func(ctx context.Context) error {
			got, err := c.TrySQLIn(ctx, c.Primary(), `select count(*) filter (where state = 'idle') >= 20, count(*) filter (where state = 'idle in transaction')
				from pg_stat_activity where usename = 'app'`)
			if err != nil {
				return err
			}
			return framework.Want("20 are idle, and how many are in a transaction", got, "t|1")
		})
	}
	log := func(pod string) string { return f.Kubectl("logs", pod, "-c", framework.Container) }

	occupy()
	was := c.Primary()
	c.Edit(framework.Parameter("max_connections", "90")) // less, so that the primary restarts in its place
	c.AwaitCondition(v1.ConditionUpToDate, metav1.ConditionTrue)
	c.AwaitReady()
	if c.Primary() != was {
		t.Errorf("the primary is %s now, and was %s", c.Primary(), was)
	}
	wantEverywhere(t, c, "max_connections", "90")

	occupy()
	old := c.Pod(was).UID
	c.DeletePod(was)
	c.AwaitNewPod(was, old)
	if c.Primary() == was {
		t.Errorf("%s, whose pod was deleted, is the primary", was)
	}

	occupy()
	from := c.Primary()
	ask(f, c, v1.SwitchoverAnnotation, was, v1.ReasonSwitchedOver, was+" took over from "+from)
	c.AwaitReady()
	for name := range c.Pods() {
		text := log(name)
		if strings.Contains(text, "immediate shutdown") || strings.Contains(text, "was not properly shut down") {
			t.Errorf("a server was not shut down in order:\n%s", text)
		}
	}
	if !strings.Contains(log(from), "received fast shutdown request") {
		t.Error("no fast shutdown was asked for")
	}
}
