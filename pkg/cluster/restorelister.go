package cluster

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/client-go/tools/cache"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
)

// RestoreIndexers are what a cache of PostgresRestores needs for NewRestores.
func RestoreIndexers() cache.Indexers {
	return cache.Indexers{byCluster: func(o any) ([]string, error) {
		r, ok := o.(*v1.PostgresRestore)
		if !ok {
			return nil, nil
		}
		return []string{RestoreKey(r).String()}, nil
	}}
}

// RestoreKey is the cluster that is rolled back.
func RestoreKey(r *v1.PostgresRestore) cache.ObjectName {
	return cache.NewObjectName(r.Namespace, r.Spec.Cluster)
}

// Restores reads a cache of PostgresRestores.
type Restores struct{ indexer cache.Indexer }

// NewRestores reads indexer, which has RestoreIndexers.
func NewRestores(indexer cache.Indexer) *Restores { return &Restores{indexer: indexer} }

// Of are the restores of a cluster, oldest first. They are not to be changed.
func (l *Restores) Of(key cache.ObjectName) ([]*v1.PostgresRestore, error) {
	found, err := l.indexer.ByIndex(byCluster, key.String())
	if err != nil {
		return nil, fmt.Errorf("list restores of cluster %s: %w", key, err)
	}
	restores := make([]*v1.PostgresRestore, 0, len(found))
	for _, o := range found {
		if r, ok := o.(*v1.PostgresRestore); ok {
			restores = append(restores, r)
		}
	}
	slices.SortFunc(restores, func(a, b *v1.PostgresRestore) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return restores, nil
}
