// Package postgres holds what PostgreSQL's own formats need: positions in the
// WAL, versions, the control file, configuration files, connection strings and
// password verifiers. Everything in it is plain data and pure functions; what
// runs commands or talks to a server is in pkg/postgres/pgrun.
package postgres

import "strings"

const (
	// Superuser is the role that owns the database cluster. It has no password
	// and logs in over the local socket only.
	Superuser = "postgres"
	// ReplicationRole is the role with which replicas connect to the primary. It
	// has no password: the certificate of a replica bears its name.
	ReplicationRole = "streaming_replica"
	// Port is where every instance's server listens.
	Port = 5432
)

// SlotName is the name of the replication slot that the primary keeps for an
// instance. Slot names have no '-', and instance names no '_', so two
// instances never share one.
func SlotName(instance string) string {
	return strings.ReplaceAll(instance, "-", "_")
}

// IsInstanceSlot says whether a slot of that name is one that SlotName makes
// for an instance of the cluster, so that slots of users are left alone.
func IsInstanceSlot(slot, cluster string) bool {
	number, ok := strings.CutPrefix(slot, SlotName(cluster)+"_")
	if !ok || number == "" || number[0] == '0' {
		return false
	}
	return strings.Trim(number, "0123456789") == ""
}
