package history

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// at is an instant in milliseconds.
func at(ms int) Instant { return Instant(time.Duration(ms) * time.Millisecond) }

// ack is an acknowledgement at that many milliseconds by an instance on a
// timeline; its id is the client and the time.
func ack(client string, ms int, instance string, timeline uint32) Entry {
	return Entry{Client: client, ID: fmt.Sprintf("%s-%d", client, ms), Sent: at(ms - 1), Done: at(ms), Acked: true,
		By: Server{Instance: instance, Timeline: timeline}}
}

// connected is a try that had to connect first.
func connected(e Entry) Entry {
	e.Connected = true
	return e
}

func failed(client string, ms int) Entry {
	return Entry{Client: client, ID: fmt.Sprintf("%s-%d", client, ms), Done: at(ms), Error: "timeout"}
}

func TestOutage(t *testing.T) {
	tests := []struct {
		name     string
		entries  []Entry
		from, to int
		want     Gap
	}{
		{"the longest gap, whatever failed in it",
			[]Entry{ack("kept", 100, "a", 1), failed("kept", 150), ack("kept", 900, "a", 1), ack("kept", 1000, "a", 1)}, 50, 1000,
			Gap{"kept", at(100), at(900)}},
		{"the worse of two clients",
			[]Entry{ack("fresh", 100, "a", 1), ack("kept", 100, "a", 1), ack("kept", 200, "a", 1), ack("fresh", 400, "a", 1), ack("kept", 450, "a", 1)}, 50, 450,
			Gap{"fresh", at(100), at(400)}},
		{"a gap that ended before the fault is left out",
			[]Entry{ack("kept", 100, "a", 1), ack("kept", 900, "a", 1), ack("kept", 1000, "a", 1), ack("kept", 1100, "a", 1)}, 950, 1100,
			Gap{"kept", at(900), at(1000)}},
		{"a gap in which the fault struck counts from its beginning",
			[]Entry{ack("kept", 100, "a", 1), ack("kept", 900, "a", 1)}, 500, 900,
			Gap{"kept", at(100), at(900)}},
		{"a client that is not served again",
			[]Entry{ack("kept", 100, "a", 1), ack("kept", 200, "a", 1), failed("kept", 300)}, 50, 5000,
			Gap{"kept", at(200), at(5000)}},
		{"a client that never was served",
			[]Entry{failed("kept", 300)}, 50, 5000, Gap{"kept", at(50), at(5000)}},
		{"order of arrival in the log does not matter",
			[]Entry{ack("kept", 900, "a", 1), ack("kept", 100, "a", 1), ack("kept", 500, "a", 1)}, 50, 900,
			Gap{"kept", at(100), at(500)}},
		{"nobody has tried", nil, 0, 1000, Gap{}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := Outage(test.entries, at(test.from), at(test.to))
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestJudge(t *testing.T) {
	ids := func(entries ...Entry) []string {
		var ids []string
		for _, e := range entries {
			ids = append(ids, e.ID)
		}
		return ids
	}
	a1, a2, b3, a4 := ack("kept", 100, "a", 1), ack("kept", 200, "a", 1), ack("kept", 300, "b", 2), ack("fresh", 400, "a", 1)
	unknown := failed("kept", 250)
	same := func(rows []string) map[string][]string { return map[string][]string{"a": rows, "b": rows} }
	tests := []struct {
		name     string
		evidence Evidence
		rules    Rules
		// want are words of the violations, one for each.
		want []string
		// lost and late are how many.
		lost, late int
	}{
		{"all is well", Evidence{[]Entry{a1, a2, b3}, same(ids(a1, a2, b3))}, Rules{Least: 3}, nil, 0, 0},
		{"a row of unknown outcome may be there", Evidence{[]Entry{a1, unknown}, same(ids(a1, unknown))}, Rules{}, nil, 0, 0},
		{"and may not be there", Evidence{[]Entry{a1, unknown}, same(ids(a1))}, Rules{}, nil, 0, 0},
		{"a lost row", Evidence{[]Entry{a1, a2, b3}, same(ids(a1, b3))}, Rules{}, []string{"1 acknowledged rows are lost: kept-200"}, 1, 0},
		{"a lost row that may be", Evidence{[]Entry{a1, a2, b3}, same(ids(a1, b3))}, Rules{MayLose: true}, nil, 1, 0},
		{"a row that one instance lacks is lost and unlike",
			Evidence{[]Entry{a1, a2}, map[string][]string{"a": ids(a1, a2), "b": ids(a1)}}, Rules{},
			[]string{"lost: kept-200", "b lacks 1 rows that a has, and has 0"}, 1, 0},
		{"rows that differ where rows may be lost",
			Evidence{[]Entry{a1}, map[string][]string{"a": ids(a1), "b": ids(a1, unknown)}}, Rules{MayLose: true},
			[]string{"b lacks 0 rows that a has, and has 1"}, 0, 0},
		{"a row twice", Evidence{[]Entry{a1}, same(ids(a1, a1))}, Rules{},
			[]string{"a has 2 rows of 1 ids", "b has 2 rows of 1 ids"}, 0, 0},
		{"an old primary acknowledges after the new one's first",
			Evidence{[]Entry{a1, b3, a4}, same(ids(a1, b3, a4))}, Rules{}, []string{"by an old primary after the new one's first: fresh-400 by a"}, 0, 1},
		{"an old primary that may be late",
			Evidence{[]Entry{a1, b3, a4}, same(ids(a1, b3, a4))}, Rules{MayBeLate: true}, nil, 0, 1},
		{"two servers promoted to the same timeline",
			Evidence{[]Entry{ack("kept", 1, "a", 2), ack("kept", 2, "b", 2)}, same([]string{"kept-1", "kept-2"})}, Rules{},
			[]string{"kept-2 by b on timeline 2"}, 0, 1},
		{"the order is that of arrival, not of the log",
			Evidence{[]Entry{b3, a1, a2}, same(ids(a1, a2, b3))}, Rules{}, nil, 0, 0},
		{"too few to judge by", Evidence{[]Entry{a1}, same(ids(a1))}, Rules{Least: 2},
			[]string{"kept has 1 acknowledgements, which is too few"}, 0, 0},
		{"a watched client that never tried", Evidence{[]Entry{a1}, same(ids(a1))}, Rules{Least: 1, Watched: []string{"kept", "fresh"}},
			[]string{"fresh has 0 acknowledgements"}, 0, 0},
		{"a connection that is kept", Evidence{[]Entry{connected(a1), a2, connected(a4)}, same(ids(a1, a2, a4))},
			Rules{Undisturbed: []string{"kept"}}, nil, 0, 0},
		{"a connection that is cut", Evidence{[]Entry{connected(a1), failed("kept", 150), connected(a2)}, same(ids(a1, a2))},
			Rules{Undisturbed: []string{"kept"}}, []string{"kept lost its connection: it had 2"}, 0, 0},
		{"another server, and another connection to it", Evidence{[]Entry{connected(a1), connected(b3)}, same(ids(a1, b3))},
			Rules{Undisturbed: []string{"kept"}}, []string{"kept lost its connection: it had 2", "kept was served by 2 servers"}, 0, 0},
		{"an isolated primary goes silent in time", Evidence{[]Entry{a1, a2}, same(ids(a1, a2))},
			Rules{Silent: []Silence{{"a", at(200), at(900)}, {"b", at(0), at(900)}}}, nil, 0, 0},
		{"an isolated primary goes on too long", Evidence{[]Entry{a1, a2}, same(ids(a1, a2))},
			Rules{Silent: []Silence{{"a", at(150), at(900)}}}, []string{"a acknowledged 1 rows up to 50ms after it had lost its right to: kept-200"}, 0, 0},
		{"nothing at all", Evidence{}, Rules{}, []string{"no client has tried", "no instance's rows"}, 0, 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			v := Judge(test.evidence, test.rules)
			if len(v.Lost) != test.lost || len(v.Late) != test.late {
				t.Errorf("%d lost and %d late, want %d and %d", len(v.Lost), len(v.Late), test.lost, test.late)
			}
			if len(v.Violations) != len(test.want) {
				t.Fatalf("violations %q, want %q", v.Violations, test.want)
			}
			for i, words := range test.want {
				if !strings.Contains(v.Violations[i], words) {
					t.Errorf("violation %q does not say %q", v.Violations[i], words)
				}
			}
		})
	}
}

func TestCountAcked(t *testing.T) {
	entries := []Entry{ack("kept", 100, "a", 1), ack("kept", 200, "a", 1), failed("kept", 300), failed("fresh", 300)}
	if diff := cmp.Diff(map[string]int{"kept": 1, "fresh": 0}, CountAcked(entries, at(100))); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
