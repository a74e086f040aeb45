package metrics

import (
	"io"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	postgreslisters "github.com/pgop/postgres-operator/pkg/generated/listers/postgres/v1"
)

// One process has one set of metrics, so this is one story: what is counted,
// what the documentation promises, and what goes with a deleted cluster.
func TestMetrics(t *testing.T) {
	m := New("1.2.3")
	clusters := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	forget, err := m.WatchClusters(postgreslisters.NewPostgresClusterLister(clusters))
	if err != nil {
		t.Fatal(err)
	}
	shop, other := healthy("shop"), healthy("other")
	if err := clusters.Replace([]any{shop, other, &v1.PostgresCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "db", Name: "new"}}}, ""); err != nil {
		t.Fatal(err)
	}
	m.Leads(true)
	m.Passed(40*time.Millisecond, false)
	m.Passed(3*time.Second, true)
	useQueue()
	askAPIServer(t)

	text := scrape(t, m)
	for _, want := range []string{
		`pgop_build_info{version="1.2.3"} 1`,
		`pgop_leader 1`,
		`pgop_pass_duration_seconds_count{result="ok"} 1`,
		`pgop_pass_duration_seconds_count{result="failed"} 1`,
		`pgop_clusters{phase="Healthy"} 2`,
		`pgop_clusters{phase="Creating"} 1`,
		`pgop_clusters{phase="Degraded"} 0`,
		`pgop_cluster_instances_wanted{name="shop",namespace="db"} 1`,
		`pgop_cluster_instances_ready{name="shop",namespace="db"} 1`,
		`pgop_cluster_condition{condition="Ready",name="shop",namespace="db"} 1`,
		`pgop_cluster_condition{condition="UpToDate",name="shop",namespace="db"} 0`,
		`pgop_cluster_condition{condition="FailoverReady",name="shop",namespace="db"} 1`,
		`pgop_cluster_condition{condition="DatabasesReady",name="shop",namespace="db"} 1`,
		`pgop_workqueue_adds_total{name="clusters"} 1`,
		`pgop_workqueue_depth{name="clusters"} 1`,
		`pgop_api_requests_total{code="404",method="GET"} 1`,
		`pgop_api_request_duration_seconds_count{verb="GET"} 1`,
		`go_goroutines `,
		`process_resident_memory_bytes `,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("not there: %s", want)
		}
	}
	if strings.Contains(text, `condition="BackedUp"`) {
		t.Error("backups that nobody asked for look like a failure")
	}
	for _, promised := range promisedMetrics(t) {
		if !strings.Contains(text, "\n"+promised) {
			t.Errorf("promised in docs/operating.md, and not there: %s", promised)
		}
	}
	if t.Failed() {
		t.Log(text)
	}

	if err := clusters.Delete(shop); err != nil {
		t.Fatal(err)
	}
	m.Leads(false)
	text = scrape(t, m)
	if strings.Contains(text, `name="shop"`) || !strings.Contains(text, `name="other"`) {
		t.Errorf("series of a cluster outlive it, or go with another:\n%s", text)
	}
	forget() // the caches of one who leads no more are out of date
	if text := scrape(t, m); strings.Contains(text, "pgop_clusters") {
		t.Errorf("clusters are counted for ever:\n%s", text)
	}
	if !strings.Contains(text, "\npgop_leader 0") {
		t.Error("who leads no more still says so")
	}
}

func healthy(name string) *v1.PostgresCluster {
	return &v1.PostgresCluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: "db", Name: name},
		Status: v1.PostgresClusterStatus{Phase: v1.PhaseHealthy, ReadyInstances: 1, Conditions: []metav1.Condition{
			{Type: v1.ConditionReady, Status: metav1.ConditionTrue}, {Type: v1.ConditionUpToDate, Status: metav1.ConditionFalse},
			{Type: v1.ConditionFailoverReady, Status: metav1.ConditionTrue}, {Type: v1.ConditionDatabasesReady, Status: metav1.ConditionTrue},
			{Type: v1.ConditionBackedUp, Status: metav1.ConditionFalse, Reason: v1.ReasonBackupsOff},
		}},
	}
}

func useQueue() {
	queue := workqueue.NewTypedRateLimitingQueueWithConfig(workqueue.DefaultTypedControllerRateLimiter[string](),
		workqueue.TypedRateLimitingQueueConfig[string]{Name: "clusters"})
	defer queue.ShutDown()
	queue.Add("db/shop")
}

// askAPIServer makes one request, which is answered with 404.
func askAPIServer(t *testing.T) {
	server := httptest.NewServer(nil)
	defer server.Close()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Pods("db").Get(t.Context(), "shop-1", metav1.GetOptions{}); err == nil {
		t.Error("there is a pod")
	}
}

func scrape(t *testing.T, m *Metrics) string {
	t.Helper()
	answer := httptest.NewRecorder()
	m.Handler().ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	text, err := io.ReadAll(answer.Result().Body)
	if err != nil || answer.Code != 200 {
		t.Fatalf("status %d: %s (%v)", answer.Code, text, err)
	}
	return string(text)
}

// promisedMetrics are those that docs/operating.md lists.
func promisedMetrics(t *testing.T) []string {
	t.Helper()
	docs, err := os.ReadFile("../../docs/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, match := range regexp.MustCompile("(?m)^\\| `(pgop_[a-z_]+)").FindAllStringSubmatch(string(docs), -1) {
		names = append(names, match[1])
	}
	if len(names) == 0 {
		t.Error("no metrics are promised")
	}
	return names
}
