package specs

import (
	coordinationv1 "k8s.io/api/coordination/v1"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/election"
)

// NewLease is the Lease that nobody holds yet. Only the operator makes it, so
// that a Lease that vanished is never taken for a free one.
func NewLease(c *v1.PostgresCluster) *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: objectMeta(c, Lease(c.Name))}
}

// EmptyLease returns live as NewLease is, held by nobody and with no reign: what it
// tells of shall not come back. Only when no pod is left that could renew it.
func EmptyLease(live *coordinationv1.Lease) *coordinationv1.Lease {
	empty := live.DeepCopy()
	empty.Spec = coordinationv1.LeaseSpec{}
	delete(empty.Annotations, election.RecordAnnotation)
	return empty
}

// RepairLease returns live with the labels of want, or nil if it has them. All
// else in it is the agents'.
func RepairLease(live, want *coordinationv1.Lease) *coordinationv1.Lease {
	if hasLabels(live.Labels, want.Labels) {
		return nil
	}
	repaired := live.DeepCopy()
	repaired.Labels = withLabels(live.Labels, want.Labels)
	return repaired
}
