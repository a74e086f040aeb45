package instance

import (
	"context"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/pki"
	"github.com/pgop/postgres-operator/pkg/postgres"
)

// idleAgent is an agent that does not run, with its API on the returned address.
func idleAgent(t *testing.T, ca pki.Pair) (*Agent, string) {
	t.Helper()
	dir := t.TempDir()
	port := freePort(t)
	o := Options{Cluster: "shop", ClusterUID: "shop-uid", Instance: "shop-1", Namespace: "test", PodUID: "u", PodIP: "127.0.0.1", Major: 17, Mount: dir,
		RunDir: dir, TLSDir: dir, ProbeListen: "127.0.0.1:0",
		APIListen: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), Port: 5432}
	issue(t, ca, ca.Cert, o)
	log := logrus.New()
	log.SetOutput(io.Discard)
	a, err := New(o, newFakeKubernetes(), logrus.NewEntry(log), io.Discard)
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	must(t, a.listen(ctx, &group))
	t.Cleanup(func() { cancel(); group.Wait() })
	return a, o.APIListen
}

// issue gives an instance new certificates, as a kubelet brings them.
func issue(t *testing.T, ca pki.Pair, trusted []byte, o Options) {
	t.Helper()
	server, err := ca.NewLeaf(o.Instance, []string{o.Instance, instanceapi.ServiceHost(o.Cluster, o.Namespace)}, time.Now())
	must(t, err)
	replication, err := ca.NewLeaf(postgres.ReplicationRole, nil, time.Now())
	must(t, err)
	for name, content := range map[string][]byte{
		instanceapi.CAFile: trusted, instanceapi.CertFile: server.Cert, instanceapi.KeyFile: server.Key,
		instanceapi.ReplicationCertFile: replication.Cert, instanceapi.ReplicationKeyFile: replication.Key,
	} {
		must(t, os.WriteFile(o.tls(name)+".new", content, 0o600))
		must(t, os.Rename(o.tls(name)+".new", o.tls(name)))
	}
}

func askAs(t *testing.T, ca pki.Pair, name, address string) (instanceapi.State, error) {
	t.Helper()
	leaf, err := ca.NewLeaf(name, nil, time.Now())
	must(t, err)
	config, err := pki.ClientConfig(leaf, ca.Cert)
	must(t, err)
	config.ServerName = "shop-1"
	client := instanceapi.NewClient(config)
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return client.State(ctx, address)
}

func TestOnlyTheOperatorIsAnswered(t *testing.T) {
	ca, err := pki.NewAuthority("shop", time.Now())
	must(t, err)
	agent, address := idleAgent(t, ca)
	state, err := askAs(t, ca, instanceapi.OperatorName, address)
	must(t, err)
	if state.Instance != "shop-1" || state.PodUID != "u" || state.VolumeSize == 0 {
		t.Errorf("state: %+v", state)
	}
	if _, err := askAs(t, ca, "shop-2", address); err == nil {
		t.Error("another instance is answered")
	}
	stranger, err := pki.NewAuthority("stranger", time.Now())
	must(t, err)
	if _, err := askAs(t, stranger, instanceapi.OperatorName, address); err == nil {
		t.Error("another authority's operator is answered")
	}
	// A new certificate and authority are in use from the next handshake on.
	issue(t, stranger, stranger.Cert, agent.options)
	if _, err := askAs(t, stranger, instanceapi.OperatorName, address); err != nil {
		t.Error(err)
	}
}

// The catalog is the operator's alone.
func TestTheCatalogIsTheOperators(t *testing.T) {
	ca, err := pki.NewAuthority("shop", time.Now())
	must(t, err)
	agent, address := idleAgent(t, ca)
	ask := func(name string) (instanceapi.Catalog, error) {
		leaf, err := ca.NewLeaf(name, nil, time.Now())
		must(t, err)
		config, err := pki.ClientConfig(leaf, ca.Cert)
		must(t, err)
		config.ServerName = "shop-1"
		client := instanceapi.NewClient(config)
		defer client.Close()
		return client.Catalog(t.Context(), address)
	}
	if _, err := ask(instanceapi.OperatorName); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("before there is one: %v", err)
	}
	want := instanceapi.Catalog{Version: "v1", ReadAt: time.Unix(1764000000, 0).UTC(), Backups: make([]instanceapi.BackupInfo, 10000)}
	for n := range want.Backups {
		want.Backups[n] = instanceapi.BackupInfo{ID: "20261128T120000Z-incremental-abcdef", Name: strings.Repeat("n", 63), Parent: "20261128T110000Z-full-abcdef",
			Instance: "shop-1", Version: "17.12", FirstWAL: strings.Repeat("0", 24), LastWAL: strings.Repeat("0", 24), StartLSN: "FFFFFFFF/FFFFFFFF", StopLSN: "FFFFFFFF/FFFFFFFF"}
	}
	agent.catalog.catalog = &want
	got, err := ask(instanceapi.OperatorName)
	if err != nil || got.Version != "v1" || len(got.Backups) != len(want.Backups) {
		t.Errorf("the operator gets %q with %d backups (%v)", got.Version, len(got.Backups), err)
	}
	if _, err := ask(postgres.ReplicationRole); err == nil || !strings.Contains(err.Error(), "403") {
		t.Errorf("another instance: %v", err)
	}
}

func TestProbes(t *testing.T) {
	ca, err := pki.NewAuthority("shop", time.Now())
	must(t, err)
	agent, _ := idleAgent(t, ca)
	get := func(path string) int {
		recorder := httptest.NewRecorder()
		agent.probeHandler().ServeHTTP(recorder, httptest.NewRequest("GET", path, strings.NewReader("")))
		return recorder.Code
	}
	if got := get("/healthz"); got != 503 {
		t.Errorf("a loop that has never run is healthy: %d", got)
	}
	agent.beats()
	if got := get("/healthz"); got != 200 {
		t.Errorf("a loop that runs is not healthy: %d", got)
	}
	if got := get("/readyz"); got != 503 {
		t.Errorf("an instance without a server is ready: %d", got)
	}
	agent.status.update(func(s *instanceapi.State) { s.Ready = true })
	if got := get("/readyz"); got != 200 {
		t.Errorf("a ready instance is not: %d", got)
	}
	if got := get("/v1/state"); got != 404 {
		t.Errorf("the probes' port shows the state: %d", got)
	}
}
