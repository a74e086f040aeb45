//go:build e2e

package faults

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pgop/postgres-operator/test/e2e/framework"
)

// fillDisk fills the primary's volume and keeps it full: what WAL frees is taken
// again. Switching WAL makes the server need new files soon.
func fillDisk(ctx context.Context, r *round) (proof, error) {
	directory, err := r.f.VolumePath(ctx, r.primary.instance)
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
	if err := framework.Fill(ballast); err != nil {
		done <- nil
		return nil, err
	}
	go func() { done <- keepFull(filling, r, ballast) }()
	return func(context.Context) (string, error) {
		left, err := framework.Free(directory)
		if err != nil {
			return "", err
		}
		if left > framework.Full {
			return "", fmt.Errorf("%d bytes are free", left)
		}
		return fmt.Sprintf("%d bytes are free on the volume of %s", left, r.primary.instance), nil
	}, nil
}

func keepFull(ctx context.Context, r *round, ballast string) error {
	for framework.Sleep(ctx, 500*time.Millisecond) == nil {
		if err := framework.Fill(ballast); err != nil {
			return err
		}
		// A server that is down, or a replica by now, switches nothing.
		_, _ = r.c.TrySQLIn(ctx, r.primary.instance, "select pg_switch_wal()")
	}
	return nil
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
