package election

import (
	"slices"
	"time"

	"github.com/pgop/postgres-operator/pkg/postgres"
)

// State is what an instance keeps between steps. Sealed must outlive the
// process, beside the data; the rest may be lost.
type State struct {
	Me Holder
	// Address at which this instance serves.
	Address string
	// Sealed is the highest term that this instance has taken part in. It never
	// decreases while the data lives, and the instance streams from no holder of
	// an older term.
	Sealed uint64

	reign     *reign
	candidacy *candidacy
	// pending is a write whose outcome is not known yet; claims is true when it
	// would begin a reign.
	pending *Write
	claims  bool
	// right is for how long the writer may be writable after the start of the last
	// write, if that succeeds.
	right time.Duration
	// promisedUntil is until when this instance takes part in no election.
	promisedUntil Time
	// standAgain is when this instance may stand again, and yields how often in a
	// row it has let a better one go first.
	standAgain Time
	yields     int
	// blocked says why the last candidacy has failed.
	blocked string
	// inquest is there while the Lease does not tell of the last reign. As of the last
	// step: whether that is so (lost), whether there is a volume that was not heard,
	// and what is waited for.
	inquest       *inquest
	lost, unheard bool
	waits         string
	// requests are those that are answered when the cut is done.
	requests []VoteRequest
}

// reign is what the holder knows of its own reign.
type reign struct {
	// record is what the Lease holds, and version its version, as of the last
	// write that succeeded; doubtful is what it may hold instead.
	record   Record
	version  string
	doubtful *Record
	// mustRead is true after a write that did not succeed for sure.
	mustRead bool
	// until is when the right to be writable ends.
	until     Time
	renewedAt Time
	// tookOver is true when another instance had reigned before.
	tookOver bool
	beganAt  Time
	// released is true from the first write that releases the Lease on, until a
	// later write has claimed it again for sure.
	released bool
	// open is true when clients may use the server, in the life of it that began
	// at recovered.
	open      bool
	recovered postgres.LSN

	// mode and need are those that the membership has followed so far.
	mode Mode
	need int
	// sync is what synchronous_standby_names was last asked to be.
	sync Sync
	// marks are positions from moments when standbys already had their present
	// data, and seen when they were last seen streaming, by instance.
	marks map[string]mark
	seen  map[string]Time
	// addresses are where standbys were last seen, by instance.
	addresses map[string]string

	// plea is the last that was made, with who has promised.
	plea     PromiseRequest
	pleadAt  Time
	promised map[Member]bool
}

type mark struct {
	data     string
	position postgres.LSN
}

// candidacy is an election that this instance stands in.
type candidacy struct {
	request VoteRequest
	since   Time
	votes   map[Member]Vote
}

// maxYields is how often in a row a candidate lets a better one go first before
// it takes over itself, if any member alone may elect: it is all that is left.
const maxYields = 2

// MustStopAt is when the right to be writable ends unless the core says more;
// false while nobody may take over, since then it has no end.
func (s *State) MustStopAt() (Time, bool) {
	if s.reign == nil || s.nobodyElects() {
		return 0, false
	}
	return s.reign.until, true
}

// Reigns says whether the instance believes that it reigns.
func (s *State) Reigns() bool { return s.reign != nil }

func (r Record) member(instance string) (Member, bool) {
	i := slices.IndexFunc(r.Members, func(m Member) bool { return m.Instance == instance })
	if i < 0 {
		return Member{}, false
	}
	return r.Members[i], true
}
