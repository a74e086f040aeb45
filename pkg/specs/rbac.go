package specs

import (
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/ptr"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
)

// InstanceServiceAccount is what the pods run as.
func InstanceServiceAccount(c *v1.PostgresCluster) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{
		ObjectMeta: objectMeta(c, ServiceAccount(c.Name)),
		// The pods ask for their token themselves.
		AutomountServiceAccountToken: ptr.To(false),
	}
}

// InstanceRole lets the agents touch their cluster's Lease, ConfigMap and rw
// slice, and read the Secrets of its roles, of the stores of its backups, and that for
// a copy of another cluster, by name, and nothing else.
func InstanceRole(c *v1.PostgresCluster) *rbacv1.Role {
	role := &rbacv1.Role{
		ObjectMeta: objectMeta(c, ServiceAccount(c.Name)),
		Rules: append([]rbacv1.PolicyRule{
			{
				APIGroups:     []string{""},
				Resources:     []string{"configmaps"},
				ResourceNames: []string{ConfigMap(c.Name)},
				Verbs:         []string{"get", "list", "watch"},
			},
			{
				APIGroups:     []string{"coordination.k8s.io"},
				Resources:     []string{"leases"},
				ResourceNames: []string{Lease(c.Name)},
				Verbs:         []string{"get", "list", "watch", "update"},
			},
			{
				APIGroups:     []string{"discovery.k8s.io"},
				Resources:     []string{"endpointslices"},
				ResourceNames: []string{EndpointSlice(c.Name)},
				Verbs:         []string{"get", "list", "watch", "update"},
			},
		}, passwordRules(c)...),
	}
	if secrets := secretsToRead(c); len(secrets) > 0 { // a rule without names would be for all
		role.Rules = append(role.Rules, rbacv1.PolicyRule{
			APIGroups:     []string{""},
			Resources:     []string{"secrets"},
			ResourceNames: secrets,
			Verbs:         []string{"get"},
		})
	}
	return role
}

// InstanceRoleBinding gives InstanceRole to InstanceServiceAccount.
func InstanceRoleBinding(c *v1.PostgresCluster) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		ObjectMeta: objectMeta(c, ServiceAccount(c.Name)),
		RoleRef: rbacv1.RoleRef{
			APIGroup: rbacv1.GroupName,
			Kind:     "Role",
			Name:     ServiceAccount(c.Name),
		},
		Subjects: []rbacv1.Subject{{
			Kind:      rbacv1.ServiceAccountKind,
			Name:      ServiceAccount(c.Name),
			Namespace: c.Namespace,
		}},
	}
}

// RepairServiceAccount returns live with the labels of want and no token of its
// own accord, or nil if it is so.
func RepairServiceAccount(live, want *corev1.ServiceAccount) *corev1.ServiceAccount {
	if hasLabels(live.Labels, want.Labels) && equality.Semantic.DeepEqual(live.AutomountServiceAccountToken, want.AutomountServiceAccountToken) {
		return nil
	}
	repaired := live.DeepCopy()
	repaired.Labels = withLabels(live.Labels, want.Labels)
	repaired.AutomountServiceAccountToken = want.AutomountServiceAccountToken
	return repaired
}

// RepairRole returns live with the rules of want, or nil if it has them.
func RepairRole(live, want *rbacv1.Role) *rbacv1.Role {
	if equality.Semantic.DeepEqual(live.Rules, want.Rules) && hasLabels(live.Labels, want.Labels) {
		return nil
	}
	repaired := live.DeepCopy()
	repaired.Rules = want.Rules
	repaired.Labels = withLabels(live.Labels, want.Labels)
	return repaired
}

// RepairRoleBinding returns live with the subjects of want, or nil if it has
// them. Its roleRef can't be changed by anybody.
func RepairRoleBinding(live, want *rbacv1.RoleBinding) *rbacv1.RoleBinding {
	if equality.Semantic.DeepEqual(live.Subjects, want.Subjects) && hasLabels(live.Labels, want.Labels) {
		return nil
	}
	repaired := live.DeepCopy()
	repaired.Subjects = want.Subjects
	repaired.Labels = withLabels(live.Labels, want.Labels)
	return repaired
}
