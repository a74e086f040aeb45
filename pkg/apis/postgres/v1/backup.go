package v1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// BackupSpec is where backups go, when they are taken and how long they stay.
type BackupSpec struct {
	// Where WAL and base backups go. All that belongs to this cluster lies there in a
	// folder with the cluster's name.
	Store BackupStore `json:"store"`

	// When base backups are taken. Default: never; those that you ask for with a
	// PostgresBackup are taken all the same.
	// +kubebuilder:validation:MaxItems=16
	// +listType=map
	// +listMapKey=name
	// +optional
	Schedules []BackupSchedule `json:"schedules,omitempty"`

	// Which base backups are kept. Others are removed from the store, with the WAL
	// that no kept one needs, and their PostgresBackups go, too. The newest good
	// backup always stays. Default: all are kept.
	// +optional
	Retention RetentionSpec `json:"retention,omitzero"`

	// How fast a base backup may read, in bytes per second, as a quantity such as
	// 50Mi; from 32Ki to 1Gi. Default: as fast as it can.
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="isQuantity(string(self)) && quantity(string(self)).compareTo(quantity('32Ki')) >= 0 && quantity(string(self)).compareTo(quantity('1Gi')) <= 0",message="spec.backup.maxRate: a quantity from 32Ki to 1Gi, in bytes per second, such as 50Mi"
	// +optional
	MaxRate *resource.Quantity `json:"maxRate,omitempty"`

	// When the newest backup is proved: it is restored into a temporary pod, with a
	// volume of its own, WAL is replayed to the end of the archive, and pg_amcheck reads
	// every table and index. Default: never.
	// +optional
	Verify *VerifySpec `json:"verify,omitempty"`
}

// VerifySpec is when the newest backup is proved.
type VerifySpec struct {
	// Minute, hour, day of month, month and day of week, such as "0 5 * * 0" for every
	// Sunday at 5:00. Five fields; no seconds, no words such as @weekly.
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule="self.trim().matches('^[0-9A-Za-z*/,-]+([ \\\\t]+[0-9A-Za-z*/,-]+){4}$')",message="spec.backup.verify.cron: five fields, minute, hour, day of month, month and day of week, such as \"0 5 * * 0\" for every Sunday at 5:00"
	Cron string `json:"cron"`
	// Time zone of the fields, a name of the IANA database such as Europe/Berlin.
	// Default Etc/UTC.
	// +kubebuilder:default="Etc/UTC"
	// +kubebuilder:validation:MaxLength=64
	// +optional
	TimeZone string `json:"timeZone,omitempty"`
}

// BackupStore is a place for backups: exactly one of its fields.
//
// +kubebuilder:validation:XValidation:rule="has(self.s3) != has(self.volume)",message="store: name exactly one place: s3 or volume"
type BackupStore struct {
	// A bucket of an object store that speaks S3.
	// +optional
	S3 *S3Store `json:"s3,omitempty"`
	// A volume that all instances can mount at once, such as one of NFS.
	// +optional
	Volume *VolumeStore `json:"volume,omitempty"`
}

