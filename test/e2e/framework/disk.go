//go:build e2e

package framework

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Full is what may be left, in bytes, on a volume that counts as full: too little
// for a file of any use, and more than what the file system never gives.
const Full = 64 << 10

// VolumePath is where the machine has an instance's volume.
func (f *Framework) VolumePath(ctx context.Context, instance string) (string, error) {
	claim, err := f.Kube.CoreV1().PersistentVolumeClaims(f.Namespace).Get(ctx, instance, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("find volume of %s: %w", instance, err)
	}
	volume, err := f.Kube.CoreV1().PersistentVolumes().Get(ctx, claim.Spec.VolumeName, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("find volume of %s: %w", instance, err)
	}
	if volume.Spec.Local == nil {
		return "", fmt.Errorf("volume %s is not on this machine", volume.Name)
	}
	return volume.Spec.Local.Path, nil
}

// FillVolume fills an instance's volume and keeps it full, until the function
// returned is called, which gives the room back: what the server frees is taken
// again.
func (f *Framework) FillVolume(instance string) (free func()) {
	f.T.Helper()
	directory, err := f.VolumePath(f.ctx(), instance)
	if err != nil {
		f.T.Fatal(err)
	}
	ballast := filepath.Join(directory, "ballast")
	if err := Fill(ballast); err != nil {
		f.T.Fatal(err)
	}
	filling, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- keepFull(filling, ballast) }()
	free = sync.OnceFunc(func() {
		stop()
		if err := errors.Join(<-done, os.Remove(ballast)); err != nil {
			f.T.Errorf("free the volume of %s: %v", instance, err)
		}
	})
	f.T.Cleanup(free)
	return free
}

func keepFull(ctx context.Context, ballast string) error {
	for Sleep(ctx, 200*time.Millisecond) == nil {
		if err := Fill(ballast); err != nil {
			return err
		}
	}
	return nil
}

// Fill lets a file grow until nothing is free beside it.
func Fill(ballast string) error {
	file, err := os.OpenFile(ballast, os.O_CREATE|os.O_WRONLY, 0o600)
	if errors.Is(err, syscall.ENOSPC) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("fill volume: %w", err)
	}
	defer file.Close()
	for {
		left, err := Free(filepath.Dir(ballast))
		if err != nil {
			return err
		}
		if left <= Full {
			return nil
		}
		if grow(file, left) != nil {
			return nil // nothing more can be had
		}
	}
}

// grow appends as much of size bytes as the file system gives, by halves.
func grow(file *os.File, size int64) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	for ; size >= 4096; size /= 2 {
		if err = syscall.Fallocate(int(file.Fd()), 0, info.Size(), size); err == nil {
			return nil
		}
	}
	return err
}

// Free is what is left on a file system for those who are not root.
func Free(directory string) (int64, error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(directory, &s); err != nil {
		return 0, fmt.Errorf("look at volume: %w", err)
	}
	return int64(s.Bavail) * s.Bsize, nil
}

// RemountReadOnly lets an instance's volume be read only, until the function
// returned is called. The kernel does so only while no process writes to it: the
// pod's containers must have ended, and be held.
func (f *Framework) RemountReadOnly(instance string) (writable func()) {
	f.T.Helper()
	directory, err := f.VolumePath(f.ctx(), instance)
	if err != nil {
		f.T.Fatal(err)
	}
	remount := func(mode string) error {
		output, err := exec.Command("mount", "-o", "remount,"+mode, directory).CombinedOutput()
		if err != nil {
			return fmt.Errorf("remount volume of %s %s: %w: %s", instance, mode, err, output)
		}
		return nil
	}
	writable = sync.OnceFunc(func() {
		if err := remount("rw"); err != nil {
			f.T.Error(err)
		}
	})
	f.T.Cleanup(writable)
	f.Await(10*time.Second, "the volume is read only", func(context.Context) error { return remount("ro") })
	return writable
}
