package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// claimFile tells which state directory has this machine's networks, and what
// of the machine's settings is to be restored. It goes with the machine's boot.
const claimFile = "/run/pgop-localcluster.json"

type claim struct {
	State string
	// Sysctls are the values of before the cluster.
	Sysctls map[string]string
	// MadeDirs did not exist before.
	MadeDirs []string
}

// touchedSysctls are those that a kubelet sets as it likes, and the one that
// three of them need.
var touchedSysctls = []string{"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops",
	"kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes", maxInotify}

// maxInotify limits what watches files; the default of 128 is soon used up by
// the kubelets and containerds of several nodes.
const (
	maxInotify      = "fs/inotify/max_user_instances"
	wantInotify     = 8192
	wantInotifyText = "8192"
)

func sysctlFile(name string) string { return filepath.Join("/proc/sys", name) }

// claimMachine writes down what is about to change on the machine.
func (c *cluster) claimMachine() error {
	own := claim{State: c.state, Sysctls: map[string]string{}}
	for _, name := range touchedSysctls {
		value, err := os.ReadFile(sysctlFile(name))
		if err != nil {
			continue // this kernel lacks it
		}
		own.Sysctls[name] = strings.TrimSpace(string(value))
	}
	for _, dir := range nodePaths {
		if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
			own.MadeDirs = append(own.MadeDirs, dir)
		}
	}
	content, err := json.MarshalIndent(own, "", "  ")
	if err != nil {
		return fmt.Errorf("claim machine: %w", err)
	}
	if err := writeFile(claimFile, append(content, '\n'), 0o644); err != nil {
		return err
	}
	return raiseInotify(own.Sysctls[maxInotify])
}

func raiseInotify(value string) error {
	var now int
	if _, err := fmt.Sscan(value, &now); err == nil && now >= wantInotify {
		return nil
	}
	if err := os.WriteFile(sysctlFile(maxInotify), []byte(wantInotifyText), 0); err != nil {
		return fmt.Errorf("raise %s: %w", maxInotify, err)
	}
	return nil
}

func readClaim() (claim, error) {
	var own claim
	content, err := os.ReadFile(claimFile)
	if errors.Is(err, fs.ErrNotExist) {
		return own, nil
	}
	if err != nil {
		return own, fmt.Errorf("read claim: %w", err)
	}
	if err := json.Unmarshal(content, &own); err != nil {
		return own, fmt.Errorf("read claim %s: %w", claimFile, err)
	}
	return own, nil
}

// unclaimMachine restores the machine's settings.
func unclaimMachine() error {
	own, err := readClaim()
	if err != nil {
		return err
	}
	for name, value := range own.Sysctls {
		if err := os.WriteFile(sysctlFile(name), []byte(value), 0); err != nil {
			return fmt.Errorf("restore sysctl %s: %w", name, err)
		}
	}
	for _, dir := range own.MadeDirs {
		_ = os.Remove(dir) // whoever has put something there may keep it
	}
	if err := os.Remove(claimFile); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("unclaim machine: %w", err)
	}
	return nil
}

// refuseOtherCluster protects the nodes of a cluster with another state
// directory.
func (c *cluster) refuseOtherCluster() error {
	if c.apiOnly {
		return nil
	}
	own, err := readClaim()
	if err != nil {
		return err
	}
	if own.State != "" && own.State != c.state {
		return fmt.Errorf("this machine runs a local cluster with the state directory %s; end it with LOCALCLUSTER_STATE=%s localcluster down", own.State, own.State)
	}
	return nil
}

// leftOver tells whether there is anything for down to do.
func (c *cluster) leftOver() bool {
	if _, err := os.Stat(c.state); err == nil {
		return true
	}
	if pids, err := cgroupProcesses("/" + c.name); err != nil || len(pids) > 0 {
		return true
	}
	return !c.apiOnly && (interfaceExists(bridge) || len(nodeNamespaces()) > 0)
}

// down removes all of the cluster and nothing else, whatever state it is in.
// Processes go first, as they hold everything else.
func (c *cluster) down(ctx context.Context) error {
	if err := c.refuseOtherCluster(); err != nil {
		return err
	}
	if err := c.endProcesses(); err != nil {
		return err
	}
	if err := unmountBelow(c.state); err != nil {
		return err
	}
	if err := freeLoopsBelow(c.state); err != nil {
		return err
	}
	if !c.apiOnly {
		if err := removeNetwork(ctx); err != nil {
			return err
		}
		if err := unclaimMachine(); err != nil {
			return err
		}
	}
	if err := removeCgroup("/" + c.name); err != nil {
		return err
	}
	if err := os.RemoveAll(c.state); err != nil {
		return fmt.Errorf("remove state: %w", err)
	}
	return nil
}

// endProcesses kills by record what has not reached its cgroup yet, then all in
// the cgroup. It begins with the nodes' first processes, which take everything
// on their nodes with them.
func (c *cluster) endProcesses() error {
	files, err := filepath.Glob(c.path("run", "*.pid"))
	if err != nil {
		return fmt.Errorf("end processes: %w", err)
	}
	for _, file := range files {
		if err := c.process(strings.TrimSuffix(filepath.Base(file), ".pid")).signal(unix.SIGKILL); err != nil {
			return err
		}
	}
	return killCgroup("/" + c.name)
}

// shareMounts makes dir a mount point whose later mounts the nodes see.
func shareMounts(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("share mounts below %s: %w", dir, err)
	}
	if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("share mounts below %s: %w", dir, err)
	}
	// Private first: it must not share with whatever it was bound from.
	for _, propagation := range []uintptr{unix.MS_PRIVATE, unix.MS_SHARED} {
		if err := unix.Mount("", dir, "", propagation, ""); err != nil {
			return fmt.Errorf("share mounts below %s: %w", dir, err)
		}
	}
	return nil
}
