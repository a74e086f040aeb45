package instanceapi

import (
	"encoding/json"
	"fmt"
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
	// Bootstrap is how the first database is made.
	Bootstrap Bootstrap `json:"bootstrap"`
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
}

// ParseConfig reads the value of ConfigKey.
func ParseConfig(text string) (Config, error) {
	var c Config
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return Config{}, fmt.Errorf("parse %s: %w", ConfigKey, err)
	}
	return c, nil
}
