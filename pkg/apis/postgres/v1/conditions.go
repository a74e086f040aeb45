package v1

// Phase is a summary of the conditions in one word, for people. It is derived
// from them and never decides anything.
type Phase string

const (
	// PhaseCreating means that there has not been a primary yet.
	PhaseCreating Phase = "Creating"
	// PhaseHealthy means that every instance asked for serves.
	PhaseHealthy Phase = "Healthy"
	// PhaseProgressing means that the primary serves and the operator is at
	// work on the other instances.
	PhaseProgressing Phase = "Progressing"
	// PhaseDegraded means that the primary serves, and an instance is in trouble, or
	// WAL can't be archived.
	PhaseDegraded Phase = "Degraded"
	// PhaseUnavailable means that there is no primary that takes writes.
	PhaseUnavailable Phase = "Unavailable"
	// PhaseStopping means that the cluster is being stopped, as spec.instances: 0
	// asks.
	PhaseStopping Phase = "Stopping"
	// PhaseStopped means that no instance runs, as spec.instances: 0 asks, and the
	// volumes are kept.
	PhaseStopped Phase = "Stopped"
	// PhaseRestoring means that a PostgresRestore is rolling the cluster back.
	PhaseRestoring Phase = "Restoring"
	// PhasePaused means that the operator changes nothing, as spec.paused asks.
	PhasePaused Phase = "Paused"
	// PhaseInvalid means that the spec was refused; what ran before runs on.
	PhaseInvalid Phase = "Invalid"
)

// RestartAnnotation on a PostgresCluster asks for a restart of every instance,
// one at a time. Any value will do; another one, as long as the request is there, is
// another request. The operator takes it away when all have restarted.
const RestartAnnotation = "pgop.dev/restart"

// Requests on a running cluster. Their value is the name of an instance. The
// operator takes each away when it is done, void or refused, and an event says
// which.
const (
	// SwitchoverAnnotation asks the primary to hand over to that replica.
	SwitchoverAnnotation = "pgop.dev/switchover-to"
	// RecloneAnnotation asks that replica to throw its data away and to copy the
	// primary anew.
	RecloneAnnotation = "pgop.dev/reclone"
	// ForcePromoteAnnotation asks that replica to take over although it may lack
	// what was committed, when nobody may take over safely.
	ForcePromoteAnnotation = "pgop.dev/force-promote"
)

// RotateAnnotation on a PostgresCluster asks for new passwords of logins whose Secrets
// the operator makes. Its value is the name of a role, or all. The operator takes it
// away when that is done or refused, and an event says which.
const RotateAnnotation = "pgop.dev/rotate"

// RotateAll is the value of RotateAnnotation that means all of them.
const RotateAll = "all"

// Types of conditions. Each is always present: False is set, not left out.
const (
	// ConditionReady is True when every instance asked for serves.
	ConditionReady = "Ready"
	// ConditionPrimaryAvailable is True when a primary takes writes.
	ConditionPrimaryAvailable = "PrimaryAvailable"
	// ConditionReplicating is True when every replica asked for streams.
	ConditionReplicating = "Replicating"
	// ConditionFailoverReady is True when another instance can take over from the
	// primary, or none is meant to.
	ConditionFailoverReady = "FailoverReady"
	// ConditionProgressing is True while the operator has something to do.
	ConditionProgressing = "Progressing"
	// ConditionUpToDate is True when every instance was seen to run what the last edit
	// of the spec asks for.
	ConditionUpToDate = "UpToDate"
	// ConditionArchivingWAL is True when the WAL goes into the store of spec.backup.
	ConditionArchivingWAL = "ArchivingWAL"
	// ConditionBackedUp is True when the store of spec.backup holds a backup that can
	// be restored, the last one has not failed, and neither has the last proof.
	ConditionBackedUp = "BackedUp"
	// ConditionDatabasesReady is True when the roles and databases of the spec are in
	// the server as declared, or none are.
	ConditionDatabasesReady = "DatabasesReady"
	// ConditionCertificatesValid is True when servers show the certificate that is asked
	// for, and none in use ends soon.
	ConditionCertificatesValid = "CertificatesValid"
	// ConditionSpecAccepted is False when the spec asks for something that the
	// operator refuses; the message names the field and the way out.
	ConditionSpecAccepted = "SpecAccepted"
)