// S3Store is a bucket of an object store that speaks S3.
type S3Store struct {
	// Name of the bucket. It must exist.
	// +kubebuilder:validation:MinLength=3
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9][a-z0-9.-]*[a-z0-9]$')",message="s3.bucket: the name of a bucket has lower case letters, digits, '.' and '-' only"
	Bucket string `json:"bucket"`
	// Folder in the bucket, without the cluster's name. Default: none.
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self == '' || self.matches('^[A-Za-z0-9!_.*()-]+(/[A-Za-z0-9!_.*()-]+)*$') && !self.matches('(^|/)[.]{1,2}(/|$)')",message="s3.prefix: words of letters, digits and !_.*()- joined by '/', such as team/databases"
	// +optional
	Prefix string `json:"prefix,omitempty"`
	// URL of the store, such as https://minio.example.com:9000. Default: AWS.
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self == '' || self.matches('^https?://[A-Za-z0-9.-]+(:[0-9]{1,5})?/?$') || self.matches('^https?://[[][0-9A-Fa-f:]+[]](:[0-9]{1,5})?/?$')",message="s3.endpoint: http:// or https:// with a host and maybe a port, such as https://minio.example.com:9000"
	// +optional
	Endpoint string `json:"endpoint,omitempty"`
	// Region of the bucket. Default: us-east-1, or what the store says.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	Region string `json:"region,omitempty"`
	// Secret with the login, under the keys access-key-id and secret-access-key, and
	// maybe session-token. A changed login is used at the next attempt.
	// +optional
	CredentialsSecret *SecretName `json:"credentialsSecret,omitempty"`
	// Secret with the authorities that vouch for the store's certificate, PEM, under
	// the key ca.crt. Default: those of the Postgres image.
	// +optional
	CASecret *SecretName `json:"caSecret,omitempty"`
}

