package v1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PostgresCluster is one PostgreSQL cluster: a primary and its streaming
// replicas, with their volumes, Services and logins.
//
// +genclient
// +genclient:method=GetScale,verb=get,subresource=scale,result=k8s.io/api/autoscaling/v1.Scale
// +genclient:method=UpdateScale,verb=update,subresource=scale,input=k8s.io/api/autoscaling/v1.Scale,result=k8s.io/api/autoscaling/v1.Scale
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=postgresclusters,singular=postgrescluster,shortName=pg,categories=all
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.instances,statuspath=.status.instances,selectorpath=.status.selector
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.status.version`,description="What the primary's server says its version is"
// +kubebuilder:printcolumn:name="Instances",type=integer,JSONPath=`.spec.instances`,description="Instances asked for"
// +kubebuilder:printcolumn:name="Ready",type=integer,JSONPath=`.status.readyInstances`,description="Instances that serve: the primary, and replicas that stream from it"
// +kubebuilder:printcolumn:name="Primary",type=string,JSONPath=`.status.primary`,description="The instance that takes writes, or took them last"
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.phase`,description="The conditions in one word"
// +kubebuilder:printcolumn:name="Backup",type=date,JSONPath=`.status.backup.lastCompleted`,description="The age of the newest complete backup"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 50",message="metadata.name: at most 50 characters, since names of Services, hosts and slots are derived from it; choose a shorter name"
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",message="metadata.name: lower case letters, digits and '-' only, beginning with a letter and ending with a letter or digit, since Services are named after it"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.bootstrap) || !has(self.spec.bootstrap.clone) || self.spec.bootstrap.clone.cluster != self.metadata.name",message="spec.bootstrap.clone.cluster: a cluster can't be a copy of itself; name another"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || !has(oldSelf.status.systemID) || oldSelf.status.systemID.size() == 0 || (has(self.spec.bootstrap) == has(oldSelf.spec.bootstrap) && (!has(self.spec.bootstrap) || self.spec.bootstrap == oldSelf.spec.bootstrap))",message="spec.bootstrap: used at creation only, and this cluster has been created; put the old value back, or create a new cluster"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || !has(oldSelf.status.systemID) || oldSelf.status.systemID.size() == 0 || !has(self.spec.postgres.uid) || !has(oldSelf.spec.postgres.uid) || self.spec.postgres.uid == oldSelf.spec.postgres.uid",message="spec.postgres.uid: the files on this cluster's volumes belong to that user, and no other may use them; keep it, with an image whose user postgres has the same id, or create a new cluster with the other and copy the data (spec.bootstrap.clone)"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || quantity(string(self.spec.storage.size)).compareTo(quantity(string(oldSelf.spec.storage.size))) >= 0 || (has(oldSelf.status.volumeSize) && quantity(string(self.spec.storage.size)).compareTo(quantity(string(oldSelf.status.volumeSize))) >= 0)",message="spec.storage.size: a volume can't shrink; ask for at least what status.volumeSize says the volumes have, or create a new cluster with the smaller size and copy the data"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || !has(self.spec.storage.wal) || !has(oldSelf.spec.storage.wal) || quantity(string(self.spec.storage.wal.size)).compareTo(quantity(string(oldSelf.spec.storage.wal.size))) >= 0 || (has(oldSelf.status.walVolumeSize) && quantity(string(self.spec.storage.wal.size)).compareTo(quantity(string(oldSelf.status.walVolumeSize))) >= 0)",message="spec.storage.wal.size: a volume can't shrink; ask for at least what status.walVolumeSize says the WAL volumes have, or create a new cluster with the smaller size and copy the data"
// +kubebuilder:validation:XValidation:rule="has(self.spec.storage.wal) || !has(oldSelf.spec.storage.wal) || !has(oldSelf.status) || !has(oldSelf.status.walVolumeSize) || quantity(string(oldSelf.status.walVolumeSize)).compareTo(quantity('0')) == 0",message="spec.storage.wal: WAL is on volumes of its own and can't be moved back; leave the field as it is, or create a new cluster without it and copy the data"
type PostgresCluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// What you ask for.
	Spec PostgresClusterSpec `json:"spec"`
	// What is there. Written by the operator only.
	// +optional
	Status PostgresClusterStatus `json:"status,omitzero"`
}

