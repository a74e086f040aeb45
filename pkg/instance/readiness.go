package instance

import (
	"time"

	"github.com/pgop/postgres-operator/pkg/instanceapi"
)

// blip is for how long a replica that has streamed counts as streaming: a receiver
// that reconnects is no news.
const blip = 3 * time.Second

// readiness is what the readiness probe's answer depends on.
type readiness struct {
	Role instanceapi.Role
	// Answers is true when the server answers a query.
	Answers bool
	// Reigns is true while this agent holds the Lease and has let clients in.
	Reigns bool
	// StreamedAt is when the replica was last seen to stream.
	StreamedAt time.Time
	// RenewedAt is when a renewal of the Lease was last seen.
	RenewedAt time.Time
	// Lasts is the Lease's duration: when the last renewal is as old as that, replicas go
	// on answering readers without a primary.
	Lasts time.Duration
}

// isReady says whether clients should be sent here.
func (r readiness) isReady(now time.Time) bool {
	switch {
	case !r.Answers:
		return false
	case r.Role == instanceapi.RolePrimary:
		return r.Reigns
	case r.Role == instanceapi.RoleReplica:
		return r.keepsUp(now) || now.Sub(r.RenewedAt) >= r.Lasts
	}
	return false
}

// streamed is when a replica was last seen to stream, and from whom.
type streamed struct {
	at   time.Time
	from upstream
}

// lately says whether the replica counts as streaming from up: it does so, or did
// a moment ago.
func (s streamed) lately(up upstream, now time.Time) bool {
	return !s.at.IsZero() && !up.isZero() && s.from == up && now.Sub(s.at) < blip
}

// keepsUp says whether the replica streams, or has done so for as long as there
// was a primary to stream from: one that restarts takes no reader away.
func (r readiness) keepsUp(now time.Time) bool {
	if r.StreamedAt.IsZero() {
		return false
	}
	until := r.StreamedAt.Add(blip)
	return now.Before(until) || r.RenewedAt.Before(until)
}