// Reasons of conditions and events, a closed list. docs/events.md explains each.
const (
	ReasonAllInstancesReady        = "AllInstancesReady"
	ReasonInstancesNotReady        = "InstancesNotReady"
	ReasonPrimaryServes            = "PrimaryServes"
	ReasonConnectionsTaken         = "ConnectionsTaken"
	ReasonPrimaryNotReady          = "PrimaryNotReady"
	ReasonBootstrapping            = "Bootstrapping"
	ReasonBootstrapFailed          = "BootstrapFailed"
	ReasonDataLost                 = "DataLost"
	ReasonAllReplicasStream        = "AllReplicasStream"
	ReasonNoReplicas               = "NoReplicas"
	ReasonReplicasNotStream        = "ReplicasNotStreaming"
	ReasonCommitsWait              = "CommitsWait"
	ReasonCanFailOver              = "CanFailOver"
	ReasonSingleInstance           = "SingleInstance"
	ReasonElecting                 = "Electing"
	ReasonNoCandidates             = "NoCandidates"
	ReasonFailoverBlocked          = "FailoverBlocked"
	ReasonFailedOver               = "FailedOver"
	ReasonSwitchedOver             = "SwitchedOver"
	ReasonSwitchoverFailed         = "SwitchoverFailed"
	ReasonRequestRefused           = "RequestRefused"
	ReasonRecloned                 = "Recloned"
	ReasonSettled                  = "Settled"
	ReasonStopping                 = "Stopping"
	ReasonStopped                  = "Stopped"
	ReasonPaused                   = "Paused"
	ReasonReconciling              = "Reconciling"
	ReasonBlocked                  = "Blocked"
	ReasonUpToDate                 = "UpToDate"
	ReasonRestartNeeded            = "RestartNeeded"
	ReasonRestarting               = "Restarting"
	ReasonRestarted                = "Restarted"
	ReasonInstanceRestarted        = "InstanceRestarted"
	ReasonConfigurationNotYet      = "ConfigurationNotApplied"
	ReasonConfigurationRefused     = "ConfigurationRefused"
	ReasonVolumeGrowing            = "VolumeGrowing"
	ReasonVolumeRefused            = "VolumeChangeRefused"
	ReasonVolumeClassKept          = "VolumeClassKept"
	ReasonAccepted                 = "Accepted"
	ReasonInvalid                  = "Invalid"
	ReasonNameConflict             = "NameConflict"
	ReasonCreateFailed             = "CreateFailed"
	ReasonUnschedulable            = "Unschedulable"
	ReasonPodFailed                = "PodFailed"
	ReasonRestoring                = "Restoring"
	ReasonRestoreStarted           = "RestoreStarted"
	ReasonRestoreCompleted         = "RestoreCompleted"
	ReasonRestoreFailed            = "RestoreFailed"
	ReasonContainerEnded           = "ContainerEnded"
	ReasonSidecarFailed            = "SidecarFailed"
	ReasonVolumePending            = "VolumePending"
	ReasonDiskFull                 = "DiskFull"
	ReasonInstanceFailed           = "InstanceFailed"
	ReasonAgentUnreachable         = "AgentUnreachable"
	ReasonVolumeAdopted            = "VolumeAdopted"
	ReasonVolumeReplaced           = "VolumeReplaced"
	ReasonInstanceCreated          = "InstanceCreated"
	ReasonInstanceRemoved          = "InstanceRemoved"
	ReasonInstanceStopped          = "InstanceStopped"
	ReasonInstanceReplaced         = "InstanceReplaced"
	ReasonNodeLost                 = "NodeLost"
	ReasonClusterCreated           = "ClusterCreated"
	ReasonSchemaOutdated           = "SchemaOutdated"
	ReasonBackupsOff               = "BackupsOff"
	ReasonArchiving                = "Archiving"
	ReasonArchiveFailing           = "ArchiveFailing"
	ReasonArchiveFillsDisk         = "ArchiveFillsDisk"
	ReasonBackedUp                 = "BackedUp"
	ReasonNoBackupYet              = "NoBackupYet"
	ReasonCatalogUnreadable        = "CatalogUnreadable"
	ReasonArchiveGap               = "ArchiveGap"
	ReasonBackupStarted            = "BackupStarted"
	ReasonBackupCompleted          = "BackupCompleted"
	ReasonBackupFailed             = "BackupFailed"
	ReasonBackupRemoved            = "BackupRemoved"
	ReasonNothingDeclared          = "NothingDeclared"
	ReasonAsDeclared               = "AsDeclared"
	ReasonApplyingDeclared         = "ApplyingDeclared"
	ReasonDeclaredRefused          = "DeclaredRefused"
	ReasonAgentOutdated            = "AgentOutdated"
	ReasonPasswordRotated          = "PasswordRotated"
	ReasonLoginEnded               = "LoginEnded"
	ReasonIssuedByOperator         = "IssuedByOperator"
	ReasonServerCertificateShown   = "ServerCertificateShown"
	ReasonServerCertificateNotYet  = "ServerCertificateNotYet"
	ReasonServerCertificateRefused = "ServerCertificateRefused"
	ReasonCertificateEnds          = "CertificateEnds"
	ReasonCertificateRenewed       = "CertificateRenewed"
	ReasonBackupProved             = "BackupProved"
	ReasonBackupNotProved          = "BackupNotProved"
	ReasonAuthorityMade            = "AuthorityMade"
	ReasonAuthorityRepaired        = "AuthorityRepaired"
	ReasonAuthorityTrusted         = "AuthorityTrusted"
	ReasonAuthorityInForce         = "AuthorityInForce"
	ReasonAuthorityRetired         = "AuthorityRetired"
)
