package election

import "slices"

// answerRequests seals the term of each request that may be granted, and
// answers when the cut is done.
func (s *State) answerRequests(c Settings, in Input, out *Output) {
	for _, request := range in.Requests {
		if s.mayVote(c, in, request) {
			if c.has(ruleSeal) {
				s.Sealed = max(s.Sealed, request.Term)
				out.Seal = s.Sealed
			}
			s.requests = append(s.requests, request)
		}
	}
	s.requests = slices.DeleteFunc(s.requests, func(request VoteRequest) bool {
		if s.reign != nil || in.Lease == nil || in.Lease.Version != request.Version || s.Sealed > request.Term {
			return true // things have changed
		}
		if in.Cut < request.Term && c.has(ruleSeal) {
			return false
		}
		out.Votes = append(out.Votes, Vote{
			Voter: Member{Instance: s.Me.Instance, DataID: in.Data.ID}, Request: request,
			Timeline: in.Data.Timeline, End: in.Data.End,
		})
		return true
	})
}

// mayVote says whether a request may be granted. The voter itself must have
// read the Lease, and have seen it end.
func (s *State) mayVote(c Settings, in Input, request VoteRequest) bool {
	if s.reign != nil || s.pending != nil || in.Primary != nil || in.Lease == nil || !in.Fresh || in.Data.ID == "" {
		return false
	}
	return in.Lease.Version == request.Version && request.Term > in.Lease.Record.Term && s.Sealed <= request.Term &&
		s.mayElect(c, in)
}

// answerPleas promises the holder, who can't renew the Lease, to take part in
// no election for the length of a Lease, by the rules of either.
func (s *State) answerPleas(c Settings, in Input, out *Output) {
	for _, plea := range in.Pleas {
		if s.reign != nil || s.pending != nil || in.Lease == nil || in.Data.ID == "" || in.Primary != nil {
			continue
		}
		if in.Lease.Holder != plea.Holder || in.Lease.Record.Term != plea.Term || s.Sealed > plea.Term {
			continue
		}
		s.promisedUntil = max(s.promisedUntil, in.Now+max(c.LeaseDuration, plea.Lasts))
		out.Promises = append(out.Promises, Promise{Member: Member{Instance: s.Me.Instance, DataID: in.Data.ID}, Request: plea})
	}
}
