package instance

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/pgop/postgres-operator/pkg/backup"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
)

// D-09: a restore to any time holds exactly the rows that were committed by then,
// as the server's own times of its commits tell.
func TestD09RestoresToRandomTimes(t *testing.T) {
	t.Parallel()
	restores := 20
	if testing.Short() {
		restores = 2
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))

	w := newWorld(t)
	w.conf["track_commit_timestamp"] = "on"
	first, p, store := sourceIn(w)
	began := p.takeWell(backup.Full, "").StoppedAt
	const rows = 120
	var again time.Time
	for n := range rows {
		p.write(n)
		switch n {
		case 40, 80:
			p.endSegment()
		case 60:
			again = p.takeWell(backup.Full, "").StoppedAt
		}
		time.Sleep(time.Duration(random.IntN(30)) * time.Millisecond) // rows of random times
	}
	p.archiveAll(store)
	const micros = "(extract(epoch FROM pg_xact_commit_timestamp(xmin)) * 1000000)::bigint"
	earliest := began.Add(time.Second).UnixMicro() // it is given in seconds
	var last int64
	var tooEarly int
	must(t, p.sql.Row(t.Context(), fmt.Sprintf("SELECT max(%s), count(*) FILTER (WHERE %[1]s < %d) FROM public.ledger", micros, earliest), &last, &tooEarly))

	for range restores {
		// Near a row, before, after or just when it was committed.
		var committed int64
		must(t, p.sql.Row(t.Context(), fmt.Sprintf("SELECT %s FROM public.ledger WHERE n = %d", micros, tooEarly+random.IntN(rows-tooEarly)), &committed))
		at := time.UnixMicro(min(last, max(earliest, committed+1000*(random.Int64N(21)-10)))).UTC()
		t.Run(at.Format(time.RFC3339Nano), func(t *testing.T) {
			want := p.query(fmt.Sprintf("SELECT coalesce(string_agg(n::text, ' ' ORDER BY n), '') FROM public.ledger WHERE %s <= %d", micros, at.UnixMicro()))
			past := first.restores(instanceapi.Restore{Store: store, Target: instanceapi.RestoreTarget{Time: at.Format(time.RFC3339Nano)}})
			restored := past.start("shop-1", "127.0.0.1")
			restored.waitFor("ready", isReady)
			if got := restored.ledger(); got != want {
				t.Errorf("it has %q, want %q", got, want)
			}
			var newest int64
			must(t, p.sql.Row(t.Context(), fmt.Sprintf("SELECT coalesce(max(%s), 0) FROM public.ledger WHERE %[1]s <= %d", micros, at.UnixMicro()), &newest))
			// Of what was committed before the backup, nothing is replayed.
			to := restored.State(t.Context()).Recovered
			if to == nil || to.LastCommit.After(at) || to.LastCommit.UnixMicro() < newest && (!to.LastCommit.IsZero() || newest > again.UnixMicro()) {
				t.Errorf("it tells %+v, and the newest row is of %s", to, time.UnixMicro(newest).UTC())
			}
			t.Logf("%d rows", len(strings.Fields(want)))
			restored.stop()
		})
	}
}
