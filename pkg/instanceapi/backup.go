package instanceapi

import (
	"context"
	"net/http"
	"time"
)

// Backups is where a cluster's WAL and base backups go, and how long they stay.
type Backups struct {
	Store Store `json:"store"`
	// Retention says which backups are kept; the primary removes the others.
	Retention Retention `json:"retention,omitzero"`
	// MaxRate is how fast a base backup may read, in bytes per second; 0: as fast
	// as it can.
	MaxRate int64 `json:"maxRate,omitempty"`
}

// Store is a place for backups: one of its fields.
type Store struct {
	S3     *S3Store     `json:"s3,omitempty"`
	Volume *VolumeStore `json:"volume,omitempty"`
}

// S3Store is a bucket. All of a cluster lies under Prefix, which includes the
// cluster's name.
type S3Store struct {
	Bucket string `json:"bucket"`
	Prefix string `json:"prefix"`
	// Endpoint is a URL; empty: AWS.
	Endpoint string `json:"endpoint,omitempty"`
	Region   string `json:"region,omitempty"`
	// CredentialsSecret has the keys access-key-id and secret-access-key, and maybe
	// session-token. Agents read it from the API server. Empty: what the
	// environment gives, such as a role of the node.
	CredentialsSecret string `json:"credentialsSecret,omitempty"`
	// CASecret has, under the key ca.crt, the authorities that may vouch for the
	// endpoint; empty: those of the system.
	CASecret string `json:"caSecret,omitempty"`
}

// Keys of S3Store's Secrets.
const (
	S3KeyID        = "access-key-id"
	S3Key          = "secret-access-key"
	S3SessionToken = "session-token"
	S3CA           = "ca.crt"
)

// VolumeStore is a directory on a volume that every instance has mounted.
type VolumeStore struct {
	// Dir is the directory's path in the pods; it includes the cluster's name.
	Dir string `json:"dir"`
}

// Retention is as backup.Retention.
type Retention struct {
	Keep   int      `json:"keep,omitempty"`
	Within Duration `json:"within,omitzero"`
}

// TakeBackup asks an instance for a base backup. It is void for an agent that has
// another Life, so that one that has restarted doesn't begin again what it may have
// half done.
type TakeBackup struct {
	// ID is the backup's in the store, of backup.NewID, and Name what people call it.
	ID   string `json:"id"`
	Name string `json:"name"`
	// Incremental asks for what has changed since the backup Parent, by its ID.
	Parent   string `json:"parent,omitempty"`
	Instance string `json:"instance"`
	Life     string `json:"life"`
}

// Restore makes the first database of a backup instead of by initdb.
type Restore struct {
	// Store is where the backup lies; its prefix or directory is that of the
	// cluster that took it.
	Store Store `json:"store"`
	// ID is the backup's; empty: the one from which the target is reached soonest.
	ID string `json:"id,omitempty"`
	// Target is where recovery ends: at most one of them. None: at the end of the
	// archive.
	Target RestoreTarget `json:"target,omitzero"`
}

// Proof is what has come of proving a backup. The pod that does so tells it, as JSON,
// in its container's termination message.
type Proof struct {
	// Until is when the last transaction was committed that was restored, or when the
	// backup's data was complete, if none was committed later.
	Until time.Time `json:"until,omitzero"`
	// Failed says why the backup is not proved; empty: it is.
	Failed string `json:"failed,omitempty"`
}

// RestoreTarget is as backup.TargetSpec.
type RestoreTarget struct {
	Time      string `json:"time,omitempty"`
	LSN       string `json:"lsn,omitempty"`
	XID       string `json:"xid,omitempty"`
	Name      string `json:"name,omitempty"`
	Immediate bool   `json:"immediate,omitempty"`
}

