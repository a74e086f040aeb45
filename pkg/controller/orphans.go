package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/cluster"
	postgresclient "github.com/pgop/postgres-operator/pkg/generated/clientset/versioned/typed/postgres/v1"
)

// orphanTimeout bounds the writes for the backups of one cluster.
const orphanTimeout = 30 * time.Second

// orphans are the PostgresBackups of clusters that are not there: no loop looks after
// them.
type orphans struct {
	backups  *cluster.Backups
	restores *cluster.Restores
	client   postgresclient.PgopV1Interface
}

// report says of each backup of such a cluster what it waits for, or how it has ended.
func (r orphans) report(ctx context.Context, key cache.ObjectName) error {
	ctx, cancel := context.WithTimeout(ctx, orphanTimeout)
	defer cancel()
	return errors.Join(r.reportBackups(ctx, key), r.reportRestores(ctx, key))
}

// reportRestores says of each restore that there is nothing to roll back, or that it has
// ended with its cluster.
func (r orphans) reportRestores(ctx context.Context, key cache.ObjectName) error {
	all, err := r.restores.Of(key)
	if err != nil {
		return err
	}
	var errs []error
	for _, restore := range all {
		next := restore.Status
		switch {
		case next.Phase == v1.RestoreCompleted || next.Phase == v1.RestoreFailed:
		case next.Phase == "" || next.Phase == v1.RestorePending:
			next = v1.PostgresRestoreStatus{Phase: v1.RestorePending, Message: fmt.Sprintf("there is no PostgresCluster %s in this namespace", restore.Spec.Cluster)}
		default:
			next.Phase, next.Message = v1.RestoreFailed, fmt.Sprintf("PostgresCluster %s was deleted meanwhile", restore.Spec.Cluster)
		}
		if equality.Semantic.DeepEqual(restore.Status, next) {
			continue
		}
		reported := restore.DeepCopy()
		reported.Status = next
		_, err := r.client.PostgresRestores(restore.Namespace).UpdateStatus(ctx, reported, metav1.UpdateOptions{})
		if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) { // its event comes
			errs = append(errs, fmt.Errorf("write status of restore %s: %w", restore.Name, err))
		}
	}
	return errors.Join(errs...)
}

func (r orphans) reportBackups(ctx context.Context, key cache.ObjectName) error {
	all, err := r.backups.Of(key)
	if err != nil {
		return err
	}
	var errs []error
	for _, b := range all {
		next := orphanStatus(b)
		if equality.Semantic.DeepEqual(b.Status, next) {
			continue
		}
		reported := b.DeepCopy()
		reported.Status = next
		_, err := r.client.PostgresBackups(b.Namespace).UpdateStatus(ctx, reported, metav1.UpdateOptions{})
		if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) { // its event comes
			errs = append(errs, fmt.Errorf("write status of backup %s: %w", b.Name, err))
		}
	}
	return errors.Join(errs...)
}

// orphanStatus is what the status of a backup says when its cluster is not there. What
// the store has stays as it was told last.
func orphanStatus(b *v1.PostgresBackup) v1.PostgresBackupStatus {
	s := *b.Status.DeepCopy()
	switch {
	case s.Phase == v1.BackupCompleted || s.Phase == v1.BackupFailed:
	case s.Phase == v1.BackupRunning:
		s.Phase, s.Progress = v1.BackupFailed, nil
		s.Message = fmt.Sprintf("PostgresCluster %s was deleted while the backup was taken", b.Spec.Cluster)
	default:
		s = v1.PostgresBackupStatus{Phase: v1.BackupPending,
			Message: fmt.Sprintf("there is no PostgresCluster %s in this namespace", b.Spec.Cluster)}
	}
	return s
}
