package instanceapi

import (
	"time"

	"github.com/pgop/postgres-operator/pkg/election"
	"github.com/pgop/postgres-operator/pkg/postgres"
)

// StatePath is where an agent's API serves its State, by GET.
const StatePath = "/v1/state"

// Role is what an instance is in its cluster.
type Role string

const (
	// RolePrimary is the instance that holds the Lease and takes writes.
	RolePrimary Role = "primary"
	// RoleReplica is an instance whose server runs in recovery.
	RoleReplica Role = "replica"
	// RoleNone is an instance whose server does not run.
	RoleNone Role = ""
)

// Phase is what an agent is doing.
type Phase string

const (
	// PhaseWaiting means that it can't go on until something else happens, such
	// as another pod letting go of the volume; Message says what.
	PhaseWaiting Phase = "Waiting"
	// PhaseBootstrapping means that it makes the first database.
	PhaseBootstrapping Phase = "Bootstrapping"
	// PhaseCloning means that it copies the primary.
	PhaseCloning Phase = "Cloning"
	// PhaseStarting means that the server is starting or recovering.
	PhaseStarting Phase = "Starting"
	// PhasePromoting means that a replica becomes the primary.
	PhasePromoting Phase = "Promoting"
	// PhaseRewinding means that a former primary takes back what its successor
	// has not.
	PhaseRewinding Phase = "Rewinding"
	// PhaseRunning means that the server runs.
	PhaseRunning Phase = "Running"
	// PhaseStopping means that the server is being stopped.
	PhaseStopping Phase = "Stopping"
	// PhaseFailed means that the last try failed; Message says why. It tries
	// again by itself, with back-off, and at once when its configuration
	// changes.
	PhaseFailed Phase = "Failed"
)

