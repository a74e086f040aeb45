package election

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// stand takes the Lease back for the data that reigned last, or stands for
// election if the Lease has ended and this instance is a member.
func (s *State) stand(c Settings, in Input, out *Output) {
	if in.Lease == nil || s.pending != nil || in.Data.ID == "" || in.Primary != nil {
		return
	}
	if in.Rest {
		s.candidacy = nil
		return
	}
	if s.founds(in) || s.hasReignedLast(in) && s.mayTakeBack(c, in) {
		s.takeBack(c, in, out)
		return
	}
	if s.hasReignedLast(in) || !s.mayElect(c, in) || !s.mayStand(c, in) {
		s.candidacy = nil
		return
	}
	if s.candidacy != nil && s.isVoid(c, in, s.candidacy.request) {
		s.candidacy = nil
	}
	if s.candidacy == nil {
		s.askForVotes(in, out)
		return
	}
	s.countVotes(c, in, out)
}

// isVoid says whether things have changed since this instance asked for votes.
func (s *State) isVoid(c Settings, in Input, request VoteRequest) bool {
	return s.Sealed > request.Term || request.Candidate.DataID != in.Data.ID || request.Version != in.Lease.Version && c.has(ruleVersion)
}

// founds says whether nobody has reigned yet, and this instance's data is what the
// first reign begins with.
func (s *State) founds(in Input) bool {
	return in.Founds && in.Lease != nil && in.Lease.Record.IsEmpty()
}

// hasReignedLast says whether this instance's data is that of the last reign.
func (s *State) hasReignedLast(in Input) bool {
	return in.Lease != nil && in.Data.ID != "" && in.Lease.Record.HolderDataID == in.Data.ID
}

// mayTakeBack says whether the last holder's data may claim the Lease at once.
// A Lease that was released is left to others for a while.
func (s *State) mayTakeBack(c Settings, in Input) bool {
	l := in.Lease
	return !l.Holder.IsZero() || len(l.Record.Members) == 0 || in.Now-l.SeenAt >= takeBackAfter(c, l.Record)
}

// takeBackAfter is for how long a Lease that was released is left to others. One that has
// named a nominee has ended in order, and has everything: if that one fails, it comes
// before those who may lack something.
func takeBackAfter(c Settings, record Record) Time {
	if record.Nominee != "" && mayLack(c) {
		return c.LeaseDuration / 2
	}
	return c.LeaseDuration
}

// mayLack says whether a member may lack what was acknowledged.
func mayLack(c Settings) bool { return c.Mode == Async }

// mayStand says whether this instance, which may elect, may be elected now.
func (s *State) mayStand(c Settings, in Input) bool {
	nominee := in.Lease.Record.Nominee
	if in.Lease.Holder.IsZero() && nominee != "" && nominee != s.Me.Instance && in.Now-in.Lease.SeenAt < standAfter(c) {
		return false
	}
	return in.Now >= s.standAgain
}

// standAfter is for how long others let a nominee stand alone. In between the last holder
// takes the Lease back where only that one has everything for sure.
func standAfter(c Settings) Time {
	if mayLack(c) {
		return c.LeaseDuration
	}
	return c.NomineeFirst
}

// takeBack claims the Lease for the data that held it last. No other data can
// have reigned since, and the volume's lock keeps an earlier life of this
// instance from going on.
func (s *State) takeBack(c Settings, in Input, out *Output) {
	if !in.Fresh {
		out.Read = true
		return
	}
	s.write(c, in, out, Write{Version: in.Lease.Version, Holder: s.Me, Record: s.newRecord(c, in, max(in.Lease.Record.Term+s.leap(), s.Sealed)+1)})
}

// leap is by how much a term is raised beyond the next, since there may be reigns of
// which nothing was heard.
func (s *State) leap() uint64 {
	if s.lost && s.unheard {
		return leap
	}
	return 0
}

// newRecord is that of a new reign, from which nobody may take over yet. Its timeline
// is the newest of which there is word, until the server says which it has begun.
func (s *State) newRecord(c Settings, in Input, term uint64) Record {
	r := Record{Term: term, Timeline: max(in.Lease.Record.Timeline, in.Data.Timeline), SystemID: in.Data.SystemID, HolderDataID: in.Data.ID, HolderAddress: s.Address}
	if !c.has(ruleNobodyYet) {
		r.Members, r.Votes = in.Lease.Record.Members, in.Lease.Record.Votes
	}
	return r
}

// mayElect says whether this instance may take part in an election now.
func (s *State) mayElect(c Settings, in Input) bool {
	l := in.Lease
	me, found := l.Record.member(s.Me.Instance)
	switch {
	case l.Record.IsEmpty():
		return false // who founds is not elected
	case c.has(ruleMembers) && !in.Forced && (!found || me.DataID != in.Data.ID && c.has(ruleData)):
		return false
	case in.Now < s.promisedUntil && c.has(rulePromise):
		return false
	case l.Holder.IsZero() || !c.has(ruleExpiry):
		return true
	}
	return l.hasEnded(c, in.Now)
}