// PostgresClusterList is a list of PostgresClusters.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
type PostgresClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []PostgresCluster `json:"items"`
}

// PostgresClusterSpec is what the user asks for.
//
// +kubebuilder:validation:XValidation:rule="!has(self.paused) || !self.paused || (has(self.storage.retain) ? self.storage.retain : 'Retain') == (has(oldSelf.storage.retain) ? oldSelf.storage.retain : 'Retain')",message="spec.storage.retain: stays as it is while spec.paused is true, since nothing is done about the volumes then; set spec.paused to false first"
// +kubebuilder:validation:XValidation:rule="!has(self.replication) || !has(self.replication.mode) || self.replication.mode != 'sync' || (has(self.replication.durability) && self.replication.durability != 'required') || (has(self.replication.need) ? self.replication.need : 1) < (has(self.instances) ? self.instances : 1) || (has(self.instances) && self.instances == 0)",message="spec.replication.need: must be less than spec.instances with mode sync and durability required, since every commit would wait for a replica that isn't there; ask for more instances, lower need, or set durability to preferred or mode to async"
type PostgresClusterSpec struct {
	// How many instances: one primary, the others replicas. Instances are pods
	// with a volume each, named <cluster>-1, <cluster>-2 and so on. Scaling down
	// removes replicas with their volumes, never the primary. 0 stops the cluster in
	// order and keeps all volumes; any other number starts it again with its data.
	// Default 1.
	// +kubebuilder:default=1
	// +kubebuilder:validation:Maximum=99
	// +kubebuilder:validation:XValidation:rule="self >= 0",message="spec.instances: at least 0. With 0 the cluster is stopped and keeps its volumes"
	// +optional
	Instances *int32 `json:"instances,omitempty"`

	// The PostgreSQL server: version, image, configuration.
	Postgres PostgresSpec `json:"postgres"`

	// The volume of each instance.
	Storage StorageSpec `json:"storage"`

	// How commits reach the replicas. Default: asynchronously.
	// +optional
	Replication ReplicationSpec `json:"replication,omitzero"`

	// When another instance takes over from the primary.
	// +optional
	Failover FailoverSpec `json:"failover,omitzero"`

	// Compute resources of each Postgres container, as in a pod.
	// +optional
	Resources ResourceRequirements `json:"resources,omitzero"`

	// How the database is made. Used once, at creation; it can be corrected
	// until the database exists. Default: initdb with its defaults.
	// +optional
	Bootstrap *BootstrapSpec `json:"bootstrap,omitempty"`

	// Where backups go, when they are taken and how long they stay. Default: there are
	// none, and no WAL is kept for them.
	// +optional
	Backup *BackupSpec `json:"backup,omitempty"`

	// How clients reach the cluster. Default: from within the Kubernetes cluster.
	// +optional
	Services ServicesSpec `json:"services,omitzero"`

	// What clients see of the servers when they connect by TLS. Default: certificates
	// that the operator issues.
	// +optional
	TLS TLSSpec `json:"tls,omitzero"`

	// Roles that the server has beside the owner of the application's database.
	// They are made, and kept as declared.
	// +kubebuilder:validation:MaxItems=100
	// +listType=map
	// +listMapKey=name
	// +optional
	Roles []RoleSpec `json:"roles,omitempty"`

	// Databases of the server: further ones, and what the application's own shall
	// have. They are made, and kept as declared.
	// +kubebuilder:validation:MaxItems=64
	// +listType=map
	// +listMapKey=name
	// +optional
	Databases []DatabaseSpec `json:"databases,omitempty"`

	// Template for what the operator does not own in the pods it makes.
	// +optional
	Pod PodSpec `json:"pod,omitzero"`

	// While true, the operator watches and reports, and changes nothing: edits and
	// requests wait, and the condition Progressing says what is held back. The
	// instances run on, and elect another primary when one is lost. Default false.
	// +optional
	Paused bool `json:"paused,omitempty"`
}

