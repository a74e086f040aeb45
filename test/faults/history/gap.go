package history

import (
	"cmp"
	"slices"
	"time"
)

// Gap is a time without an acknowledgement.
type Gap struct {
	Client   string
	From, To Instant
}

// Length is how long the gap is.
func (g Gap) Length() time.Duration { return g.To.Sub(g.From) }

// Outage is the longest gap between two acknowledgements of the same client, of
// the client that has the longer one. Gaps that ended before from are left out.
// A client that is never served again has a gap until to; so has one that never
// was, from from.
func Outage(entries []Entry, from, to Instant) Gap {
	var worst Gap
	for _, client := range clients(entries) {
		if gap := longestGap(acknowledged(entries, client), client, from, to); gap.Length() > worst.Length() {
			worst = gap
		}
	}
	return worst
}

func longestGap(acked []Entry, client string, from, to Instant) Gap {
	worst := Gap{Client: client}
	last := from
	for _, e := range acked {
		if e.Done > from && e.Done.Sub(last) > worst.Length() {
			worst.From, worst.To = last, e.Done
		}
		last = e.Done
	}
	if to.Sub(last) > worst.Length() {
		worst.From, worst.To = last, to
	}
	return worst
}

// clients are all that have tried, sorted.
func clients(entries []Entry) []string {
	var names []string
	for _, e := range entries {
		if !slices.Contains(names, e.Client) {
			names = append(names, e.Client)
		}
	}
	slices.Sort(names)
	return names
}

// acknowledged are the client's entries with an acknowledgement, in its order;
// every client's if none is named.
func acknowledged(entries []Entry, client string) []Entry {
	var acked []Entry
	for _, e := range entries {
		if e.Acked && (client == "" || e.Client == client) {
			acked = append(acked, e)
		}
	}
	slices.SortStableFunc(acked, func(a, b Entry) int { return cmp.Compare(a.Done, b.Done) })
	return acked
}

// CountAcked says how many acknowledgements each client got after since.
func CountAcked(entries []Entry, since Instant) map[string]int {
	counts := map[string]int{}
	for _, name := range clients(entries) {
		counts[name] = 0
	}
	for _, e := range entries {
		if e.Acked && e.Done > since {
			counts[e.Client]++
		}
	}
	return counts
}
