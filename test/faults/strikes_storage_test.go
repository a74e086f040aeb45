//go:build e2e

package faults

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pgop/postgres-operator/test/e2e/framework"
)

// full is what may be left, in bytes, on a volume that counts as full: too little
// for a file of any use, and more than what the file system never gives.
const full = 64 << 10

// fillDisk fills the primary's volume and keeps it full: what WAL frees is taken
// again. Switching WAL makes the server need new files soon.
func fillDisk(ctx context.Context, r *round) (proof, error) {
	directory, err := r.volumeOf(ctx, r.primary.instance)
	if err != nil {
		return nil, err
	}
	ballast := filepath.Join(directory, "ballast")
	filling, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	filled := sync.OnceValue(func() error { stop(); return <-done })
	r.onHeal("free the volume", func(context.Context) error {
		err := filled()
		if gone := os.Remove(ballast); gone != nil && !errors.Is(gone, os.ErrNotExist) {
			err = errors.Join(err, gone)
		}
		return err
	})
	if err := fill(ballast); err != nil {
		done <- nil
		return nil, err
	}
	go func() { done <- keepFull(filling, r, ballast) }()
	return func(context.Context) (string, error) {
		left, err := free(directory)
		if err != nil {
			return "", err
		}
		if left > full {
			return "", fmt.Errorf("%d bytes are free", left)
		}
		return fmt.Sprintf("%d bytes are free on the volume of %s", left, r.primary.instance), nil
	}, nil
}

func keepFull(ctx context.Context, r *round, ballast string) error {
	for framework.Sleep(ctx, 500*time.Millisecond) == nil {
		if err := fill(ballast); err != nil {
			return err
		}
		// A server that is down, or a replica by now, switches nothing.
		_, _ = r.c.TrySQLIn(ctx, r.primary.instance, "select pg_switch_wal()")
	}
	return nil
}

// fill lets a file grow until nothing is free beside it.
func fill(ballast string) error {
	file, err := os.OpenFile(ballast, os.O_CREATE|os.O_WRONLY, 0o600)
	if errors.Is(err, syscall.ENOSPC) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("fill volume: %w", err)
	}
	defer file.Close()
	for {
		left, err := free(filepath.Dir(ballast))
		if err != nil {
			return err
		}
		if left <= full {
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

// free is what is left on a file system for those who are not root.
func free(directory string) (int64, error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(directory, &s); err != nil {
		return 0, fmt.Errorf("look at volume: %w", err)
	}
	return int64(s.Bavail) * s.Bsize, nil
}

// volumeOf is where the machine has the instance's volume.
func (r *round) volumeOf(ctx context.Context, instance string) (string, error) {
	claim, err := r.f.Kube.CoreV1().PersistentVolumeClaims(r.f.Namespace).Get(ctx, instance, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("find volume of %s: %w", instance, err)
	}
	volume, err := r.f.Kube.CoreV1().PersistentVolumes().Get(ctx, claim.Spec.VolumeName, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("find volume of %s: %w", instance, err)
	}
	if volume.Spec.Local == nil {
		return "", fmt.Errorf("volume %s is not on this machine", volume.Name)
	}
	return volume.Spec.Local.Path, nil
}

// deleteVolume deletes the primary's volume and pod together.
func deleteVolume(ctx context.Context, r *round) (proof, error) {
	claims := r.f.Kube.CoreV1().PersistentVolumeClaims(r.f.Namespace)
	old, err := claims.Get(ctx, r.primary.instance, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("delete volume: %w", err)
	}
	if err := claims.Delete(ctx, old.Name, metav1.DeleteOptions{}); err != nil {
		return nil, fmt.Errorf("delete volume: %w", err)
	}
	podProof, err := r.deletePod(ctx, r.primary, metav1.DeleteOptions{}, true)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (string, error) {
		now, err := claims.Get(ctx, old.Name, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return "", err
		}
		if err == nil && now.UID == old.UID {
			return "", errors.New("the old volume is still there")
		}
		pod, err := podProof(ctx)
		return "the volume is gone, and " + pod, err
	}, nil
}
