package instance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// errVolumeInUse means that a process of another pod holds the volume's lock.
var errVolumeInUse = errors.New("another pod's processes still use this volume")

// tryLock takes the volume's lock, or returns errVolumeInUse. The lock lives
// as long as any process has the returned file open.
func (v volume) tryLock() (*os.File, error) {
	file, err := os.OpenFile(v.lockFile(), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the volume's lock: %w", err)
	}
	err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		return file, nil
	}
	_ = file.Close() // nothing was written
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, errVolumeInUse
	}
	return nil, fmt.Errorf("lock the volume: %w", err)
}

// holders are the processes other than this one that have the lock file open:
// the server's, and what else was started with it.
func holders(lock *os.File) ([]int, error) {
	want, err := lock.Stat()
	if err != nil {
		return nil, fmt.Errorf("look for the server's processes: %w", err)
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("look for the server's processes: %w", err)
	}
	var pids []int
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		if hasOpen(pid, want) && !isFork(pid) {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// isFork says whether a process is this one, forked and about to run another
// program. Until then it has every file open that this one has.
func isFork(pid int) bool {
	own, err := os.ReadFile("/proc/self/cmdline")
	if err != nil {
		return false
	}
	other, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	return err == nil && bytes.Equal(own, other)
}

// hasOpen says whether a process has the file open. A process that has just
// ended has nothing open, and one of another user is none of ours.
func hasOpen(pid int, want os.FileInfo) bool {
	dir := filepath.Join("/proc", strconv.Itoa(pid), "fd")
	descriptors, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	for _, descriptor := range descriptors {
		got, err := os.Stat(filepath.Join(dir, descriptor.Name()))
		if err == nil && os.SameFile(want, got) {
			return true
		}
	}
	return false
}

// killHolders kills every process that has the lock open, and returns when
// none is left or ctx ends. A postmaster may be frozen and its backends
// outlive it, so each is killed by itself.
func killHolders(ctx context.Context, lock *os.File) error {
	for {
		pids, err := holders(lock)
		if err != nil || len(pids) == 0 {
			return err
		}
		for _, pid := range pids {
			if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("kill process %d of the server: %w", pid, err)
			}
		}
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return fmt.Errorf("kill the server's processes %v: %w", pids, err)
		}
	}
}

// pause waits, or returns an error when ctx ends first.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
