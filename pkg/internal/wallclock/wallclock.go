// Package wallclock lets tests move the hands of the wall clock, as an
// administrator or NTP does, while the monotonic clock goes on.
package wallclock

import (
	"time"
	"unsafe"
)

// Move returns the time that time.Now would have returned instead of t had the
// wall clock been moved by d, forward or back, in whole seconds. t must come from
// time.Now, and have its monotonic reading.
func Move(t time.Time, d time.Duration) time.Time {
	moved := t
	// A time with a monotonic reading begins with a word that has a flag, 33 bits
	// for the seconds of the wall clock, and 30 for its nanoseconds.
	const nanosecondBits = 30
	*(*uint64)(unsafe.Pointer(&moved)) += uint64(d/time.Second) << nanosecondBits
	if moved.Sub(t) != 0 || !moved.Round(0).Equal(t.Round(0).Add(d)) {
		panic("time.Time is not laid out as it was, or the time has no monotonic reading")
	}
	return moved
}
