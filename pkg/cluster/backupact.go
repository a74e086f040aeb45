package cluster

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
)

// reportRestore writes the status of a PostgresRestore.
func (a actor) reportRestore(ctx context.Context, action Action, r *v1.PostgresRestore) (bool, *Failure) {
	_, err := a.clusters.PostgresRestores(r.Namespace).UpdateStatus(ctx, r, metav1.UpdateOptions{})
	if errors.IsConflict(err) || errors.IsNotFound(err) {
		return false, nil // changed or deleted meanwhile; its event wakes the next pass
	}
	if err != nil {
		return false, refused(action, err)
	}
	return true, nil
}

// actOnBackup runs an action on a PostgresBackup. One of the name that exists is
// what was asked for, whoever made it: a schedule's time and the store's id are in
// the name (D-04).
func (a actor) actOnBackup(ctx context.Context, action Action, b *v1.PostgresBackup) (bool, *Failure) {
	backups := a.clusters.PostgresBackups(b.Namespace)
	var err error
	switch action.Verb {
	case Create:
		if _, err = backups.Create(ctx, b, metav1.CreateOptions{}); errors.IsAlreadyExists(err) {
			return false, nil
		}
	case Report:
		_, err = backups.UpdateStatus(ctx, b, metav1.UpdateOptions{})
	case Delete:
		err = backups.Delete(ctx, b.Name, metav1.DeleteOptions{Preconditions: preconditions(b)})
	}
	if errors.IsConflict(err) || errors.IsNotFound(err) && action.Verb != Create {
		return false, nil // changed or deleted meanwhile; its event wakes the next pass
	}
	if errors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return false, &Failure{Action: action, Err: errNamespaceGoes}
	}
	if err != nil {
		return false, refused(action, err)
	}
	return true, nil
}
