package election

import "time"

// Output is what a step asks for. What is asked for again and again, like
// Target, is done once; what is empty is not asked for.
type Output struct {
	// Target is what the server shall be.
	Target Target
	// Sync is what the primary's synchronous_standby_names shall be.
	Sync *Sync
	// Write is a write of the Lease, to be tried once.
	Write *Write
	// Read asks for a fresh read of the Lease before the next step.
	Read bool
	// Seal is a term to seal: cut the WAL receiver, and keep the term beside the
	// data before anything that follows from it leaves this instance.
	Seal uint64
	// Ask is sent to each of AskWhom.
	Ask     *VoteRequest
	AskWhom []Member
	// Votes answer requests.
	Votes []Vote
	// Plead is sent to each of PleadWith.
	Plead     *PromiseRequest
	PleadWith []Member
	// Promises answer pleas.
	Promises []Promise
	// Inquire are instances that are asked for their Testimony, with the version of
	// the Lease.
	Inquire []string
	// Blocked says for people why nobody is elected, as far as this instance
	// knows; empty when there is nothing to say.
	Blocked string
}

// Target is what a server shall be.
type Target struct {
	Role Role
	// Term of the reign, of this instance's own or of the one that it follows.
	Term uint64
	// Upstream is the instance to follow; empty: none, WAL receivers are cut.
	Upstream string
	// Open is whether clients may use a primary.
	Open bool
	// Why is for people.
	Why string
}

// Role is what a server shall be.
type Role string

const (
	// Staying means that the server is left as it is, for the moment.
	Staying Role = "staying"
	// Stopped means that no process of the server is left.
	Stopped Role = "stopped"
	// Following means that the server runs in recovery.
	Following Role = "following"
	// Leading means that the server takes writes.
	Leading Role = "leading"
)

// Write replaces the Lease, if it still has Version.
type Write struct {
	Version string
	Holder  Holder
	Record  Record
	// StartedAt is when the write began, by the writer's clock, and Lasts how long
	// the Lease lasts from then on.
	StartedAt Time
	Lasts     time.Duration
}
