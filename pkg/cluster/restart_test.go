package cluster

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/specs"
)

// follow lets everybody take turns until the cluster has settled, and returns what
// the pods were, and which states the change went through.
func (w *world) follow(t *testing.T) (states []changeState, primaries []string) {
	t.Helper()
	for range 90 {
		w.catchUp(allKinds...)
		o, p, status := w.pass()
		if n := len(states); n == 0 || states[n-1] != p.Change.State {
			states = append(states, p.Change.State)
		}
		if name, n := o.primaryName(), len(primaries); name != "" && (n == 0 || primaries[n-1] != name) {
			primaries = append(primaries, name)
		}
		w.kubernetes()
		w.agents()
		upToDate := meta.FindStatusCondition(status.Conditions, v1.ConditionUpToDate)
		if status.Phase == v1.PhaseHealthy && (upToDate.Reason == v1.ReasonUpToDate || upToDate.Reason == v1.ReasonConfigurationRefused) {
			return states, primaries
		}
	}
	t.Fatalf("it does not settle: %v\n%+v", states, w.cluster.Status)
	return nil, nil
}

func (w *world) podUIDs() map[string]types.UID {
	uids := map[string]types.UID{}
	for name, pod := range w.objects["Pod"] {
		uids[name] = pod.GetUID()
	}
	return uids
}

