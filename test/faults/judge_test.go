//go:build e2e

package faults

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pgop/postgres-operator/test/faults/history"
)

// judge stops the ledgers and holds what they say against the tables.
func (r *round) judge(result *Result) {
	end := history.Now()
	var all, ours []history.Entry
	for i, l := range r.ledgers {
		entries, err := l.close(r.t.Context())
		if err != nil {
			r.t.Fatal(err)
		}
		if i == 0 {
			ours = entries
		}
		all = append(all, entries...)
	}
	var undisturbed []string
	if r.plan.Undisturbed() {
		undisturbed = []string{mainLedger + "/kept"}
		r.wantServersAsBefore()
	}
	verdict := history.Judge(history.Evidence{Entries: all, Rows: r.rows()}, history.Rules{
		Least:       2 * warmUp,
		Watched:     []string{mainLedger + "/kept", mainLedger + "/fresh"},
		MayLose:     r.mode == async,
		MayBeLate:   r.mode == async && r.plan.MayBeLate(),
		Undisturbed: undisturbed,
		Silent:      r.silence(),
	})
	outage := history.Outage(ours, r.struckAt, end)
	result.Outage, result.Acked, result.Lost, result.Late = outage.Length(), verdict.Acked, len(verdict.Lost), len(verdict.Late)
	r.note("outage %.2f s, of %s, from %.2f s after the strike", outage.Length().Seconds(), outage.Client, outage.From.Sub(r.struckAt).Seconds())
	r.noteServers(all)
	r.noteWitness(all)
	for _, violation := range verdict.Violations {
		r.t.Error(violation)
	}
	if *triesFlag || r.t.Failed() {
		r.t.Logf("tries around the outage:\n%s", around(ours, outage))
	}
}

// wantServersAsBefore checks that every server is the one that it was when the
// fault struck, which needs a pod and a container that are as they were.
func (r *round) wantServersAsBefore() {
	for _, t := range append([]target{r.primary}, r.standbys...) {
		if now := r.c.SQLIn(t.instance, startOfServer); now != t.started {
			r.t.Errorf("the server of %s started at %s, and the one before at %s", t.instance, now, t.started)
		}
	}
}

// silence is when the primary, cut from everybody, must not acknowledge anything,
// not even to the witness on its own node.
func (r *round) silence() []history.Silence {
	if r.isolatedAt == 0 {
		return nil
	}
	return []history.Silence{{Instance: r.primary.instance, From: r.isolatedAt.Add(rightToWrite), To: r.healedAt}}
}

// noteWitness says for how long the isolated primary acknowledged.
func (r *round) noteWitness(entries []history.Entry) {
	if r.isolatedAt == 0 {
		return
	}
	var last history.Instant
	for _, e := range entries {
		if e.Acked && e.By.Instance == r.primary.instance && e.Done < r.healedAt {
			last = max(last, e.Done)
		}
	}
	r.note("the isolated primary acknowledged for %.2f s more; it may for %v after its last renewal", last.Sub(r.isolatedAt).Seconds(), rightToWrite)
}

// rows are those of every instance, read when all have the same or no more
// come.
func (r *round) rows() map[string][]string {
	const patience = time.Minute
	rows := map[string][]string{}
	database := r.c.Secret()["dbname"]
	look := func(ctx context.Context) error {
		var counts []int
		for n := range instances {
			instance := r.c.Instance(n + 1)
			text, err := r.c.TrySQLIn(ctx, instance, `\connect `+database+"\nselect id from ledger")
			if err != nil {
				return err
			}
			rows[instance] = strings.Fields(text)
			counts = append(counts, len(rows[instance]))
		}
		if slices.Min(counts) != slices.Max(counts) {
			return fmt.Errorf("instances have %v rows", counts)
		}
		return nil
	}
	end := time.Now().Add(patience)
	for {
		err := look(r.t.Context())
		if err == nil {
			return rows
		}
		if time.Now().After(end) {
			r.t.Errorf("read the rows of all instances: not within %v: %v", patience, err)
			return rows
		}
		r.f.Pause(time.Second)
	}
}

// noteServers says which servers acknowledged, one after the other.
func (r *round) noteServers(entries []history.Entry) {
	slices.SortStableFunc(entries, func(a, b history.Entry) int { return int(a.Done - b.Done) })
	var seen []history.Server
	var story []string
	for _, e := range entries {
		if !e.Acked || slices.Contains(seen, e.By) {
			continue
		}
		seen = append(seen, e.By)
		story = append(story, fmt.Sprintf("%s on timeline %d", e.By.Instance, e.By.Timeline))
	}
	r.note("%d servers acknowledged: %s", len(seen), strings.Join(story, ", "))
	r.note("the Lease: %s", r.lease.story())
}

// around lists the tries from just before a gap to just after it.
func around(entries []history.Entry, gap history.Gap) string {
	const margin = 300 * time.Millisecond
	var b strings.Builder
	for _, e := range entries {
		if e.Done < gap.From.Add(-margin) || e.Sent > gap.To.Add(margin) {
			continue
		}
		outcome := fmt.Sprintf("by %s on timeline %d", e.By.Instance, e.By.Timeline)
		if !e.Acked {
			outcome = e.Error
		}
		fmt.Fprintf(&b, "%s %s %v: %s\n", e.Wall.Format("15:04:05.000"), e.ID, e.Done.Sub(e.Sent).Round(time.Millisecond), outcome)
	}
	const most = 12000
	text := b.String()
	if len(text) > most {
		text = text[:most/2] + "…\n" + text[len(text)-most/2:]
	}
	return text
}

// report prints what came of the round.
func (r *round) report(result *Result) {
	r.noteRestarts()
	fmt.Printf("  %d acknowledged, %d lost, %d late\n", result.Acked, result.Lost, result.Late)
	for _, note := range r.notes {
		fmt.Printf("  %s\n", note)
	}
}

// noteRestarts names the containers that were started again, and the pods that
// are new.
func (r *round) noteRestarts() {
	var stories []string
	pods := r.c.Pods()
	for _, t := range append([]target{r.primary}, r.standbys...) {
		pod := pods[t.instance]
		switch {
		case pod == nil:
		case pod.UID != t.podUID:
			stories = append(stories, t.instance+" has a new pod")
		case len(pod.Status.ContainerStatuses) > 0 && pod.Status.ContainerStatuses[0].RestartCount > 0:
			stories = append(stories, fmt.Sprintf("%s restarted %d times", t.instance, pod.Status.ContainerStatuses[0].RestartCount))
		}
	}
	if len(stories) == 0 {
		stories = []string{"none"}
	}
	r.note("restarts: %s", strings.Join(stories, ", "))
}
