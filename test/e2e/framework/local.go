//go:build e2e

package framework

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// IsLocal says whether the cluster is the one of test/localcluster.
func IsLocal() bool { return os.Getenv("CLUSTER") == "local" }

// LocalOnly skips a test that needs faults of the machine itself.
func LocalOnly(t *testing.T) {
	t.Helper()
	if !IsLocal() {
		t.Skip("needs the cluster of test/localcluster (CLUSTER=local): the test reaches into the machine below Kubernetes")
	}
}

// localSource is where the program of the local cluster is, seen from a test.
const localSource = "../localcluster"

// LocalCluster runs the local cluster's program.
func (f *Framework) LocalCluster(args ...string) string {
	f.T.Helper()
	output, err := RunLocal(f.ctx(), args...)
	if err != nil {
		f.T.Fatal(err)
	}
	return output
}

// RunLocal is LocalCluster for functions that must not end the test, and for
// the time after it.
func RunLocal(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", append([]string{"-C", localSource, "run", "."}, args...)...)
	output, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("localcluster %s: %w\n%s", strings.Join(args, " "), err, output)
	}
	return strings.TrimSpace(string(output)), nil
}

// stateDirectory is where the local cluster keeps its logs.
func stateDirectory() string { return filepath.Dir(os.Getenv("KUBECONFIG")) }

// LoadUIDImage makes and loads the image of PostgreSQL 17 whose user postgres
// has another id than Docker's, and returns its name.
func (f *Framework) LoadUIDImage(uid int) string {
	f.T.Helper()
	f.loadImage("postgres", "--major", "17", "--uid", strconv.Itoa(uid))
	return fmt.Sprintf("docker.io/library/postgres:17-uid%d", uid)
}

// LoadEarlierImage makes and loads an image with an earlier minor version of
// PostgreSQL 15 than the cluster has, and returns its name.
func (f *Framework) LoadEarlierImage() string {
	f.T.Helper()
	f.loadImage("postgres", "--major", "15", "--earlier")
	return "docker.io/library/postgres:15-earlier"
}

// loadImage makes an image of Debian's packages and loads it into every node.
func (f *Framework) loadImage(kind string, flags ...string) {
	f.T.Helper()
	cache := os.Getenv("LOCALCLUSTER_CACHE")
	if cache == "" {
		cache = "/var/cache/pgop-localcluster"
	}
	args := append([]string{"-C", localSource, "run", "./images/cmd/image", kind, "--cache", filepath.Join(cache, "images")}, flags...)
	cmd := exec.CommandContext(f.ctx(), "go", args...)
	cmd.Stderr = os.Stderr
	archive, err := cmd.Output()
	if err != nil {
		f.T.Fatalf("make the image %s with %v: %v", kind, flags, err)
	}
	f.LocalCluster("load", strings.TrimSpace(string(archive)))
}

// TagImage gives an image another name on every node.
func (f *Framework) TagImage(image, name string) {
	f.T.Helper()
	for _, node := range f.Nodes() {
		f.LocalCluster("node", "exec", node, "ctr", "-n", "k8s.io", "images", "tag", "--force", image, name)
	}
	f.T.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		for _, node := range f.Nodes() {
			if _, err := RunLocal(ctx, "node", "exec", node, "ctr", "-n", "k8s.io", "images", "rm", name); err != nil {
				f.T.Log(err)
			}
		}
	})
}

// ImageDigest is the digest of an image that the nodes have.
func (f *Framework) ImageDigest(image string) string {
	f.T.Helper()
	listed := f.LocalCluster("node", "exec", f.Nodes()[0], "ctr", "-n", "k8s.io", "images", "ls", "name=="+image)
	for field := range strings.FieldsSeq(listed) {
		if strings.HasPrefix(field, "sha256:") {
			return field
		}
	}
	f.T.Fatalf("no digest of %s in:\n%s", image, listed)
	return ""
}

// Process is a process of the machine.
type Process struct {
	PID, Parent int
	Command     string
	// Directory identifies its working directory, as DirectoryIn does.
	Directory string
}

// Processes are those of a pod, in all its containers, by the pod's UID.
func Processes(podUID string) ([]Process, error) {
	return processes(func(p Process, cgroup string) bool {
		return strings.Contains(cgroup, podUID) || strings.Contains(cgroup, strings.ReplaceAll(podUID, "-", "_"))
	})
}

// DirectoryIn identifies the directory that has this path in a pod's container,
// whatever name it has elsewhere.
func DirectoryIn(podUID, path string) (string, error) {
	inPod, err := Processes(podUID)
	if err != nil {
		return "", err
	}
	for _, p := range inPod {
		if id, err := identify(filepath.Join("/proc", strconv.Itoa(p.PID), "root", path)); err == nil {
			return id, nil
		}
	}
	return "", fmt.Errorf("no process of pod %s has a directory %s: %v", podUID, path, inPod)
}

func identify(directory string) (string, error) {
	info, err := os.Stat(directory)
	if err != nil {
		return "", err
	}
	s := info.Sys().(*syscall.Stat_t)
	return fmt.Sprintf("%d:%d", s.Dev, s.Ino), nil
}

// Postmasters are the processes postgres that work in a directory, as DirectoryIn
// identifies it, and have no parent that does.
func Postmasters(directory string) ([]Process, error) {
	servers, err := processes(func(p Process, _ string) bool { return p.Command == "postgres" && p.Directory == directory })
	if err != nil {
		return nil, err
	}
	members := map[int]bool{}
	for _, p := range servers {
		members[p.PID] = true
	}
	var postmasters []Process
	for _, p := range servers {
		if !members[p.Parent] {
			postmasters = append(postmasters, p)
		}
	}
	return postmasters, nil
}