// SecretName names a Secret in the same namespace.
type SecretName struct {
	// Name of the Secret.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// VolumeStore is a volume that all instances can mount at once.
type VolumeStore struct {
	// PersistentVolumeClaim, of access mode ReadWriteMany, in the same namespace. Every
	// pod mounts it, so that instances restart one at a time when it changes.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Claim string `json:"claim"`
	// Folder on the volume, without the cluster's name. Default: none.
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self == '' || self.matches('^[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*$') && !self.matches('(^|/)[.]{1,2}(/|$)')",message="volume.path: words of letters, digits, '_', '.' and '-' joined by '/', such as team/databases"
	// +optional
	Path string `json:"path,omitempty"`
}

// BackupType is a kind of base backup.
//
// +kubebuilder:validation:Enum=full;incremental
type BackupType string

const (
	// BackupFull can be restored by itself.
	BackupFull BackupType = "full"
	// BackupIncremental holds what has changed since the backup before it.
	BackupIncremental BackupType = "incremental"
)

// BackupSchedule is when base backups are taken.
type BackupSchedule struct {
	// Name of the schedule; backups are named <cluster>-<name>-<time in UTC>.
	// +kubebuilder:validation:MaxLength=20
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="spec.backup.schedules.name: lower case letters, digits and '-' only, such as nightly"
	Name string `json:"name"`
	// Minute, hour, day of month, month and day of week, such as "0 3 * * *" for every
	// day at 3:00. Five fields; no seconds, no words such as @daily.
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule="self.trim().matches('^[0-9A-Za-z*/,-]+([ \\\\t]+[0-9A-Za-z*/,-]+){4}$')",message="spec.backup.schedules.cron: five fields, minute, hour, day of month, month and day of week, such as \"0 3 * * *\" for every day at 3:00"
	Cron string `json:"cron"`
	// Time zone of the fields, a name of the IANA database such as Europe/Berlin.
	// Default Etc/UTC.
	// +kubebuilder:default="Etc/UTC"
	// +kubebuilder:validation:MaxLength=64
	// +optional
	TimeZone string `json:"timeZone,omitempty"`
	// full, or incremental, which holds what has changed since the newest backup and
	// needs PostgreSQL 17. Default full.
	// +kubebuilder:default=full
	// +optional
	Type BackupType `json:"type,omitempty"`
}

// RetentionSpec says which base backups are kept. One that either rule wants is
// kept.
type RetentionSpec struct {
	// How many of the newest base backups are kept.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	// +optional
	Keep *int32 `json:"keep,omitempty"`
	// How far back it must be possible to restore to any time, in days, hours or
	// minutes, such as 30d.
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule="self.matches('^[1-9][0-9]{0,4}[dhm]$')",message="spec.backup.retention.within: a number of days, hours or minutes, such as 30d, 12h or 90m"
	// +optional
	Within string `json:"within,omitempty"`
}

// RestoreSource makes the database of a backup.
//
// +kubebuilder:validation:XValidation:rule="has(self.backup) && self.backup.size() > 0 || has(self.store) && has(self.cluster) && self.cluster.size() > 0",message="spec.bootstrap.restore: name a backup, or the store and the cluster whose backups lie there"
// +kubebuilder:validation:XValidation:rule="!has(self.store) || has(self.cluster) && self.cluster.size() > 0",message="spec.bootstrap.restore.cluster: name the cluster whose backups lie in the store"
// +kubebuilder:validation:XValidation:rule="has(self.store) || !has(self.cluster) || self.cluster.size() == 0",message="spec.bootstrap.restore.store: say where the backups of the cluster lie; or leave cluster out, and name a PostgresBackup"
type RestoreSource struct {
	// PostgresBackup to restore, in the same namespace; or, with `store`, the id that
	// status.id of one has shown. Default, with `store`: the one from which the target
	// is reached soonest.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Backup string `json:"backup,omitempty"`
	// Where the backups lie, when the cluster that took them is gone.
	// +optional
	Store *BackupStore `json:"store,omitempty"`
	// Name of the cluster that took them.
	// +kubebuilder:validation:MaxLength=50
	// +kubebuilder:validation:XValidation:rule="self == '' || self.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",message="spec.bootstrap.restore.cluster: the name of a PostgresCluster, lower case letters, digits and '-'"
	// +optional
	Cluster string `json:"cluster,omitempty"`
	// Where recovery ends. Default: at the end of the archive.
	// +optional
	Target RestoreTarget `json:"target,omitzero"`
	// Name of the application's database in the backup, for the Secret <cluster>-app.
	// Default app.
	// +kubebuilder:default=app
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Database string `json:"database,omitempty"`
	// The role that owns it. It gets the password of the Secret <cluster>-app, and is
	// made if the backup doesn't have it. Default app.
	// +kubebuilder:default=app
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self != 'postgres' && !self.startsWith('pg_') && self != 'streaming_replica' && self != 'public' && self != 'none'",message="spec.bootstrap.restore.owner: postgres, public, none, streaming_replica and names beginning with pg_ are reserved; choose another name, such as app"
	// +optional
	Owner string `json:"owner,omitempty"`
}

// RestoreTarget is where a recovery ends: at most one of its fields.
//
// +kubebuilder:validation:XValidation:rule="[has(self.time), has(self.lsn), has(self.xid), has(self.name), has(self.immediate)].filter(f, f).size() <= 1",message="target: at most one of time, lsn, xid, name and immediate"
type RestoreTarget struct {
	// A time with its offset from UTC, such as 2026-11-27T12:00:00Z: transactions that
	// had committed by then are there.
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,9})?(Z|[+-][0-9]{2}(:?[0-9]{2})?)$')",message="target.time: a time with its offset from UTC, such as 2026-11-27T12:00:00Z or 2026-11-27 12:00:00+02"
	// +optional
	Time string `json:"time,omitempty"`
	// A position in the WAL, such as 0/3000148.
	// +kubebuilder:validation:MaxLength=17
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8}$')",message="target.lsn: a position in the WAL, such as 0/3000148"
	// +optional
	LSN string `json:"lsn,omitempty"`
	// A transaction id: that transaction is the last that is there.
	// +kubebuilder:validation:MaxLength=20
	// +kubebuilder:validation:XValidation:rule="self.matches('^[1-9][0-9]*$')",message="target.xid: a transaction id, a whole number"
	// +optional
	XID string `json:"xid,omitempty"`
	// A restore point that pg_create_restore_point has made.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Name string `json:"name,omitempty"`
	// The end of the base backup.
	// +kubebuilder:validation:XValidation:rule="self",message="target.immediate: true, or leave it out"
	// +optional
	Immediate bool `json:"immediate,omitempty"`
}

