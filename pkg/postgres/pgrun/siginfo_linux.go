package pgrun

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// endedPID is si_pid of what waitid filled in, 0 if it found nothing. The
// union that holds it has no names in package unix; on 64-bit Linux it begins
// after three ints, aligned to 8 bytes.
func endedPID(info *unix.Siginfo) int {
	const unionOffset = 16
	return int(*(*int32)(unsafe.Add(unsafe.Pointer(info), unionOffset)))
}
