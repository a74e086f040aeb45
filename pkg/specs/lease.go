package specs

import (
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

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

// RevertedAnnotation is on the Lease from when a restore in place is taken back:
// the UID of the volume that it has made.
const RevertedAnnotation = v1.GroupName + "/reverted"

// RevertLease returns live with the mark that what a restore has made, its volume
// being of that UID, is taken back; nil if it has it. Once it is written, no claim of
// the Lease that was read before can be.
func RevertLease(live *coordinationv1.Lease, made types.UID) *coordinationv1.Lease {
	if live == nil || live.Annotations[RevertedAnnotation] == string(made) {
		return nil
	}
	marked := live.DeepCopy()
	metav1.SetMetaDataAnnotation(&marked.ObjectMeta, RevertedAnnotation, string(made))
	return marked
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
