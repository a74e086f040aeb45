package election

import (
	"fmt"
	"slices"
	"strings"
)

// Testimony is what an instance says its volume remembers, in answer to one that
// has found the Lease without the last reign.
type Testimony struct {
	Instance string
	// Version is that of the Lease which the other had found when it asked.
	Version string
	// DataID identifies the data on the volume; empty: there is none that is
	// complete.
	DataID string
	// Record is the last one that the volume remembers, and Sealed the highest term
	// that the instance has sealed.
	Record Record
	Sealed uint64
}

// inquest is what is heard of the last reign while the Lease does not tell of it.
type inquest struct {
	version string
	began   Time
	asked   map[string]Time
	heard   map[string]Testimony
}

// leap is by how much the term of a forced reign is above what was heard of, when
// not all were heard: what the others remember shall be older.
const leap = 1000

// isLost says whether the Lease does not tell of the last reign: it was deleted and
// made again, or brought back from a copy. Else it never has a record of an older
// term than a volume remembers.
func isLost(in Input) bool {
	r := in.Lease.Record
	return r.IsEmpty() && !in.Founds || r.Term < in.Memory.Term
}

// believe is the Lease as this instance, which does not reign, may go by it. One that
// was lost tells of nothing until every volume of the cluster was heard; then of
// the newest reign that they remember, as if its holder had released it.
//
// Invariant: a reign after a loss is of data that has all that was acknowledged in
// the newest reign.
func (s *State) believe(c Settings, in Input, out *Output) *Lease {
	s.lost, s.waits = false, ""
	if in.Lease == nil || in.Lease.Version == "" || s.reign != nil {
		return in.Lease
	}
	if !isLost(in) {
		s.inquest = nil
		return in.Lease
	}
	s.lost = true
	lease := *in.Lease
	lease.Holder, lease.Record = Holder{}, Record{}
	switch {
	case in.Data.ID == "":
		return &lease // it can do nothing
	case !slices.Contains(in.Instances, s.Me.Instance):
		s.waits = "the Lease does not tell of the last reign, and the cluster does not count on this instance any more"
		return &lease
	case !in.Lease.Holder.IsZero() && !in.Lease.hasEnded(c, in.Now):
		s.waits = fmt.Sprintf("the Lease tells of a reign of term %d, and this volume remembers term %d", in.Lease.Record.Term, in.Memory.Term)
		return &lease
	}
	s.inquire(c, in, in.Instances, out)
	unheard := slices.DeleteFunc(slices.Clone(in.Instances), func(name string) bool {
		_, heard := s.inquest.heard[name]
		return heard || name == s.Me.Instance
	})
	s.unheard = len(unheard) > 0
	forced := in.Forced && in.Now-s.inquest.began >= c.VoteWindow
	if s.unheard && !forced && c.has(ruleHear) {
		s.waits = "the Lease does not tell of the last reign, and this instance waits for what the volume of " + strings.Join(unheard, ", ") + " remembers"
		return &lease
	}
	lease.Record, s.waits = s.newestReign(in)
	return &lease
}

// hear takes in what instances have answered to an inquest. An answer is told once.
func (s *State) hear(in Input) {
	for _, t := range in.Testimonies {
		if s.inquest != nil && t.Version == s.inquest.version {
			s.inquest.heard[t.Instance] = t
		}
	}
}

// inquire asks instances what they remember, again and again, since a volume may be
// lost meanwhile.
func (s *State) inquire(c Settings, in Input, instances []string, out *Output) {
	if s.inquest == nil || s.inquest.version != in.Lease.Version {
		s.inquest = &inquest{version: in.Lease.Version, began: in.Now, asked: map[string]Time{}, heard: map[string]Testimony{}}
		s.hear(in)
	}
	q := s.inquest
	for _, name := range instances {
		at, asked := q.asked[name]
		if name != s.Me.Instance && (!asked || in.Now-at >= c.VoteWindow) {
			q.asked[name] = in.Now
			out.Inquire = append(out.Inquire, name)
		}
	}
}

