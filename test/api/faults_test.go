//go:build e2e

package api

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/test/api/framework"
)

// The API server is out of the operator's reach for a while, in which clusters
// are edited, deleted, and deleted and created again. Afterwards it finds the
// final state by itself, and has not hammered at the door meanwhile.
func TestB21ApiServerAway(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	op := f.StartOperator()
	edited, deleted, again := f.Create("edited"), f.Create("deleted"), f.Create("again")
	for _, c := range []*framework.Cluster{edited, deleted, again} {
		c.AwaitReady()
	}
	op.Proxy.Refuse(true)
	mark := op.Proxy.Mark()
	for n := range 3 {
		edited.Edit(framework.Instances(int32(3-n)), framework.Parameter("work_mem", fmt.Sprintf("%dMB", n+1)))
	}
	edited.Edit(framework.Instances(2))
	deleted.Delete()
	again.Delete()
	again = f.Create("again", framework.Instances(2))
	f.Remove("services/edited-ro")
	f.Pause(6 * time.Second)
	tried := framework.Count(op.Proxy.Since(mark), func(framework.Request) bool { return true })
	t.Logf("tried while the API server was away: %v", tried)
	for what, n := range tried {
		if n > 60 {
			t.Errorf("%s was tried %d times in 6 s", what, n)
		}
	}
	op.Proxy.Refuse(false)
	edited.AwaitReady()
	again.AwaitReady()
	f.Await("of the deleted cluster nothing is left", func(ctx context.Context) error {
		objects, err := f.Objects(ctx)
		if err != nil {
			return err
		}
		for key := range objects {
			if strings.Contains(key, "/deleted") {
				return errors.New(key + " is there")
			}
		}
		return nil
	})
	wantInstances(f, 4)
	wantQuiet(f, op)
}

// Every watch meets 410 Gone, again and again, while clusters are edited and
// deleted: lists are read anew, with back-off, and nothing is missed.
func TestB21WatchesExpire(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	op := f.StartOperator()
	edited, deleted := f.Create("edited"), f.Create("deleted")
	edited.AwaitReady()
	deleted.AwaitReady()
	op.Proxy.Expire(true)
	mark := op.Proxy.Mark()
	op.Proxy.CutWatches()
	edited.Edit(framework.Instances(2))
	deleted.Delete()
	f.Pause(6 * time.Second)
	reads := framework.Count(op.Proxy.Since(mark), func(r framework.Request) bool { return !r.IsWrite() })
	t.Logf("read while watches expired: %v", reads)
	if reads["watch pods"] < 2 {
		t.Errorf("the watches did not expire: %v", reads)
	}
	for what, n := range reads {
		if n > 30 {
			t.Errorf("%s: %d times in 6 s", what, n)
		}
	}
	edited.AwaitReady()
	op.Proxy.Expire(false)
	wantInstances(f, 2)
	wantQuiet(f, op)
}

// Watches that are cut go on where they were.
func TestB21WatchesCut(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	op := f.StartOperator()
	c := f.Create("shop", framework.Instances(2))
	for range 8 {
		op.Proxy.CutWatches()
		f.Pause(250 * time.Millisecond)
	}
	c.AwaitReady()
	op.Proxy.CutWatches()
	c.Edit(framework.Instances(1))
	op.Proxy.CutWatches()
	c.AwaitReady()
	wantInstances(f, 1)
	wantQuiet(f, op)
}

// A slow API server makes everything slow and nothing wrong.
func TestB21SlowApiServer(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	op := f.StartOperator()
	op.Proxy.Delay(400 * time.Millisecond)
	c := f.Create("shop", framework.Instances(2))
	c.AwaitReady()
	c.Edit(framework.Instances(1))
	c.AwaitReady()
	wantInstances(f, 1)
	wantNoComplaints(t, op)
}