// PostgresSpec is the server and its configuration.
//
// +kubebuilder:validation:XValidation:rule="self.version == oldSelf.version",message="spec.postgres.version: a running cluster keeps its major version; create a new cluster of the other version and copy the data (pg_dump and pg_restore)"
type PostgresSpec struct {
	// Major version of PostgreSQL: 15, 16, 17 or 18.
	// +kubebuilder:validation:Enum=15;16;17;18
	Version int32 `json:"version"`

	// Container image with the server, any tag or digest. Its major version is
	// checked against `version` before the data is touched. Default:
	// docker.io/library/postgres:<version>.
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self == '' || !self.matches('\\\\s')",message="spec.postgres.image: an image reference has no white space; write it as name:tag or name@sha256:digest"
	// +optional
	Image string `json:"image,omitempty"`

	// Numeric user and group id of the user `postgres` in the image: 999 in the
	// Docker Official image, 70 in its alpine variant. The files on the volumes belong
	// to it, so it stays once there is a database. Default 999.
	// +kubebuilder:default=999
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65534
	// +optional
	UID *int64 `json:"uid,omitempty"`

	// Server parameters, written as people write them: 200, on, "256MB", 1.1.
	// Those that the operator owns are refused, as is a name in two spellings.
	// Most take effect at once. One that needs a restart restarts the servers one
	// at a time, replicas first; the condition UpToDate says how far that has come.
	// +kubebuilder:validation:MaxProperties=500
	// +optional
	Parameters map[string]ParameterValue `json:"parameters,omitempty"`

	// Lines for pg_hba.conf. They come after the operator's own lines, which
	// let its agents and replicas in, and before the closing default, which
	// lets every role in over TLS with its password.
	// +kubebuilder:validation:MaxItems=200
	// +kubebuilder:validation:items:MaxLength=1024
	// +kubebuilder:validation:items:XValidation:rule="!self.contains('\\n')",message="spec.postgres.hba: one rule an item, without a line break; make an item of each line"
	// +listType=atomic
	// +optional
	HBA []string `json:"hba,omitempty"`

	// Lines for pg_ident.conf, each a map's name, a name that comes from outside (of a
	// certificate, the operating system or Kerberos; /regex is allowed), and the role
	// that it may log in as. A line of hba uses a map by map=NAME. The map "pgop" is the
	// operator's own.
	// +kubebuilder:validation:MaxItems=200
	// +kubebuilder:validation:items:MaxLength=1024
	// +kubebuilder:validation:items:XValidation:rule="!self.contains('\\n')",message="spec.postgres.ident: one map line an item, without a line break; make an item of each line"
	// +listType=atomic
	// +optional
	Ident []string `json:"ident,omitempty"`
}

// RetainPolicy says what becomes of the volumes when the cluster is deleted.
//
// +kubebuilder:validation:Enum=Retain;Delete
type RetainPolicy string

const (
	// RetainVolumes keeps the volumes when the PostgresCluster is deleted.
	RetainVolumes RetainPolicy = "Retain"
	// DeleteVolumes lets the volumes go with the PostgresCluster.
	DeleteVolumes RetainPolicy = "Delete"
)