// hasEnded says whether the Lease was seen unchanged for so long that its holder
// is writable no more, by the rules of either.
func (l *Lease) hasEnded(c Settings, now Time) bool {
	return now-l.SeenAt >= max(c.LeaseDuration, l.Lasts)
}

// askForVotes begins a candidacy. Its first vote is its own.
func (s *State) askForVotes(in Input, out *Output) {
	if !in.Fresh {
		out.Read = true
		return
	}
	request := VoteRequest{
		Candidate: Member{Instance: s.Me.Instance, DataID: in.Data.ID},
		Term:      max(in.Lease.Record.Term+1+s.leap(), s.Sealed, in.Sealed), // so high that nobody has sealed more
		Version:   in.Lease.Version,
	}
	s.candidacy = &candidacy{request: request, since: in.Now, votes: map[Member]Vote{}}
	s.Sealed = request.Term
	out.Seal = request.Term
	out.Ask = &request
	for _, m := range in.Lease.Record.Members {
		if m != request.Candidate {
			out.AskWhom = append(out.AskWhom, m)
		}
	}
}

// countVotes takes the Lease if the votes say so.
func (s *State) countVotes(c Settings, in Input, out *Output) {
	election, record := s.candidacy, in.Lease.Record
	for _, vote := range in.Votes {
		if vote.Request == election.request {
			election.votes[vote.Voter] = vote
		}
	}
	me := election.request.Candidate
	if in.Cut >= election.request.Term {
		election.votes[me] = Vote{Voter: me, Request: election.request, Timeline: in.Data.Timeline, End: in.Data.End}
	}
	counted := []Vote{}
	for _, m := range record.Members {
		if vote, found := election.voteOf(c, m); found {
			counted = append(counted, vote)
		}
	}
	own, voted := election.votes[me]
	if (len(counted) < len(record.Members) || !voted) && in.Now-election.since < c.VoteWindow {
		return
	}
	switch {
	case in.Forced && voted:
		s.write(c, in, out, Write{Version: s.versionToReplace(c, in), Holder: s.Me, Record: s.newRecord(c, in, election.request.Term)})
	case !voted || len(counted) < record.Votes && c.has(ruleVotes):
		s.blocked = missingVotes(record, counted)
		s.standDown(in, c.VoteWindow/2*Time(1+s.rank(record)))
	case c.has(ruleBest) && s.mustYield(own, counted, record):
		s.yields++
		s.standDown(in, 2*c.VoteWindow)
	default:
		s.write(c, in, out, Write{Version: s.versionToReplace(c, in), Holder: s.Me, Record: s.newRecord(c, in, election.request.Term)})
	}
}

func (s *State) versionToReplace(c Settings, in Input) string {
	if !c.has(ruleVersion) {
		return in.Lease.Version
	}
	return s.candidacy.request.Version
}

func (s *State) standDown(in Input, pause Time) {
	s.candidacy = nil
	s.standAgain = in.Now + pause
}

// rank is the instance's place among the members, so that those that stood at
// once do not meet again.
func (s *State) rank(record Record) int {
	for n, m := range record.Members {
		if m.Instance == s.Me.Instance {
			return n
		}
	}
	return len(record.Members)
}

// mustYield says whether another has a better vote. It is never overruled where
// it takes more than one vote to know of all that was acknowledged; where any
// member may elect alone, each has that, and the better one is let go first some
// times.
func (s *State) mustYield(own Vote, votes []Vote, record Record) bool {
	for _, vote := range votes {
		if isBetter(vote, own, record.Nominee) {
			return record.Votes > 1 || s.yields < maxYields
		}
	}
	return false
}

// voteOf is the vote of a member, who gave it with the data that it is a member
// by.
func (e *candidacy) voteOf(c Settings, m Member) (Vote, bool) {
	if !c.has(ruleData) {
		for _, vote := range e.votes {
			if vote.Voter.Instance == m.Instance {
				return vote, true
			}
		}
	}
	vote, found := e.votes[m]
	return vote, found
}

// isBetter compares votes: the newest timeline, then the furthest WAL, then the
// nominee, then the name.
func isBetter(a, b Vote, nominee string) bool {
	named := func(v Vote) int {
		if v.Voter.Instance == nominee {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(a.Timeline, b.Timeline), cmp.Compare(a.End, b.End), cmp.Compare(named(a), named(b)),
		cmp.Compare(b.Voter.Instance, a.Voter.Instance)) > 0
}

// missingVotes says who has not voted.
func missingVotes(record Record, counted []Vote) string {
	var missing []string
	for _, m := range record.Members {
		if !slices.ContainsFunc(counted, func(v Vote) bool { return v.Voter == m }) {
			missing = append(missing, m.Instance)
		}
	}
	return fmt.Sprintf("%d of %d votes elect, and %d were given; not heard of: %s", record.Votes, len(record.Members), len(counted),
		strings.Join(missing, ", "))
}