// An operator decides on what its caches say of a cluster that has meanwhile
// been deleted and created again. Its deletions reach the API server when the
// objects of the new cluster have the old names: they are spared.
func TestB22StaleDeletionsSpareTheNewCluster(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	stale := f.StartOperator()
	c := f.Create("shop", framework.Instances(2))
	c.AwaitReady()

	// Its watches stand still, and its deletions wait until all is replaced.
	var once sync.Once
	deleting := make(chan struct{})
	stale.Proxy.Before(func(r framework.Request) {
		if r.Verb == "delete" {
			once.Do(func() { close(deleting) })
			waitFor(func() bool { return isReadyAndNew(c) })
		}
	})
	c.Edit(framework.Instances(1))
	select {
	case <-deleting:
	case <-time.After(framework.Patience):
		t.Fatal("the operator deletes nothing")
	}
	stale.Proxy.Stall(func(r framework.Request) bool { return r.Verb == "watch" })
	old := c.Live().UID
	c.Delete()
	f.Await("the old cluster is gone", func(ctx context.Context) error {
		_, err := c.Get(ctx)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, errors.New("it is there"))
	})
	fresh := f.StartOperator()
	f.Create("shop", framework.Instances(2))
	c.AwaitReady()
	if c.Live().UID == old {
		t.Fatal("the cluster is the old one")
	}
	before := f.MustObjects()
	f.Pause(4 * time.Second) // for the deletions of the stale operator
	for key, o := range f.MustObjects() {
		if before[key] == nil || before[key].GetUID() != o.GetUID() || o.GetDeletionTimestamp() != nil {
			t.Errorf("%s was deleted by the stale operator", key)
		}
	}
	stale.Proxy.Before(nil)
	stale.Proxy.Flow()
	c.AwaitReady()
	for key, o := range f.MustObjects() {
		if before[key] == nil || before[key].GetUID() != o.GetUID() {
			t.Errorf("%s was replaced when the stale operator saw the present", key)
		}
	}
	wantInstances(f, 2)
	wantQuiet(f, stale, fresh)
}

// isReadyAndNew says whether a cluster of two is ready that was never edited.
func isReadyAndNew(c *framework.Cluster) bool {
	live, err := c.Get(context.Background())
	return err == nil && live.Generation == 1 && c.Ready(context.Background()) == nil
}

// waitFor waits outside of the test's goroutine, where nothing may end it.
func waitFor(done func() bool) {
	for end := time.Now().Add(framework.Patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if done() {
			return
		}
	}
}

