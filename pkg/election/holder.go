package election

import (
	"slices"

	"github.com/pgop/postgres-operator/pkg/postgres"
)

// hold renews the Lease, keeps the record, and ends the reign in time.
func (s *State) hold(c Settings, in Input, out *Output) {
	r := s.reign
	if in.Primary != nil {
		present := *in.Primary
		present.Standbys = r.presentStandbys(s.Me.Instance, in.Primary.Standbys)
		in.Primary = &present
	}
	s.takePromises(c, in)
	switch {
	case s.nobodyElects():
		// The right has no end before somebody may take over; and who is made a
		// member now counts the length of a Lease from now on at the earliest.
		r.until = max(r.until, in.Now+c.LeaseDuration-c.Margin)
	case in.Now >= r.until && c.has(ruleFence):
		s.reign = nil
		return
	}
	want := r.record
	want.HolderAddress, want.Nominee = s.Address, ""
	if sealed := max(in.Sealed, s.Sealed); sealed > want.Term && c.has(ruleRaise) {
		want.Term = sealed
		s.Sealed = sealed
	}
	if in.Primary != nil {
		s.noticeStandbys(in)
		s.tendMembers(c, in, &want)
		if in.Primary.Timeline != 0 {
			want.Timeline = in.Primary.Timeline
		}
		want.Addresses = r.addressesOf(want.Members)
		sync := r.sync
		out.Sync = &sync
	}
	if in.Now-r.renewedAt > 2*c.RenewEvery {
		s.plead(c, in, out)
	}
	switch {
	case s.pending != nil:
	case r.mustRead:
		out.Read = true
	case in.Halt != nil && in.Primary == nil:
		s.halt(c, in, want, out)
	case in.Resign != nil && in.Primary == nil && len(want.Members) > 0:
		if _, found := want.member(in.Resign.Nominee); found {
			want.Nominee = in.Resign.Nominee
		}
		r.released = true
		s.write(c, in, out, Write{Version: r.version, Record: want})
	case r.doubtful != nil || r.released || !want.Equal(r.record) || in.Now-r.renewedAt >= c.RenewEvery:
		s.write(c, in, out, Write{Version: r.version, Holder: s.Me, Record: want})
	}
}

// halt ends the reign without a successor, once the record says who could be
// one: since all of them have everything, however the Lease is taken later loses
// nothing.
func (s *State) halt(c Settings, in Input, want Record, out *Output) {
	r := s.reign
	if in.Halt.Orderly {
		want.Members = slices.DeleteFunc(slices.Clone(want.Members), func(m Member) bool { return !slices.Contains(in.Halt.Whole, m) })
		want.Votes = min(1, len(want.Members))
		want.Addresses = r.addressesOf(want.Members)
	}
	if !in.Halt.Orderly || want.Equal(r.record) && r.doubtful == nil {
		s.reign = nil
		return
	}
	r.released = true
	s.write(c, in, out, Write{Version: r.version, Holder: s.Me, Record: want})
}

// write asks for a write. From then on others may count the length that it gives
// the Lease, which may be less than before.
func (s *State) write(c Settings, in Input, out *Output, w Write) {
	w.StartedAt, w.Lasts = in.Now, c.LeaseDuration
	s.pending, s.claims, s.right = &w, s.reign == nil, c.LeaseDuration-c.Margin
	if s.reign != nil && c.has(ruleLength) {
		s.reign.until = min(s.reign.until, in.Now+s.right)
	}
	out.Write = &w
}

// addressesOf are the members' addresses, as last seen.
func (r *reign) addressesOf(members []Member) map[string]string {
	var addresses map[string]string
	for _, m := range members {
		address := r.addresses[m.Instance]
		if address == "" {
			address = r.record.Addresses[m.Instance]
		}
		if address == "" {
			continue
		}
		if addresses == nil {
			addresses = map[string]string{}
		}
		addresses[m.Instance] = address
	}
	return addresses
}

// nobodyElects says whether the record, whichever it is, lets nobody take over.
func (s *State) nobodyElects() bool {
	for _, record := range s.possibleRecords() {
		if len(record.Members) > 0 {
			return false
		}
	}
	return true
}

