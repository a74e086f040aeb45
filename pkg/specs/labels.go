package specs

import (
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
)

// Labels and annotations of a cluster's objects.
const (
	ClusterLabel  = "pgop.dev/cluster"
	InstanceLabel = "pgop.dev/instance"
	RoleLabel     = "pgop.dev/role"

	// ManagedByLabel with ManagedBy marks whatever the operator made; its
	// informers see only that.
	ManagedByLabel = "app.kubernetes.io/managed-by"
	ManagedBy      = "postgres-operator"

	// TemplateHashAnnotation is the hash of the pod that was asked for.
	TemplateHashAnnotation = "pgop.dev/template-hash"
	// CreatedForAnnotation is the UID of the PostgresCluster for which a volume
	// was made. One with another UID was retained and is being adopted.
	CreatedForAnnotation = "pgop.dev/created-for"
	// SwitchoverAskedAnnotation on the ConfigMap is when the switchover in it was
	// asked for, so that one that does not come about ends.
	SwitchoverAskedAnnotation = "pgop.dev/switchover-asked"
	// LostNodeAnnotation on a volume is the node with which it went. The cluster
	// goes on without it.
	LostNodeAnnotation = "pgop.dev/lost-with-node"
	// ClassAnnotation is the storage class that a volume was asked to be of;
	// none: the default.
	ClassAnnotation = "pgop.dev/storage-class"
	// AgentAnnotation on a pod is which configurations its agent understands.
	AgentAnnotation = "pgop.dev/agent-generation"
	// ScheduleLabel on a PostgresBackup is the schedule that asked for it.
	ScheduleLabel = "pgop.dev/schedule"
	// BackupIDAnnotation on a PostgresBackup is the id of the backup in the store that
	// it tells of. Such a one is never taken: it was found.
	// On a pod that proves a backup it is that one's.
	BackupIDAnnotation = "pgop.dev/backup-id"
	// BackupNameAnnotation on such a pod is what people call the backup, and
	// VerifiesLabel whose it is.
	BackupNameAnnotation = "pgop.dev/backup"
	VerifiesLabel        = "pgop.dev/verifies"
	// RotatedAnnotation on a login's Secret is when its password was last begun to be
	// exchanged, and RotationAskedAnnotation the request by which, as long as that is
	// seen.
	RotatedAnnotation       = "pgop.dev/rotated"
	RotationAskedAnnotation = "pgop.dev/rotation-asked"
	// LoginsExchangedAnnotation on such a Secret is when its login took the place of the
	// one that is beside it; none: the one beside is yet to take its. GraceAnnotation is
	// for how long the one before is valid from then on.
	LoginsExchangedAnnotation = "pgop.dev/logins-exchanged"
	GraceAnnotation           = "pgop.dev/grace"
)

// Labels are on every object of the cluster.
func Labels(c *v1.PostgresCluster) map[string]string {
	return map[string]string{
		ClusterLabel:                 c.Name,
		ManagedByLabel:               ManagedBy,
		"app.kubernetes.io/name":     "postgresql",
		"app.kubernetes.io/instance": c.Name,
	}
}

// instanceLabels are on every object of one instance.
func instanceLabels(c *v1.PostgresCluster, instance string) map[string]string {
	labels := Labels(c)
	labels[InstanceLabel] = instance
	return labels
}

// SelectorOf selects the pods of the cluster.
func SelectorOf(c *v1.PostgresCluster) map[string]string {
	return map[string]string{ClusterLabel: c.Name}
}

// OwnerOf is the reference by which c owns an object, so that the object goes
// when c goes.
func OwnerOf(c *v1.PostgresCluster) metav1.OwnerReference {
	return *metav1.NewControllerRef(c, v1.SchemeGroupVersion.WithKind(v1.ClusterKind))
}

func objectMeta(c *v1.PostgresCluster, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name:            name,
		Namespace:       c.Namespace,
		Labels:          Labels(c),
		OwnerReferences: []metav1.OwnerReference{OwnerOf(c)},
	}
}

// hasLabels says whether have carries all of want.
func hasLabels(have, want map[string]string) bool {
	for key, value := range want {
		if have[key] != value {
			return false
		}
	}
	return true
}

// withLabels returns have with all of want set.
func withLabels(have, want map[string]string) map[string]string {
	merged := maps.Clone(have)
	if merged == nil {
		merged = map[string]string{}
	}
	maps.Copy(merged, want)
	return merged
}
