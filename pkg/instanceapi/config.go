package instanceapi

import (
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Keys of the cluster's ConfigMap.
const (
	// ConfigKey holds a Config as JSON.
	ConfigKey = "cluster.json"
	// PostgresConfKey holds postgresql.conf, but for what differs between
	// instances, which the agent adds.
	PostgresConfKey = "postgresql.conf"
	// HBAKey holds pg_hba.conf.
	HBAKey = "pg_hba.conf"
	// IdentKey holds the user's part of pg_ident.conf.
	IdentKey = "pg_ident.conf"
)

// Annotations of the rw EndpointSlice, which a primary's agent writes: the term of the
// reign, and the UID of the pod, whose address it has.
const (
	SliceTermAnnotation = "pgop.dev/term"
	SlicePodAnnotation  = "pgop.dev/pod-uid"
)

// Config is what every agent of a cluster needs to know and the pod's own
// flags don't say.
type Config struct {
	// Cluster is the name of the PostgresCluster.
	Cluster string `json:"cluster"`
	// SystemID is the database's system identifier, empty until it is known.
	// Once it is known nobody runs initdb, and data of another system is
	// neither used nor touched.
	SystemID string `json:"systemID,omitempty"`
	// Members are the names of the instances that belong to the cluster. The
	// primary keeps a replication slot for each of the others.
	Members []string `json:"members"`
	// Blank are those of Members whose volumes were never used, or went with their
	// nodes for good. They are told only while the Lease does not tell of the last
	// reign: then nobody waits for what they remember.
	Blank []string `json:"blank,omitempty"`
	// Bootstrap is how the first database is made.
	Bootstrap Bootstrap `json:"bootstrap"`
	// HA is how commits are acknowledged, and when a failover begins.
	HA HA `json:"ha,omitzero"`

	// Declared are the roles and databases that the primary keeps, and Owner is the login
	// that it keeps beside.
	Declared Declared   `json:"declared,omitzero"`
	Owner    OwnerLogin `json:"owner,omitzero"`

	// Stop is true while people want the cluster stopped: a primary whose pod ends
	// hands over to nobody, and nobody is elected.
	Stop bool `json:"stop,omitempty"`

	// Switchover, Reclone and ForcePromote are what users have asked for. Each
	// names a state of the cluster that it was asked in, and is void in any
	// other, so that nothing happens twice.
	Switchover   *Switchover   `json:"switchover,omitempty"`
	Reclone      *Reclone      `json:"reclone,omitempty"`
	ForcePromote *ForcePromote `json:"forcePromote,omitempty"`
	// Restart is what the operator asks for itself, in the same way.
	Restart *Restart `json:"restart,omitempty"`

	// Backups is where WAL and base backups go; nil: nowhere, and no WAL is kept for
	// an archive.
	Backups *Backups `json:"backups,omitempty"`
	// TakeBackup is the base backup that is to be taken; nil: none.
	TakeBackup *TakeBackup `json:"takeBackup,omitempty"`
}

// HA is spec.replication and spec.failover, with defaults. Zero fields mean the
// defaults of an operator that knew them not.
type HA struct {
	// Mode is async, required or preferred, as in pkg/election.
	Mode string `json:"mode,omitempty"`
	// Need is how many standbys must acknowledge a commit, unless Mode is async.
	Need int `json:"need,omitempty"`
	// LeaseDuration is for how long the Lease must stay unchanged before an
	// election.
	LeaseDuration Duration `json:"leaseDuration,omitempty"`
	// RestartTimeout is how long a primary's server may take to start, and
	// UnresponsiveTimeout for how long it may answer no new connection, before
	// the primary gives way to a replica that can take over.
	RestartTimeout      Duration `json:"restartTimeout,omitempty"`
	UnresponsiveTimeout Duration `json:"unresponsiveTimeout,omitempty"`
	// MaxLag is how far behind the primary, in bytes of WAL, a replica may be
	// that can take over, in mode async.
	MaxLag int64 `json:"maxLag,omitempty"`
}

// Duration is a time.Duration that is written as people write it: 10s.
type Duration = metav1.Duration

// Switchover asks the primary to hand over in order.
type Switchover struct {
	// To is the instance that takes over; empty: the one that is best fit.
	To string `json:"to,omitempty"`
	// From and Term are the reign that ends. The request is void in another.
	From string `json:"from"`
	Term uint64 `json:"term"`
}

// Reclone asks a replica to throw its data away and to copy the primary anew.
type Reclone struct {
	Instance string `json:"instance"`
	// DataID is the data that goes; the request is void once there is other.
	DataID string `json:"dataID"`
	// NewVolumes is true when the operator replaces the instance's volumes for it:
	// then the agent that has the old ones does nothing.
	NewVolumes bool `json:"newVolumes,omitempty"`
}

// ForcePromote asks a replica to take over although it may lack what was
// committed.
type ForcePromote struct {
	Instance string `json:"instance"`
	// Term is the last reign's; the request is void once it has moved.
	Term uint64 `json:"term"`
}

// Restart asks an instance to restart its server in its place, so that parameters
// take effect that only a start can change.
type Restart struct {
	Instance string `json:"instance"`
	// ConfigHash is the configuration that is to take effect; the request is void
	// for a server that was started with it, or has another.
	ConfigHash string `json:"configHash"`
}

// Bootstrap is how the first database is made.
type Bootstrap struct {
	// Instance is who may run initdb on its empty volume; empty: nobody.
	Instance string `json:"instance,omitempty"`
	// Database, Owner and the others are as in the API's InitdbSpec.
	Database      string   `json:"database"`
	Owner         string   `json:"owner"`
	Locale        string   `json:"locale"`
	Encoding      string   `json:"encoding"`
	DataChecksums bool     `json:"dataChecksums"`
	SQL           []string `json:"sql,omitempty"`
	// Restore makes the database of a backup, and then Database and Owner name what
	// the backup is expected to hold; nil: by initdb.
	Restore *Restore `json:"restore,omitempty"`
	// Clone copies the database of another cluster, and then Database and Owner name
	// what that is expected to hold; nil: nothing is copied.
	Clone *Clone `json:"clone,omitempty"`
}

// Clone is the server of another cluster that the first database is a copy of.
type Clone struct {
	// Cluster is the other cluster's name, for people.
	Cluster string `json:"cluster"`
	// Host is the name that its certificate must bear, and Address where it is. Another
	// one may be named while it is copied; the next try goes there.
	Host    string `json:"host"`
	Address string `json:"address"`
	Port    int    `json:"port"`
	// Secret has, under the keys of CAFile, ReplicationCertFile and ReplicationKeyFile,
	// who may vouch for the server and what lets the copy in. Agents read it from the
	// API server.
	Secret string `json:"secret"`
}

// ParseConfig reads the value of ConfigKey.
func ParseConfig(text string) (Config, error) {
	var c Config
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return Config{}, fmt.Errorf("parse %s: %w", ConfigKey, err)
	}
	return c, nil
}
