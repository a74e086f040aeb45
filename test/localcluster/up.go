package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// endLimit is how long a killed process may take to vanish.
const endLimit = 10 * time.Second

// programs are the compiled programs of a cluster.
type programs struct {
	// Kube is the directory with all of Kubernetes.
	Kube string
	DNS  string
	// Provisioner is empty without volumes.
	Provisioner string
}

// record is what later commands must know of a cluster.
type record struct {
	Programs programs
	Nodes    int
	// Boot names the machine's boot: nothing of an earlier one may be used.
	Boot string
	// Fingerprint changes with whatever a running cluster cannot take over.
	Fingerprint string
	// Archives are the images that the nodes have.
	Archives string
	// Complete is written last. Invariant: state whose record is not complete is
	// never used.
	Complete bool
}

// errNoCluster means that there is nothing to work on.
var errNoCluster = errors.New("there is no cluster; run `localcluster up`")

func (c *cluster) recordFile() string { return c.path("cluster.json") }

// readRecord returns the record of a cluster that is complete.
func (c *cluster) readRecord() (record, error) {
	content, err := os.ReadFile(c.recordFile())
	if errors.Is(err, fs.ErrNotExist) {
		return record{}, errNoCluster
	}
	if err != nil {
		return record{}, fmt.Errorf("read cluster: %w", err)
	}
	var r record
	if err := json.Unmarshal(content, &r); err != nil {
		return record{}, fmt.Errorf("read cluster: %w", err)
	}
	if !r.Complete {
		return record{}, errNoCluster
	}
	return r, nil
}

func (c *cluster) writeRecord(r record) error {
	content, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("write cluster: %w", err)
	}
	return writeFile(c.recordFile(), append(content, '\n'), 0o644)
}

// self is a copy of this program, for the parts of it that outlive the command.
func (c *cluster) self() string { return c.path("bin", "localcluster") }

// up makes the cluster run with all its nodes ready and every fault healed. What
// is there and fits is kept, whatever else is left over is removed. A nodeCount
// of 0 means as many as there are, or the usual number.
func (c *cluster) up(ctx context.Context, nodeCount int, p progress) error {
	if !c.apiOnly {
		if err := ensurePackages(ctx, p); err != nil {
			return err
		}
	}
	built, archives, store, err := c.provide(ctx, p)
	if err != nil {
		return err
	}
	have, err := c.readRecord()
	if err != nil && !errors.Is(err, errNoCluster) {
		return err
	}
	if nodeCount == 0 {
		nodeCount = cmp.Or(have.Nodes, c.usualNodes())
	}
	want, err := c.wanted(built, nodeCount, archives)
	if err != nil {
		return err
	}
	nodes := c.nodes(nodeCount)
	if why := c.misfit(have, want, nodes); why != "" {
		if err := c.startAnew(ctx, want, nodes, store, why, p); err != nil {
			return err
		}
	}
	err = c.startAll(ctx, want, have, nodes, p)
	if errors.Is(err, errEnded) {
		// It may have been dying already when it was found running: a kill takes
		// effect a moment later.
		p.say("%v\ntrying once more", err)
		err = c.startAll(ctx, want, have, nodes, p)
	}
	if err != nil {
		return err
	}
	if have.Complete && have.Archives != want.Archives {
		if err := p.step("loading changed images", func() error { return c.load(ctx, nodes, archives) }); err != nil {
			return err
		}
	}
	want.Complete = true
	return c.writeRecord(want)
}

// provide builds every program and image.
func (c *cluster) provide(ctx context.Context, p progress) (programs, []string, imageStore, error) {
	var built programs
	sources, err := sourceDir()
	if err != nil {
		return built, nil, imageStore{}, err
	}
	kube, err := kubeSource(sources).build(ctx, c.cache, p)
	if err != nil {
		return built, nil, imageStore{}, err
	}
	built.Kube = filepath.Dir(kube)
	if c.apiOnly {
		return built, nil, imageStore{}, nil
	}
	if built.DNS, err = dnsSource(sources).build(ctx, c.cache, p); err != nil {
		return built, nil, imageStore{}, err
	}
	if s := provisionerSource(sources); s.exists() {
		if built.Provisioner, err = s.build(ctx, c.cache, p); err != nil {
			return built, nil, imageStore{}, err
		}
	}
	pause, err := pauseSource(sources).build(ctx, c.cache, p)
	if err != nil {
		return built, nil, imageStore{}, err
	}
	archives, err := ensureImages(ctx, c.cache, pause, p)
	if err != nil {
		return built, nil, imageStore{}, err
	}
	store, err := ensureImageStore(ctx, c.cache, archives, p)
	return built, archives, store, err
}

