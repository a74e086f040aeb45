package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const kubernetesVersion = "v1.36.3"

// unusedFor is how long a program stays in the cache without being used.
const unusedFor = 14 * 24 * time.Hour

// source is a program to compile. Its result depends on nothing but what is
// here and the files in dir, wherever dir is.
type source struct {
	name    string
	dir     string
	pkg     string
	ldflags string
	// links are further names of the program.
	links []string
	note  string
}

func kubeSource(dir string) source {
	flags := []string{"-s -w"}
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		for _, v := range []string{"gitVersion=" + kubernetesVersion, "gitMajor=1", "gitMinor=36", "gitTreeState=clean"} {
			flags = append(flags, "-X "+pkg+"."+v)
		}
	}
	return source{name: "kube", dir: filepath.Join(dir, "kube"), pkg: ".", ldflags: strings.Join(flags, " "),
		links: []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubectl", "kubelet"},
		note:  "building Kubernetes " + kubernetesVersion + " (about 11 minutes the first time)"}
}

func dnsSource(dir string) source {
	return source{name: "dns", dir: filepath.Join(dir, "dns"), pkg: ".", ldflags: "-s -w",
		note: "building CoreDNS (about 2 minutes the first time)"}
}

func provisionerSource(dir string) source {
	return source{name: "provisioner", dir: filepath.Join(dir, "provisioner"), pkg: ".", ldflags: "-s -w",
		note: "building the volume provisioner (about 2 minutes the first time)"}
}

func pauseSource(dir string) source {
	return source{name: "pause", dir: filepath.Join(dir, "pause"), pkg: ".", ldflags: "-s -w",
		note: "building the sandbox image's program"}
}

// exists is false for a program that this source tree does not have.
func (s source) exists() bool {
	entries, err := filepath.Glob(filepath.Join(s.dir, "*.go"))
	return err == nil && len(entries) > 0
}

// build returns the path of the compiled program, and compiles it only if the
// cache does not have it. Builds of several commands take turns.
func (s source) build(ctx context.Context, cache string, p progress) (string, error) {
	key, err := s.key(ctx)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "programs", s.name+"-"+key)
	path := filepath.Join(dir, s.name)
	if used(dir) {
		return path, nil
	}
	unlock, err := lockFile(filepath.Join(cache, "programs.lock"))
	if err != nil {
		return "", fmt.Errorf("build %s: %w", s.name, err)
	}
	defer unlock()
	if used(dir) {
		return path, nil // another command has built it meanwhile
	}
	removeUnused(filepath.Join(cache, "programs"))
	return path, p.step(s.note, func() error { return s.compile(ctx, dir) })
}

// used notes that the directory of a program is in use; it is false if there is
// none.
func used(dir string) bool {
	now := time.Now()
	return os.Chtimes(dir, now, now) == nil
}

// removeUnused makes room; what it fails to remove it tries again another day.
func removeUnused(programs string) {
	entries, err := os.ReadDir(programs)
	if err != nil {
		return
	}
	for _, entry := range entries {
		info, err := entry.Info()
		if err == nil && time.Since(info.ModTime()) > unusedFor {
			_ = os.RemoveAll(filepath.Join(programs, entry.Name()))
		}
	}
}

// compile makes dir in one step, so that a killed build leaves no half program.
func (s source) compile(ctx context.Context, dir string) error {
	work := dir + ".tmp"
	if err := os.RemoveAll(work); err != nil {
		return fmt.Errorf("build %s: %w", s.name, err)
	}
	if err := os.MkdirAll(work, 0o755); err != nil {
		return fmt.Errorf("build %s: %w", s.name, err)
	}
	err := run(ctx, "", "env", "CGO_ENABLED=0", "GOWORK=off",
		"go", "build", "-C", s.dir, "-buildvcs=false", "-trimpath", "-ldflags", s.ldflags, "-o", filepath.Join(work, s.name), s.pkg)
	if err != nil {
		return fmt.Errorf("build %s: %w", s.name, err)
	}
	for _, link := range s.links {
		if err := os.Symlink(s.name, filepath.Join(work, link)); err != nil {
			return fmt.Errorf("build %s: %w", s.name, err)
		}
	}
	if err := os.Rename(work, dir); err != nil {
		return fmt.Errorf("build %s: %w", s.name, err)
	}
	return nil
}

// key changes whenever the compiled program might.
func (s source) key(ctx context.Context) (string, error) {
	version, err := output(ctx, "", "env", "GOWORK=off", "go", "-C", s.dir, "env", "GOVERSION", "GOARCH")
	if err != nil {
		return "", fmt.Errorf("build %s: %w", s.name, err)
	}
	h := sha256.New()
	fmt.Fprintf(h, "%s\n%s\n%s\n", version, s.ldflags, s.pkg)
	err = fs.WalkDir(os.DirFS(s.dir), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !isSource(path) {
			return err
		}
		content, err := os.ReadFile(filepath.Join(s.dir, path))
		if err != nil {
			return err
		}
		fmt.Fprintf(h, "%s %d\n", path, len(content))
		h.Write(content)
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("build %s: read sources: %w", s.name, err)
	}
	return hex.EncodeToString(h.Sum(nil))[:16], nil
}

func isSource(path string) bool {
	if strings.HasSuffix(path, "_test.go") {
		return false
	}
	// Anything else might be embedded.
	return !strings.HasPrefix(filepath.Base(path), ".") && !strings.HasSuffix(path, ".md")
}

// sourceDir returns the directory of this program's own module.
func sourceDir() (string, error) {
	var candidates []string
	if dir := os.Getenv("LOCALCLUSTER_SOURCE"); dir != "" {
		candidates = append(candidates, dir)
	}
	if _, file, _, ok := runtime.Caller(0); ok && filepath.IsAbs(file) {
		candidates = append(candidates, filepath.Dir(file))
	}
	if dir, err := os.Getwd(); err == nil {
		for ; dir != "/"; dir = filepath.Dir(dir) {
			candidates = append(candidates, dir, filepath.Join(dir, "test", "localcluster"))
		}
	}
	for _, dir := range candidates {
		if kubeSource(dir).exists() && dnsSource(dir).exists() {
			return dir, nil
		}
	}
	return "", errors.New("find sources: test/localcluster is not here; set LOCALCLUSTER_SOURCE to its path")
}

// lockFile waits for its turn. The lock ends with the process at the latest.
func lockFile(path string) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, unix.EINTR) {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
	}
}
