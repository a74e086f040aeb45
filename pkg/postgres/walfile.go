package postgres

import "fmt"

// Name is the name of the segment in pg_wal, for a server with segments of that
// many bytes.
func (f WALFile) Name(segmentSize uint64) string {
	perID := (uint64(1) << 32) / segmentSize
	number := f.Number(segmentSize)
	return fmt.Sprintf("%08X%08X%08X", f.Timeline, number/perID, number%perID)
}

// Number counts the segments from the beginning of all WAL. Timelines share the
// numbers.
func (f WALFile) Number(segmentSize uint64) uint64 { return uint64(f.Start) / segmentSize }

// WALFileAt is the segment that holds the byte at a position.
func WALFileAt(timeline uint32, position LSN, segmentSize uint64) WALFile {
	return WALFile{Timeline: timeline, Start: position - position%LSN(segmentSize)}
}