// newestReign is the newest reign that was heard of, with those who may take over
// from it, and what is still to be waited for. Its own data takes it back, if a
// volume holds that. Else all who remember it elect, provided that they would have
// been enough by whatever each remembers of it.
func (s *State) newestReign(in Input) (Record, string) {
	heard := []Testimony{{Instance: s.Me.Instance, DataID: in.Data.ID, Record: in.Memory}}
	for _, name := range in.Instances {
		t, found := s.inquest.heard[name]
		if found && name != s.Me.Instance && (t.Record.SystemID == in.Data.SystemID || t.Record.IsEmpty()) {
			heard = append(heard, t)
		}
	}
	var newest Record
	var timeline uint32
	for _, t := range heard {
		timeline = max(timeline, t.Record.Timeline)
		if t.Record.Term > newest.Term {
			newest = t.Record
		}
	}
	if newest.IsEmpty() {
		return Record{}, "the Lease has no record, and no volume remembers a reign"
	}
	newest.Timeline, newest.Nominee, newest.Addresses = timeline, "", nil
	holder := slices.IndexFunc(heard, func(t Testimony) bool { return t.DataID == newest.HolderDataID })
	newest.Members, newest.Votes = nil, 0
	switch {
	case holder == 0:
		return newest, ""
	case holder > 0:
		return newest, fmt.Sprintf("the Lease does not tell of the last reign, and %s, which reigned last, has to take it back", heard[holder].Instance)
	}
	heirs := slices.DeleteFunc(heard, func(t Testimony) bool { return t.Record.Term != newest.Term || t.DataID == "" })
	if why := whyNoHeirs(heirs); why != "" {
		return newest, why
	}
	for _, t := range heirs {
		newest.Members = append(newest.Members, Member{Instance: t.Instance, DataID: t.DataID})
	}
	newest.Members, newest.Votes = sorted(newest.Members), len(newest.Members)
	return newest, ""
}

// whyNoHeirs says why those who remember the last reign may lack what was
// acknowledged in it; empty: they have it together.
func whyNoHeirs(heirs []Testimony) string {
	const gone = "the Lease does not tell of the last reign, whose data is gone, "
	for _, t := range heirs {
		there := 0
		for _, m := range t.Record.Members {
			if slices.ContainsFunc(heirs, func(h Testimony) bool { return h.Instance == m.Instance && h.DataID == m.DataID }) {
				there++
			}
		}
		switch {
		case len(t.Record.Members) == 0:
			return gone + "and as " + t.Instance + " remembers it nobody could take over from it"
		case there < t.Record.Votes:
			return fmt.Sprintf("%sand as %s remembers it %d of its members elect, of which %d are there", gone, t.Instance, t.Record.Votes, there)
		}
	}
	return ""
}

// goOnOverLost lets a reign go on whose Lease was lost, once so many members have
// sealed no later term that nobody can have been elected. Until then it lasts as long
// as the Lease would have.
func (s *State) goOnOverLost(c Settings, in Input, out *Output) {
	r := s.reign
	var members []Member
	for _, record := range s.possibleRecords() {
		members = append(members, record.Members...)
	}
	var names []string
	for _, m := range members {
		if !slices.Contains(names, m.Instance) {
			names = append(names, m.Instance)
		}
	}
	s.inquire(c, in, names, out)
	for _, record := range s.possibleRecords() {
		loyal := 0
		for _, m := range record.Members {
			t, heard := s.inquest.heard[m.Instance]
			if heard && t.Record.Term > r.record.Term {
				s.reign = nil
				return
			}
			if heard && t.DataID == m.DataID && t.Sealed <= r.record.Term {
				loyal++
			}
		}
		if len(record.Members) > 0 && loyal <= len(record.Members)-record.Votes && c.has(ruleLoyal) {
			return
		}
	}
	r.version, r.mustRead = in.Lease.Version, false // and so it is written again
}
