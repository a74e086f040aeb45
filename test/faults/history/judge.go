package history

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Evidence is what there is to judge when a round is over.
type Evidence struct {
	// Entries are those of all ledgers.
	Entries []Entry
	// Rows are the ids in the table of each instance, in any order.
	Rows map[string][]string
}

// Rules are what must hold in a round.
type Rules struct {
	// Least is how many acknowledgements each client must have for the round to
	// say anything.
	Least int
	// Watched are the clients that Least is about; empty: all.
	Watched []string
	// MayLose is true where commits are asynchronous: rows that are missing are
	// counted, and are no violation.
	MayLose bool
	// MayBeLate is true where an old primary's acknowledgement after a new one's
	// is counted, and is no violation.
	MayBeLate bool
	// Undisturbed are clients that keep their connection: it may not end, and one
	// server acknowledges all that they write.
	Undisturbed []string
	// Silent are the times in which an instance must not acknowledge anything.
	Silent []Silence
}

// Silence is a time, without its ends, in which an instance, isolated as it is,
// has no right to acknowledge: its Lease has ended, whatever else has happened.
type Silence struct {
	Instance string
	From, To Instant
}

// Verdict is the judgement of a round.
type Verdict struct {
	// Acked is how many rows were acknowledged.
	Acked int
	// Lost are those that an instance lacks, Late those that an old primary
	// acknowledged after a new one had begun to.
	Lost, Late []Entry
	// Violations are the rules that were broken, in words.
	Violations []string
}

// Judge holds a round's evidence against the rules: every acknowledged row is
// there, no old primary acknowledged anything after the new one's first, all
// instances have the same rows, each once, and there was enough to judge.
func Judge(e Evidence, r Rules) Verdict {
	acked := acknowledged(e.Entries, "")
	v := Verdict{Acked: len(acked), Lost: lost(acked, e.Rows), Late: late(acked)}
	complain := func(format string, args ...any) {
		v.Violations = append(v.Violations, fmt.Sprintf(format, args...))
	}
	counts := CountAcked(e.Entries, 0)
	watched := r.Watched
	if len(watched) == 0 {
		watched = slices.Sorted(maps.Keys(counts))
	}
	if len(watched) == 0 {
		complain("no client has tried to write")
	}
	for _, client := range watched {
		if counts[client] < r.Least {
			complain("%s has %d acknowledgements, which is too few to judge by: at least %d", client, counts[client], r.Least)
		}
	}
	if len(v.Lost) > 0 && !r.MayLose {
		complain("%d acknowledged rows are lost: %s", len(v.Lost), describe(v.Lost))
	}
	if len(v.Late) > 0 && !r.MayBeLate {
		complain("%d rows were acknowledged by an old primary after the new one's first: %s", len(v.Late), describe(v.Late))
	}
	for _, client := range r.Undisturbed {
		v.Violations = append(v.Violations, disturbed(e.Entries, client)...)
	}
	for _, s := range r.Silent {
		if broken := during(acked, s); len(broken) > 0 {
			complain("%s acknowledged %d rows up to %v after it had lost its right to: %s", s.Instance, len(broken),
				broken[len(broken)-1].Done.Sub(s.From), describe(broken))
		}
	}
	v.Violations = append(v.Violations, unlike(e.Rows)...)
	return v
}

// lost are the acknowledged rows that at least one instance lacks.
func lost(acked []Entry, rows map[string][]string) []Entry {
	var missing []Entry
	sets := map[string]map[string]bool{}
	for instance, ids := range rows {
		sets[instance] = setOf(ids)
	}
	for _, e := range acked {
		for _, has := range sets {
			if !has[e.ID] {
				missing = append(missing, e)
				break
			}
		}
	}
	return missing
}

// late are the acknowledgements, which are in the order of their arrival, that
// came from an older timeline than one before, or from a second server on the
// same timeline: two promotions may choose the same number.
func late(acked []Entry) []Entry {
	var wrong []Entry
	var newest uint32
	owners := map[uint32]string{}
	for _, e := range acked {
		owner, known := owners[e.By.Timeline]
		if !known {
			owners[e.By.Timeline] = e.By.Instance
		}
		if e.By.Timeline < newest || known && owner != e.By.Instance {
			wrong = append(wrong, e)
		}
		newest = max(newest, e.By.Timeline)
	}
	return wrong
}

// disturbed says what has become of a connection that was to be kept.
func disturbed(entries []Entry, client string) []string {
	var wrong []string
	connections := 0
	servers := map[Server]bool{}
	for _, e := range entries {
		if e.Client != client {
			continue
		}
		if e.Connected {
			connections++
		}
		if e.Acked {
			servers[e.By] = true
		}
	}
	if connections > 1 {
		wrong = append(wrong, fmt.Sprintf("%s lost its connection: it had %d", client, connections))
	}
	if len(servers) > 1 {
		wrong = append(wrong, fmt.Sprintf("%s was served by %d servers, or lives of one", client, len(servers)))
	}
	return wrong
}

// during are the instance's acknowledgements in a time of silence.
func during(acked []Entry, s Silence) []Entry {
	var broken []Entry
	for _, e := range acked {
		if e.By.Instance == s.Instance && e.Done > s.From && e.Done < s.To {
			broken = append(broken, e)
		}
	}
	return broken
}

// unlike says which instances have other rows than the first, or a row twice.
func unlike(rows map[string][]string) []string {
	var wrong []string
	instances := slices.Sorted(maps.Keys(rows))
	if len(instances) == 0 {
		return []string{"no instance's rows were read"}
	}
	first := setOf(rows[instances[0]])
	for _, instance := range instances {
		ids := rows[instance]
		set := setOf(ids)
		if len(set) != len(ids) {
			wrong = append(wrong, fmt.Sprintf("%s has %d rows of %d ids", instance, len(ids), len(set)))
		}
		if !maps.Equal(set, first) {
			wrong = append(wrong, fmt.Sprintf("%s lacks %d rows that %s has, and has %d that it lacks",
				instance, lacking(set, first), instances[0], lacking(first, set)))
		}
	}
	return wrong
}

// lacking counts what is in want and not in has.
func lacking(has, want map[string]bool) int {
	n := 0
	for id := range want {
		if !has[id] {
			n++
		}
	}
	return n
}

func setOf(ids []string) map[string]bool {
	set := make(map[string]bool, len(ids))
	for _, id := range ids {
		set[id] = true
	}
	return set
}

// describe names the first few entries.
func describe(entries []Entry) string {
	const most = 5
	var names []string
	for _, e := range entries[:min(most, len(entries))] {
		names = append(names, fmt.Sprintf("%s by %s on timeline %d at %s", e.ID, e.By.Instance, e.By.Timeline, e.Wall.Format("15:04:05.000")))
	}
	if len(entries) > most {
		names = append(names, "…")
	}
	return strings.Join(names, ", ")
}