// possibleRecords are those that the Lease may hold.
func (s *State) possibleRecords() []Record {
	records := []Record{s.reign.record}
	if s.reign.doubtful != nil {
		records = append(records, *s.reign.doubtful)
	}
	if s.pending != nil {
		records = append(records, s.pending.Record)
	}
	return records
}

// plead asks the members not to elect for a while, since the Lease can't be
// renewed.
func (s *State) plead(c Settings, in Input, out *Output) {
	r := s.reign
	if in.Now-r.pleadAt < c.RenewEvery && r.pleadAt != 0 {
		return
	}
	r.pleadAt, r.promised = in.Now, map[Member]bool{}
	r.plea = PromiseRequest{Holder: s.Me, Term: r.record.Term, AskedAt: in.Now, Lasts: c.LeaseDuration}
	plea := r.plea
	out.Plead = &plea
	for _, record := range s.possibleRecords() {
		for _, m := range record.Members {
			if !slices.Contains(out.PleadWith, m) {
				out.PleadWith = append(out.PleadWith, m)
			}
		}
	}
}

// takePromises lets the reign go on when so many have promised that the others
// can't elect.
func (s *State) takePromises(c Settings, in Input) {
	r := s.reign
	for _, p := range in.Promises {
		if p.Request == r.plea {
			r.promised[p.Member] = true
		}
	}
	for _, record := range s.possibleRecords() {
		promised := 0
		for _, m := range record.Members {
			if r.promised[m] {
				promised++
			}
		}
		if len(record.Members) > 0 && promised <= len(record.Members)-record.Votes {
			return
		}
	}
	if len(r.promised) > 0 {
		r.until = max(r.until, r.plea.AskedAt+r.plea.Lasts-c.Margin)
	}
}

// presentStandbys are those that count, one for each instance and none that is
// nobody's. Of two walsenders of an instance the one counts that has got further:
// the other has outlived its connection.
func (r *reign) presentStandbys(me string, standbys []Standby) []Standby {
	var present []Standby
	for _, standby := range standbys {
		if standby.Instance == "" || standby.Instance == me || standby.DataID == "" {
			continue
		}
		n := slices.IndexFunc(present, func(p Standby) bool { return p.Instance == standby.Instance })
		switch {
		case n < 0:
			present = append(present, standby)
		case standby.Flushed > present[n].Flushed,
			standby.Flushed == present[n].Flushed && standby.DataID == r.marks[standby.Instance].data:
			present[n] = standby
		}
	}
	return present
}

// noticeStandbys keeps when each standby was last seen, and a position from a
// moment when it already had its present data.
func (s *State) noticeStandbys(in Input) {
	r := s.reign
	for _, standby := range in.Primary.Standbys {
		r.seen[standby.Instance] = in.Now
		if standby.Address != "" {
			r.addresses[standby.Instance] = standby.Address
		}
		if r.marks[standby.Instance].data != standby.DataID {
			r.marks[standby.Instance] = mark{data: standby.DataID, position: in.Primary.End}
		}
	}
}

// isGood says whether the member is there, or was a moment ago, with the data
// that it is a member by.
func (s *State) isGood(c Settings, in Input, m Member) bool {
	seen, found := s.reign.seen[m.Instance]
	return found && in.Now-seen <= c.Absence && (s.reign.marks[m.Instance].data == m.DataID || !c.has(ruleData))
}

// goodStandbys are those that stream, sorted by name.
func (s *State) goodStandbys(c Settings, in Input) []Member {
	var good []Member
	for _, standby := range in.Primary.Standbys {
		if s.isGood(c, in, standby.Member) {
			good = append(good, standby.Member)
		}
	}
	return sorted(good)
}

// hasFlushed says whether the member, with its data, has flushed the WAL up to
// a position.
func hasFlushed(c Settings, p *Primary, m Member, position postgres.LSN) bool {
	return slices.ContainsFunc(p.Standbys, func(s Standby) bool {
		return s.Instance == m.Instance && (s.DataID == m.DataID || !c.has(ruleData)) && s.Flushed >= position
	})
}

func haveFlushed(c Settings, p *Primary, members []Member, position postgres.LSN) bool {
	return !slices.ContainsFunc(members, func(m Member) bool { return !hasFlushed(c, p, m, position) })
}
