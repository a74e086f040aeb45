package election

import (
	"time"

	"github.com/pgop/postgres-operator/pkg/postgres"
)

// Time is a moment of an instance's own monotonic clock. Clocks of different
// instances have nothing to do with each other.
type Time = time.Duration

// Mode is when a commit is acknowledged.
type Mode string

const (
	// Async acknowledges without asking a standby.
	Async Mode = "async"
	// Required acknowledges only what Need standbys have flushed.
	Required Mode = "required"
	// Preferred is Required as long as there are Need standbys, and Async when
	// there are not.
	Preferred Mode = "preferred"
)

// Settings are those of a cluster.
type Settings struct {
	Mode Mode
	// Need is how many standbys must acknowledge a commit, unless Mode is Async.
	Need int
	// LeaseDuration is for how long a standby must have seen the Lease unchanged
	// before it takes part in an election. RenewEvery is how often the holder
	// renews it, and Margin how long before its end the holder stops.
	LeaseDuration, RenewEvery, Margin time.Duration
	// VoteWindow is how long a candidate waits for votes.
	VoteWindow time.Duration
	// NomineeFirst is how long others let the nominee stand alone.
	NomineeFirst time.Duration
	// Absence is how long a standby may be away before it is a member no more.
	Absence time.Duration
	// MaxLag is how far behind, in bytes, a member may be in mode Async.
	MaxLag postgres.LSN

	// without switches one rule off, so that tests see the simulator find out.
	without rule
}

// rule names one of the rules of the protocol.
type rule string

// Input is all that a step decides by: what the instance has seen by itself,
// and what has come from others since the step before.
type Input struct {
	Now Time
	// Lease is the newest version known; nil before the first.
	Lease *Lease
	// Fresh is true when Lease was read after every request in this Input came,
	// and after the outcome in Written was known.
	Fresh bool
	Data  Data
	// Cut is the highest term for which this instance has cut its WAL receiver;
	// Data was measured after that.
	Cut uint64
	// Primary is there while the server runs and takes writes.
	Primary *Primary
	// Resign is there once the holder's server has ended, with every process, and
	// another shall reign. It is heeded only while there are members.
	Resign *Resign
	// Halt is there once the holder's server has ended, with every process, and
	// nobody shall reign, since people stop the cluster.
	Halt *Halt
	// Rest is true while people want nobody to reign: this instance neither stands
	// for election nor takes the Lease back. A reign under way goes on.
	Rest bool
	// Founds is true when this instance's data may begin the first reign, while the
	// Lease has no record: it was made here, and its volume remembers no reign.
	Founds bool
	// Memory is the last record that the volume remembers, and Instances are those of
	// the cluster, this one among them, whose volumes may remember another.
	Memory    Record
	Instances []string
	// Forced is true when a user wants this instance to reign, whatever it lacks.
	// The Lease must have ended all the same.
	Forced bool
	// Sealed is the highest term that a peer says it has sealed.
	Sealed uint64

	// Written is the outcome of the write that the last step asked for, if it is
	// known by now.
	Written  *Written
	Requests []VoteRequest
	Votes    []Vote
	Pleas    []PromiseRequest
	Promises []Promise
	// Testimonies answer Output.Inquire.
	Testimonies []Testimony
}

// Lease is the cluster's Lease as this instance has seen it.
type Lease struct {
	// Version changes with every write, renewals included. It is empty when this
	// is what the volume remembers, as long as the API server was not heard.
	Version string
	// Holder is zero when the Lease was released.
	Holder Holder
	Record Record
	// SeenAt is when this version was first seen.
	SeenAt Time
	// Lasts is how long its holder said that it lasts. Settings change, and not
	// everywhere at once.
	Lasts time.Duration
}

// Resign is how a holder gives way.
type Resign struct {
	// Nominee is the member that stands first; empty: any.
	Nominee string
}

// Halt is how a reign ends without a successor. The Lease keeps its holder, so
// that the data that reigned last takes it back when people want that.
type Halt struct {
	// Orderly is true when the server has shut down in order. Then the record
	// keeps as members only those in Whole: they have the WAL to its very end, so
	// that each may elect alone. Else it stays as it is.
	Orderly bool
	Whole   []Member
}

// Data is what an instance has on its volume.
type Data struct {
	// ID identifies the data; empty while the data directory is not complete.
	ID       string
	SystemID string
	// Timeline is that of the last WAL, and End its end.
	Timeline uint32
	End      postgres.LSN
}

// Primary is what a server in writing knows of its standbys.
type Primary struct {
	// End of the WAL, and its timeline.
	End      postgres.LSN
	Timeline uint32
	// Sync is in force in every process, as of the position SyncSince, when
	// SyncDone is true; else it is on its way.
	Sync      Sync
	SyncDone  bool
	SyncSince postgres.LSN
	// Recovered is where the WAL ended when this life of the server began: what
	// was committed before is visible, whether it was acknowledged or not.
	Recovered postgres.LSN
	// Standbys are those that stream. Walsenders that have outlived their
	// connection, and names that are nobody's, may be among them.
	Standbys []Standby
}

// Sync is a value of synchronous_standby_names: Need of Standbys acknowledge.
// Need without Standbys is a name that nobody has, so that commits wait.
type Sync struct {
	Need     int
	Standbys []Member
}

// Standby is a standby that streams, as the primary's walsender knows it.
type Standby struct {
	Member
	Flushed postgres.LSN
	// Address is its IP address.
	Address string
}

// Written is the outcome of a write of the Lease.
type Written struct {
	Outcome Outcome
	// Version is the new one when Outcome is Done.
	Version string
}

// Outcome of a write.
type Outcome int

const (
	// Done means that the write has succeeded.
	Done Outcome = iota
	// Refused means that the Lease had another version.
	Refused
	// Unknown means that it may have succeeded.
	Unknown
)

// VoteRequest asks a member to elect Candidate for Term, provided that the
// Lease has Version.
type VoteRequest struct {
	Candidate Member
	Term      uint64
	Version   string
}

// Vote is a member's answer: it has sealed Term, and this is where its WAL ends.
type Vote struct {
	Voter    Member
	Request  VoteRequest
	Timeline uint32
	End      postgres.LSN
}

// PromiseRequest asks a member not to take part in elections for a while, since
// the holder can't renew the Lease.
type PromiseRequest struct {
	Holder Holder
	Term   uint64
	// AskedAt is the holder's own, and comes back in the answer.
	AskedAt Time
	// Lasts is for how long the holder wants the promise.
	Lasts time.Duration
}

// Promise is a member's answer.
type Promise struct {
	Member  Member
	Request PromiseRequest
}
