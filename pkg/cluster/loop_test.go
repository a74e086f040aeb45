package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/sirupsen/logrus"
	logrustest "github.com/sirupsen/logrus/hooks/test"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	postgresfake "github.com/pgop/postgres-operator/pkg/generated/clientset/versioned/fake"
	postgreslisters "github.com/pgop/postgres-operator/pkg/generated/listers/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/specs"
)

// bench is a Loop of a cluster that has just been created, with all that it
// talks to. Its caches see the cluster, and nothing else.
type bench struct {
	*Loop
	kube     *fake.Clientset
	postgres *postgresfake.Clientset
	events   *events.FakeRecorder
	logged   *logrustest.Hook
	queued   []string
	clusters cache.Indexer
}

func newBench(t *testing.T) *bench {
	t.Helper()
	return benchOf(newWorld(3))
}

// benchOf is a Loop of the cluster in w, whose caches see what w's do.
func benchOf(w *world) *bench {
	logger, logged := logrustest.NewNullLogger()
	b := &bench{
		kube:     fake.NewClientset(),
		postgres: postgresfake.NewSimpleClientset(w.cluster), // whole objects are all that is written
		events:   events.NewFakeRecorder(100),
		logged:   logged,
		clusters: cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}),
	}
	b.see(w.cluster)
	b.Loop = NewLoop(Deps{
		Kube:          kubeOf(b.kube),
		Postgres:      b.postgres.PgopV1(),
		Clusters:      postgreslisters.NewPostgresClusterLister(b.clusters),
		Listers:       w.listers(),
		Events:        b.events,
		Queue:         b,
		OperatorImage: testImage,
		Log:           logrus.NewEntry(logger),
		Now:           func() time.Time { return w.now },
	}, cache.NewObjectName("db", "shop"), "cluster-1")
	return b
}

func (b *bench) Forget(cache.ObjectName)         { b.queued = append(b.queued, "forget") }
func (b *bench) AddRateLimited(cache.ObjectName) { b.queued = append(b.queued, "back off") }
func (b *bench) AddAfter(_ cache.ObjectName, after time.Duration) {
	b.queued = append(b.queued, fmt.Sprint("after ", after))
}

// see lets the cache of clusters see c.
func (b *bench) see(c *v1.PostgresCluster) {
	if err := b.clusters.Replace([]any{c}, ""); err != nil {
		panic(err)
	}
}

// once is one turn of Run.
func (b *bench) once(ctx context.Context) {
	recheck, err := b.pass(ctx)
	if ctx.Err() == nil {
		b.requeue(recheck, err)
	}
}

// stored is the cluster as the API server holds it.
func (b *bench) stored(t *testing.T) *v1.PostgresCluster {
	t.Helper()
	c, err := b.postgres.PgopV1().PostgresClusters("db").Get(context.Background(), "shop", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (b *bench) statusWrites() int {
	n := 0
	for _, a := range b.postgres.Actions() {
		if a.GetVerb() != "get" {
			n++
			if a.GetSubresource() != "status" {
				panic("something other than the status is written")
			}
		}
	}
	return n
}

func (b *bench) warnings() []string {
	texts := []string{}
	for _, e := range b.logged.AllEntries() {
		if e.Level <= logrus.WarnLevel {
			texts = append(texts, e.Message)
		}
	}
	return texts
}

func (b *bench) announced() []string {
	texts := []string{}
	for {
		select {
		case text := <-b.events.Events:
			texts = append(texts, text)
		default:
			return texts
		}
	}
}

func TestStatusIsWrittenWhenItChanges(t *testing.T) {
	b := newBench(t)
	b.once(context.Background())
	first := b.stored(t)
	if first.Status.Phase != v1.PhaseCreating || b.statusWrites() != 1 {
		t.Fatalf("phase %q after %d writes", first.Status.Phase, b.statusWrites())
	}
	b.see(first)
	b.once(context.Background())
	if n := b.statusWrites(); n != 1 {
		t.Errorf("%d writes, and nothing changed after the first", n)
	}
	want := []string{"forget", "after 1s", "forget", "after 1s"}
	if diff := cmp.Diff(want, b.queued); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{}, b.warnings()); diff != "" {
		t.Error(diff)
	}
}

// B-23: a conflict means that the cache was behind. What was to be written is
// written by the next pass, and nobody hears of it twice.
func TestConflictOfTheStatusLosesNothing(t *testing.T) {
	b := newBench(t)
	conflicts := 1
	b.postgres.PrependReactor("update", "postgresclusters", func(clienttesting.Action) (bool, runtime.Object, error) {
		if conflicts--; conflicts < 0 {
			return false, nil, nil
		}
		return true, nil, apierrors.NewConflict(v1.Resource("postgresclusters"), "shop", errors.New("changed"))
	})
	b.once(context.Background())
	if phase := b.stored(t).Status.Phase; phase != "" {
		t.Fatalf("written in spite of the conflict: %s", phase)
	}
	said := b.announced()
	changed := b.stored(t).DeepCopy()
	changed.Spec.Instances = ptr.To[int32](5)
	if err := b.postgres.Tracker().Update(v1.SchemeGroupVersion.WithResource("postgresclusters"), changed, "db"); err != nil {
		t.Fatal(err)
	}
	b.see(changed)
	b.once(context.Background())

	c := b.stored(t)
	if c.Status.Phase != v1.PhaseCreating || *c.Spec.Instances != 5 || len(c.Status.Members) != 5 {
		t.Errorf("after the second pass: %d instances asked for, status %+v", *c.Spec.Instances, c.Status)
	}
	want := []string{"forget", "after 100ms", "forget", "after 1s"}
	if diff := cmp.Diff(want, b.queued); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{}, b.warnings()); diff != "" {
		t.Error(diff)
	}
	if slices.ContainsFunc(said, func(text string) bool { return strings.HasPrefix(text, "Warning") }) {
		t.Errorf("events of a conflict: %v", said)
	}
}

