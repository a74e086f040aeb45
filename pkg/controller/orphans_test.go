package controller

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/cluster"
	postgresfake "github.com/pgop/postgres-operator/pkg/generated/clientset/versioned/fake"
)

// orphan is a backup of a cluster that is not there.
func orphan(name string, status v1.PostgresBackupStatus) *v1.PostgresBackup {
	return &v1.PostgresBackup{ObjectMeta: metav1.ObjectMeta{Namespace: "db", Name: name}, Spec: v1.PostgresBackupSpec{Cluster: "shop"}, Status: status}
}

// orphansOf are those backups, in the cache and at the API server.
func orphansOf(t *testing.T, backups ...*v1.PostgresBackup) (orphans, *postgresfake.Clientset) {
	t.Helper()
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cluster.BackupIndexers())
	client := postgresfake.NewSimpleClientset()
	for _, b := range backups {
		if err := errors.Join(indexer.Add(b), client.Tracker().Add(b)); err != nil {
			t.Fatal(err)
		}
	}
	restores := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cluster.RestoreIndexers())
	return orphans{backups: cluster.NewBackups(indexer), restores: cluster.NewRestores(restores), client: client.PgopV1()}, client
}

// D-03: no backup is without a word about what it waits for, and none runs for ever.
func TestBackupsOfNoClusterSayWhatTheyWaitFor(t *testing.T) {
	const waits = "there is no PostgresCluster shop in this namespace"
	completed := v1.PostgresBackupStatus{Phase: v1.BackupCompleted, ID: "x", InCatalog: true}
	failed := v1.PostgresBackupStatus{Phase: v1.BackupFailed, Message: "no room"}
	cases := map[string]struct{ before, want v1.PostgresBackupStatus }{
		"new":       {v1.PostgresBackupStatus{}, v1.PostgresBackupStatus{Phase: v1.BackupPending, Message: waits}},
		"chosen":    {v1.PostgresBackupStatus{Phase: v1.BackupPending, ID: "x", Instance: "shop-2"}, v1.PostgresBackupStatus{Phase: v1.BackupPending, Message: waits}},
		"running":   {v1.PostgresBackupStatus{Phase: v1.BackupRunning, ID: "x"}, v1.PostgresBackupStatus{Phase: v1.BackupFailed, ID: "x", Message: "PostgresCluster shop was deleted while the backup was taken"}},
		"completed": {completed, completed},
		"failed":    {failed, failed},
	}
	for name, c := range cases {
		r, client := orphansOf(t, orphan(name, c.before))
		if err := r.report(context.Background(), cache.NewObjectName("db", "shop")); err != nil {
			t.Fatal(err)
		}
		live, err := client.PgopV1().PostgresBackups("db").Get(context.Background(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, live.Status); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestOrphansAreWrittenOnce(t *testing.T) {
	r, client := orphansOf(t, orphan("a", v1.PostgresBackupStatus{Phase: v1.BackupPending, Message: "there is no PostgresCluster shop in this namespace"}))
	if err := r.report(context.Background(), cache.NewObjectName("db", "shop")); err != nil {
		t.Fatal(err)
	}
	if n := len(client.Actions()); n != 0 {
		t.Errorf("%d calls, and nothing is new", n)
	}
}

func TestOrphansThatCantBeWrittenAreAnError(t *testing.T) {
	for want, refusal := range map[string]error{
		"write status of backup a: the API server is away": errors.New("the API server is away"),
		"": apierrors.NewConflict(v1.Resource("postgresbackups"), "a", errors.New("changed")),
	} {
		r, client := orphansOf(t, orphan("a", v1.PostgresBackupStatus{}))
		client.PrependReactor("update", "postgresbackups", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, refusal })
		got := ""
		if err := r.report(context.Background(), cache.NewObjectName("db", "shop")); err != nil {
			got = err.Error()
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
}