// StorageSpec is the volume of each instance.
type StorageSpec struct {
	// Size of the data volume of each instance, in bytes, as a quantity such as
	// 20Gi; at least 256Mi. It can grow while the server runs, where the storage
	// class allows it; growth that no volume has begun can be taken back.
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 268435456 : (isQuantity(self) && quantity(self).compareTo(quantity('256Mi')) >= 0)",message="spec.storage.size: a quantity of at least 256Mi, such as 20Gi"
	Size resource.Quantity `json:"size"`

	// Storage class of new volumes. Existing volumes keep theirs, and the
	// condition UpToDate names them; one that was never provisioned is made
	// anew. The annotation pgop.dev/reclone=<instance> moves a replica to volumes
	// of the new class. Default: the default class of the Kubernetes cluster.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Class string `json:"class,omitempty"`

	// What becomes of the volumes when the PostgresCluster is deleted: Retain
	// keeps them, and the same manifest applied again adopts them; Delete lets
	// them go with it. Default Retain.
	// +kubebuilder:default=Retain
	// +optional
	Retain RetainPolicy `json:"retain,omitempty"`

	// A volume of its own for the WAL (pg_wal) of each instance. A cluster may get
	// it later: instances restart one at a time, and each moves its WAL before its
	// server starts. Once such a volume is provisioned it stays. Default: WAL is on
	// the data volume.
	// +optional
	WAL *WALStorageSpec `json:"wal,omitempty"`
}

// WALStorageSpec is the volume for the WAL of each instance.
type WALStorageSpec struct {
	// Size of the WAL volume of each instance, in bytes, as a quantity such as 4Gi;
	// at least 256Mi. It grows as `spec.storage.size` does.
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 268435456 : (isQuantity(self) && quantity(self).compareTo(quantity('256Mi')) >= 0)",message="spec.storage.wal.size: a quantity of at least 256Mi, such as 4Gi"
	Size resource.Quantity `json:"size"`

	// Storage class of new WAL volumes, as `spec.storage.class` is of data volumes.
	// Default: the default class of the Kubernetes cluster.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Class string `json:"class,omitempty"`
}

// ReplicationMode says whether commits wait for replicas.
//
// +kubebuilder:validation:Enum=async;sync
type ReplicationMode string

const (
	// ReplicationAsync lets commits return as soon as the primary has them.
	ReplicationAsync ReplicationMode = "async"
	// ReplicationSync lets commits wait for replicas.
	ReplicationSync ReplicationMode = "sync"
)

// Durability says what becomes of commits that no replica can acknowledge.
//
// +kubebuilder:validation:Enum=required;preferred
type Durability string

const (
	// DurabilityRequired lets them wait.
	DurabilityRequired Durability = "required"
	// DurabilityPreferred lets the primary go on alone.
	DurabilityPreferred Durability = "preferred"
)

// ReplicationSpec is how commits reach the replicas.
type ReplicationSpec struct {
	// async: a commit returns when the primary has it on disk, and a failover may
	// lose the last ones. sync: a commit returns when `need` replicas have it on
	// disk, too, and a failover loses none. Default async.
	// +kubebuilder:default=async
	// +optional
	Mode ReplicationMode `json:"mode,omitempty"`

	// How many replicas must have a commit on disk before it returns, in mode
	// sync. Any of the replicas count. Default 1.
	// +kubebuilder:default=1
	// +kubebuilder:validation:Maximum=98
	// +kubebuilder:validation:XValidation:rule="self >= 1",message="spec.replication.need: at least 1; to let commits return without a replica, set spec.replication.mode to async"
	// +optional
	Need *int32 `json:"need,omitempty"`

	// What happens in mode sync while fewer than `need` replicas stream.
	// required: commits wait until enough are back. preferred: the primary goes
	// on with those that stream, or alone; while it is alone, nobody can take over
	// from it, so that still no commit is lost. Default required.
	// +kubebuilder:default=required
	// +optional
	Durability Durability `json:"durability,omitempty"`
}

