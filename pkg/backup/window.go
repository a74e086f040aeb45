package backup

import (
	"slices"
	"time"
)

// Window is the time to which something can be restored.
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
// can be restored; false: there is no backup that can be. Those that were left behind
// don't count: nothing of the present can be restored from them.
func RestoreWindow(c Catalog) (Window, bool) {
	chains := newChains(c.Records)
	usable := slices.DeleteFunc(slices.Clone(c.Records), func(r Record) bool { return !chains.isWhole(r) || c.IsLeftBehind(r) })
	if len(usable) == 0 {
		return Window{}, false
	}
	oldest, newest := slices.MinFunc(usable, byEnd), slices.MaxFunc(usable, byEnd)
	w := newLines(c).window(newest)
	w.First = oldest.StoppedAt
	return w, true
}

// Windows are the times to which each of the backups can be restored, in their order,
// if it can be at all.
func Windows(c Catalog) []Window {
	ways := newLines(c)
	var windows []Window
	for _, r := range c.Records {
		windows = append(windows, ways.window(r))
	}
	return windows
}

func (l *lines) window(r Record) Window {
	w := Window{First: r.StoppedAt, Last: r.StoppedAt}
	last, gap := l.follow(r)
	w.Gap = gap
	if last.After(w.Last) {
		w.Last = last.UTC()
	}
	return w
}

// Gap is the first segment that recovery of a backup would miss although the archive
// has some that come after it; empty: none.
func Gap(c Catalog, r Record) string {
	_, gap := newLines(c).follow(r)
	return gap
}