func (c *cluster) wanted(built programs, nodeCount int, archives []string) (record, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return record{}, fmt.Errorf("identify boot: %w", err)
	}
	images, err := archivesKey(archives)
	if err != nil {
		return record{}, err
	}
	return record{
		Programs:    built,
		Nodes:       nodeCount,
		Boot:        strings.TrimSpace(string(boot)),
		Fingerprint: c.fingerprint(built, c.nodes(nodeCount)),
		Archives:    images,
	}, nil
}

// fingerprint covers all configuration, and the programs whose change makes
// another cluster.
func (c *cluster) fingerprint(built programs, nodes []node) string {
	h := sha256.New()
	fmt.Fprintln(h, built.Kube, built.DNS, auditPolicy, corefile(c), etcdArgs(c), apiServerArgs(c), controllerManagerArgs(c), schedulerArgs(c))
	for _, n := range nodes {
		fmt.Fprintln(h, containerdConfig(n, false), cniConfig(n), kubeletConfig(n), kubeletArgs(n), kubeProxyConfig(n), specOf(n, built.Kube, nil))
	}
	return hex.EncodeToString(h.Sum(nil))[:16]
}

// misfit says why the cluster that is there cannot become the wanted one without
// losing anything; it is empty if it can.
func (c *cluster) misfit(have, want record, nodes []node) string {
	switch {
	case !have.Complete:
		return "it was left unfinished"
	case have.Boot != want.Boot:
		return "the machine was started anew"
	case have.Nodes != want.Nodes:
		return fmt.Sprintf("it has %d nodes", have.Nodes)
	case have.Fingerprint != want.Fingerprint:
		return "its programs or their configuration have changed"
	case !c.apiOnly && !networkExists(nodes):
		return "its network is gone"
	}
	return ""
}

// startAnew removes whatever is there, and makes all that processes need.
func (c *cluster) startAnew(ctx context.Context, want record, nodes []node, store imageStore, why string, p progress) error {
	if err := c.refuseOtherCluster(); err != nil {
		return err
	}
	if c.leftOver() {
		if err := p.step("removing the cluster that is here, as "+why, func() error { return c.down(ctx) }); err != nil {
			return err
		}
	}
	what := "preparing certificates, network and nodes"
	if c.apiOnly {
		what = "preparing certificates"
	}
	return p.step(what, func() error { return c.prepare(ctx, want, nodes, store) })
}

func (c *cluster) prepare(ctx context.Context, want record, nodes []node, store imageStore) error {
	if err := c.writeRecord(want); err != nil {
		return err
	}
	if err := copyFile("/proc/self/exe", c.self()); err != nil {
		return fmt.Errorf("copy this program: %w", err)
	}
	if err := os.Symlink(filepath.Join(want.Programs.Kube, "kubectl"), c.path("bin", "kubectl")); err != nil {
		return fmt.Errorf("prepare cluster: %w", err)
	}
	if err := writePKI(c, nodes); err != nil {
		return err
	}
	if err := writeFile(c.path("config", "audit-policy.yaml"), []byte(auditPolicy), 0o644); err != nil {
		return err
	}
	if err := makeCgroup(c.controlPlaneCgroup()); err != nil {
		return err
	}
	if c.apiOnly {
		return nil
	}
	if err := c.claimMachine(); err != nil {
		return err
	}
	if err := writeFile(c.path("config", "Corefile"), []byte(corefile(c)), 0o644); err != nil {
		return err
	}
	if err := shareMounts(c.volumes()); err != nil {
		return err
	}
	if err := makeNetwork(ctx, nodes); err != nil {
		return err
	}
	return prepareNodes(nodes, want.Programs.Kube, store)
}

func prepareNodes(nodes []node, kube string, store imageStore) error {
	for _, n := range nodes {
		if err := store.giveTo(n); err != nil {
			return err
		}
		layers, err := store.layersFor(n)
		if err != nil {
			return err
		}
		if err := n.configure(kube, layers); err != nil {
			return err
		}
	}
	return nil
}