// FailoverSpec says when another instance takes over from the primary.
type FailoverSpec struct {
	// How long the primary may be silent before the replicas elect another, such
	// as 10s; from 6s to 60s. The primary stops by itself 3 seconds earlier. Longer:
	// a lost node is noticed later. Shorter: a short disturbance of the API server
	// or the network may cost a failover. Instances restart one at a time when it
	// changes. Default 10s.
	// +kubebuilder:default="10s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,6}([.][0-9]{1,6})?(ms|s|m|h)){1,4}$') && duration(self) >= duration('6s') && duration(self) <= duration('60s')",message="spec.failover.leaseDuration: a duration from 6s to 60s, such as 10s"
	// +optional
	LeaseDuration metav1.Duration `json:"leaseDuration,omitzero"`

	// How long the primary's server may take to start again after a crash, before
	// a replica that can take over does so; from 5s to 1h.
	// Default 15s.
	// +kubebuilder:default="15s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,6}([.][0-9]{1,6})?(ms|s|m|h)){1,4}$') && duration(self) >= duration('5s') && duration(self) <= duration('1h')",message="spec.failover.restartTimeout: a duration from 5s to 1h, such as 15s"
	// +optional
	RestartTimeout metav1.Duration `json:"restartTimeout,omitzero"`

	// For how long the primary's server may answer no new connection, before its
	// processes are killed and a replica that can take over does so, or, where none can,
	// the server is started again; from 5s to 1h, such as 15s. A refusal, as when all
	// connections are taken, is an answer. Default 15s.
	// +kubebuilder:default="15s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,6}([.][0-9]{1,6})?(ms|s|m|h)){1,4}$') && duration(self) >= duration('5s') && duration(self) <= duration('1h')",message="spec.failover.unresponsiveTimeout: a duration from 5s to 1h, such as 15s"
	// +optional
	UnresponsiveTimeout metav1.Duration `json:"unresponsiveTimeout,omitzero"`

	// How far behind the primary, in bytes of WAL, a replica may be that can take
	// over, in replication mode async, as a quantity from 1Mi to 1Ti. It bounds
	// what a failover may lose. Default 16Mi.
	// +kubebuilder:default="16Mi"
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="isQuantity(string(self)) && quantity(string(self)).compareTo(quantity('1Mi')) >= 0 && quantity(string(self)).compareTo(quantity('1Ti')) <= 0",message="spec.failover.maxLag: a quantity from 1Mi to 1Ti, such as 16Mi"
	// +optional
	MaxLag *resource.Quantity `json:"maxLag,omitempty"`
}

// ResourceRequirements are requests and limits of the Postgres container.
//
// +kubebuilder:validation:XValidation:rule="!has(self.limits) || !has(self.requests) || ['cpu', 'memory'].all(k, !(k in self.requests) || !(k in self.limits) || quantity(string(self.requests[k])).compareTo(quantity(string(self.limits[k]))) <= 0)",message="spec.resources: the request of cpu or memory is larger than its limit; lower the request or raise the limit"
type ResourceRequirements struct {
	// The most that the container may use, by resource name.
	// +kubebuilder:validation:MaxProperties=12
	// +kubebuilder:validation:XValidation:rule="self.all(k, isQuantity(string(self[k])))",message="spec.resources.limits: values are quantities, such as 500m or 2Gi"
	// +optional
	Limits corev1.ResourceList `json:"limits,omitempty"`
	// What the scheduler sets aside for the container, by resource name.
	// +kubebuilder:validation:MaxProperties=12
	// +kubebuilder:validation:XValidation:rule="self.all(k, isQuantity(string(self[k])))",message="spec.resources.requests: values are quantities, such as 500m or 2Gi"
	// +optional
	Requests corev1.ResourceList `json:"requests,omitempty"`
}

// BootstrapSpec says how the database is made; exactly one way.
//
// +kubebuilder:validation:XValidation:rule="[has(self.initdb), has(self.restore), has(self.clone)].filter(f, f).size() == 1",message="spec.bootstrap: name exactly one way to make the database: initdb, restore or clone"
type BootstrapSpec struct {
	// Makes a new, empty database cluster.
	// +optional
	Initdb *InitdbSpec `json:"initdb,omitempty"`
	// Makes the database of a backup.
	// +optional
	Restore *RestoreSource `json:"restore,omitempty"`
	// Copies the database of a cluster that runs.
	// +optional
	Clone *CloneSource `json:"clone,omitempty"`
}

