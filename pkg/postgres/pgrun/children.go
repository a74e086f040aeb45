package pgrun

import (
	"fmt"
	"os/exec"
	"sync"

	"golang.org/x/sys/unix"
)

// Children starts this process's own children and tells them from orphans,
// which every process of a container becomes sooner or later when this one is
// PID 1. The zero value is ready to use.
type Children struct {
	mu  sync.Mutex
	own map[int]bool
}

// Start starts cmd. Wait must be called for it afterwards.
func (c *Children) Start(cmd *exec.Cmd) error {
	// The lock spans fork and registration: a child that ends in between must
	// not be taken for an orphan.
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := cmd.Start(); err != nil {
		return err
	}
	if c.own == nil {
		c.own = map[int]bool{}
	}
	c.own[cmd.Process.Pid] = true
	return nil
}

// Wait waits for a command that Start started, like exec.Cmd.Wait.
func (c *Children) Wait(cmd *exec.Cmd) error {
	err := cmd.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.own, cmd.Process.Pid)
	return err
}

// ReapOrphans reaps the processes that have ended and that Start did not
// start. It leaves one of the own children to its Wait; then done is false,
// and there may be more behind it.
func (c *Children) ReapOrphans() (done bool, err error) {
	for {
		done, again, err := c.reapOne()
		if err != nil || !again {
			return done, err
		}
	}
}

func (c *Children) reapOne() (done, again bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var info unix.Siginfo
	err = unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	switch err {
	case nil:
	case unix.EINTR:
		return false, true, nil
	case unix.ECHILD:
		return true, false, nil // no children at all
	default:
		return false, false, fmt.Errorf("look for processes that have ended: %w", err)
	}
	pid := endedPID(&info)
	if pid == 0 {
		return true, false, nil
	}
	if c.own[pid] {
		return false, false, nil
	}
	if _, err := unix.Wait4(pid, nil, unix.WNOHANG, nil); err != nil && err != unix.ECHILD && err != unix.EINTR {
		return false, false, fmt.Errorf("reap process %d: %w", pid, err)
	}
	return false, true, nil
}
