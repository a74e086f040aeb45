package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/pgop/postgres-operator/test/localcluster/images"
)

// postgresMajors are the versions whose images every cluster has.
var postgresMajors = []int{15, 17}

// imageStore is a containerd root with the images that every cluster has, made
// once. Nodes get a copy of its indexes, links to its blobs, and mounts of its
// unpacked layers: no node unpacks anything, and a page of a file that several
// nodes run is in memory once.
type imageStore struct {
	dir string
}

const (
	contentDir   = "io.containerd.content.v1.content"
	metadataDir  = "io.containerd.metadata.v1.bolt"
	snapshotsDir = "io.containerd.snapshotter.v1.overlayfs/snapshots"
)

// storeIndexes are the files in which containerd writes down what it has.
var storeIndexes = []string{metadataDir + "/meta.db", "io.containerd.snapshotter.v1.overlayfs/metadata.db"}

// ensureImages returns the archives of all images that every cluster has.
func ensureImages(ctx context.Context, cache, pauseProgram string, p progress) ([]string, error) {
	pause := filepath.Join(filepath.Dir(pauseProgram), "pause.tar")
	if _, err := os.Stat(pause); err != nil {
		if err := images.BuildBinary(pauseImage, pauseProgram, "/pause", pause); err != nil {
			return nil, err
		}
	}
	archives := []string{pause}
	for _, major := range postgresMajors {
		archive, err := images.EnsurePostgres(ctx, filepath.Join(cache, "images"), major, p.say)
		if err != nil {
			return nil, err
		}
		archives = append(archives, archive)
	}
	return archives, nil
}

// ensureImageStore returns a store with the images of archives, and makes it
// only if the cache has none.
func ensureImageStore(ctx context.Context, cache string, archives []string, p progress) (imageStore, error) {
	key, err := archivesKey(archives)
	if err != nil {
		return imageStore{}, err
	}
	store := imageStore{dir: filepath.Join(cache, "image-stores", key)}
	unlock, err := lockFile(filepath.Join(cache, "image-stores.lock"))
	if err != nil {
		return imageStore{}, err
	}
	defer unlock()
	if used(store.dir) {
		return store, nil
	}
	removeUnused(filepath.Join(cache, "image-stores"))
	return store, p.step("unpacking images for the nodes", func() error { return store.make(ctx, archives) })
}

// archivesKey trusts that an archive of the same path, size and time is the
// same: reading them all would take longer than everything else.
func archivesKey(archives []string) (string, error) {
	h := sha256.New()
	for _, archive := range archives {
		info, err := os.Stat(archive)
		if err != nil {
			return "", fmt.Errorf("find image: %w", err)
		}
		fmt.Fprintf(h, "%s %d %d\n", archive, info.Size(), info.ModTime().UnixNano())
	}
	return hex.EncodeToString(h.Sum(nil))[:16], nil
}

// make fills the store by a containerd of its own. The store appears under its
// name only when it is complete.
func (s imageStore) make(ctx context.Context, archives []string) error {
	work := s.dir + ".tmp"
	if err := unmountBelow(work); err != nil {
		return fmt.Errorf("make image store: %w", err)
	}
	if err := os.RemoveAll(work); err != nil {
		return fmt.Errorf("make image store: %w", err)
	}
	socket := filepath.Join(work, "run", "containerd.sock")
	config := fmt.Sprintf(`version = 2
root = %q
state = %q
disabled_plugins = ["io.containerd.grpc.v1.cri"]
[grpc]
address = %q
`, filepath.Join(work, "root"), filepath.Join(work, "run"), socket)
	if err := writeFile(filepath.Join(work, "config.toml"), []byte(config), 0o644); err != nil {
		return err
	}
	containerd := exec.CommandContext(ctx, "containerd", "--config", filepath.Join(work, "config.toml"))
	containerd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	containerd.Cancel = func() error { return containerd.Process.Signal(syscall.SIGTERM) }
	log, err := os.Create(filepath.Join(work, "containerd.log"))
	if err != nil {
		return fmt.Errorf("make image store: %w", err)
	}
	defer log.Close()
	containerd.Stdout, containerd.Stderr = log, log
	if err := containerd.Start(); err != nil {
		return fmt.Errorf("make image store: %w", err)
	}
	awaitSocket(socket)
	importErr := importImages(ctx, socket, archives)
	_ = containerd.Process.Signal(syscall.SIGTERM) // its exit code says nothing then
	_ = containerd.Wait()
	if importErr != nil {
		return fmt.Errorf("make image store: %w", importErr)
	}
	if err := os.RemoveAll(filepath.Join(work, "run")); err != nil {
		return fmt.Errorf("make image store: %w", err)
	}
	if err := os.Rename(work, s.dir); err != nil {
		return fmt.Errorf("make image store: %w", err)
	}
	return nil
}

