package controller

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/sirupsen/logrus"
	logrustest "github.com/sirupsen/logrus/hooks/test"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/cluster"
	postgreslisters "github.com/pgop/postgres-operator/pkg/generated/listers/postgres/v1"
)

var key = cache.NewObjectName("db", "shop")

// started is a registry that notes the UIDs of the loops that it made.
func started(uids *[]types.UID) *registry {
	logger, _ := logrustest.NewNullLogger()
	return newRegistry(func(key cache.ObjectName, uid types.UID) *cluster.Loop {
		*uids = append(*uids, uid)
		return cluster.NewLoop(cluster.Deps{Log: logrus.NewEntry(logger), Now: time.Now}, key, uid)
	})
}

func TestOneLoopForEachLifeOfACluster(t *testing.T) {
	ctx, end := context.WithCancel(context.Background())
	var uids []types.UID
	r := started(&uids)
	first := r.ensure(ctx, key, "1")
	if r.ensure(ctx, key, "1") != first {
		t.Error("a second loop for the same cluster")
	}
	second := r.ensure(ctx, key, "2")
	if second == first || second.UID() != "2" {
		t.Error("a cluster that was deleted and made anew has the loop of the one before")
	}
	r.stop(key)
	r.stop(key) // as after a second event of the deletion
	r.stop(cache.NewObjectName("db", "never-seen"))
	if len(r.running) != 0 {
		t.Errorf("running after the deletion: %v", r.running)
	}
	if r.ensure(ctx, key, "2") == second {
		t.Error("a loop that was stopped is used again")
	}
	if diff := cmp.Diff([]types.UID{"1", "2", "2"}, uids); diff != "" {
		t.Error(diff)
	}
	end()
	r.wait()
}

func TestWaitReturnsWhenEveryLoopHasEnded(t *testing.T) {
	var uids []types.UID
	r := started(&uids)
	for _, name := range []string{"a", "b", "c"} {
		r.ensure(context.Background(), cache.NewObjectName("db", name), "1")
	}
	for _, name := range []string{"a", "b", "c"} {
		r.stop(cache.NewObjectName("db", name))
	}
	r.wait()
}

// A deleted cluster's loop goes, whether the deletion, the new cluster of the
// name, or neither of them was seen in time.
func TestSyncFollowsTheClusters(t *testing.T) {
	ctx, end := context.WithCancel(context.Background())
	var uids []types.UID
	clusters := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	logger, _ := logrustest.NewNullLogger()
	c := &Controller{
		sources: &sources{clusters: postgreslisters.NewPostgresClusterLister(clusters)},
		queue:   workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName]()),
		loops:   started(&uids),
		orphans: orphans{backups: cluster.NewBackups(cache.NewIndexer(cache.MetaNamespaceKeyFunc, cluster.BackupIndexers())), restores: cluster.NewRestores(cache.NewIndexer(cache.MetaNamespaceKeyFunc, cluster.RestoreIndexers()))},
		log:     logrus.NewEntry(logger),
	}
	seen := func(uid types.UID, edit func(*v1.PostgresCluster)) {
		o := &v1.PostgresCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "db", Name: "shop", UID: uid}}
		if edit != nil {
			edit(o)
		}
		if err := clusters.Replace([]any{o}, ""); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(why string, want ...types.UID) {
		t.Helper()
		if err := c.sync(ctx, key); err != nil {
			t.Fatal(err)
		}
		var got []types.UID
		for _, e := range c.loops.running {
			got = append(got, e.loop.UID())
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", why, diff)
		}
	}
	expect("nothing is there")
	leaving := func(o *v1.PostgresCluster) { o.DeletionTimestamp = ptr.To(metav1.Now()) }
	seen("0", leaving)
	expect("on its way out when the operator starts")
	end() // a loop that is stopped makes no pass; those of this test have no sources
	seen("1", nil)
	expect("made", "1")
	seen("2", nil)
	expect("deleted and made anew, unseen", "2")
	seen("2", leaving)
	expect("on its way out")
	seen("3", nil)
	expect("made anew", "3")
	if err := clusters.Replace(nil, ""); err != nil {
		t.Fatal(err)
	}
	expect("gone")
	c.loops.wait()
}
