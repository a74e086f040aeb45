package images

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// workPrefix starts the name of every directory that holds work in progress.
const workPrefix = ".work-"

// lockPoll is how often a process looks whether its turn has come.
const lockPoll = 200 * time.Millisecond

// ensureCached returns the path of the file that make writes, and calls make
// only if cacheDir has no file of this name and key. Files of the same name with
// another key are outdated, and go. make must write the file in one step.
func ensureCached(ctx context.Context, cacheDir, name, key string, make func(path string) error) (string, error) {
	dir, err := filepath.Abs(filepath.Join(cacheDir, name))
	if err != nil {
		return "", fmt.Errorf("cache image %s: %w", name, err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("cache image %s: %w", name, err)
	}
	unlock, err := lockDir(ctx, dir)
	if err != nil {
		return "", fmt.Errorf("cache image %s: %w", name, err)
	}
	defer unlock()

	path := filepath.Join(dir, key+".tar")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if err := emptyDir(dir); err != nil {
		return "", fmt.Errorf("cache image %s: %w", name, err)
	}
	if err := make(path); err != nil {
		return "", err
	}
	return path, nil
}

// lockDir waits until no other process works in dir, or ctx ends. The lock ends
// with the process at the latest, so a killed run never blocks the next.
func lockDir(ctx context.Context, dir string) (unlock func(), err error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", dir, err)
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", dir, ctx.Err())
		case <-time.After(lockPoll):
		}
	}
}

// emptyDir removes what outdated recipes and killed runs left in dir.
func emptyDir(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}