// startAll starts what does not run, and returns when all of it works.
func (c *cluster) startAll(ctx context.Context, want, have record, nodes []node, p progress) error {
	var api *apiClient
	err := p.step("starting the API server", func() (err error) {
		api, err = c.startAPIServer(ctx, want.Programs.Kube)
		return err
	})
	if err != nil || c.apiOnly {
		return err
	}
	return p.step(fmt.Sprintf("starting %d nodes", len(nodes)), func() error {
		if err := c.healAll(ctx, nodes); err != nil {
			return err
		}
		if have.Programs.Provisioner != want.Programs.Provisioner {
			if err := c.process("provisioner").stop(time.Second); err != nil {
				return err
			}
		}
		started, err := c.startNodes(ctx, nodes)
		if err != nil {
			return err
		}
		if err := c.startControllers(ctx, want.Programs, api); err != nil {
			return err
		}
		return c.awaitAll(ctx, want.Programs, api, nodes, started)
	})
}

// startAPIServer returns when the API server serves.
func (c *cluster) startAPIServer(ctx context.Context, kube string) (*apiClient, error) {
	for _, argv := range [][]string{etcdArgs(c), apiServerArgs(c)} {
		if err := c.startKube(kube, argv); err != nil {
			return nil, err
		}
	}
	api, err := newAPIClient(c)
	if err != nil {
		return nil, err
	}
	err = await(ctx, "the API server", time.Minute, api.ready, c.process("etcd"), c.process("kube-apiserver"))
	return api, err
}

func (c *cluster) startKube(kube string, argv []string) error {
	return c.startInControlPlane(argv[0], filepath.Join(kube, argv[0]), argv)
}

// startNodes starts the nodes that do not run, and returns when it did.
func (c *cluster) startNodes(ctx context.Context, nodes []node) (map[string]time.Time, error) {
	started := map[string]time.Time{}
	errs := make([]error, len(nodes))
	var wg sync.WaitGroup
	for i, n := range nodes {
		if n.process().runs() {
			continue
		}
		started[n.name()] = time.Now()
		wg.Go(func() { errs[i] = n.start(ctx) })
	}
	wg.Wait()
	return started, errors.Join(errs...)
}

// startControllers starts all that acts on the API's objects.
func (c *cluster) startControllers(ctx context.Context, built programs, api *apiClient) error {
	for _, argv := range [][]string{controllerManagerArgs(c), schedulerArgs(c)} {
		if err := c.startKube(built.Kube, argv); err != nil {
			return err
		}
	}
	for _, o := range dnsObjects() {
		if err := api.apply(ctx, o); err != nil {
			return err
		}
	}
	if err := c.startDNS(built.DNS); err != nil {
		return err
	}
	if built.Provisioner == "" {
		return nil
	}
	return c.startInControlPlane("provisioner", built.Provisioner,
		[]string{"provisioner", "--kubeconfig", c.kubeconfig(), "--root", c.volumes()})
}

func (c *cluster) startDNS(program string) error {
	return c.startInControlPlane("dns", program, []string{"dns", "-conf", c.path("config", "Corefile")})
}

// awaitAll returns when a user finds everything that a cluster should have.
func (c *cluster) awaitAll(ctx context.Context, built programs, api *apiClient, nodes []node, started map[string]time.Time) error {
	needs := []process{c.process("kube-apiserver"), c.process("kube-controller-manager"), c.process("kube-scheduler"), c.process("dns")}
	for _, n := range nodes {
		needs = append(needs, n.process())
	}
	err := await(ctx, "the nodes", 2*time.Minute, func(ctx context.Context) error {
		var list nodeList
		if err := api.get(ctx, "/api/v1/nodes", &list); err != nil {
			return err
		}
		if reasons := list.notReady(nodes, started); len(reasons) > 0 {
			return fmt.Errorf("not ready: %v", reasons)
		}
		return nil
	}, needs...)
	if err != nil {
		return err
	}
	// Without it no pod can be made.
	err = await(ctx, "the default service account", time.Minute, func(ctx context.Context) error {
		var ignored struct{}
		return api.get(ctx, "/api/v1/namespaces/default/serviceaccounts/default", &ignored)
	}, needs...)
	if err != nil {
		return err
	}
	if err := await(ctx, "the cluster's DNS", time.Minute, dnsReady, c.process("dns")); err != nil {
		return err
	}
	if built.Provisioner == "" {
		return nil
	}
	return await(ctx, "the StorageClass", time.Minute, func(ctx context.Context) error {
		var list struct{ Items []json.RawMessage }
		if err := api.get(ctx, "/apis/storage.k8s.io/v1/storageclasses", &list); err != nil {
			return err
		}
		if len(list.Items) == 0 {
			return errors.New("there is none")
		}
		return nil
	}, c.process("provisioner"))
}