// CloneSource copies the database of a cluster that runs, with all of its roles and
// databases. From then on the two have nothing to do with each other.
type CloneSource struct {
	// Name of the PostgresCluster to copy, in the same namespace and of the same major
	// version.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=50
	// +required
	Cluster string `json:"cluster"`
	// Name of the application's database in the copy, for the Secret <cluster>-app.
	// Default app.
	// +kubebuilder:default=app
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Database string `json:"database,omitempty"`
	// The role that owns it. It gets the password of the Secret <cluster>-app, and is
	// made if the copy doesn't have it. Default app.
	// +kubebuilder:default=app
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self != 'postgres' && !self.startsWith('pg_') && self != 'streaming_replica' && self != 'public' && self != 'none'",message="spec.bootstrap.clone.owner: postgres, public, none, streaming_replica and names beginning with pg_ are reserved; choose another name, such as app"
	// +optional
	Owner string `json:"owner,omitempty"`
}

// InitdbSpec makes a new database cluster with one database and its owner.
type InitdbSpec struct {
	// Name of the application's database. Default app.
	// +kubebuilder:default=app
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="!(self in ['postgres', 'template0', 'template1'])",message="spec.bootstrap.initdb.database: postgres, template0 and template1 exist in every cluster; choose another name, such as app"
	// +optional
	Database string `json:"database,omitempty"`

	// The role that owns the database and logs in with the Secret
	// <cluster>-app. Default app.
	// +kubebuilder:default=app
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self != 'postgres' && !self.startsWith('pg_') && self != 'streaming_replica' && self != 'public' && self != 'none'",message="spec.bootstrap.initdb.owner: postgres, public, none, streaming_replica and names beginning with pg_ are reserved; choose another name, such as app"
	// +optional
	Owner string `json:"owner,omitempty"`

	// Locale of the databases, as initdb takes it. Default C.UTF-8.
	// +kubebuilder:default="C.UTF-8"
	// +kubebuilder:validation:MaxLength=128
	// +optional
	Locale string `json:"locale,omitempty"`

	// Character encoding of the databases. Default UTF8.
	// +kubebuilder:default=UTF8
	// +kubebuilder:validation:MaxLength=64
	// +optional
	Encoding string `json:"encoding,omitempty"`

	// Whether data pages carry checksums. Default true.
	// +kubebuilder:default=true
	// +optional
	DataChecksums *bool `json:"dataChecksums,omitempty"`

	// SQL that runs once, as superuser, in the application's database. Each
	// item reaches the server byte for byte as one query: several statements in
	// an item succeed or fail together, and a statement that can't run in a
	// transaction, such as CREATE DATABASE, needs an item of its own. psql's
	// backslash commands are not SQL and are refused.
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MaxLength=65536
	// +listType=atomic
	// +optional
	SQL []string `json:"sql,omitempty"`
}