func TestFailureIsToldOnceAndBacksOff(t *testing.T) {
	b := newBench(t)
	refuse := true
	b.kube.PrependReactor("create", "services", func(clienttesting.Action) (bool, runtime.Object, error) {
		return refuse, nil, apierrors.NewForbidden(v1.Resource("services"), "shop-rw", errors.New("exceeded quota"))
	})
	b.once(context.Background())
	b.see(b.stored(t))
	b.once(context.Background())
	c := b.stored(t)
	ready := meta.FindStatusCondition(c.Status.Conditions, v1.ConditionReady)
	if ready == nil || ready.Reason != v1.ReasonCreateFailed || !strings.Contains(ready.Message, "exceeded quota") {
		t.Errorf("the API server's words are not in the status: %+v", ready)
	}
	if diff := cmp.Diff([]string{"back off", "back off"}, b.queued); diff != "" {
		t.Error(diff)
	}
	perService := []string{"an action failed; trying again", "an action failed; trying again", "an action failed; trying again", "an action failed; trying again"}
	if diff := cmp.Diff(perService, b.warnings()); diff != "" {
		t.Errorf("logged in two passes: %s", diff)
	}

	refuse = false
	b.see(c)
	b.once(context.Background())
	ready = meta.FindStatusCondition(b.stored(t).Status.Conditions, v1.ConditionReady)
	if ready.Reason == v1.ReasonCreateFailed {
		t.Errorf("the failure is over, and the status says %+v", ready)
	}
	if got := b.queued[len(b.queued)-2]; got != "forget" {
		t.Errorf("after the failure: %v", b.queued)
	}
}

// B-17: what the API server refuses for good, such as growth, does not slow down a
// change that goes by what the agents say.
func TestStandingFailureLetsAChangeGoOn(t *testing.T) {
	for why, c := range map[string]struct {
		edit func(w *world)
		want []string
	}{
		"a change is under way": {func(w *world) { w.ask("2") }, []string{"back off", "after 5s"}},
		"nothing else is":       {func(*world) {}, []string{"back off"}},
	} {
		w := settledWorld(2)
		w.edit(func(s *v1.PostgresClusterSpec) { s.Storage.Size.Add(s.Storage.Size) })
		c.edit(w)
		w.remove("Secret", specs.OperatorSecret("shop")) // without it nobody asks the agents
		w.catchUp(allKinds...)
		b := benchOf(w)
		b.kube.PrependReactor("update", "persistentvolumeclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(v1.Resource("persistentvolumeclaims"), "shop-1", errors.New("the class does not allow it"))
		})
		b.once(context.Background())
		if diff := cmp.Diff(c.want, b.queued); diff != "" {
			t.Errorf("%s: %s", why, diff)
		}
		if got := reasonOf(b.stored(t).Status, v1.ConditionProgressing); got != v1.ReasonBlocked {
			t.Errorf("%s: Progressing says %s", why, got)
		}
	}
}

