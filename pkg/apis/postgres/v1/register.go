package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName is the API group of every kind in this package.
const GroupName = "pgop.dev"

// ClusterKind is the kind of a PostgresCluster, as owner references name it.
const ClusterKind = "PostgresCluster"

// BackupKind is the kind of a PostgresBackup.
const BackupKind = "PostgresBackup"

// SchemeGroupVersion is the group and version of every kind in this package.
var SchemeGroupVersion = schema.GroupVersion{Group: GroupName, Version: "v1"}

var (
	// SchemeBuilder collects what adds this package's types to a scheme.
	SchemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)
	// AddToScheme adds this package's types to a scheme.
	AddToScheme = SchemeBuilder.AddToScheme
)

// Resource qualifies a resource name with this package's group.
func Resource(resource string) schema.GroupResource {
	return SchemeGroupVersion.WithResource(resource).GroupResource()
}

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(SchemeGroupVersion, &PostgresCluster{}, &PostgresClusterList{}, &PostgresBackup{}, &PostgresBackupList{}, &PostgresRestore{}, &PostgresRestoreList{})
	metav1.AddToGroupVersion(scheme, SchemeGroupVersion)
	return nil
}
