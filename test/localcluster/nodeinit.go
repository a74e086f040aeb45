package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// nodeSpec tells a node's PID 1 what the node is.
type nodeSpec struct {
	Hostname string
	Cgroup   string
	// Tmpfs are mount points that are empty after every start, like a machine's
	// /run.
	Tmpfs []string
	// Binds are made in order; the node sees Source at Target.
	Binds    []bind
	Programs []nodeProgram
}

type bind struct {
	Source, Target string
	ReadOnly       bool
}

// nodeProgram is kept running, as a service manager would.
type nodeProgram struct {
	Name string
	Path string
	Argv []string
	Log  string
	// Awaits is a socket that must answer before the program starts.
	Awaits string
}

// restartPause is the time between a program's death and its next start.
const restartPause = time.Second

// nodeInit is PID 1 of a node. It was started in new mount, process and host
// name namespaces and in the node's network namespace. It returns only if the
// node cannot be set up.
func nodeInit(specFile string) error {
	content, err := os.ReadFile(specFile)
	if err != nil {
		return fmt.Errorf("start node: %w", err)
	}
	var spec nodeSpec
	if err := json.Unmarshal(content, &spec); err != nil {
		return fmt.Errorf("start node: read %s: %w", specFile, err)
	}
	// Before anything else, so that every process of the node is born there.
	if err := joinCgroup(spec.Cgroup); err != nil {
		return fmt.Errorf("start node %s: %w", spec.Hostname, err)
	}
	if err := setUpNode(spec); err != nil {
		return fmt.Errorf("start node %s: %w", spec.Hostname, err)
	}
	ignoreSignals()
	died := make(chan os.Signal, 1)
	signal.Notify(died, unix.SIGCHLD)
	children := newReaper(died)
	for _, program := range spec.Programs {
		go children.keepRunning(program)
	}
	select {}
}

// ignoreSignals leaves SIGKILL as the only way to end a node.
func ignoreSignals() { signal.Ignore(unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGPIPE) }

func setUpNode(spec nodeSpec) error {
	if err := unix.Sethostname([]byte(spec.Hostname)); err != nil {
		return fmt.Errorf("set host name: %w", err)
	}
	// Mounts made on the machine's shared mount points, which volumes are, come
	// in; what the node mounts stays in it.
	if err := unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("separate mounts from the machine's: %w", err)
	}
	// Pods may ask for mounts to reach them later on.
	if err := unix.Mount("", "/", "", unix.MS_SHARED|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("share mounts within the node: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	for _, dir := range spec.Tmpfs {
		if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755"); err != nil {
			return fmt.Errorf("mount tmpfs on %s: %w", dir, err)
		}
	}
	for _, b := range spec.Binds {
		if err := bindMount(b); err != nil {
			return fmt.Errorf("mount %s on %s: %w", b.Source, b.Target, err)
		}
	}
	return nil
}

func bindMount(b bind) error {
	for _, dir := range []string{b.Source, b.Target} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if err := unix.Mount(b.Source, b.Target, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return err
	}
	if !b.ReadOnly {
		return nil
	}
	return unix.Mount("", b.Target, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")
}

// reaper collects every child of PID 1: its own programs, and the orphans of
// everyone.
type reaper struct {
	// mu is held while a child is started, so that none is collected before it is
	// known.
	mu    sync.Mutex
	known map[int]chan<- syscall.WaitStatus
}

// newReaper collects whenever died says so.
func newReaper(died <-chan os.Signal) *reaper {
	r := &reaper{known: map[int]chan<- syscall.WaitStatus{}}
	go func() {
		for range died {
			r.collect()
		}
	}()
	return r
}

func (r *reaper) collect() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
		if ended, ok := r.known[pid]; ok {
			delete(r.known, pid)
			ended <- status
		}
	}
}

// keepRunning starts the program again whenever it ends.
func (r *reaper) keepRunning(program nodeProgram) {
	for {
		awaitSocket(program.Awaits)
		status, err := r.run(program)
		fmt.Fprintf(os.Stderr, "%s %s ended: status %v, error %v\n", time.Now().Format(time.RFC3339), program.Name, status, err)
		time.Sleep(restartPause)
	}
}

// run starts the program and returns when it has ended.
func (r *reaper) run(program nodeProgram) (syscall.WaitStatus, error) {
	log, err := os.OpenFile(program.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return 0, err
	}
	defer log.Close()
	cmd := &exec.Cmd{Path: program.Path, Args: program.Argv, Env: []string{programPath, "HOME=/root"}, Dir: "/", Stdout: log, Stderr: log}
	ended := make(chan syscall.WaitStatus, 1)
	r.mu.Lock()
	err = cmd.Start()
	if err == nil {
		r.known[cmd.Process.Pid] = ended
	}
	r.mu.Unlock()
	if err != nil {
		return 0, err
	}
	defer cmd.Process.Release()
	return <-ended, nil
}

// awaitSocket returns at once without a socket to wait for. A program that needs
// the socket says so itself if it never comes.
func awaitSocket(path string) {
	if path == "" {
		return
	}
	for range 200 {
		conn, err := net.Dial("unix", path)
		if err == nil {
			conn.Close()
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// specOf is what node n runs. snapshots are the unpacked layers that all nodes
// share.
func specOf(n node, kube string, snapshots []bind) nodeSpec {
	program := func(name string, argv []string, awaits string) nodeProgram {
		return nodeProgram{Name: name, Path: filepath.Join(kube, argv[0]), Argv: argv,
			Log: n.cluster.logFile(n.name() + "-" + name), Awaits: awaits}
	}
	containerd := program("containerd", []string{"containerd", "--config", n.dir("config", "containerd.toml")}, "")
	containerd.Path = "/usr/bin/containerd"
	return nodeSpec{
		Hostname: n.name(),
		Cgroup:   n.systemCgroup(),
		Tmpfs:    []string{"/run"},
		Binds: append([]bind{
			{Source: n.dir("kubelet"), Target: "/var/lib/kubelet"},
			{Source: n.dir("cni"), Target: "/var/lib/cni"},
			{Source: n.dir("log"), Target: "/var/log"},
		}, snapshots...),
		Programs: []nodeProgram{
			containerd,
			program("kubelet", kubeletArgs(n), "/run/containerd/containerd.sock"),
			program("kube-proxy", []string{"kube-proxy", "--config=" + n.dir("config", "kube-proxy.yaml")}, ""),
		},
	}
}

// nodePaths are places on the machine at which nodes mount their own.
var nodePaths = []string{"/var/lib/kubelet", "/var/lib/cni"}
