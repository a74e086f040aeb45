package election

import (
	"flag"
	"fmt"
	"testing"
	"time"
)

var (
	seeds = flag.Int("seeds", 300, "how many seeds the simulation runs in each mode")
	seed  = flag.Uint64("seed", 0, "run this seed of the simulation only, and print its trace")
)

func settingsOf(mode Mode, need int) Settings {
	return Settings{
		Mode: mode, Need: need, LeaseDuration: 10 * time.Second, RenewEvery: 2 * time.Second, Margin: 3 * time.Second,
		VoteWindow: 2 * time.Second, Absence: 3 * time.Second, MaxLag: 10,
	}
}

// run lets a world suffer and then recover, and says what went wrong.
func run(seed uint64, settings Settings) (w *world, problem string) {
	w = newWorld(seed, settings)
	for w.now < 4*time.Minute && w.problem == "" {
		w.turn()
	}
	w.heal()
	before := w.commits
	for end := w.now + 3*time.Minute; w.problem == ""; {
		w.turn()
		if w.now > end {
			return w, "the faults have ended, and the cluster is not well"
		}
		if w.isWell(before) {
			return w, ""
		}
	}
	return w, w.problem
}

func TestSimulation(t *testing.T) {
	for _, mode := range []Mode{Async, Required, Preferred} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			takeovers, commits := 0, 0
			first, last := uint64(1), uint64(*seeds)
			if *seed != 0 {
				first, last = *seed, *seed
			}
			for s := first; s <= last; s++ {
				w, problem := run(s, settingsOf(mode, 1))
				takeovers, commits = takeovers+w.takeovers, commits+w.commits
				if problem != "" {
					t.Fatalf("seed %d: %s; replay: go test ./pkg/election -run TestSimulation/%s -seed %d\n%s", s, problem, mode, s, w.describe())
				}
			}
			fmt.Printf("%s: %d seeds, %d takeovers, %d acknowledged commits\n", mode, last-first+1, takeovers, commits)
		})
	}
}

// traceLines are how many of a trace are printed.
const traceLines = 60

// Each rule is there for a reason: without it the simulation finds a violation.
func TestEveryRuleIsNeeded(t *testing.T) {
	for _, c := range []struct {
		without rule
		mode    Mode
	}{
		{ruleSeal, Required}, {ruleVotes, Required}, {ruleBest, Required}, {ruleVersion, Required}, {ruleData, Required},
		{ruleMembers, Required}, {ruleVFirst, Required}, {ruleSFirst, Required}, {ruleRestHasPast, Required},
		{ruleReturn, Required}, {ruleAlone, Preferred}, {ruleCaughtUp, Required}, {ruleSyncDone, Required},
		{ruleFence, Async}, {ruleExpiry, Async}, {rulePromise, Async}, {ruleRaise, Required}, {ruleDoubt, Required},
	} {
		t.Run(string(c.without), func(t *testing.T) {
			t.Parallel()
			settings := settingsOf(c.mode, 1)
			settings.without = c.without
			for s := uint64(1); s <= uint64(*seeds)*4; s++ {
				if _, problem := run(s, settings); problem != "" {
					t.Logf("seed %d: %s", s, problem)
					return
				}
			}
			t.Error("without it nothing goes wrong: the simulation is blind to it")
		})
	}
}