// State is what an agent reports of itself and its server.
type State struct {
	// Instance and PodUID say who answers.
	Instance string `json:"instance"`
	PodUID   string `json:"podUID"`
	// Life identifies the agent's process: another one has another.
	Life string `json:"life,omitempty"`
	// AgentVersion is the version of the agent's binary.
	AgentVersion string `json:"agentVersion"`

	Phase Phase `json:"phase"`
	// Message says in words what Phase waits for or what failed, for people.
	Message string `json:"message,omitempty"`
	// Since is when Phase began.
	Since time.Time `json:"since"`

	Role Role `json:"role"`
	// Ready is what the readiness probe answers.
	Ready bool `json:"ready"`

	// Inspected is true once the agent holds the volume's lock and has looked
	// into it; until then HasData says nothing.
	Inspected bool `json:"inspected"`
	// HasData is true when the volume holds a complete data directory; DataID
	// and SystemID identify it. Data that lacks its WAL has a DataID and is not
	// complete.
	HasData  bool   `json:"hasData"`
	DataID   string `json:"dataID,omitempty"`
	SystemID string `json:"systemID,omitempty"`

	// Term is the highest term that the instance knows of.
	Term uint64 `json:"term,omitempty"`
	// LastHolder is the instance that reigned in the last reign that the
	// volume remembers.
	LastHolder string `json:"lastHolder,omitempty"`
	// LastReign is the record of that reign.
	LastReign election.Record `json:"lastReign,omitzero"`

	// Sealed is the highest term for which the instance has given its vote.
	Sealed uint64 `json:"sealed,omitempty"`
	// Election says in words what the instance waits for when the Lease is free
	// and it can't take over, such as votes that are missing; empty otherwise.
	Election string `json:"election,omitempty"`
	// Stopping is true once the instance knows that people want the cluster
	// stopped, as Config.Stop says.
	Stopping bool `json:"stopping,omitempty"`
	// Request says in words why what a user has asked for, such as a
	// switchover, is not under way; empty when there is nothing to say.
	Request string `json:"request,omitempty"`

	// ServerVersion is what the running server says, such as 17.12.
	ServerVersion string `json:"serverVersion,omitempty"`
	Timeline      uint32 `json:"timeline,omitempty"`
	// WrittenLSN is the end of WAL on a primary, as X/Y.
	WrittenLSN string `json:"writtenLSN,omitempty"`
	// ReceivedLSN and ReplayedLSN are a replica's, as X/Y.
	ReceivedLSN string `json:"receivedLSN,omitempty"`
	ReplayedLSN string `json:"replayedLSN,omitempty"`
	// Streaming is true on a replica whose WAL receiver streams, or did so a moment
	// ago: one that reconnects is no news.
	Streaming bool `json:"streaming,omitempty"`
	// ConnectionsTaken is true while clients get no connection, since all are taken.
	ConnectionsTaken bool `json:"connectionsTaken,omitempty"`
	// Standbys are those that stream from this server, sorted by name.
	Standbys []Standby `json:"standbys,omitempty"`
	// Slots are this server's physical replication slots, sorted by name.
	Slots []Slot `json:"slots,omitempty"`

	// ConfigHash identifies the configuration that the server runs with: the
	// hash of the ConfigMap's postgresql.conf and pg_hba.conf.
	ConfigHash string `json:"configHash,omitempty"`
	// PendingRestart are parameters of the configuration whose new value needs a
	// restart of the server, as it says itself, sorted.
	PendingRestart []string `json:"pendingRestart,omitempty"`
	// Raised and Lowered are those of PendingRestart of which a standby needs at
	// least as much as its primary has, by the direction in which they change.
	Raised  []string `json:"raised,omitempty"`
	Lowered []string `json:"lowered,omitempty"`
	// Kept are those of which a standby has more than the configuration gives it,
	// until it has replayed that its primary has less, sorted.
	Kept []string `json:"kept,omitempty"`
	// SystemSet are those that ALTER SYSTEM has set, sorted: what a primary has more
	// of by them, its standbys keep for good.
	SystemSet []string `json:"systemSet,omitempty"`
	// PendingSystem are parameters that somebody has set by ALTER SYSTEM and whose
	// new value needs a restart, sorted.
	PendingSystem []string `json:"pendingSystem,omitempty"`
	// ConfigError is why the newest configuration is not applied; the server
	// runs on with the one before.
	ConfigError string `json:"configError,omitempty"`

	// Credentials identifies the certificates that both the agent and its server
	// use, by CredentialsHash; empty while one of them is behind.
	Credentials string `json:"credentials,omitempty"`

	// Archive is how archiving goes; nil: there are no backups in the configuration,
	// or nothing was archived yet in the agent's life.
	Archive *ArchiveState `json:"archive,omitempty"`
	// Backup is the base backup that is taken, or was taken last in the agent's life.
	Backup *BackupState `json:"backup,omitempty"`
	// CatalogVersion is that of the Catalog that a primary has read, and
	// CatalogError why it could not be read last time.
	CatalogVersion string `json:"catalogVersion,omitempty"`
	CatalogError   string `json:"catalogError,omitempty"`
	// RestoreFailed says why the backup that the configuration names can't be restored,
	// now or ever, such as a target that the archive does not reach; empty: it can, as
	// far as is known, and what fails is tried again.
	RestoreFailed string `json:"restoreFailed,omitempty"`
	// Restored is how far the restore of a backup is, in bytes of data, of
	// RestoreTotal.
	Restored     int64 `json:"restored,omitempty"`
	RestoreTotal int64 `json:"restoreTotal,omitempty"`
	// Recovered is where the recovery ended by which the data was made of a backup, or of
	// another cluster; nil: it was made otherwise.
	Recovered *Recovered `json:"recovered,omitempty"`
	// Declared is how far the primary is with the roles and databases of its
	// configuration; nil: the agent is of a version that knows nothing of them.
	Declared *DeclaredState `json:"declared,omitempty"`

	// VolumeSize and VolumeFree are the data volume's, in bytes.
	VolumeSize uint64 `json:"volumeSize,omitempty"`
	VolumeFree uint64 `json:"volumeFree,omitempty"`
	// WALVolumeSize and WALVolumeFree are the WAL volume's, in bytes; 0: there is
	// none.
	WALVolumeSize uint64 `json:"walVolumeSize,omitempty"`
	WALVolumeFree uint64 `json:"walVolumeFree,omitempty"`
}

// Standby is one row of a primary's pg_stat_replication.
type Standby struct {
	// Name is the instance's, and DataID identifies its data; a standby that is
	// none of the cluster's has a name only.
	Name   string `json:"name"`
	DataID string `json:"dataID,omitempty"`
	// Sync is true for one whose acknowledgement a commit may wait for.
	Sync bool `json:"sync,omitempty"`
	// State is startup, catchup, streaming, backup or stopping.
	State string `json:"state"`
	// LagBytes is how much WAL the standby has yet to flush.
	LagBytes int64 `json:"lagBytes"`
}

// Slot is a physical replication slot.
type Slot struct {
	Name   string `json:"name"`
	Active bool   `json:"active"`
	// KeptBytes is how much WAL the slot keeps from being recycled.
	KeptBytes int64 `json:"keptBytes"`
}

// Recovered is where a recovery ended.
type Recovered struct {
	// LSN is the end of the last record that was replayed.
	LSN postgres.LSN `json:"lsn"`
	// LastCommit is when the last transaction was committed that was replayed; zero: none
	// was.
	LastCommit time.Time `json:"lastCommit,omitzero"`
}