// Caches that stand still while the cluster is being built: the operator makes
// nothing twice.
func TestB22StaleCachesMakeNothingTwice(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	op := f.StartOperator()
	f.Create("first").AwaitReady() // its watches are there
	op.Proxy.Stall(func(r framework.Request) bool { return r.Verb == "watch" && r.Resource != "postgresclusters" })
	c := f.Create("shop", framework.Instances(2))
	awaitObject(f, "pods/shop-2")
	before := f.MustObjects()
	f.Pause(3 * time.Second) // passes on caches that are empty
	for key, o := range before {
		now, err := f.Object(t.Context(), key)
		if err != nil || now.GetUID() != o.GetUID() {
			t.Errorf("%s was replaced: %v", key, err)
		}
	}
	op.Proxy.Flow()
	c.AwaitReady()
	messages, err := c.Messages(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	created := 0
	for _, m := range messages {
		if strings.HasPrefix(m, v1.ReasonInstanceCreated) {
			created++
		}
	}
	if created != 2 {
		t.Errorf("%d events of created instances: %q", created, messages)
	}
	wantQuiet(f, op)
}

// Somebody edits the cluster between the moment in which the operator read it
// and its write of the status: both changes stay, and nobody is alarmed.
func TestB23StatusConflict(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	op := f.StartOperator()
	c := f.Create("shop")
	var met sync.Mutex
	conflicts := 0
	op.Proxy.Before(func(r framework.Request) {
		if r.Resource != "postgresclusters/status" {
			return
		}
		met.Lock()
		defer met.Unlock()
		if conflicts < 5 {
			conflicts++
			if err := c.TryEdit(framework.Parameter("work_mem", fmt.Sprintf("%dMB", conflicts)), func(c *v1.PostgresCluster) {
				metav1.SetMetaDataAnnotation(&c.ObjectMeta, "example.com/edit", fmt.Sprint(conflicts))
			}); err != nil {
				t.Errorf("edit: %v", err)
			}
		}
	})
	c.AwaitReady()
	met.Lock()
	defer met.Unlock()
	if conflicts < 5 {
		t.Fatalf("only %d conflicts", conflicts)
	}
	live := c.Live()
	if got, _ := live.Spec.Postgres.Parameters["work_mem"].Text(); got != "5MB" || live.Annotations["example.com/edit"] != "5" {
		t.Errorf("an edit was lost: %q, %v", got, live.Annotations)
	}
	messages, err := c.Messages(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range messages {
		if strings.Contains(m, "conflict") || strings.Contains(m, "modified") {
			t.Errorf("event: %s", m)
		}
	}
	wantNoComplaints(t, op)
}

// One cluster whose agents hang, one whose requests to the API server never
// return, one whose pods never start: a fourth is built and changed meanwhile.
func TestBrokenClustersDelayNoOther(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	op := f.StartOperator()
	hung := f.Create("hung", framework.Instances(3))
	hung.AwaitReady()
	for n := 1; n <= 3; n++ {
		f.Kubelet.Script(fmt.Sprintf("hung-%d", n), framework.Script{Hangs: true})
	}
	f.Kubelet.Script("broken-1", framework.Script{Waiting: "ErrImagePull"})
	f.Create("broken").AwaitCondition(v1.ConditionReady, metav1.ConditionFalse, "ErrImagePull")
	release := make(chan struct{})
	stuck := make(chan struct{}, 100)
	op.Proxy.Before(func(r framework.Request) {
		if strings.HasPrefix(r.Name, "stuck") {
			select {
			case stuck <- struct{}{}:
			default:
			}
			<-release
		}
	})
	f.Create("stuck")
	c := f.Create("fine", framework.Instances(2))
	c.AwaitReady()
	select {
	case <-stuck:
	default:
		t.Error("no request of the stuck cluster is under way")
	}
	c.Edit(framework.Instances(1))
	c.AwaitReady()
	hung.AwaitCondition(v1.ConditionProgressing, metav1.ConditionTrue, "no answer in time")
	if live := hung.Live(); live.Status.ReadyInstances != 3 {
		t.Errorf("agents that hang made the cluster unready: %s", framework.Summary(live))
	}
	for n := 1; n <= 3; n++ {
		f.Kubelet.Script(fmt.Sprintf("hung-%d", n), framework.Script{})
	}
	f.Kubelet.Script("broken-1", framework.Script{})
	op.Proxy.Before(nil)
	close(release)
	for _, name := range []string{"hung", "broken", "stuck"} {
		f.Cluster(name).AwaitReady()
	}
}

// What an agent claims of itself can't bring the operator down.
func TestAgentsThatTalkNonsense(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	f.StartOperator()
	c := f.Create("shop", framework.Instances(2))
	c.AwaitReady()
	f.Kubelet.Script("shop-2", framework.Script{State: func(s *instanceapi.State) {
		s.Phase, s.Role, s.SystemID, s.Timeline = "Dancing", "king", strings.Repeat("9", 5000), 1<<31
		s.Message = strings.Repeat("x", 100_000)
	}})
	f.Pause(2 * time.Second)
	f.Kubelet.Script("shop-2", framework.Script{State: func(s *instanceapi.State) { s.PodUID = "another" }})
	f.Pause(time.Second)
	f.Kubelet.Script("shop-2", framework.Script{})
	c.AwaitReady()
}