// PodSpec is the template for what the operator does not own in its pods.
type PodSpec struct {
	// Labels to add to the pods.
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="!self.exists(k, k.startsWith('pgop.dev/') || k.startsWith('app.kubernetes.io/'))",message="spec.pod.labels: keys under pgop.dev/ and app.kubernetes.io/ are the operator's; use a prefix of your own"
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// Annotations to add to the pods.
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="!self.exists(k, k.startsWith('pgop.dev/'))",message="spec.pod.annotations: keys under pgop.dev/ are the operator's; use a prefix of your own"
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
	// Affinity of the pods. Default: prefer a node that has no other instance
	// of this cluster.
	// +optional
	Affinity *corev1.Affinity `json:"affinity,omitempty"`
	// Labels that a node must have.
	// +kubebuilder:validation:MaxProperties=64
	// +optional
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	// Taints that the pods tolerate.
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	// +optional
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
	// How the pods spread over topology domains, as in a pod. Default: over zones,
	// as far as there is room.
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	// +optional
	TopologySpreadConstraints []corev1.TopologySpreadConstraint `json:"topologySpreadConstraints,omitempty"`
	// Priority class of the pods.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	PriorityClassName string `json:"priorityClassName,omitempty"`
	// Secrets with which images are pulled.
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	// +optional
	ImagePullSecrets []corev1.LocalObjectReference `json:"imagePullSecrets,omitempty"`
	// Environment variables of the Postgres container, as in a pod. A value that
	// comes from a Secret or ConfigMap is read when the container starts.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="self.all(e, !(e.name.startsWith('PG') || e.name.startsWith('POD_') || e.name.startsWith('KUBERNETES_') || e.name in ['NODE_NAME', 'HOME', 'PATH', 'GODEBUG', 'GOGC', 'GOMAXPROCS', 'GOMEMLIMIT', 'GOTRACEBACK', 'HTTP_PROXY', 'HTTPS_PROXY', 'NO_PROXY', 'http_proxy', 'https_proxy', 'no_proxy', 'SSL_CERT_DIR', 'SSL_CERT_FILE']))",message="spec.pod.env: the operator's agent, which runs the server, goes by PG*, POD_*, KUBERNETES_*, NODE_NAME, HOME, PATH, by variables of Go (GODEBUG, GOGC, GOMAXPROCS, GOMEMLIMIT, GOTRACEBACK), of proxies and of certificates (SSL_CERT_DIR, SSL_CERT_FILE); leave them out, or set them in a sidecar"
	// +kubebuilder:validation:XValidation:rule="self.all(e, !(e.name.startsWith('LC_') || e.name in ['LANG', 'LANGUAGE', 'TZ']))",message="spec.pod.env: the server does not take its language and time zone from LC_*, LANG, LANGUAGE and TZ; set lc_messages, timezone and the like in spec.postgres.parameters"
	// +listType=map
	// +listMapKey=name
	// +optional
	Env []EnvVar `json:"env,omitempty"`
	// Containers that run beside the server in each pod.
	// +kubebuilder:validation:MaxItems=8
	// +listType=map
	// +listMapKey=name
	// +optional
	Sidecars []Sidecar `json:"sidecars,omitempty"`
}

// PostgresClusterStatus is what is there.
type PostgresClusterStatus struct {
	// The generation of the spec that this status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// A summary of the conditions for people; never decides anything.
	// +optional
	Phase Phase `json:"phase,omitempty"`
	// The instance that takes writes, or took them last while there is none.
	// +optional
	Primary string `json:"primary,omitempty"`
	// How many instances there are; none in a cluster that is stopped.
	// +optional
	Instances int32 `json:"instances,omitempty"`
	// How many instances serve: the primary, and replicas that stream from it.
	// +optional
	ReadyInstances int32 `json:"readyInstances"`
	// Label selector of the instances' pods, for the scale subresource.
	// +optional
	Selector string `json:"selector,omitempty"`
	// What the primary's server says its version is, such as 17.12.
	// +optional
	Version string `json:"version,omitempty"`
	// System identifier of the database. Once it is known, no instance is ever
	// initialised anew under this name.
	// +optional
	SystemID string `json:"systemID,omitempty"`
	// Timeline of the primary.
	// +optional
	Timeline int64 `json:"timeline,omitempty"`
	// The largest size, in bytes, that a provisioned volume of this cluster was
	// asked to have; 0 as long as none is provisioned. spec.storage.size can't
	// go below it.
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="isQuantity(string(self))",message="status.volumeSize: a quantity, such as 20Gi"
	// +optional
	VolumeSize *resource.Quantity `json:"volumeSize,omitempty"`
	// The largest size, in bytes, that a provisioned WAL volume of this cluster was
	// asked to have. spec.storage.wal.size can't go below it and, as long as it is
	// above 0, spec.storage.wal can't be taken away.
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="isQuantity(string(self))",message="status.walVolumeSize: a quantity, such as 4Gi"
	// +optional
	WALVolumeSize *resource.Quantity `json:"walVolumeSize,omitempty"`
	// The state of the cluster, a condition for each question.
	// +kubebuilder:validation:MaxItems=32
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// The instances, sorted by number.
	// +kubebuilder:validation:MaxItems=1000
	// +listType=map
	// +listMapKey=name
	// +optional
	Members []MemberStatus `json:"members,omitempty"`
	// The volumes of the instances, sorted by the instance's number, data before
	// WAL.
	// +kubebuilder:validation:MaxItems=2000
	// +listType=map
	// +listMapKey=name
	// +optional
	Volumes []VolumeStatus `json:"volumes,omitempty"`
	// What the store of backups holds, and what comes next; none without spec.backup.
	// +optional
	Backup *BackupsStatus `json:"backup,omitempty"`
	// The certificates that end one day, sorted by Secret. Those that the operator
	// has issued it renews.
	// +kubebuilder:validation:MaxItems=1200
	// +listType=map
	// +listMapKey=secret
	// +optional
	Certificates []CertificateStatus `json:"certificates,omitempty"`
	// The roles of the spec, in its order.
	// +kubebuilder:validation:MaxItems=100
	// +listType=map
	// +listMapKey=name
	// +optional
	Roles []RoleStatus `json:"roles,omitempty"`
	// The databases of the spec, in its order.
	// +kubebuilder:validation:MaxItems=64
	// +listType=map
	// +listMapKey=name
	// +optional
	Databases []DatabaseStatus `json:"databases,omitempty"`
}

