package faults

import (
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRandomReplays(t *testing.T) {
	first, err := Random(7, 60, "")
	if err != nil {
		t.Fatal(err)
	}
	again, err := Random(7, 60, "")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(first, again); diff != "" {
		t.Errorf("the same seed gives another schedule:\n%s", diff)
	}
	other, err := Random(8, 60, "")
	if err != nil {
		t.Fatal(err)
	}
	if cmp.Equal(first, other) {
		t.Error("another seed gives the same schedule")
	}
	longer, err := Random(7, 90, "")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(first, longer[:60]); diff != "" {
		t.Errorf("more rounds are not the same and then others:\n%s", diff)
	}
}

func TestRandomRoundsKeepTheRules(t *testing.T) {
	dealt := map[string]int{}
	for seed := range uint64(200) {
		rounds, err := Random(seed, 100, "")
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range rounds {
			dealt[r.Row()]++
			checkRound(t, r)
		}
	}
	for _, k := range Kinds {
		if (dealt[k.Name] > 0) == k.OnDemand {
			t.Errorf("%s was dealt %d times", k.Name, dealt[k.Name])
		}
	}
	if dealt[pairName] == 0 {
		t.Error("no two faults came at once")
	}
}

func checkRound(t *testing.T, r Round) {
	t.Helper()
	if r.Hold > longestHold || len(r.Faults) == 0 || len(r.Faults) > 2 {
		t.Errorf("%v", r)
	}
	for _, k := range r.Faults {
		if k.Hold > 0 && r.Hold < shortestHold {
			t.Errorf("%v: %s lasts", r, k.Name)
		}
	}
	if len(r.Faults) == 2 && r.Faults[0].Realm == r.Faults[1].Realm {
		t.Errorf("%v: both strike the same realm", r)
	}
	if len(r.Faults) == 2 && r.Faults[0].Realm == apiServer {
		t.Errorf("%v: without an API server the second can't strike", r)
	}
}

func TestTitlesNameTheCases(t *testing.T) {
	for pattern, want := range map[string]string{
		"agent-kill": "agent-kill (C-02)", "pod-delete": "pod-delete (C-01, C-15)", "node-cut": "node-cut",
		"api-stop-60s": "api-stop-60s (C-17)", "dns-stop": "dns-stop (C-23)", "volume-delete": "volume-delete (C-22)",
		"two-at-once": "postmaster-kill+standby-node-cut",
	} {
		rounds, err := Fixed(pattern)
		if err != nil {
			t.Fatal(err)
		}
		if got := rounds[0].Title(); got != want {
			t.Errorf("%s: %q, want %q", pattern, got, want)
		}
	}
	format := regexp.MustCompile(`^[A-F]-\d\d$`)
	for _, k := range Kinds {
		for _, c := range k.Cases {
			if !format.MatchString(c) {
				t.Errorf("%s: %q is no case", k.Name, c)
			}
		}
	}
}

func TestFixed(t *testing.T) {
	tests := []struct {
		pattern string
		want    []string
	}{
		{"(agent|postmaster)-kill", []string{"postmaster-kill", "agent-kill"}},
		{"api-stop.*", []string{"api-stop-60s", "api-stop-10m"}},
		{"two-at-once", []string{"postmaster-kill+standby-node-cut"}},
	}
	for _, test := range tests {
		t.Run(test.pattern, func(t *testing.T) {
			rounds, err := Fixed(test.pattern)
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for i, r := range rounds {
				names = append(names, r.Name())
				if r.Number != i+1 {
					t.Errorf("%v is the %d. round", r, i+1)
				}
			}
			if diff := cmp.Diff(test.want, names); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
	all, err := Fixed("")
	if err != nil {
		t.Fatal(err)
	}
	const onDemand = 2
	if want := len(Kinds) - onDemand + 1; len(all) != want { // and a pair
		t.Errorf("%d rounds, want %d", len(all), want)
	}
	for _, pattern := range []string{"no-such-fault", "("} {
		if _, err := Fixed(pattern); err == nil {
			t.Errorf("%q chooses faults", pattern)
		}
	}
}
