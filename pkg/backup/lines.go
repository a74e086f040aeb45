package backup

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/pgop/postgres-operator/pkg/postgres"
)

// An archive is a tree: each timeline but the first branches off from another one, and
// a cluster that was restored to an earlier time in its own archive leaves a branch with
// WAL, and maybe backups, from which nothing leads to the present.

// newest is the newest timeline of which the archive has anything; 0: it has nothing.
func (c Catalog) newest() uint32 {
	newest := uint32(0)
	for timeline := range c.WAL.Histories {
		newest = max(newest, timeline)
	}
	for _, r := range c.Records {
		newest = max(newest, r.Timeline())
	}
	for _, file := range c.WAL.Files {
		newest = max(newest, file.Timeline)
	}
	return newest
}

// knowsPresent says whether the archive has anything of the present timeline. The server
// archives the timeline's history first of all.
func (c Catalog) knowsPresent() bool {
	const first = 1
	_, known := c.WAL.Histories[c.Present]
	isOfPresent := func(f ArchivedFile) bool { return f.Timeline == c.Present }
	return known || c.Present <= first || slices.ContainsFunc(c.WAL.Files, isOfPresent)
}

// IsLeftBehind says whether a backup lies on a branch that was left before the backup was
// complete: recovery of it does not come to the present timeline.
func (c Catalog) IsLeftBehind(r Record) bool {
	diverges, _ := postgres.Diverges(r.Timeline(), r.StopLSN(), c.Present, c.WAL.Histories[c.Present])
	return c.Present != 0 && diverges
}

// RecoveryTimeline is what recovery_target_timeline is to be for a backup: the present
// timeline, or where no way leads there the newest that comes from it. The server's own
// "latest" is that of the archive, to which there may be no way, and stops short of it
// where a number is missing.
func RecoveryTimeline(c Catalog, r Record) string {
	const first = 1
	timeline := c.endOf(r)
	if _, known := c.WAL.Histories[timeline]; !known && timeline != first {
		return "latest" // the server wants the history of one that is named
	}
	return strconv.FormatUint(uint64(timeline), 10)
}

// endOf is the timeline on which recovery of a backup ends.
func (c Catalog) endOf(r Record) uint32 {
	if c.Present != 0 && !c.IsLeftBehind(r) {
		return c.Present
	}
	return newestFrom(c.WAL, r)
}

// newestFrom is the newest timeline that comes from a backup.
func newestFrom(w ArchivedWAL, r Record) uint32 {
	newest := r.Timeline()
	for timeline, history := range w.Histories {
		if diverges, _ := postgres.Diverges(r.Timeline(), r.StopLSN(), timeline, history); !diverges {
			newest = max(newest, timeline)
		}
	}
	return newest
}

// lines are the ways that recovery goes in an archive, by the timeline where they end.
type lines struct {
	catalog     Catalog
	segmentSize uint64
	known       map[uint32]line
}

// line are the segments that recovery takes on its way to a timeline, by their number.
type line []lineSegment

type lineSegment struct {
	number   uint64
	timeline uint32
	// last is when the last segment was archived of those that follow this one without a
	// gap, or this one itself, in nanoseconds since 1970; and next is the number after them.
	last int64
	next uint64
}

func newLines(c Catalog) *lines { return &lines{catalog: c, known: map[uint32]line{}} }

// to is the way to a timeline, for segments of that many bytes.
func (l *lines) to(timeline uint32, segmentSize uint64) line {
	if segmentSize != l.segmentSize {
		l.segmentSize, l.known = segmentSize, map[uint32]line{}
	}
	if way, found := l.known[timeline]; found {
		return way
	}
	var way line
	for _, file := range l.catalog.WAL.Files {
		if number, ok := file.number(segmentSize); ok && file.Kind == Segment && leadsTo(l.catalog.WAL, file.WALName, segmentSize, timeline) {
			way = append(way, lineSegment{number: number, timeline: file.Timeline, last: file.ArchivedAt.UnixNano(), next: number + 1})
		}
	}
	// At a switch two timelines have the segment, and recovery takes the newer.
	slices.SortFunc(way, func(a, b lineSegment) int {
		return cmp.Or(cmp.Compare(a.number, b.number), cmp.Compare(b.timeline, a.timeline))
	})
	way = slices.CompactFunc(way, func(a, b lineSegment) bool { return a.number == b.number })
	for n := len(way) - 2; n >= 0; n-- {
		if after := way[n+1]; way[n].next == after.number {
			way[n].next, way[n].last = after.next, max(way[n].last, after.last)
		}
	}
	l.known[timeline] = way
	return way
}

// leadsTo says whether a segment is in the past of a timeline, or of its own.
func leadsTo(w ArchivedWAL, name WALName, segmentSize uint64, timeline uint32) bool {
	file, ok := postgres.ParseWALFile(name.Text, segmentSize)
	if !ok {
		return false
	}
	// One that begins where its timeline was left has nothing of the way.
	diverges, _ := postgres.Diverges(name.Timeline, file.Start+1, timeline, w.Histories[timeline])
	return !diverges
}

// follow follows the WAL from a backup's end on, and returns when the last segment was
// archived that recovery would come to, and which one it would miss.
func (l *lines) follow(r Record) (last time.Time, gap string) {
	timeline := l.catalog.endOf(r)
	way := l.to(timeline, r.SegmentSize)
	number := postgres.WALFileAt(timeline, r.StopLSN()-1, r.SegmentSize).Number(r.SegmentSize)
	at, found := slices.BinarySearchFunc(way, number, func(s lineSegment, wanted uint64) int { return cmp.Compare(s.number, wanted) })
	if found {
		last, number = time.Unix(0, way[at].last), way[at].next
	}
	if len(way) > 0 && way[len(way)-1].number > number {
		gap = postgres.WALFile{Timeline: timeline, Start: postgres.LSN(number * r.SegmentSize)}.Name(r.SegmentSize)
	}
	return last, gap
}