// importImages puts archives into the containerd at socket, where the kubelet
// sees them.
func importImages(ctx context.Context, socket string, archives []string) error {
	for _, archive := range archives {
		if err := run(ctx, "", "ctr", "--address", socket, "--namespace", "k8s.io", "images", "import", archive); err != nil {
			return fmt.Errorf("import %s: %w", archive, err)
		}
	}
	return nil
}

// giveTo makes a new containerd root for n with the store's images.
func (s imageStore) giveTo(n node) error {
	from, to := filepath.Join(s.dir, "root"), n.dir("containerd")
	for _, index := range storeIndexes {
		if err := copyFile(filepath.Join(from, index), filepath.Join(to, index)); err != nil {
			return fmt.Errorf("give images to %s: %w", n.name(), err)
		}
	}
	if err := linkTree(filepath.Join(from, contentDir), filepath.Join(to, contentDir)); err != nil {
		return fmt.Errorf("give images to %s: %w", n.name(), err)
	}
	return nil
}

// layersFor returns the mounts by which n sees the store's unpacked layers.
// Nodes may not change them, as they are everybody's.
func (s imageStore) layersFor(n node) ([]bind, error) {
	from := filepath.Join(s.dir, "root", snapshotsDir)
	entries, err := os.ReadDir(from)
	if err != nil {
		return nil, fmt.Errorf("give images to %s: %w", n.name(), err)
	}
	var binds []bind
	for _, entry := range entries {
		binds = append(binds, bind{
			Source:   filepath.Join(from, entry.Name()),
			Target:   n.dir("containerd", snapshotsDir, entry.Name()),
			ReadOnly: true,
		})
	}
	return binds, nil
}

// linkTree copies a tree of files that are never changed in place.
func linkTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		target := filepath.Join(to, strings.TrimPrefix(path, from))
		if entry.IsDir() {
			return os.MkdirAll(target, 0o755)
		}
		if err := os.Link(path, target); err != nil {
			return copyFile(path, target) // the cache may be on another file system
		}
		return nil
	})
}

func copyFile(from, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, info.Mode().Perm())
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		out.Close()
		return err
	}
	return out.Close()
}

// containerdSocket is the node's containerd, seen from the machine.
func (n node) containerdSocket() (string, error) {
	pid := n.process().pid()
	if pid == 0 {
		return "", fmt.Errorf("reach containerd of %s: the node does not run", n.name())
	}
	return fmt.Sprintf("/proc/%d/root/run/containerd/containerd.sock", pid), nil
}

// load imports archives on all nodes at once.
func (c *cluster) load(ctx context.Context, nodes []node, archives []string) error {
	errs := make([]error, len(nodes))
	var wg sync.WaitGroup
	for i, n := range nodes {
		wg.Go(func() { errs[i] = n.load(ctx, archives) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (n node) load(ctx context.Context, archives []string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	socket, err := n.containerdSocket()
	if err != nil {
		return err
	}
	awaitSocket(socket)
	if err := importImages(ctx, socket, archives); err != nil {
		return fmt.Errorf("load on %s: %w", n.name(), err)
	}
	if err := forgetNameless(ctx, socket); err != nil {
		return fmt.Errorf("load on %s: %w", n.name(), err)
	}
	return nil
}

// forgetNameless removes images whose name an import has given to another. The
// kubelet, which would do so when the disk is full, is told not to. Containers
// that run an image keep what they need of it.
func forgetNameless(ctx context.Context, socket string) error {
	list, err := output(ctx, "", "ctr", "--address", socket, "--namespace", "k8s.io", "images", "list")
	if err != nil {
		return fmt.Errorf("list images: %w", err)
	}
	for _, ref := range namelessImages(list) {
		if err := run(ctx, "", "ctr", "--address", socket, "--namespace", "k8s.io", "images", "remove", ref); err != nil {
			return fmt.Errorf("remove image %s: %w", ref, err)
		}
	}
	return nil
}

// namelessImages reads the output of `ctr images list`, in which the kubelet's
// containerd has every image a second time under its id. It returns the ids of
// those that have no name.
func namelessImages(list string) []string {
	named := map[string]bool{}
	ids := map[string]string{}
	for _, line := range strings.Split(list, "\n") {
		fields := strings.Fields(line)
		if len(fields) < 3 || fields[0] == "REF" {
			continue
		}
		ref, digest := fields[0], fields[2]
		if strings.HasPrefix(ref, "sha256:") {
			ids[ref] = digest
		} else {
			named[digest] = true
		}
	}
	var nameless []string
	for id, digest := range ids {
		if !named[digest] {
			nameless = append(nameless, id)
		}
	}
	slices.Sort(nameless)
	return nameless
}
