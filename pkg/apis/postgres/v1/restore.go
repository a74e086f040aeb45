package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// PostgresRestore rolls a PostgresCluster back in place: its instances are stopped, a
// new one is made of a backup beside their volumes, and serves under the same name
// with the same logins. The old volumes are kept until you delete them. A restore that
// fails, and one that you delete before it serves, puts the old data back.
//
// +genclient
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=postgresrestores,singular=postgresrestore,shortName=pgr,categories=all
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.spec.cluster`,description="The cluster that is rolled back"
// +kubebuilder:printcolumn:name="Backup",type=string,JSONPath=`.spec.backup`,description="The PostgresBackup that it is made of"
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`,description="How far it is"
// +kubebuilder:printcolumn:name="Recovered To",type=string,JSONPath=`.status.recoveredTo.time`,description="When the last transaction was committed that was recovered"
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.message`,description="What it waits for, or why it failed"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type PostgresRestore struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// What you ask for.
	Spec PostgresRestoreSpec `json:"spec"`
	// How far it is. Written by the operator only.
	// +optional
	Status PostgresRestoreStatus `json:"status,omitzero"`
}

// PostgresRestoreList is a list of PostgresRestores.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
type PostgresRestoreList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []PostgresRestore `json:"items"`
}

// PostgresRestoreSpec is what the user asks for.
//
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec: a restore is carried out once, as it was asked for; make another PostgresRestore"
type PostgresRestoreSpec struct {
	// The PostgresCluster that is rolled back, in the same namespace. It needs
	// spec.backup.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=50
	Cluster string `json:"cluster"`
	// The PostgresBackup of this cluster that it is made of. Default: the one from
	// which the target is reached soonest.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Backup string `json:"backup,omitempty"`
	// Where recovery ends. Default: at the end of the archive.
	// +optional
	Target RestoreTarget `json:"target,omitzero"`
}

// RestorePhase is how far a restore is.
//
// +kubebuilder:validation:Enum=Pending;Stopping;Restoring;Reverting;Completed;Failed
type RestorePhase string

const (
	// RestorePending means that it waits for its turn, or for what it needs. Nothing
	// has been done yet.
	RestorePending RestorePhase = "Pending"
	// RestoreStopping means that the instances are being stopped.
	RestoreStopping RestorePhase = "Stopping"
	// RestoreRestoring means that a new instance is being made of the backup.
	RestoreRestoring RestorePhase = "Restoring"
	// RestoreReverting means that it has failed, or was taken back, and the old data
	// is being put back.
	RestoreReverting RestorePhase = "Reverting"
	// RestoreCompleted means that the new instance serves.
	RestoreCompleted RestorePhase = "Completed"
	// RestoreFailed means that the cluster is as it was; the message says why.
	RestoreFailed RestorePhase = "Failed"
)

// PostgresRestoreStatus is how far a restore is.
type PostgresRestoreStatus struct {
	// +optional
	Phase RestorePhase `json:"phase,omitempty"`
	// What it waits for, or why it failed, in the words of whoever said it.
	// +optional
	Message string `json:"message,omitempty"`
	// The backup's name in the store, if one was named.
	// +optional
	ID string `json:"id,omitempty"`
	// The instance that is made of it, and is the primary first.
	// +optional
	Instance string `json:"instance,omitempty"`
	// How far recovery came: what was committed later is not in the restored data.
	// +optional
	RecoveredTo *RecoveredTo `json:"recoveredTo,omitempty"`
	// Timeline of the restored database.
	// +optional
	Timeline int64 `json:"timeline,omitempty"`
	// The PersistentVolumeClaims with the data from before, which are kept until you
	// delete them.
	// +kubebuilder:validation:MaxItems=256
	// +listType=atomic
	// +optional
	KeptVolumes []string `json:"keptVolumes,omitempty"`
	// When the instances began to stop.
	// +optional
	StartedAt *metav1.Time `json:"startedAt,omitempty"`
	// When the new instance served, or the old data was back.
	// +optional
	EndedAt *metav1.Time `json:"endedAt,omitempty"`
}

// RecoveredTo is where the recovery of a restore ended.
type RecoveredTo struct {
	// The end of the last record of WAL that was replayed, such as 0/3000148.
	LSN string `json:"lsn"`
	// When the last transaction was committed that was replayed after the backup began.
	// Missing if there was none.
	// +optional
	Time *metav1.MicroTime `json:"time,omitempty"`
}
