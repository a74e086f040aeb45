//go:build e2e

package faults

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/pgop/postgres-operator/test/e2e/framework"
)

// processID is a process of the machine that no later one is taken for.
type processID struct {
	pid     int
	started string
}

func identify(pid int) (processID, error) {
	fields, err := statFields(pid)
	if err != nil {
		return processID{}, err
	}
	return processID{pid: pid, started: fields[19]}, nil
}

// statFields are those of /proc/PID/stat after the command: the first is the
// state, the twentieth when it was started.
func statFields(pid int) ([]string, error) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return nil, err
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < 20 {
		return nil, fmt.Errorf("an odd /proc/%d/stat", pid)
	}
	return fields, nil
}

// state is the letter that the kernel has for the process, or X when it is gone.
func (p processID) state() string {
	fields, err := statFields(p.pid)
	if err != nil || fields[19] != p.started {
		return "X"
	}
	return fields[0]
}

// gone looks whether the process has ended.
func (p processID) gone() error {
	if s := p.state(); s != "X" && s != "Z" {
		return fmt.Errorf("process %d is in state %s", p.pid, s)
	}
	return nil
}

// signal is for a process that may have ended.
func (p processID) signal(s syscall.Signal) error {
	if p.state() == "X" {
		return nil
	}
	if err := syscall.Kill(p.pid, s); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("send %v to process %d: %w", s, p.pid, err)
	}
	return nil
}

// kubelet is that of a node.
func kubelet(node string) (processID, error) {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return processID{}, err
	}
	for _, file := range files {
		args, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended meanwhile
		}
		if strings.HasPrefix(string(args), "kubelet\x00") && strings.Contains(string(args), "--hostname-override="+node+"\x00") {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			if err != nil {
				return processID{}, err
			}
			return identify(pid)
		}
	}
	return processID{}, fmt.Errorf("node %s has no kubelet", node)
}

// agent is PID 1 of an instance's container.
func (t target) agent() (processID, error) {
	all, err := framework.Processes(string(t.podUID))
	if err != nil {
		return processID{}, err
	}
	for _, p := range all {
		if strings.HasPrefix(p.Command, "postgres-operat") && !isOneOf(all, p.Parent) {
			return identify(p.PID)
		}
	}
	return processID{}, fmt.Errorf("no agent of %s among %v", t.instance, all)
}

// postmaster is the process postgres that is the agent's child.
func (t target) postmaster() (processID, error) {
	agent, err := t.agent()
	if err != nil {
		return processID{}, err
	}
	all, err := framework.Processes(string(t.podUID))
	if err != nil {
		return processID{}, err
	}
	for _, p := range all {
		if p.Command == "postgres" && p.Parent == agent.pid {
			return identify(p.PID)
		}
	}
	return processID{}, fmt.Errorf("no postmaster of %s among %v", t.instance, all)
}

func isOneOf(all []framework.Process, pid int) bool {
	for _, p := range all {
		if p.PID == pid {
			return true
		}
	}
	return false
}

// frozen looks whether the process stands still with its cgroup.
func (p processID) frozen() error {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.pid), "cgroup"))
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		file, want := "", ""
		switch {
		case len(parts) != 3:
			continue
		case parts[1] == "freezer":
			file, want = filepath.Join("/sys/fs/cgroup/freezer", parts[2], "freezer.state"), "FROZEN"
		case parts[0] == "0" && !strings.Contains(string(text), ":freezer:"):
			file, want = filepath.Join("/sys/fs/cgroup", parts[2], "cgroup.events"), "frozen 1"
		default:
			continue
		}
		state, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if strings.Contains(string(state), want) {
			return nil
		}
		return fmt.Errorf("its cgroup says %q", strings.TrimSpace(string(state)))
	}
	return errors.New("it is in no cgroup that can be frozen")
}

// localUndo is the command of the local cluster that takes a fault away.
func localUndo(args ...string) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := framework.RunLocal(ctx, args...)
		return err
	}
}
