package election

import (
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"
)

var (
	seeds      = flag.Uint64("seeds", defaultSeeds, "how many seeds the simulation runs in each setting")
	firstSeed  = flag.Uint64("first", 1, "the first seed that the simulation runs")
	traceLines = flag.Int("trace", 150, "how many lines of a failing seed's trace are printed")
)

func settingsOf(mode Mode, need int) Settings {
	return Settings{
		Mode: mode, Need: need, LeaseDuration: 10 * time.Second, RenewEvery: 2 * time.Second, Margin: 3 * time.Second,
		VoteWindow: 2 * time.Second, NomineeFirst: 3 * time.Second, Absence: 3 * time.Second, MaxLag: 10,
	}
}

// cluster is what is simulated: how many instances, and by which rules.
type cluster struct {
	mode      Mode
	need      int
	instances int
}

func (c cluster) String() string { return fmt.Sprintf("%s-%d-of-%d", c.mode, c.need, c.instances) }

var clusters = []cluster{
	{Async, 0, 3}, {Async, 0, 2}, {Async, 0, 5},
	{Required, 1, 3}, {Required, 1, 2}, {Required, 2, 5}, {Required, 2, 3},
	{Preferred, 1, 3}, {Preferred, 1, 2}, {Preferred, 2, 5},
}

// suffering is for how long faults strike, settling how long the last of them
// may work on unseen, and recovery how long it may take until all is well again.
const (
	suffering = 3 * time.Minute
	settling  = 15 * time.Second
	recovery  = 3 * time.Minute
)

// run lets a world suffer and then recover, and says what went wrong.
func run(seed uint64, settings Settings, instances int, tracing bool) (w *world, problem string) {
	w = newWorld(seed, settings, instances)
	w.tracing = tracing
	for w.now < suffering && w.problem == "" {
		w.turn()
	}
	w.heal()
	for end := w.now + settling; w.now < end && w.problem == ""; {
		w.turn()
	}
	before := w.commits
	for end := w.now + recovery; w.problem == ""; {
		w.turn()
		missing := w.wellness(before)
		if missing == "" {
			break
		}
		if w.now > end {
			w.fail("the faults have ended, but %s", missing)
		}
	}
	w.stayWell()
	return w, w.problem
}

// isSafety says whether a problem is more than that nothing goes on.
func (w *world) isSafety(problem string) bool {
	return !strings.HasPrefix(problem, "the faults have ended") && !strings.HasPrefix(problem, "nothing is wrong")
}

// stayWell sees that a cluster that is well stays so.
func (w *world) stayWell() {
	takeovers := w.takeovers
	for end := w.now + 20*time.Second; w.now < end && w.problem == ""; {
		w.turn()
	}
	if w.takeovers > takeovers {
		w.fail("nothing is wrong any more, and another takes over")
	}
}

func TestSimulation(t *testing.T) {
	if testing.Short() {
		t.Skip("there are no goroutines, for which the race detector would take minutes")
	}
	for _, c := range clusters {
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			takeovers, handovers, commits := 0, 0, 0
			for s := *firstSeed; s < *firstSeed+*seeds; s++ {
				w, problem := run(s, settingsOf(c.mode, c.need), c.instances, false)
				takeovers, handovers, commits = takeovers+w.takeovers, handovers+w.handovers, commits+w.commits
				if problem != "" {
					w, _ = run(s, settingsOf(c.mode, c.need), c.instances, true)
					t.Fatalf("seed %d: %s\n%sreplay: make simulate SEEDS=1 FIRST=%d MODE=%v", s, problem, w.describe(), s, c)
				}
			}
			t.Logf("%v: %d seeds, %d takeovers, %d handovers, %d acknowledged commits", c, *seeds, takeovers, handovers, commits)
		})
	}
}

// The rules of those who work for the core: the agent and its server.
const (
	ruleRemember  rule = "what was sealed outlasts a restart"
	ruleWaitFirst rule = "commits wait before the first is acknowledged"
)

// Each rule is there for a reason: without it the simulation finds a violation.
func TestEveryRuleIsNeeded(t *testing.T) {
	if testing.Short() {
		t.Skip("there are no goroutines, for which the race detector would take minutes")
	}
	for _, x := range []struct {
		without rule
		cluster
	}{
		{ruleSeal, cluster{Required, 1, 3}},
		{ruleVotes, cluster{Required, 1, 3}},
		{ruleBest, cluster{Required, 1, 3}},
		{ruleVersion, cluster{Required, 1, 3}},
		{ruleData, cluster{Required, 1, 3}},
		{ruleMembers, cluster{Required, 1, 3}},
		{ruleVFirst, cluster{Required, 1, 3}},
		{ruleSFirst, cluster{Required, 1, 3}},
		{ruleRestHasPast, cluster{Required, 1, 3}},
		{ruleReturn, cluster{Required, 1, 3}},
		{ruleAlone, cluster{Preferred, 1, 3}},
		{ruleSyncDone, cluster{Required, 1, 3}},
		{ruleFence, cluster{Async, 0, 3}},
		{ruleLength, cluster{Async, 0, 3}},
		{ruleExpiry, cluster{Async, 0, 3}},
		{rulePromise, cluster{Async, 0, 3}},
		{ruleRaise, cluster{Required, 1, 3}},
		{ruleDoubt, cluster{Required, 1, 3}},
		{ruleQuarantine, cluster{Required, 1, 3}},
		{ruleHear, cluster{Required, 1, 3}},
		{ruleLoyal, cluster{Required, 1, 3}},
		{ruleNobodyYet, cluster{Required, 1, 3}},
		{ruleRemember, cluster{Required, 2, 3}},
		{ruleWaitFirst, cluster{Preferred, 1, 3}},
	} {
		t.Run(string(x.without), func(t *testing.T) {
			t.Parallel()
			settings := settingsOf(x.mode, x.need)
			settings.without = x.without
			for s := uint64(1); s <= 10000; s++ {
				if w, problem := run(s, settings, x.instances, false); problem != "" && (w.isSafety(problem) || x.without == ruleRaise) {
					t.Logf("without %q, seed %d: %s", x.without, s, problem)
					return
				}
			}
			t.Error("without it nothing goes wrong: the simulation is blind to it")
		})
	}
}
