package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

func (n node) process() process { return n.cluster.process(n.name()) }

// configure writes what the node's programs read.
func (n node) configure(kube string, snapshots []bind) error {
	spec, err := json.MarshalIndent(specOf(n, kube, snapshots), "", "  ")
	if err != nil {
		return fmt.Errorf("configure %s: %w", n.name(), err)
	}
	restrictOOM, err := lacksSysResource()
	if err != nil {
		return err
	}
	files := map[string]string{
		"containerd.toml":   containerdConfig(n, restrictOOM),
		"cni/pgop.conflist": cniConfig(n),
		"kubelet.yaml":      kubeletConfig(n),
		"kube-proxy.yaml":   kubeProxyConfig(n),
		"node.json":         string(spec),
	}
	for name, content := range files {
		if err := writeFile(n.dir("config", name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// start powers the node on. It returns before the node is ready.
func (n node) start(ctx context.Context) error {
	if n.process().runs() {
		return nil
	}
	// A power cut ends a freeze, and leaves no cgroup.
	if err := n.clearCgroup(); err != nil {
		return err
	}
	if err := makeCgroup(n.systemCgroup()); err != nil {
		return err
	}
	if err := n.forgetBoot(ctx); err != nil {
		return err
	}
	cmd := exec.Command("nsenter", "--net="+filepath.Join(netnsDir, n.netns()),
		n.cluster.self(), "node-init", n.dir("config", "node.json"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC}
	return n.process().start(cmd)
}

// powerOff ends everything on the node at once, and silently: peers hear neither
// of the end of their connections nor, afterwards, that nobody listens. The
// node's cable and its disks stay.
func (n node) powerOff(ctx context.Context) error {
	if err := n.nft(ctx, silenceRules); err != nil {
		return fmt.Errorf("power off %s: %w", n.name(), err)
	}
	if err := n.process().signal(syscall.SIGKILL); err != nil {
		return err
	}
	if err := n.clearCgroup(); err != nil {
		return err
	}
	if !n.process().awaitEnd(endLimit) {
		return fmt.Errorf("power off %s: process %d is still there", n.name(), n.process().pid())
	}
	return nil
}

// clearCgroup ends every process of the node and removes its cgroups.
func (n node) clearCgroup() error {
	if err := killCgroup(n.cgroup()); err != nil {
		return err
	}
	return removeCgroup(n.cgroup())
}

// forgetBoot ends the silence of a node without power, and removes what no power
// cut leaves on a real machine: the packet filter of Services and the connections
// that it tracks. Partitions are not the node's.
func (n node) forgetBoot(ctx context.Context) error {
	for _, table := range []string{"ip " + silenceTable, "ip kube-proxy", "ip6 kube-proxy"} {
		if err := n.nft(ctx, fmt.Sprintf("add table %[1]s\ndelete table %[1]s\n", table)); err != nil {
			return fmt.Errorf("reset %s: %w", n.name(), err)
		}
	}
	if err := run(ctx, "", "nsenter", "--net="+filepath.Join(netnsDir, n.netns()), "conntrack", "--flush"); err != nil {
		return fmt.Errorf("reset %s: %w", n.name(), err)
	}
	return nil
}

// nft runs commands of nft in the node's network namespace, all or none.
func (n node) nft(ctx context.Context, commands string) error {
	return run(ctx, commands, "nsenter", "--net="+filepath.Join(netnsDir, n.netns()), "nft", "-f", "-")
}

// exec becomes a command on the node.
func (n node) exec(command []string) error {
	pid := n.process().pid()
	if pid == 0 {
		return fmt.Errorf("run on %s: the node does not run", n.name())
	}
	nsenter, err := exec.LookPath("nsenter")
	if err != nil {
		return fmt.Errorf("run on %s: %w", n.name(), err)
	}
	argv := append([]string{"nsenter", "--target", fmt.Sprint(pid), "--mount", "--net", "--pid", "--uts", "--ipc", "--"}, command...)
	if err := syscall.Exec(nsenter, argv, os.Environ()); err != nil {
		return fmt.Errorf("run on %s: %w", n.name(), err)
	}
	return nil
}

// capSysResource is the number of CAP_SYS_RESOURCE.
const capSysResource = 24

// lacksSysResource tells whether even root may not lower oom_score_adj here.
func lacksSysResource() (bool, error) {
	content, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return false, fmt.Errorf("read capabilities: %w", err)
	}
	caps, ok := parseCapabilities(string(content))
	if !ok {
		return false, errors.New("read capabilities: no CapEff in /proc/self/status")
	}
	return caps&(1<<capSysResource) == 0, nil
}

func parseCapabilities(status string) (effective uint64, ok bool) {
	for _, line := range strings.Split(status, "\n") {
		if value, found := strings.CutPrefix(line, "CapEff:"); found {
			caps, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64)
			return caps, err == nil
		}
	}
	return 0, false
}
