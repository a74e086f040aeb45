package cluster

import (
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/cache"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
)

// byCluster is the index of PostgresBackups by the cluster that they are of.
const byCluster = "cluster"

// BackupIndexers are what a cache of PostgresBackups needs for NewBackups.
func BackupIndexers() cache.Indexers {
	return cache.Indexers{byCluster: func(o any) ([]string, error) {
		b, ok := o.(*v1.PostgresBackup)
		if !ok {
			return nil, nil
		}
		return []string{BackupKey(b).String()}, nil
	}}
}

// BackupKey is the cluster that a backup is of.
func BackupKey(b *v1.PostgresBackup) cache.ObjectName {
	return cache.NewObjectName(b.Namespace, b.Spec.Cluster)
}

// Backups reads a cache of PostgresBackups.
type Backups struct{ indexer cache.Indexer }

// NewBackups reads indexer, which has BackupIndexers.
func NewBackups(indexer cache.Indexer) *Backups { return &Backups{indexer: indexer} }

// Of are the backups of a cluster, in no order. They are not to be changed.
func (l *Backups) Of(key cache.ObjectName) ([]*v1.PostgresBackup, error) {
	found, err := l.indexer.ByIndex(byCluster, key.String())
	if err != nil {
		return nil, fmt.Errorf("list backups of cluster %s: %w", key, err)
	}
	backups := make([]*v1.PostgresBackup, 0, len(found))
	for _, o := range found {
		if b, ok := o.(*v1.PostgresBackup); ok {
			backups = append(backups, b)
		}
	}
	return backups, nil
}

// Get is one by its name, whatever cluster it is of.
func (l *Backups) Get(namespace, name string) (*v1.PostgresBackup, error) {
	o, exists, err := l.indexer.GetByKey(cache.NewObjectName(namespace, name).String())
	if err != nil {
		return nil, fmt.Errorf("read backup %s: %w", name, err)
	}
	b, ok := o.(*v1.PostgresBackup)
	if !exists || !ok {
		return nil, apierrors.NewNotFound(v1.Resource("postgresbackups"), name)
	}
	return b, nil
}
