package faults

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Result is what came of a round.
type Result struct {
	Round Round
	// Struck is false for a round that ended before its fault was proved; the
	// figures say nothing then.
	Struck bool
	// Outage is the longest gap between acknowledged writes.
	Outage time.Duration
	// Acked, Lost and Late count rows; see history.Verdict.
	Acked, Lost, Late int
	// Failed means that a rule was broken, or the round could not be finished.
	Failed bool
}

// Table sums results up, a line for each kind of fault in the order of Kinds.
func Table(results []Result) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "fault\trounds\tfailed\toutage min\tmedian\tmax\tacknowledged\tlost\tlate\t")
	for _, name := range rows(results) {
		var outages []time.Duration
		sum := Result{}
		rounds, failed := 0, 0
		for _, r := range results {
			if r.Round.Row() != name {
				continue
			}
			rounds++
			if r.Failed {
				failed++
			}
			if r.Struck {
				outages = append(outages, r.Outage)
			}
			sum.Acked, sum.Lost, sum.Late = sum.Acked+r.Acked, sum.Lost+r.Lost, sum.Late+r.Late
		}
		least, median, most := spread(outages)
		fmt.Fprintf(w, "%s\t%d\t%d\t%s\t%s\t%s\t%d\t%d\t%d\t\n", titleOf(name), rounds, failed, least, median, most, sum.Acked, sum.Lost, sum.Late)
	}
	_ = w.Flush() // a Builder takes everything
	return b.String()
}

// rows are the names of the lines that the results need.
func rows(results []Result) []string {
	var names []string
	for _, k := range Kinds {
		names = append(names, k.Name)
	}
	names = append(names, pairName)
	return slices.DeleteFunc(names, func(name string) bool {
		return !slices.ContainsFunc(results, func(r Result) bool { return r.Round.Row() == name })
	})
}

// titleOf is what the line of that name is called.
func titleOf(name string) string {
	if k, ok := KindNamed(name); ok {
		return k.Title()
	}
	return name // two at once
}

// spread writes the least, the middle and the largest; of an even number the
// larger of the two in the middle.
func spread(outages []time.Duration) (least, median, most string) {
	if len(outages) == 0 {
		return "-", "-", "-"
	}
	sorted := slices.Sorted(slices.Values(outages))
	write := func(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }
	return write(sorted[0]), write(sorted[len(sorted)/2]), write(sorted[len(sorted)-1])
}
