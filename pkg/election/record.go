package election

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// RecordAnnotation is the annotation of the Lease that carries the Record.
const RecordAnnotation = "pgop.dev/reign"

// Record describes one reign: who is primary, of which data, and who may take
// over from it. Only the holder of the Lease writes it.
type Record struct {
	// Term numbers the reigns of a cluster. It never decreases.
	Term uint64 `json:"term"`
	// Timeline of the primary in this reign; until it has been promoted, the newest
	// of which there was word. It never decreases.
	Timeline uint32 `json:"timeline"`
	// SystemID is the system identifier of the database.
	SystemID string `json:"systemID"`
	// HolderDataID is the data id of the holder's volume.
	HolderDataID string `json:"holderDataID"`
	// HolderAddress is the IP address at which the holder serves. Standbys
	// follow it without asking DNS.
	HolderAddress string `json:"holderAddress"`
	// Members are the instances that may take over from this reign.
	Members []Member `json:"members,omitempty"`
	// Votes is how many of the members elect.
	Votes int `json:"votes,omitempty"`
	// Addresses are the members' IP addresses, by instance, as the holder has
	// last seen them.
	Addresses map[string]string `json:"addresses,omitempty"`
	// Nominee is the member that stands first, once the Lease was released.
	Nominee string `json:"nominee,omitempty"`
}

// Member is an instance and its data: one that lost its data is no member.
type Member struct {
	Instance string `json:"instance"`
	DataID   string `json:"dataID"`
}

// ParseRecord reads the value of RecordAnnotation. An empty value is the empty
// record: nobody has reigned yet.
func ParseRecord(annotation string) (Record, error) {
	var r Record
	if annotation == "" {
		return r, nil
	}
	if err := json.Unmarshal([]byte(annotation), &r); err != nil {
		return Record{}, fmt.Errorf("parse record of the reign: %w", err)
	}
	return r, nil
}

// String is the value of RecordAnnotation.
func (r Record) String() string {
	text, err := json.Marshal(r)
	if err != nil {
		panic(fmt.Sprintf("marshal record of the reign: %v", err)) // plain data always marshals
	}
	return string(text)
}

// IsEmpty says whether nobody has reigned yet.
func (r Record) IsEmpty() bool { return r.Term == 0 }

// Equal says whether r and other describe the same reign in the same words.
func (r Record) Equal(other Record) bool {
	return r.Term == other.Term && r.Timeline == other.Timeline && r.SystemID == other.SystemID &&
		r.HolderDataID == other.HolderDataID && r.HolderAddress == other.HolderAddress &&
		slices.Equal(r.Members, other.Members) && r.Votes == other.Votes &&
		maps.Equal(r.Addresses, other.Addresses) && r.Nominee == other.Nominee
}

// Holder is who holds the Lease: an instance in one life of its pod. A
// recreated pod is another holder.
type Holder struct {
	Instance string
	PodUID   string
}

// ParseHolder reads a Lease's holderIdentity, <instance>/<pod UID>. The zero
// Holder means that nobody holds the Lease.
func ParseHolder(identity string) Holder {
	instance, uid, _ := strings.Cut(identity, "/")
	return Holder{Instance: instance, PodUID: uid}
}

// String is the holderIdentity of h.
func (h Holder) String() string { return h.Instance + "/" + h.PodUID }

// IsZero says whether nobody holds the Lease.
func (h Holder) IsZero() bool { return h == Holder{} }
