// Package history is what a ledger has seen, and the judgement of it. It is
// pure but for Now.
package history

import (
	"time"

	"golang.org/x/sys/unix"
)

// Entry is one try of a client to write a row.
type Entry struct {
	// Client is kept or fresh, behind the name of its ledger: ledger/kept.
	Client string `json:"client"`
	// ID is the row's, and no other's.
	ID string `json:"id"`
	// Sent and Done are when the try began and ended, as Now says it.
	Sent Instant `json:"sent"`
	Done Instant `json:"done"`
	// Wall is Done by the machine's clock, for people who read logs beside it.
	Wall time.Time `json:"wall"`
	// Connected means that the try had to connect first.
	Connected bool `json:"connected,omitempty"`
	// Acked means that the server has said that the row is committed. Of any
	// other try the outcome is unknown.
	Acked bool `json:"acked,omitempty"`
	// Error is why there is no acknowledgement.
	Error string `json:"error,omitempty"`
	// By is who acknowledged.
	By Server `json:"by,omitzero"`
}

// Server is a server as it says itself.
type Server struct {
	// Instance is the server's cluster_name.
	Instance string `json:"instance"`
	// Address is the pod's.
	Address string `json:"address"`
	// Started is when its postmaster started, in PostgreSQL's words.
	Started string `json:"started"`
	// Timeline is the one that it writes. A promotion begins a new one.
	Timeline uint32 `json:"timeline"`
}

// Instant is a time on the machine's monotonic clock in nanoseconds. All
// processes of a machine, in whichever container, have the same.
type Instant int64

// Now is the present instant.
func Now() Instant {
	var t unix.Timespec
	// It fails for unknown clocks only.
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t)
	return Instant(t.Nano())
}

// Sub is the time from o to i.
func (i Instant) Sub(o Instant) time.Duration { return time.Duration(i - o) }

// Add is the instant d after i.
func (i Instant) Add(d time.Duration) Instant { return i + Instant(d) }

// Status is how a ledger fares.
type Status struct {
	// Acked counts each client's acknowledgements after the instant asked about.
	Acked map[string]int `json:"acked"`
	// Idle is true while the idle session is open.
	Idle bool `json:"idle"`
	// LastError is of the last try that failed.
	LastError string `json:"lastError,omitempty"`
}
