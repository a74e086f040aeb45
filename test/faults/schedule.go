package faults

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Random faults last between these, unless the kind's time is fixed.
const (
	shortestHold = 5 * second
	longestHold  = minute
)

// Round is what happens in a round.
type Round struct {
	// Number counts from 1.
	Number int
	// Faults strike in this order and are healed in the opposite one.
	Faults []Kind
	// Delay is how long the ledger writes before the first fault, Apart the time
	// between two, and Hold how long all last once all have struck.
	Delay, Apart, Hold time.Duration
}

// Name names the round's faults.
func (r Round) Name() string { return r.join(func(k Kind) string { return k.Name }) }

// Title is Name with the cases that the faults tell.
func (r Round) Title() string { return r.join(Kind.Title) }

func (r Round) join(of func(Kind) string) string {
	var faults []string
	for _, k := range r.Faults {
		faults = append(faults, of(k))
	}
	return strings.Join(faults, "+")
}

// Row is the line of the table to which the round belongs.
func (r Round) Row() string {
	if len(r.Faults) > 1 {
		return pairName
	}
	return r.Name()
}

// MayBeLate says whether one of the faults may leave late acknowledgements.
func (r Round) MayBeLate() bool {
	return slices.ContainsFunc(r.Faults, func(k Kind) bool { return k.MayBeLate })
}

// Undisturbed says whether every connection and every server lives through it.
func (r Round) Undisturbed() bool { return len(r.Faults) == 1 && r.Faults[0].Undisturbed }

// Witnessed says whether a ledger on the primary's node is of use: not where the
// node stands still.
func (r Round) Witnessed() bool {
	return slices.ContainsFunc(r.Faults, func(k Kind) bool { return k.Witnessed }) && !r.MayBeLate()
}

func (r Round) String() string {
	return fmt.Sprintf("round %d: %s, after %v, for %v", r.Number, r.Name(), r.Delay, r.Hold)
}

// Fixed is one round of every kind whose name matches, and one of two at once.
// Kinds on demand are only among them if the pattern is not the one of all.
func Fixed(pattern string) ([]Round, error) {
	chosen, pairs, err := choose(pattern)
	if err != nil {
		return nil, err
	}
	var rounds []Round
	for _, k := range chosen {
		rounds = append(rounds, Round{Number: len(rounds) + 1, Faults: []Kind{k}, Delay: second, Hold: k.Hold})
	}
	if pairs {
		rounds = append(rounds, Round{Number: len(rounds) + 1, Faults: inOrder(mustKind("postmaster-kill"), mustKind("standby-node-cut")),
			Delay: second, Apart: second, Hold: 30 * second})
	}
	return rounds, nil
}

// Random deals that many rounds. The same seed, number and pattern give the same
// rounds. Kinds come in shuffled decks, so that each gets its share.
func Random(seed uint64, count int, pattern string) ([]Round, error) {
	chosen, pairs, err := choose(pattern)
	if err != nil {
		return nil, err
	}
	dice := rand.New(rand.NewPCG(seed, 0))
	var deck [][]Kind
	var rounds []Round
	for number := 1; number <= count; number++ {
		if len(deck) == 0 {
			deck = newDeck(dice, chosen, pairs)
		}
		r := Round{Number: number, Faults: deck[0], Delay: between(dice, 0, 3*second)}
		deck = deck[1:]
		if len(r.Faults) > 1 {
			r.Apart = between(dice, 0, 5*second)
		}
		r.Hold = holdOf(dice, r.Faults)
		rounds = append(rounds, r)
	}
	return rounds, nil
}

// newDeck has every chosen kind once and, with pairs, as many pairs as a tenth of
// that, at least one.
func newDeck(dice *rand.Rand, chosen []Kind, pairs bool) [][]Kind {
	var deck [][]Kind
	for _, k := range chosen {
		deck = append(deck, []Kind{k})
	}
	if pairs {
		for range max(1, len(chosen)/10) {
			deck = append(deck, drawPair(dice))
		}
	}
	dice.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
	return deck
}

// drawPair draws two kinds of different realms.
func drawPair(dice *rand.Rand) []Kind {
	for {
		a, b := Kinds[dice.IntN(len(Kinds))], Kinds[dice.IntN(len(Kinds))]
		if a.OnDemand || b.OnDemand || a.Realm == "" || b.Realm == "" || a.Realm == b.Realm {
			continue
		}
		return inOrder(a, b)
	}
}

func inOrder(kinds ...Kind) []Kind {
	slices.SortStableFunc(kinds, func(a, b Kind) int {
		return slices.Index(strikingOrder, a.Realm) - slices.Index(strikingOrder, b.Realm)
	})
	return kinds
}

// holdOf is as long as the longest of the faults that have a fixed time lasts; of
// others it is random.
func holdOf(dice *rand.Rand, faults []Kind) time.Duration {
	random := between(dice, shortestHold, longestHold)
	var fixed time.Duration
	lasts := false
	for _, k := range faults {
		lasts = lasts || k.Hold > 0
		if k.Fixed {
			fixed = max(fixed, k.Hold)
		}
	}
	switch {
	case !lasts:
		return 0
	case fixed > 0:
		return fixed
	}
	return random
}

// between is a time of whole tenths of a second.
func between(dice *rand.Rand, least, most time.Duration) time.Duration {
	const step = 100 * time.Millisecond
	return least + step*time.Duration(dice.Int64N(int64((most-least)/step)+1))
}

// choose are the kinds whose whole names match, and whether pairs do.
func choose(pattern string) (chosen []Kind, pairs bool, err error) {
	all := pattern == "" || pattern == "."
	if all {
		pattern = ".*"
	}
	matches, err := regexp.Compile("^(?:" + pattern + ")$")
	if err != nil {
		return nil, false, fmt.Errorf("choose faults: %w", err)
	}
	var known []string
	for _, k := range Kinds {
		known = append(known, k.Name)
		if matches.MatchString(k.Name) && !(all && k.OnDemand) {
			chosen = append(chosen, k)
		}
	}
	pairs = matches.MatchString(pairName)
	if len(chosen) == 0 && !pairs {
		return nil, false, fmt.Errorf("choose faults: %q is none of %s, %s", pattern, strings.Join(known, ", "), pairName)
	}
	return chosen, pairs, nil
}

// mustKind is for names in this package.
func mustKind(name string) Kind {
	k, ok := KindNamed(name)
	if !ok {
		panic("no kind of fault is named " + name)
	}
	return k
}
