package faults

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestTable(t *testing.T) {
	round := func(names ...string) Round {
		r := Round{}
		for _, name := range names {
			r.Faults = append(r.Faults, mustKind(name))
		}
		return r
	}
	got := Table([]Result{
		{Round: round("node-cut"), Struck: true, Outage: 12 * time.Second, Acked: 300, Lost: 2},
		{Round: round("postmaster-kill"), Struck: true, Outage: 1500 * time.Millisecond, Acked: 100},
		{Round: round("node-cut"), Struck: true, Outage: 10 * time.Second, Acked: 300},
		{Round: round("node-cut"), Struck: true, Outage: 15 * time.Second, Acked: 300, Late: 1, Failed: true},
		{Round: round("agent-kill", "dns-stop"), Failed: true},
		{Round: round("pod-delete"), Struck: true, Outage: 500 * time.Millisecond, Acked: 90},
	})
	const want = "" +
		"                    fault  rounds  failed  outage min   median      max  acknowledged  lost  late\n" +
		"          postmaster-kill       1       0      1.50 s   1.50 s   1.50 s           100     0     0\n" +
		"  pod-delete (C-01, C-15)       1       0      0.50 s   0.50 s   0.50 s            90     0     0\n" +
		"                 node-cut       3       1     10.00 s  12.00 s  15.00 s           900     2     1\n" +
		"              two-at-once       1       1           -        -        -             0     0     0\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
