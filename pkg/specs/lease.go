package specs

import (
	coordinationv1 "k8s.io/api/coordination/v1"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
)

// NewLease is the Lease that nobody holds yet. Only the operator makes it, so
// that a Lease that vanished is never taken for a free one.
func NewLease(c *v1.PostgresCluster) *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: objectMeta(c, Lease(c.Name))}
}
