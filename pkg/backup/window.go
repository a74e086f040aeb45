package backup

import (
	"slices"
	"time"

	"github.com/pgop/postgres-operator/pkg/postgres"
)

// Window is the time to which an archive can be restored.
type Window struct {
	// First is when the oldest backup that can be restored was complete.
	First time.Time
	// Last is when the archive got the last segment that recovery comes to, so
	// that what was committed a little earlier is in it. Not before First.
	Last time.Time
	// Gap is the segment that the archive lacks though it has some that come after
	// it; empty: none.
	Gap string
}

// RestoreWindow is the time to which the newest backup, and those before it,
// can be restored; false: there is no backup that can be.
func RestoreWindow(c Catalog) (Window, bool) {
	var usable []Record
	for _, r := range c.Records {
		if _, err := Chain(c.Records, r.ID); err == nil {
			usable = append(usable, r)
		}
	}
	if len(usable) == 0 {
		return Window{}, false
	}
	oldest, newest := slices.MinFunc(usable, byEnd), slices.MaxFunc(usable, byEnd)
	w := Window{First: oldest.StoppedAt, Last: newest.StoppedAt}
	last, gap := follow(c.WAL, newest)
	w.Gap = gap
	if last.After(w.Last) {
		w.Last = last
	}
	return w, true
}

// Gap is the first segment that recovery of a backup would miss although the archive
// has some that come after it; empty: none.
func Gap(w ArchivedWAL, r Record) string {
	_, gap := follow(w, r)
	return gap
}

// follow follows the WAL from a backup's end along the newest timeline that
// comes from it, and returns when the last segment was archived that recovery
// would come to, and which one it would miss.
func follow(w ArchivedWAL, r Record) (last time.Time, gap string) {
	timeline := newestFrom(w, r)
	segments := map[uint64]ArchivedFile{}
	furthest := uint64(0)
	for _, file := range w.Files {
		number, ok := file.number(r.SegmentSize)
		if file.Kind != Segment || !ok || !leadsTo(w, file.WALName, r.SegmentSize, timeline) {
			continue
		}
		furthest = max(furthest, number)
		// At a switch two timelines have the segment, and recovery takes the newer.
		if before, found := segments[number]; !found || file.Timeline > before.Timeline {
			segments[number] = file
		}
	}
	stop := postgres.WALFileAt(timeline, r.StopLSN()-1, r.SegmentSize)
	for number := stop.Number(r.SegmentSize); ; number++ {
		file, found := segments[number]
		if !found {
			if number < furthest {
				gap = postgres.WALFile{Timeline: timeline, Start: postgres.LSN(number * r.SegmentSize)}.Name(r.SegmentSize)
			}
			return last, gap
		}
		if file.ArchivedAt.After(last) {
			last = file.ArchivedAt
		}
	}
}

// newestFrom is the timeline that recovery of a backup ends on.
func newestFrom(w ArchivedWAL, r Record) uint32 {
	newest := r.Timeline()
	for timeline, history := range w.Histories {
		if diverges, _ := postgres.Diverges(r.Timeline(), r.StopLSN(), timeline, history); !diverges {
			newest = max(newest, timeline)
		}
	}
	return newest
}

// leadsTo says whether a segment is in the past of a timeline, or of its own.
func leadsTo(w ArchivedWAL, name WALName, segmentSize uint64, timeline uint32) bool {
	file, ok := postgres.ParseWALFile(name.Text, segmentSize)
	if !ok {
		return false
	}
	diverges, _ := postgres.Diverges(name.Timeline, file.Start, timeline, w.Histories[timeline])
	return !diverges
}
