package specs

import (
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
)

// DisruptionBudget lets evictions take one instance at a time, or nil for a
// cluster of one: a budget there could only block the drain of its node for
// ever.
func DisruptionBudget(c *v1.PostgresCluster, instances int) *policyv1.PodDisruptionBudget {
	if instances < 2 {
		return nil
	}
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: objectMeta(c, PDB(c.Name)),
		Spec: policyv1.PodDisruptionBudgetSpec{
			// A number of pods: shares need a controller that Kubernetes knows.
			MinAvailable: ptr.To(intstr.FromInt(instances - 1)),
			Selector:     &metav1.LabelSelector{MatchLabels: SelectorOf(c)},
			// A broken instance may go while the others serve; it must not count
			// as expendable while they don't.
			UnhealthyPodEvictionPolicy: ptr.To(policyv1.IfHealthyBudget),
		},
	}
}

// RepairDisruptionBudget returns live with the spec of want, or nil if it has it.
func RepairDisruptionBudget(live, want *policyv1.PodDisruptionBudget) *policyv1.PodDisruptionBudget {
	if equality.Semantic.DeepEqual(live.Spec, want.Spec) && hasLabels(live.Labels, want.Labels) {
		return nil
	}
	repaired := live.DeepCopy()
	repaired.Spec = want.Spec
	repaired.Labels = withLabels(live.Labels, want.Labels)
	return repaired
}