// VolumeState says what becomes of a volume.
//
// +kubebuilder:validation:Enum=Pending;Ready;Growing;Refused;Failed;Full;Lost;Deleting
type VolumeState string

const (
	// VolumePending means that it is not provisioned yet.
	VolumePending VolumeState = "Pending"
	// VolumeReady means that it has at least the size that the spec asks for.
	VolumeReady VolumeState = "Ready"
	// VolumeGrowing means that it is becoming larger.
	VolumeGrowing VolumeState = "Growing"
	// VolumeRefused means that the API server refuses to let it grow.
	VolumeRefused VolumeState = "Refused"
	// VolumeFailed means that whoever provides it could not let it grow so far.
	VolumeFailed VolumeState = "Failed"
	// VolumeFull means that nothing more fits on it.
	VolumeFull VolumeState = "Full"
	// VolumeLost means that what is behind the claim is gone.
	VolumeLost VolumeState = "Lost"
	// VolumeDeleting means that it is being deleted.
	VolumeDeleting VolumeState = "Deleting"
)

// VolumeStatus is one volume as the operator last saw it.
type VolumeStatus struct {
	// Name of the PersistentVolumeClaim.
	Name string `json:"name"`
	// Storage class, as far as it is known.
	// +optional
	Class string `json:"class,omitempty"`
	// The size, in bytes, that the spec asks for, as a quantity such as 20Gi.
	// +optional
	Asked string `json:"asked,omitempty"`
	// The size, in bytes, that the volume has, as a quantity such as 20Gi; none until
	// it is provisioned.
	// +optional
	Actual string `json:"actual,omitempty"`
	// What becomes of it.
	State VolumeState `json:"state"`
	// Why it is so, in the words of whoever said it.
	// +optional
	Message string `json:"message,omitempty"`
}

// MemberStatus is one instance as the operator last saw it.
type MemberStatus struct {
	// Name of the instance, its pod and its volume.
	Name string `json:"name"`
	// primary, replica, or empty while it is neither.
	// +optional
	Role string `json:"role,omitempty"`
	// Whether it serves: the primary, or a replica that streams from it.
	Ready bool `json:"ready"`
	// The node that it runs on.
	// +optional
	Node string `json:"node,omitempty"`
	// Timeline of its data.
	// +optional
	Timeline int64 `json:"timeline,omitempty"`
	// The image that its pod was asked to run.
	// +optional
	Image string `json:"image,omitempty"`
	// Version of its agent: that of the operator which made its pod. A new
	// operator brings a new agent at the next restart.
	// +optional
	Agent string `json:"agent,omitempty"`
	// Hash of the configuration that its server runs with.
	// +optional
	ConfigHash string `json:"configHash,omitempty"`
	// What it waits for or what went wrong, in the words of whoever said it.
	// +optional
	Message string `json:"message,omitempty"`
}
