package postgres

import (
	"fmt"
	"strconv"
	"strings"
)

// Switch is where a timeline ended and the next one began.
type Switch struct {
	Timeline uint32 `json:"timeline"`
	LSN      LSN    `json:"lsn"`
}

// ParseHistory reads a timeline's history file: its ancestors, oldest first,
// each with the position at which it was left. The first timeline has none.
func ParseHistory(text string) ([]Switch, error) {
	var switches []Switch
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		if len(fields) < 2 {
			return nil, fmt.Errorf("parse timeline history: line %q has no position", strings.TrimSpace(line))
		}
		timeline, err := strconv.ParseUint(fields[0], 10, 32)
		if err != nil {
			return nil, fmt.Errorf("parse timeline history: %w", err)
		}
		position, err := ParseLSN(fields[1])
		if err != nil {
			return nil, fmt.Errorf("parse timeline history: %w", err)
		}
		switches = append(switches, Switch{Timeline: uint32(timeline), LSN: position})
	}
	return switches, nil
}

// HistoryFile is the name of a timeline's history file in pg_wal.
func HistoryFile(timeline uint32) string { return fmt.Sprintf("%08X.history", timeline) }

// UnusedHistory is the content of a history file that only keeps a server from
// beginning a timeline of that number: a promotion takes the first number that has no
// file. It names no ancestors, so nobody ever follows it.
const UnusedHistory = "# Not a timeline of this server: another may have used the number.\n"

// Diverges says whether WAL up to a position on a timeline is none of the past
// of a server on timeline current with that history, and why. It goes by where
// timelines were left: that one has a lower number says nothing.
func Diverges(timeline uint32, position LSN, current uint32, history []Switch) (bool, string) {
	if timeline == current {
		return false, ""
	}
	for _, s := range history {
		if s.Timeline != timeline {
			continue
		}
		if position > s.LSN {
			return true, fmt.Sprintf("it has WAL of timeline %d up to %s, which was left at %s", timeline, position, s.LSN)
		}
		return false, ""
	}
	return true, fmt.Sprintf("its timeline %d is none that led to timeline %d", timeline, current)
}

// WALFile is what the name of a file in pg_wal says.
type WALFile struct {
	Timeline uint32
	// Start is the position of its first byte.
	Start LSN
}

// ParseWALFile reads the name of a segment, for a server with segments of that
// many bytes; false: it is none.
func ParseWALFile(name string, segmentSize uint64) (WALFile, bool) {
	const digits = 24
	if len(name) != digits || segmentSize == 0 {
		return WALFile{}, false
	}
	var parts [3]uint64
	for i := range parts {
		n, err := strconv.ParseUint(name[i*8:i*8+8], 16, 32)
		if err != nil {
			return WALFile{}, false
		}
		parts[i] = n
	}
	return WALFile{Timeline: uint32(parts[0]), Start: LSN(parts[1]<<32 + parts[2]*segmentSize)}, true
}

// TimelineAt is the timeline of the WAL that ends at a position, as the names
// of the files in pg_wal tell; 0: it is not there.
func TimelineAt(files []string, position LSN, segmentSize uint64) uint32 {
	if position == 0 || segmentSize == 0 {
		return 0
	}
	start := (uint64(position) - 1) / segmentSize * segmentSize
	newest := uint32(0)
	for _, name := range files {
		if file, ok := ParseWALFile(name, segmentSize); ok && uint64(file.Start) == start {
			newest = max(newest, file.Timeline)
		}
	}
	return newest
}

// OldestWAL is the position from which on a server has its WAL; 0: it has none.
func OldestWAL(files []string, segmentSize uint64) LSN {
	oldest := LSN(0)
	for _, name := range files {
		if file, ok := ParseWALFile(name, segmentSize); ok && (oldest == 0 || file.Start < oldest) {
			oldest = file.Start
		}
	}
	return oldest
}