func processes(wanted func(p Process, cgroup string) bool) ([]Process, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var found []Process
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		p, cgroup, err := process(pid)
		if err != nil {
			continue // it has ended meanwhile
		}
		if wanted(p, cgroup) {
			found = append(found, p)
		}
	}
	return found, nil
}

func process(pid int) (Process, string, error) {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return Process{}, "", err
	}
	open, end := strings.IndexByte(string(stat), '('), strings.LastIndexByte(string(stat), ')')
	fields := strings.Fields(string(stat[end+1:]))
	if open < 0 || len(fields) < 2 {
		return Process{}, "", errors.New("an odd /proc/PID/stat")
	}
	parent, err := strconv.Atoi(fields[1])
	if err != nil {
		return Process{}, "", err
	}
	cgroup, err := os.ReadFile(filepath.Join(dir, "cgroup"))
	if err != nil {
		return Process{}, "", err
	}
	p := Process{PID: pid, Parent: parent, Command: string(stat[open+1 : end])}
	if p.Directory, err = identify(filepath.Join(dir, "cwd")); err != nil {
		return Process{}, "", err
	}
	return p, string(cgroup), nil
}

// HoldContainers makes a pod's containers impossible to stop, until the function
// returned is called: it freezes the runtime's shim, the process through which
// containerd starts, stops and kills them. They run on.
func (f *Framework) HoldContainers(podUID string) (release func()) {
	f.T.Helper()
	shim, err := shimOf(podUID)
	if err != nil {
		f.T.Fatal(err)
	}
	if err := syscall.Kill(shim, syscall.SIGSTOP); err != nil {
		f.T.Fatalf("freeze the shim of pod %s: %v", podUID, err)
	}
	release = sync.OnceFunc(func() {
		if err := syscall.Kill(shim, syscall.SIGCONT); err != nil {
			f.T.Errorf("thaw the shim of pod %s: %v", podUID, err)
		}
	})
	f.T.Cleanup(release)
	return release
}

// shimOf is the parent of a pod's containers' first processes.
func shimOf(podUID string) (int, error) {
	inPod, err := Processes(podUID)
	if err != nil {
		return 0, err
	}
	for _, p := range inPod {
		parent, _, err := process(p.Parent)
		if err == nil && strings.HasPrefix(parent.Command, "containerd-shim") {
			return parent.PID, nil
		}
	}
	return 0, fmt.Errorf("pod %s has no shim among the parents of %v", podUID, inPod)
}

// Request is one in the API server's audit log.
type Request struct {
	Verb      string
	User      string
	ObjectRef struct{ Resource, Namespace, Name, Subresource string }
}

// Writes says whether the request is for a change.
func (r Request) Writes() bool {
	switch r.Verb {
	case "create", "update", "patch", "delete", "deletecollection":
		return true
	}
	return false
}

// Requests are those of the user since the mark that concern the test's
// namespace, or all namespaces.
func (f *Framework) Requests(user string, mark AuditMark) []Request {
	f.T.Helper()
	var requests []Request
	for _, path := range logsSince(f, mark) {
		file, err := os.Open(path)
		if err != nil {
			f.T.Fatal(err)
		}
		defer file.Close()
		if info, err := file.Stat(); err == nil && os.SameFile(info, mark.file) {
			_, err = file.Seek(mark.file.Size(), io.SeekStart)
			if err != nil {
				f.T.Fatal(err)
			}
		}
		lines := bufio.NewScanner(file)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			r, ok := parseRequest(lines.Bytes())
			if ok && r.User == user && (r.ObjectRef.Namespace == f.Namespace || r.ObjectRef.Namespace == "") {
				requests = append(requests, r)
			}
		}
		if err := lines.Err(); err != nil {
			f.T.Fatal(err)
		}
	}
	return requests
}

// logsSince are the files of the audit log from the mark on, in order. When one is
// full, the API server gives it another name and begins a new one.
func logsSince(f *Framework, mark AuditMark) []string {
	f.T.Helper()
	full, err := filepath.Glob(strings.TrimSuffix(auditLog(), ".log") + "-*.log")
	if err != nil {
		f.T.Fatal(err)
	}
	logs := append(full, auditLog()) // their names are times, and sorted
	for i, path := range logs {
		if info, err := os.Stat(path); err == nil && os.SameFile(info, mark.file) {
			return logs[i:]
		}
	}
	f.T.Fatal("the audit log that was marked is gone: nothing can be counted in it")
	return nil
}

func parseRequest(line []byte) (Request, bool) {
	var entry struct {
		Request
		User struct{ Username string }
	}
	if err := json.Unmarshal(line, &entry); err != nil {
		return Request{}, false // cut in the middle
	}
	entry.Request.User = entry.User.Username
	return entry.Request, true
}

// AuditMark is an end that the audit log had.
type AuditMark struct{ file os.FileInfo }

// MarkAudit returns the present end of the audit log.
func (f *Framework) MarkAudit() AuditMark {
	f.T.Helper()
	info, err := os.Stat(auditLog())
	if err != nil {
		f.T.Fatal(err)
	}
	return AuditMark{info}
}

func auditLog() string { return filepath.Join(stateDirectory(), "logs", "audit.log") }