// F-06: what a stop cuts short is no failure.
func TestStoppedPassIsSilent(t *testing.T) {
	b := newBench(t)
	ctx, stop := context.WithCancel(context.Background())
	b.kube.PrependReactor("create", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		stop()
		return true, nil, ctx.Err()
	})
	b.once(ctx)
	if diff := cmp.Diff([]string{}, b.warnings()); diff != "" {
		t.Error(diff)
	}
	if n := b.statusWrites(); n != 0 || len(b.queued) != 0 {
		t.Errorf("%d writes, queued %v", n, b.queued)
	}
}

// B-22, B-05: a loop touches nothing of a cluster in another life, or of one
// that is on its way out.
func TestLoopKnowsWhenItsClusterIsGone(t *testing.T) {
	for why, edit := range map[string]func(*v1.PostgresCluster){
		"another life": func(c *v1.PostgresCluster) { c.UID = "cluster-2" },
		"on its way out": func(c *v1.PostgresCluster) {
			c.DeletionTimestamp, c.Finalizers = ptr.To(metav1.Now()), []string{"example.com/wait"}
		},
		"gone": func(c *v1.PostgresCluster) { c.Name = "other" },
	} {
		b := newBench(t)
		c := b.stored(t).DeepCopy()
		edit(c)
		b.see(c)
		b.once(context.Background())
		if n := len(b.kube.Actions()); n != 0 || b.statusWrites() != 0 {
			t.Errorf("%s: %d calls, %d writes of the status", why, n, b.statusWrites())
		}
	}
}

// a cluster that makes the operator stumble is put off, with the place in
// the log, and hurts no other.
func TestPanicOfAPassIsItsClustersOwn(t *testing.T) {
	b := newBench(t)
	b.Now = func() time.Time { panic("stumbled") }
	recheck, err := b.guardedPass(context.Background())
	b.requeue(recheck, err)
	if diff := cmp.Diff([]string{"back off"}, b.queued); diff != "" {
		t.Error(diff)
	}
	logged := b.logged.LastEntry()
	if logged == nil || !strings.Contains(logged.Message, "loop_test.go") || !strings.Contains(fmt.Sprint(logged.Data["error"]), "stumbled") {
		t.Errorf("logged %+v", logged)
	}
}

func TestWakeUpsCollapse(t *testing.T) {
	b := newBench(t)
	for range 5 {
		b.Wake()
	}
	if n := len(b.wake); n != 1 {
		t.Errorf("%d passes are due", n)
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	b := newBench(t)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		b.Run(ctx)
		close(ended)
	}()
	stop()
	<-ended
	for range 20 { // a select would take either
		b.Wake()
		b.Run(ctx)
		if n := len(b.kube.Actions()); n > 0 {
			t.Fatalf("%d calls after the end", n)
		}
	}
}

// A loop that is drained ends the pass under way, with its report, and makes no
// other.
func TestDrainedLoopEndsItsPass(t *testing.T) {
	b := newBench(t)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	ended := make(chan struct{})
	var draining sync.Once
	b.kube.PrependReactor("create", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		draining.Do(func() {
			b.Drain()
			b.Drain() // asked twice
			b.Wake()
		})
		return false, nil, nil
	})
	b.Wake()
	go func() {
		b.Run(ctx)
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Fatal("the loop goes on")
	}
	if n := b.statusWrites(); n != 1 {
		t.Errorf("the status was written %d times", n)
	}
	if diff := cmp.Diff([]string{}, b.warnings()); diff != "" {
		t.Error(diff)
	}
	calls := len(b.kube.Actions())
	for range 20 { // a select would take either
		b.Wake()
		b.Run(ctx)
	}
	if n := len(b.kube.Actions()); n != calls {
		t.Errorf("%d calls after the end", n-calls)
	}
}

// B-24: an API server whose CRD lacks fields drops them from the status. That is
// told once, and what can't be kept is not written for ever.
func TestWhatTheSchemaLosesIsToldOnce(t *testing.T) {
	b := newBench(t)
	b.postgres.PrependReactor("update", "postgresclusters", func(action clienttesting.Action) (bool, runtime.Object, error) {
		kept := action.(clienttesting.UpdateAction).GetObject().(*v1.PostgresCluster).DeepCopy()
		kept.Status.Members, kept.Status.Selector = nil, ""
		b.see(kept)
		return true, kept, nil
	})
	for range 3 {
		b.once(context.Background())
	}
	if n := b.statusWrites(); n != 1 {
		t.Errorf("the status was written %d times", n)
	}
	want := []string{"the API server does not know status.members, status.selector: its CustomResourceDefinition is older than this operator. Clusters are looked after; apply the CRD of this version, or let the operator install it (--create-crd)"}
	if diff := cmp.Diff(want, b.warnings()); diff != "" {
		t.Error(diff)
	}
}