// ArchiveState is how an instance's archiving goes.
type ArchiveState struct {
	// Archived is the last file that the server was told is in the archive, and
	// ArchivedAt when.
	Archived   string    `json:"archived,omitempty"`
	ArchivedAt time.Time `json:"archivedAt,omitzero"`
	// Failing says why the last try failed, in the store's words, and FailingSince
	// when the first of those in a row did; empty: the last try was a success.
	Failing      string    `json:"failing,omitempty"`
	FailingSince time.Time `json:"failingSince,omitzero"`
	// Failed and FailedAt are the last failure, also when it is over.
	Failed   string    `json:"failed,omitempty"`
	FailedAt time.Time `json:"failedAt,omitzero"`
	// Waiting is how many files wait to be archived.
	Waiting int `json:"waiting,omitempty"`
}

// BackupState is the base backup that an agent takes, or took last in its life.
type BackupState struct {
	ID string `json:"id"`
	// Done and Estimated are in bytes of data.
	Done      int64 `json:"done,omitempty"`
	Estimated int64 `json:"estimated,omitempty"`
	// AwaitsWAL: the data is in the store, and not yet all the WAL it needs.
	AwaitsWAL bool `json:"awaitsWAL,omitempty"`
	// Failed says why it has failed. Complete is what the store has of it once it is
	// complete. Neither: it is under way.
	Failed   string      `json:"failed,omitempty"`
	Complete *BackupInfo `json:"complete,omitempty"`
}

// BackupInfo is what people are told of a complete base backup.
type BackupInfo struct {
	ID          string    `json:"id"`
	Name        string    `json:"name,omitempty"`
	Incremental bool      `json:"incremental,omitempty"`
	Parent      string    `json:"parent,omitempty"`
	Instance    string    `json:"instance,omitempty"`
	Version     string    `json:"version,omitempty"`
	Timeline    uint32    `json:"timeline"`
	StartLSN    string    `json:"startLSN"`
	StopLSN     string    `json:"stopLSN"`
	StartedAt   time.Time `json:"startedAt"`
	StoppedAt   time.Time `json:"stoppedAt"`
	// FirstWAL and LastWAL are the first and the last segment that it needs.
	FirstWAL string `json:"firstWAL,omitempty"`
	LastWAL  string `json:"lastWAL,omitempty"`
	// Size and StoredSize are in bytes.
	Size       int64 `json:"size"`
	StoredSize int64 `json:"storedSize"`
	// Unusable says why it can't be restored, such as a parent that is gone, or WAL
	// that the archive has lost; empty: it can.
	Unusable string `json:"unusable,omitempty"`
	// LeftBehind: the cluster was restored to a time before the end of this backup. It can
	// be restored along the timeline that was left, and nothing leads from it to the present.
	LeftBehind bool `json:"leftBehind,omitempty"`
	// Until is the last time to which it can be restored; zero: not known.
	Until time.Time `json:"until,omitzero"`
}

// CatalogPath is where the agent of the primary tells what the store holds, by GET.
const CatalogPath = "/v1/catalog"

// Catalog is what a cluster's store holds, as its primary last read it: after each
// backup, after each retention, and every few minutes.
type Catalog struct {
	// Version changes with what follows, but for ReadAt.
	Version string    `json:"version"`
	ReadAt  time.Time `json:"readAt"`
	// Backups are the complete ones, oldest first.
	Backups []BackupInfo `json:"backups,omitempty"`
	// Damaged are backups whose record can't be read, by id, with the reason.
	Damaged map[string]string `json:"damaged,omitempty"`
	// First and Last bound the times to which the cluster can be restored; zero:
	// there is no backup.
	First time.Time `json:"first,omitzero"`
	Last  time.Time `json:"last,omitzero"`
	// Gap is a segment that the archive lacks, though it has later ones.
	Gap string `json:"gap,omitempty"`
}

// Catalog asks the primary's agent at address for the catalog.
func (c *Client) Catalog(ctx context.Context, address string) (Catalog, error) {
	var catalog Catalog
	return catalog, c.ask(ctx, http.MethodGet, address, CatalogPath, nil, &catalog)
}