// PostgresBackup is a base backup of a PostgresCluster: one that you ask for, one
// that a schedule asks for, or one that was found in the store.
//
// +genclient
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=postgresbackups,singular=postgresbackup,shortName=pgb,categories=all
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.spec.cluster`,description="The cluster that it is of"
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.spec.type`,description="full or incremental"
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`,description="What has become of it"
// +kubebuilder:printcolumn:name="Size",type=string,JSONPath=`.status.size`,description="Size of the data"
// +kubebuilder:printcolumn:name="From",type=date,JSONPath=`.status.restorable.from`,description="The earliest time to which it can be restored"
// +kubebuilder:printcolumn:name="Until",type=date,JSONPath=`.status.restorable.until`,description="The latest time to which it can be restored"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type PostgresBackup struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// What you ask for.
	Spec PostgresBackupSpec `json:"spec"`
	// What has become of it. Written by the operator only.
	// +optional
	Status PostgresBackupStatus `json:"status,omitzero"`
}

// PostgresBackupList is a list of PostgresBackups.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
type PostgresBackupList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []PostgresBackup `json:"items"`
}

// PostgresBackupSpec is what the user asks for.
//
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec: a backup is taken once, as it was asked for; make another PostgresBackup"
type PostgresBackupSpec struct {
	// The PostgresCluster that is backed up, in the same namespace. It needs
	// spec.backup.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=50
	Cluster string `json:"cluster"`
	// full, or incremental, which holds what has changed since the newest backup and
	// needs PostgreSQL 17. Default full.
	// +kubebuilder:default=full
	// +optional
	Type BackupType `json:"type,omitempty"`
}

// BackupPhase is what has become of a backup.
//
// +kubebuilder:validation:Enum=Pending;Running;Completed;Failed
type BackupPhase string

const (
	// BackupPending means that it waits for its turn, or for an instance.
	BackupPending BackupPhase = "Pending"
	// BackupRunning means that it is being taken.
	BackupRunning BackupPhase = "Running"
	// BackupCompleted means that it is in the store, with the WAL that it needs.
	BackupCompleted BackupPhase = "Completed"
	// BackupFailed means that it was not taken; the message says why. It isn't tried
	// again.
	BackupFailed BackupPhase = "Failed"
)

// PostgresBackupStatus is what has become of a backup.
type PostgresBackupStatus struct {
	// +optional
	Phase BackupPhase `json:"phase,omitempty"`
	// What it waits for, or why it failed, in the words of whoever said it.
	// +optional
	Message string `json:"message,omitempty"`
	// Its name in the store.
	// +optional
	ID string `json:"id,omitempty"`
	// Where it is stored. It can be restored from there when the cluster is gone, or
	// has another store by then.
	// +optional
	Store *BackupStore `json:"store,omitempty"`
	// True once the catalog of the store has shown it. When it is gone from there, this
	// object goes, too.
	// +optional
	InCatalog bool `json:"inCatalog,omitempty"`
	// The backup, by its id, from which an incremental one goes on.
	// +optional
	Parent string `json:"parent,omitempty"`
	// The instance that takes it or took it.
	// +optional
	Instance string `json:"instance,omitempty"`
	// What the server said its version was, such as 17.12.
	// +optional
	Version string `json:"version,omitempty"`
	// System identifier of the database.
	// +optional
	SystemID string `json:"systemID,omitempty"`
	// Timeline on which it ends.
	// +optional
	Timeline int64 `json:"timeline,omitempty"`
	// Where the WAL that it needs begins, as X/Y.
	// +optional
	StartLSN string `json:"startLSN,omitempty"`
	// Where its data is consistent, as X/Y.
	// +optional
	StopLSN string `json:"stopLSN,omitempty"`
	// When it began.
	// +optional
	StartedAt *metav1.Time `json:"startedAt,omitempty"`
	// When its data was complete; it can be restored to this time and later ones.
	// +optional
	CompletedAt *metav1.Time `json:"completedAt,omitempty"`
	// The WAL segments that it needs, first and last.
	// +optional
	WAL string `json:"wal,omitempty"`
	// Size of the data, as a quantity such as 20Gi.
	// +optional
	Size string `json:"size,omitempty"`
	// What it takes in the store, as a quantity such as 5Gi.
	// +optional
	StoredSize string `json:"storedSize,omitempty"`
	// How far it is while it runs.
	// +optional
	Progress *BackupProgress `json:"progress,omitempty"`
	// The times to which it can be restored.
	// +optional
	Restorable *RestorableTimes `json:"restorable,omitempty"`
}

// BackupProgress is how far a backup is.
type BackupProgress struct {
	// What has been read, in bytes.
	Done int64 `json:"done"`
	// What there is to read, in bytes, as the server thinks; an incremental backup may
	// read far less. 0: it has not said so yet.
	Estimated int64 `json:"estimated,omitempty"`
	// True once the data is in the store, and not yet all the WAL it needs.
	// +optional
	AwaitsWAL bool `json:"awaitsWAL,omitempty"`
}

// RestorableTimes are the times to which something can be restored.
type RestorableTimes struct {
	// The first of them.
	From metav1.Time `json:"from"`
	// The last of them, as far as it is known: what was committed a little later may
	// be in the store, too.
	Until metav1.Time `json:"until"`
}

// BackupsStatus is what a cluster's store holds, and what comes next.
type BackupsStatus struct {
	// The times to which the cluster can be restored.
	// +optional
	Restorable *RestorableTimes `json:"restorable,omitempty"`
	// When the data of the newest complete backup was complete.
	// +optional
	LastCompleted *metav1.Time `json:"lastCompleted,omitempty"`
	// How many complete backups the store holds.
	// +optional
	Count int32 `json:"count,omitempty"`
	// The backup that is being taken.
	// +optional
	Running string `json:"running,omitempty"`
	// The schedules, as in the spec.
	// +kubebuilder:validation:MaxItems=16
	// +listType=map
	// +listMapKey=name
	// +optional
	Schedules []ScheduleStatus `json:"schedules,omitempty"`
	// When archiving has failed last, though it may be well now.
	// +optional
	ArchiveFailedAt *metav1.Time `json:"archiveFailedAt,omitempty"`
	// When a backup is to be proved next, as spec.backup.verify asks. A time that is past
	// is made up once, as soon as it can be.
	// +optional
	NextVerification *metav1.Time `json:"nextVerification,omitempty"`
	// The backup that is being proved.
	// +optional
	Verifying string `json:"verifying,omitempty"`
	// UID of the last pod that has proved a backup, or has not, and whose result is told
	// here.
	// +optional
	Verifier types.UID `json:"verifier,omitempty"`
	// The last backup that was proved.
	// +optional
	LastVerified *VerifiedBackup `json:"lastVerified,omitempty"`
	// The last backup that was to be proved, if that has failed.
	// +optional
	NotVerified *UnverifiedBackup `json:"notVerified,omitempty"`
}

// VerifiedBackup is a backup that was restored, with all the WAL after it, and read
// without an error.
type VerifiedBackup struct {
	// Name of its PostgresBackup, or its id.
	Backup string `json:"backup"`
	// When that was done.
	At metav1.Time `json:"at"`
	// When the last transaction was committed that was restored; or when the data of the
	// backup was complete, if none was committed later.
	Until metav1.Time `json:"until"`
}

// UnverifiedBackup is a backup that could not be proved.
type UnverifiedBackup struct {
	// Name of its PostgresBackup, or its id.
	Backup string `json:"backup"`
	// When that was tried.
	At metav1.Time `json:"at"`
	// Why, in the words of whoever said it.
	Message string `json:"message"`
}

// ScheduleStatus is when a schedule's backups come.
type ScheduleStatus struct {
	// Name of the schedule.
	Name string `json:"name"`
	// When the next backup is due.
	// +optional
	Next *metav1.Time `json:"next,omitempty"`
	// When the last backup was due that was made.
	// +optional
	Last *metav1.Time `json:"last,omitempty"`
	// Why the one that is due is not made yet.
	// +optional
	Message string `json:"message,omitempty"`
}
