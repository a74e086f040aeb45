package instance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/pki"
	"github.com/pgop/postgres-operator/pkg/postgres"
)

// world is a cluster: its objects in Kubernetes, its certificates, and pods,
// each with an address of its own on the loopback interface.
type world struct {
	*testing.T
	kube  *fakeKubernetes
	ca    pki.Pair
	bin   string
	major int
	port  int
	// peerPort is that of every agent's API.
	peerPort int
	// addresses of the agents, by instance.
	addresses sync.Map
	dir       string
	config    instanceapi.Config
	conf      map[string]string
	hba       []string
	ident     []string
	// certified are roles that log in by certificates.
	certified []string
	uids      int
	// mounts are where pods have volumes with backups, besides their cluster's own.
	mounts []string
	// serverLogs are what all servers have logged.
	serverLogs logBuffer
	// withWAL gives new pods a WAL volume.
	withWAL bool
}

// testPod is a pod that runs an agent.
type testPod struct {
	*Agent
	world *world
	end   context.CancelFunc
	ended chan struct{}
}

// appPassword is one that needs quoting everywhere.
const appPassword = `a:b@c/d#e%f g-é'"\`

func newWorld(t *testing.T) *world {
	t.Helper()
	bin, major := findPostgres(t)
	return newWorldOf(t, bin, major)
}

// newWorldOf is newWorld with that installation.
func newWorldOf(t *testing.T, bin string, major int) *world {
	t.Helper()
	// Socket paths must be short.
	dir, err := os.MkdirTemp("", "w")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	ca, err := pki.NewAuthority("shop", time.Now())
	must(t, err)
	w := &world{T: t, kube: &fakeKubernetes{}, ca: ca, bin: bin, major: major, port: freePort(t), peerPort: freePort(t), dir: dir}
	w.config = instanceapi.Config{Cluster: "shop", Members: []string{"shop-1"}, Bootstrap: instanceapi.Bootstrap{
		Instance: "shop-1", Database: "app", Owner: "app", Locale: "C.UTF-8", Encoding: "UTF8", DataChecksums: true}}
	program, err := os.Executable()
	must(t, err)
	w.conf = map[string]string{"shared_buffers": "16MB", "max_connections": "20",
		// As always, with backups or without.
		"archive_mode": "always", "archive_command": program + " archive %f"}
	w.setPassword(appPassword)
	w.kube.configMap = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "shop-config"}}
	w.kube.lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}
	w.kube.slice = &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: "shop-rw"}, AddressType: discoveryv1.AddressTypeIPv4}
	w.apply(func() {})
	return w
}

// configHash is that of the configuration which was applied last.
func (w *world) configHash() string {
	conf := postgres.RenderConf(postgres.Merge(postgres.Defaults(1<<30), w.conf))
	return instanceapi.ConfigHash(conf, postgres.RenderHBA(w.hba, w.certified...), postgres.RenderUserMaps(w.ident))
}

// apply changes the configuration as the operator does.
func (w *world) apply(change func()) {
	change()
	text, err := json.Marshal(w.config)
	must(w.T, err)
	w.kube.set(func(f *fakeKubernetes) {
		f.configMap = f.configMap.DeepCopy()
		f.configMap.Data = map[string]string{
			instanceapi.ConfigKey:       string(text),
			instanceapi.PostgresConfKey: postgres.RenderConf(postgres.Merge(postgres.Defaults(1<<30), w.conf)),
			instanceapi.HBAKey:          postgres.RenderHBA(w.hba, w.certified...),
			instanceapi.IdentKey:        postgres.RenderUserMaps(w.ident),
		}
	})
}

// setPassword changes the login of the application database's owner.
func (w *world) setPassword(password string) {
	w.kube.setSecret("shop-app", true, map[string]string{"username": w.config.Bootstrap.Owner, "password": password})
}

// options are those of a new pod of the instance, which serves at address.
func (w *world) options(instance, address string) Options {
	w.uids++
	home := filepath.Join(w.dir, instance)
	o := Options{
		Cluster: "shop", ClusterUID: "shop-uid", Instance: instance, Namespace: "test", PodUID: fmt.Sprintf("uid-%d", w.uids), PodIP: address,
		NodeName: "node-1", Major: w.major, Mount: filepath.Join(home, "v"), RunDir: filepath.Join(home, "r"), BackupMounts: append([]string{w.backups()}, w.mounts...),
		TLSDir: filepath.Join(home, "t"), APIListen: fmt.Sprintf("%s:%d", address, w.peerPort), PeerPort: w.peerPort, ProbeListen: address + ":0",
		StopTimeout: 10 * time.Second, Version: "test", Bin: w.bin, Listen: address, Port: w.port,
	}
	if w.withWAL {
		o.WALMount = filepath.Join(home, "w")
		must(w.T, os.MkdirAll(o.WALMount, 0o700))
	}
	// A pod's own directories are new; the volume stays.
	must(w.T, os.RemoveAll(o.RunDir))
	for _, dir := range []string{o.Mount, o.RunDir, o.TLSDir} {
		must(w.T, os.MkdirAll(dir, 0o700))
	}
	w.issueCertificate(o)
	return o
}

// backups is where all pods have the volume for backups, if there is one.
func (w *world) backups() string { return filepath.Join(w.dir, "backups") }

func (w *world) issueCertificate(o Options) {
	issue(w.T, w.ca, w.ca.Cert, o)
}

// start starts a pod.
func (w *world) start(instance, address string) *testPod {
	w.Helper()
	return w.startWith(w.options(instance, address))
}

func (w *world) startWith(o Options) *testPod {
	w.Helper()
	log := logrus.New()
	log.SetOutput(&testLog{w.T})
	agent, err := New(o, &cutKubernetes{Kubernetes: w.kube}, log.WithField("instance", o.Instance), io.MultiWriter(&testLog{w.T}, &w.serverLogs))
	must(w.T, err)
	w.addresses.Store(o.Instance, net.JoinHostPort(o.PodIP, fmt.Sprint(w.peerPort)))
	agent.peers.find = func(instance string) []string { // all pods look alike to a server: 127.0.0.1
		address, found := w.addresses.Load(instance)
		if !found {
			return nil
		}
		return []string{address.(string)}
	}
	ctx, end := context.WithCancel(context.Background())
	p := &testPod{Agent: agent, world: w, end: end, ended: make(chan struct{})}
	go func() {
		defer close(p.ended)
		if err := agent.Run(ctx); err != nil {
			w.Errorf("agent of %s: %v", o.Instance, err)
		}
	}()
	w.Cleanup(p.stop)
	return p
}

// stop ends a pod in order.
func (p *testPod) stop() {
	p.end()
	<-p.ended
}

// waitFor waits until the pod's state is as wanted.
func (p *testPod) waitFor(what string, is func(instanceapi.State) bool) instanceapi.State {
	p.world.Helper()
	var state instanceapi.State
	p.world.eventually(p.options.Instance+": "+what, func() bool {
		state = p.State(context.Background())
		return is(state)
	}, func() string { return fmt.Sprintf("%+v", state) })
	return state
}

func isReady(s instanceapi.State) bool { return s.Ready && s.Phase == instanceapi.PhaseRunning }

func failsWith(words ...string) func(instanceapi.State) bool {
	return func(s instanceapi.State) bool {
		return s.Phase == instanceapi.PhaseFailed && !slices.ContainsFunc(words, func(word string) bool {
			return !strings.Contains(s.Message, word)
		})
	}
}

func (w *world) eventually(what string, is func() bool, say func() string) {
	w.Helper()
	const longest = 40 * time.Second
	for deadline := time.Now().Add(longest); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.Fatalf("timed out waiting for %s; last: %s", what, say())
		}
	}
}

// findPostgres finds the newest PostgreSQL that is installed.
func findPostgres(t *testing.T) (bin string, major int) {
	t.Helper()
	for major := 18; major >= 15; major-- {
		bin := fmt.Sprintf("/usr/lib/postgresql/%d/bin", major)
		if exists(filepath.Join(bin, "initdb")) {
			return bin, major
		}
	}
	t.Fatal("no PostgreSQL in /usr/lib/postgresql: install the Debian package postgresql-15 (or a newer one)")
	return "", 0
}

// freePort is a port that nobody uses on any address. It lies below those that
// the kernel gives to clients, which may take one at any moment.
func freePort(t *testing.T) int {
	t.Helper()
	const first, last, tries = 20000, 32000, 100
	for range tries {
		port := first + rand.IntN(last-first)
		listener, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
		if err == nil {
			must(t, listener.Close())
			return port
		}
	}
	t.Fatal("found no free port")
	return 0
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// logBuffer keeps what is logged.
type logBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// testLog shows what agents and servers log if the test fails.
type testLog struct{ t *testing.T }

func (l *testLog) Write(p []byte) (int, error) {
	defer func() { _ = recover() }() // the last lines of a server may come after the test
	l.t.Log(strings.TrimRight(string(p), "\n"))
	return len(p), nil
}

// vanish ends a pod much as a lost node does: its server is killed, and nothing
// of it reaches Kubernetes any more.
func (p *testPod) vanish() {
	p.kube.(*cutKubernetes).down.Store(true)
	must(p.world.T, killHolders(context.Background(), p.lock))
	p.stop()
}

// loseKubernetes cuts a pod from the API until the end of the test, or until
// what is returned is called.
func (p *testPod) loseKubernetes() (found func()) {
	down := &p.kube.(*cutKubernetes).down
	down.Store(true)
	return func() { down.Store(false) }
}

// cutKubernetes is Kubernetes for one pod, which may lose it.
type cutKubernetes struct {
	Kubernetes
	down atomic.Bool
}

// cutWatcher hears nothing while Kubernetes is lost.
type cutWatcher struct {
	Watcher
	from *cutKubernetes
}

func (c *cutKubernetes) Watch(ctx context.Context, w Watcher) {
	c.Kubernetes.Watch(ctx, &cutWatcher{Watcher: w, from: c})
}

func (w *cutWatcher) SawConfigMap(object *corev1.ConfigMap) {
	if !w.from.down.Load() {
		w.Watcher.SawConfigMap(object)
	}
}

func (w *cutWatcher) SawLease(object *coordinationv1.Lease) {
	if !w.from.down.Load() {
		w.Watcher.SawLease(object)
	}
}

func (w *cutWatcher) SawSlice(object *discoveryv1.EndpointSlice) {
	if !w.from.down.Load() {
		w.Watcher.SawSlice(object)
	}
}

var errCut = errors.New("the API is out of reach")

func (c *cutKubernetes) Lease(ctx context.Context) (*coordinationv1.Lease, error) {
	if c.down.Load() {
		return nil, errCut
	}
	return c.Kubernetes.Lease(ctx)
}

func (c *cutKubernetes) Secret(ctx context.Context, name string) (map[string][]byte, error) {
	if c.down.Load() {
		return nil, errCut
	}
	return c.Kubernetes.Secret(ctx, name)
}

func (c *cutKubernetes) UpdateLease(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	if c.down.Load() {
		return nil, errCut
	}
	return c.Kubernetes.UpdateLease(ctx, lease)
}

func (c *cutKubernetes) UpdateSlice(ctx context.Context, slice *discoveryv1.EndpointSlice) (*discoveryv1.EndpointSlice, error) {
	if c.down.Load() {
		return nil, errCut
	}
	return c.Kubernetes.UpdateSlice(ctx, slice)
}
