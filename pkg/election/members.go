package election

import (
	"cmp"
	"slices"
)

// votesOf is how many of n members elect while a commit needs so many
// acknowledgements: so many that they share a member with every set that could
// acknowledge.
func votesOf(n, need int) int {
	if n == 0 {
		return 0
	}
	return max(1, n-need+1)
}

// tendMembers takes one step towards the members V of the record and the
// standbys S that acknowledge, which the standbys that are there call for. Each
// step begins only when the one before is certain.
//
// Invariant: every set that could acknowledge a commit (Need of S) shares an
// instance with every set that could elect (Votes of V), or V is empty.
func (s *State) tendMembers(c Settings, in Input, want *Record) {
	r, p := s.reign, in.Primary
	certain := s.pending == nil && r.doubtful == nil && !r.mustRead
	if c.Mode != r.mode || c.Need != r.need {
		s.changeRules(c, certain, want)
		return
	}
	if c.Mode == Async {
		s.tendAsync(c, in, want)
		return
	}
	if !certain {
		return
	}
	if !p.Sync.equal(r.sync) || !p.SyncDone && c.has(ruleSyncDone) {
		return // S is on its way
	}
	switch {
	case len(want.Members) == 0 && len(r.sync.Standbys) == 0:
		s.recruitFirst(c, in)
		return
	case len(want.Members) == 0:
		s.confirmFirst(c, in, want)
		return
	}
	if silent := s.silentMembers(c, in, *want); len(silent) > 0 {
		r.sync = Sync{Need: c.Need, Standbys: sorted(append(slices.Clone(r.sync.Standbys), silent...))}
		return
	}
	if bad, found := s.firstBad(c, in, slices.Concat(r.sync.Standbys, want.Members)); found && s.dropMember(c, in, want, bad) {
		return
	}
	s.addMember(c, in, want)
}

// changeRules begins the membership anew when people want other rules: nobody
// may take over first, whatever the old rules said of who has what.
func (s *State) changeRules(c Settings, certain bool, want *Record) {
	want.Members, want.Votes = nil, 0
	if certain && len(s.reign.record.Members) == 0 {
		s.reign.mode, s.reign.need, s.reign.sync = c.Mode, c.Need, firstSync(c)
	}
}

// silentMembers are the members that are there and may not acknowledge yet.
func (s *State) silentMembers(c Settings, in Input, record Record) []Member {
	return slices.DeleteFunc(slices.Clone(record.Members), func(m Member) bool {
		return !s.isGood(c, in, m) || slices.Contains(s.reign.sync.Standbys, m)
	})
}

func sorted(members []Member) []Member {
	slices.SortFunc(members, compareMembers)
	return members
}

// tendAsync lets the standbys that are not far behind take over.
func (s *State) tendAsync(c Settings, in Input, want *Record) {
	var members []Member
	for _, standby := range in.Primary.Standbys {
		if standby.Flushed+c.MaxLag >= in.Primary.End {
			members = append(members, standby.Member)
		}
	}
	for _, m := range want.Members {
		absent := !slices.ContainsFunc(in.Primary.Standbys, func(s Standby) bool { return s.Instance == m.Instance })
		if absent && s.isGood(c, in, m) {
			members = append(members, m) // for a moment
		}
	}
	want.Members, want.Votes = sorted(members), min(1, len(members))
}

func (s *State) firstBad(c Settings, in Input, members []Member) (Member, bool) {
	for _, m := range members {
		if !s.isGood(c, in, m) {
			return m, true
		}
	}
	return Member{}, false
}

// recruitFirst lets the standbys acknowledge, of which there are none so far.
// They are no members yet: they may lack the past.
func (s *State) recruitFirst(c Settings, in Input) {
	if good := s.goodStandbys(c, in); len(good) >= c.Need {
		s.reign.sync = Sync{Need: c.Need, Standbys: good}
	}
}

// confirmFirst makes the standbys that acknowledge the first members, once they
// have what was committed before they did.
func (s *State) confirmFirst(c Settings, in Input, want *Record) {
	r, p := s.reign, in.Primary
	if _, bad := s.firstBad(c, in, r.sync.Standbys); bad {
		switch good := s.goodStandbys(c, in); {
		case len(good) >= c.Need:
			r.sync = Sync{Need: c.Need, Standbys: good}
		case c.Mode == Preferred:
			r.sync = Sync{} // nobody may take over, so the primary may go on alone
		}
		return
	}
	if haveFlushed(c, p, r.sync.Standbys, p.SyncSince) || !c.has(ruleReturn) {
		want.Members, want.Votes = slices.Clone(r.sync.Standbys), votesOf(len(r.sync.Standbys), c.Need)
	}
}

// dropMember takes the way to a record without the member bad: first it may
// not acknowledge any more, then the others have the past, then it is no member.
// It says whether that way is open: else commits wait until the member is back
// or another has been added, and it may take over meanwhile.
func (s *State) dropMember(c Settings, in Input, want *Record, bad Member) bool {
	r, p := s.reign, in.Primary
	rest := slices.DeleteFunc(slices.Clone(r.sync.Standbys), func(m Member) bool { return m.Instance == bad.Instance })
	acknowledges := len(rest) < len(r.sync.Standbys)
	switch {
	case !acknowledges:
		if haveFlushed(c, p, rest, p.SyncSince) || !c.has(ruleRestHasPast) {
			want.Members = slices.DeleteFunc(slices.Clone(want.Members), func(m Member) bool { return m == bad })
			want.Votes = votesOf(len(want.Members), c.Need)
		}
	case len(rest) >= c.Need && !c.has(ruleSFirst):
		want.Members = slices.DeleteFunc(slices.Clone(want.Members), func(m Member) bool { return m == bad })
		want.Votes = votesOf(len(want.Members), c.Need)
		r.sync = Sync{Need: c.Need, Standbys: rest}
	case len(rest) >= c.Need:
		r.sync = Sync{Need: c.Need, Standbys: rest}
	case c.Mode == Preferred && !c.has(ruleAlone):
		r.sync = Sync{}
	case c.Mode == Preferred || s.mustBeginAnew(c, in, *want):
		want.Members, want.Votes = nil, 0
	default:
		return false
	}
	return true
}

// mustBeginAnew says whether there are enough standbys, but only under the names
// of members that had other data: none can be added beside its former self.
func (s *State) mustBeginAnew(c Settings, in Input, record Record) bool {
	good := s.goodStandbys(c, in)
	return len(good) >= c.Need && !slices.ContainsFunc(good, func(m Member) bool {
		_, found := record.member(m.Instance)
		return !found
	})
}

// addMember makes a standby that has the past a member. It may acknowledge in
// the next step. One that lags would do no harm to what is acknowledged, but
// elections would need its vote.
func (s *State) addMember(c Settings, in Input, want *Record) {
	r, p := s.reign, in.Primary
	for _, m := range s.goodStandbys(c, in) {
		if _, found := want.member(m.Instance); found {
			continue // with this data or other
		}
		if !hasFlushed(c, p, m, r.marks[m.Instance].position) {
			continue
		}
		added := sorted(append(slices.Clone(want.Members), m))
		if !c.has(ruleVFirst) {
			r.sync = Sync{Need: c.Need, Standbys: added}
		}
		want.Members, want.Votes = added, votesOf(len(added), c.Need)
		return
	}
}

func compareMembers(a, b Member) int {
	return cmp.Or(cmp.Compare(a.Instance, b.Instance), cmp.Compare(a.DataID, b.DataID))
}

func (s Sync) equal(other Sync) bool {
	return s.Need == other.Need && slices.Equal(s.Standbys, other.Standbys)
}