// Each kind of change goes its way: who restarts, in which order, and how.
func TestWaysOfAChange(t *testing.T) {
	pure(t)
	connections := func(n string) func(w *world) { return func(w *world) { w.set("max_connections", n) } }
	cases := []struct {
		why    string
		before func(w *world)
		change func(w *world)
		// servers are those that restart in their place, in order; pods says whether
		// every pod is replaced.
		servers   []string
		pods      bool
		primaries []string
		passes    []changeState
	}{
		{why: "a parameter that a reload is enough for", change: func(w *world) { w.set("work_mem", "8MB") },
			primaries: []string{"shop-1"}, passes: []changeState{Settled}},
		{why: "a parameter that needs a restart: replicas, then a switchover, and no pod goes",
			change:  func(w *world) { w.set("shared_preload_libraries", "auto_explain") },
			servers: []string{"shop-2", "shop-3"}, primaries: []string{"shop-1", "shop-2"}, passes: []changeState{RestartingReplica, HandingOver}},
		{why: "C-12: max_connections raised: standbys first", change: connections("300"),
			servers: []string{"shop-2", "shop-3"}, primaries: []string{"shop-1", "shop-2"}, passes: []changeState{RestartingReplica, HandingOver}},
		{why: "C-11: max_connections lowered: the primary first, in its place", change: connections("50"),
			servers: []string{"shop-1", "shop-2", "shop-3"}, primaries: []string{"shop-1"}, passes: []changeState{LoweringPrimary, RestartingReplica}},
		{why: "one instance: one restart", before: func(w *world) { *w = *settledWorld(1) }, change: connections("50"),
			servers: []string{"shop-1"}, primaries: []string{"shop-1"}, passes: []changeState{RestartingPrimary}},
		{why: "one instance and a template: one restart", before: func(w *world) { *w = *settledWorld(1) },
			change: func(w *world) { w.ask("2") }, pods: true, primaries: []string{"shop-1"}, passes: []changeState{RestartingPrimary}},
		{why: "B-17: a template and a parameter in one edit: one round", change: func(w *world) { w.ask("2"); w.set("max_connections", "300") },
			pods: true, primaries: []string{"shop-1", "shop-2"}, passes: []changeState{RestartingReplica, HandingOver, RestartingReplica}},
		{why: "B-17: a template and less of what standbys need: each pod restarts once", change: func(w *world) { w.ask("2"); w.set("max_connections", "50") },
			servers: []string{"shop-1"}, pods: true, primaries: []string{"shop-1", "shop-2"},
			passes: []changeState{LoweringPrimary, RestartingReplica, HandingOver, RestartingReplica}},
		{why: "C-13: a library that is not there: one replica tries it, and nobody else", change: func(w *world) { w.set("shared_preload_libraries", noLibrary) },
			servers: []string{"shop-2"}, primaries: []string{"shop-1"}, passes: []changeState{RestartingReplica, Held}},
		{why: "C-13: such a library is taken back", before: func(w *world) {
			w.set("shared_preload_libraries", noLibrary)
			w.settle()
		}, change: func(w *world) { w.edit(func(s *v1.PostgresClusterSpec) { s.Postgres.Parameters = nil }) },
			primaries: []string{"shop-1"}, passes: []changeState{Held}},
	}
	for _, c := range cases {
		t.Run(c.why, func(t *testing.T) {
			w := settledWorld(3)
			if c.before != nil {
				c.before(w)
			}
			w.restarts = nil
			before := w.podUIDs()
			c.change(w)
			states, primaries := w.follow(t)
			var passes []changeState
			for _, s := range states {
				if s == Awaiting || s == Distributing || s == Settled && len(states) > 1 {
					continue // between the steps
				}
				if n := len(passes); n == 0 || passes[n-1] != s {
					passes = append(passes, s)
				}
			}
			if len(passes) == 0 {
				passes = []changeState{Settled}
			}
			if diff := cmp.Diff(c.passes, passes); diff != "" {
				t.Errorf("states (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.servers, w.restarts); diff != "" {
				t.Errorf("servers restarted in their place (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.primaries, primaries); diff != "" {
				t.Errorf("primaries (-want +got):\n%s", diff)
			}
			for name, uid := range w.podUIDs() {
				if (uid != before[name]) != c.pods {
					t.Errorf("pod %s was replaced: %v", name, uid != before[name])
				}
			}
			if w.outgrown > 0 {
				t.Errorf("%d times a standby had less than its primary", w.outgrown)
			}
		})
	}
}

// B-18: edits that follow each other while a change is under way: the last one
// wins, and the status never speaks of an earlier one.
func TestB18EditsDuringAChange(t *testing.T) {
	pure(t)
	for turns := range 12 {
		w := settledWorld(3)
		w.ask("2")
		w.set("max_connections", "300")
		for range turns {
			w.turn()
		}
		w.ask("3")
		w.set("max_connections", "50")
		w.turn()
		w.ask("4")
		w.edit(func(s *v1.PostgresClusterSpec) { s.Postgres.Parameters = nil })
		w.follow(t)
		o := w.observe()
		for _, i := range o.Instances {
			if !i.hasCurrentTemplate(o) || len(i.pendingParameters()) > 0 {
				t.Errorf("after %d turns: %s is not as asked: %v", turns, i.Name, i.State)
			}
		}
		if w.cluster.Status.ObservedGeneration != w.cluster.Generation {
			t.Errorf("the status speaks of generation %d of %d", w.cluster.Status.ObservedGeneration, w.cluster.Generation)
		}
	}
}

// An edit during a failover waits for the new primary, and goes on with it.
func TestEditDuringAFailover(t *testing.T) {
	w := settledWorld(3)
	w.remove("Pod", "shop-1")
	w.full = true // its replacement comes later
	w.kubernetes()
	w.set("max_connections", "300")
	for range 5 {
		w.turn()
	}
	if len(w.restarts) > 0 {
		t.Errorf("servers restarted without a primary: %v", w.restarts)
	}
	w.elect()
	for range 5 {
		w.turn()
	}
	if len(w.restarts) > 0 {
		t.Errorf("servers restarted while an instance was away: %v", w.restarts)
	}
	w.full = false
	w.follow(t)
	for _, i := range w.observe().Instances {
		if got := w.servers[i.Pod.UID].connections; got != 300 {
			t.Errorf("%s has max_connections %d", i.Name, got)
		}
	}
}

// docs/changes.md speaks of the states by their names.
func TestDocumentNamesTheStates(t *testing.T) {
	text, err := os.ReadFile("../../docs/changes.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, state := range changeStates {
		if !strings.Contains(string(text), string(state)) {
			t.Errorf("docs/changes.md does not explain the state %s", state)
		}
	}
}

// The primary hands over when every replica has served for a moment, and not in the
// second in which the last one begins to. A clock that is ahead keeps nothing.
func TestHandoverWaitsUntilReplicasHaveServed(t *testing.T) {
	cases := []struct {
		since time.Duration
		want  changeState
	}{{time.Second, Awaiting}, {5 * time.Second, HandingOver}, {-time.Hour, HandingOver}}
	for _, c := range cases {
		w := settledWorld(3)
		w.annotate(v1.RestartAnnotation, "now")
		for _, name := range []string{"shop-2", "shop-3"} {
			change(w, name, func(p *corev1.Pod) {
				metav1.SetMetaDataAnnotation(&p.ObjectMeta, v1.RestartAnnotation, "now")
				p.Status.Conditions[1].LastTransitionTime = metav1.NewTime(w.now.Add(-c.since))
			})
		}
		w.catchUp(allKinds...)
		if got := Analyse(w.observe()).Change; got.State != c.want || got.State == Awaiting && got.Awaited != "shop-2" {
			t.Errorf("the replicas have served for %s: %+v, want %s", c.since, got, c.want)
		}
	}
}

// UpToDate is True only when every instance was seen to run what the last edit asks
// for: not while the last of them restarts, nor while one doesn't come up with it or
// doesn't say. What fails later takes nothing back.
func TestUpToDateIsSeenNotHoped(t *testing.T) {
	pure(t)
	cases := []struct {
		why       string
		instances int32
		edit      func(w *world)
		// held lets nothing come of it until it is let go.
		held func(w *world, holds bool)
	}{
		{why: "a server that restarts in its place", instances: 1, edit: func(w *world) { w.set("shared_preload_libraries", "auto_explain") }},
		{why: "the last of three servers", instances: 3, edit: func(w *world) { w.set("max_connections", "300") }},
		{why: "a pod that finds no node", instances: 1, edit: func(w *world) { w.ask("2") }, held: func(w *world, holds bool) { w.full = holds }},
		{why: "a reload while an agent does not answer", instances: 3, edit: func(w *world) { w.set("work_mem", "8MB") },
			held: func(w *world, holds bool) { w.cut["shop-2"] = holds }},
		{why: "a reload while a pod is away", instances: 3, edit: func(w *world) { w.set("work_mem", "8MB") },
			held: func(w *world, holds bool) { w.full = holds; w.remove("Pod", "shop-3") }},
		{why: "a pod that was asked to restart", instances: 1, edit: func(w *world) { w.request("now") }, held: func(w *world, holds bool) { w.full = holds }},
		{why: "a start after a stop", instances: 0, edit: func(w *world) { w.scale(2) }, held: func(w *world, holds bool) { w.full = holds }},
	}
	for _, c := range cases {
		t.Run(c.why, func(t *testing.T) {
			w := settledWorld(max(1, c.instances))
			if c.instances == 0 {
				w.scale(0)
				w.settle()
			}
			if c.held != nil {
				c.held(w, true)
			}
			c.edit(w)
			checkUpToDate := func() bool {
				t.Helper()
				w.operate() // the agents are as the operator has seen them
				defer func() {
					w.kubernetes()
					w.now = w.now.Add(time.Minute)
					w.agents()
				}()
				condition := meta.FindStatusCondition(w.cluster.Status.Conditions, v1.ConditionUpToDate)
				if condition.Status != metav1.ConditionTrue {
					return false
				}
				o := w.observe()
				want := wantedConfigHash(o)
				for n := range int(*w.cluster.Spec.Instances) {
					i := find(o, specs.Instance("shop", n+1))
					if i.Pod == nil || w.states[i.Pod.UID].ConfigHash != want || w.servers[i.Pod.UID] == nil || whyRestart(o, i) != "" || w.cut[i.Name] {
						t.Fatalf("UpToDate is True, and %s is %+v", i.Name, i)
					}
				}
				return true
			}
			for range 10 {
				if done := checkUpToDate(); done && c.held != nil {
					t.Fatal("UpToDate is True while nothing can come of the edit")
				}
			}
			if c.held != nil {
				c.held(w, false)
			}
			done := false
			for n := 0; n < 90 && !done; n++ {
				done = checkUpToDate()
			}
			if !done {
				t.Fatalf("it never is: %+v", w.cluster.Status.Conditions)
			}
			w.follow(t)
			w.remove("Pod", "shop-1")
			for range 3 {
				w.turn()
				if !meta.IsStatusConditionTrue(w.cluster.Status.Conditions, v1.ConditionUpToDate) {
					t.Fatal("an instance that is away takes back that it was up to date")
				}
			}
		})
	}
}

// A request for a restart is one, whatever value an earlier one had.
func TestRestartAskedForTwiceInTheSameWords(t *testing.T) {
	pure(t)
	w := settledWorld(2)
	for n := range 3 {
		before := w.podUIDs()
		w.request("now")
		if _, settled := w.settle(); !settled {
			t.Fatal("it does not settle")
		}
		if _, asked := w.cluster.Annotations[v1.RestartAnnotation]; asked {
			t.Error("the request is still there")
		}
		for name, uid := range w.podUIDs() {
			if uid == before[name] {
				t.Errorf("request %d: pod %s has not restarted", n+1, name)
			}
			if mark, has := w.pod(name).Annotations[v1.RestartAnnotation]; has {
				t.Errorf("pod %s still has the mark %s", name, mark)
			}
		}
	}
}

// While the spec is refused, a pod that is lost comes back as it was, and nothing
// restarts when the spec is corrected.
func TestAPodThatIsLostWhileTheSpecIsRefused(t *testing.T) {
	w := settledWorld(3)
	before := w.podUIDs()
	image := w.pod("shop-2").Spec.Containers[0].Image
	good := w.cluster.Spec
	w.edit(func(s *v1.PostgresClusterSpec) {
		s.Postgres.Image = "nonsense:1"
		s.Postgres.HBA = []string{"nonsense"}
		s.Pod.PriorityClassName = "none"
	})
	w.settle()
	w.remove("Pod", "shop-2")
	w.settle()
	lost := w.pod("shop-2")
	if lost == nil || lost.UID == before["shop-2"] || lost.Spec.Containers[0].Image != image || lost.Spec.PriorityClassName != "" {
		t.Fatalf("it is %+v", lost)
	}
	during := w.podUIDs()
	if w.states[lost.UID].Phase == "" || during["shop-1"] != before["shop-1"] {
		t.Errorf("%v, and before %v", during, before)
	}
	w.edit(func(s *v1.PostgresClusterSpec) { *s = good })
	w.settle()
	if diff := cmp.Diff(during, w.podUIDs()); diff != "" {
		t.Errorf("pods were replaced: %s", diff)
	}
}
