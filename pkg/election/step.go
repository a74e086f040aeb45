package election

import (
	"cmp"

	"github.com/pgop/postgres-operator/pkg/postgres"
)

// The rules, which tests switch off one by one.
const (
	ruleSeal        rule = "a vote seals"
	ruleVotes       rule = "as many votes as the record says"
	ruleBest        rule = "the best vote wins"
	ruleVersion     rule = "a change of the record voids the votes"
	ruleData        rule = "a member is an instance and its data"
	ruleMembers     rule = "only a member may take over"
	ruleVFirst      rule = "who is added is a member first"
	ruleSFirst      rule = "who is removed stops to acknowledge first"
	ruleRestHasPast rule = "the rest has the past before a member goes"
	ruleReturn      rule = "who returns has the past before it is a member"
	ruleAlone       rule = "nobody may take over before the primary goes on alone"
	ruleSyncDone    rule = "a change of S is done when every process has it"
	ruleFence       rule = "the holder stops before the Lease ends"
	ruleLength      rule = "the holder goes by a length that others go by, too"
	ruleExpiry      rule = "only an expired Lease is contested"
	rulePromise     rule = "who has promised takes no part"
	ruleRaise       rule = "a holder raises its term above what was sealed"
	ruleDoubt       rule = "nothing follows from a write of unknown outcome"
	ruleQuarantine  rule = "a restarted primary opens when it is safe"
	ruleHear        rule = "with the Lease lost, every volume is heard first"
	ruleNobodyYet   rule = "from a new reign nobody may take over yet"
	ruleLoyal       rule = "a reign whose Lease was lost goes on if nobody can have been elected"
)

func (c Settings) has(r rule) bool { return c.without != r }

// Step takes in what an instance has seen and says what it shall do. It has no
// clock and does no I/O, and the same state and input always give the same
// output.
func Step(c Settings, s *State, in Input) Output {
	var out Output
	if c.Mode != Async {
		c.Need = max(1, c.Need)
	}
	if in.Lease == nil || in.Lease.Version == "" {
		in.Fresh = false // memory is good for promises only
	}
	s.takeOutcome(c, in)
	s.hear(in)
	s.noticeLease(c, in, &out)
	in.Lease = s.believe(c, in, &out)
	s.answerPleas(c, in, &out)
	s.answerRequests(c, in, &out)
	if s.reign != nil {
		s.hold(c, in, &out)
	} else {
		s.stand(c, in, &out)
	}
	out.Target = s.target(c, in)
	out.Blocked = s.whyBlocked(c, in)
	return out
}

// whyBlocked says why this instance, which does not reign, is not elected
// although the Lease is free.
func (s *State) whyBlocked(c Settings, in Input) string {
	l := in.Lease
	if s.waits != "" && !in.Rest {
		return s.waits
	}
	if s.reign != nil || l == nil || l.Record.IsEmpty() || s.hasReignedLast(in) || in.Rest ||
		!l.Holder.IsZero() && !l.hasEnded(c, in.Now) {
		s.blocked = ""
		return ""
	}
	me, found := l.Record.member(s.Me.Instance)
	switch {
	case !found:
		return "it may lack what was committed: it is no member of the last reign"
	case me.DataID != in.Data.ID:
		return "its data is not that by which it was a member of the last reign"
	case in.Now < s.promisedUntil:
		return "it has promised the primary not to elect"
	}
	return s.blocked
}

// takeOutcome takes in how the write has ended that the last step asked for.
func (s *State) takeOutcome(c Settings, in Input) {
	if s.pending == nil || in.Written == nil {
		return
	}
	write := *s.pending
	s.pending = nil
	switch {
	case in.Written.Outcome == Done && s.reign != nil && write.Holder.IsZero():
		s.reign = nil // it has resigned
	case in.Written.Outcome == Done && s.reign != nil:
		r := s.reign
		r.record, r.version, r.doubtful, r.mustRead, r.released = write.Record, in.Written.Version, nil, false, false
		r.renewedAt, r.until = write.StartedAt, max(r.until, write.StartedAt+s.right)
	case in.Written.Outcome == Done && s.claims && write.Record.HolderDataID == in.Data.ID:
		s.begin(c, in, write)
	case s.reign != nil:
		s.reign.mustRead = true
		if c.has(ruleDoubt) && !write.Record.Equal(s.reign.record) {
			// A refusal is no more certain than silence: what has sent the write twice
			// on its way was refused by what the first one did.
			s.reign.doubtful = &write.Record
		} else if in.Written.Outcome == Unknown && !c.has(ruleDoubt) {
			s.reign.record = write.Record
		}
	}
	s.candidacy = nil
}

// begin begins a reign.
func (s *State) begin(c Settings, in Input, write Write) {
	s.Sealed = max(s.Sealed, write.Record.Term)
	s.yields = 0
	s.reign = &reign{
		record: write.Record, version: in.Written.Version,
		renewedAt: write.StartedAt, until: write.StartedAt + s.right, beganAt: in.Now,
		tookOver: s.candidacy != nil, mode: c.Mode, need: c.Need, sync: firstSync(c),
		marks: map[string]mark{}, seen: map[string]Time{}, addresses: map[string]string{}, promised: map[Member]bool{},
	}
}

// firstSync is what a reign begins with, while nobody may take over from it.
func firstSync(c Settings) Sync {
	if c.Mode == Required {
		return Sync{Need: c.Need} // of nobody, so that commits wait
	}
	return Sync{}
}

// noticeLease ends a reign that another has ended, and finds out the version
// after a write that did not succeed for sure. For that only a fresh read
// counts: what a watch shows may be older than our own last write.
func (s *State) noticeLease(c Settings, in Input, out *Output) {
	r := s.reign
	if r == nil || in.Lease == nil {
		return
	}
	term := in.Lease.Record.Term
	if term > r.record.Term && !in.Lease.Holder.IsZero() && in.Lease.Holder != s.Me {
		s.reign = nil // terms never decrease: this one has come after ours
		return
	}
	if !r.mustRead || !in.Fresh || s.pending != nil {
		return
	}
	if term < r.record.Term {
		s.goOnOverLost(c, in, out)
		return
	}
	if in.Lease.Holder != s.Me || term != r.record.Term && (r.doubtful == nil || term != r.doubtful.Term) {
		s.reign = nil
		return
	}
	r.version, r.mustRead = in.Lease.Version, false
}

// target is what the server shall be.
func (s *State) target(c Settings, in Input) Target {
	switch {
	case in.Data.ID == "":
		return Target{Role: Stopped, Why: "its data directory is not complete"}
	case s.reign != nil && s.reign.released:
		return Target{Role: Staying, Term: s.reign.record.Term, Why: "it gives the Lease up"}
	case s.reign != nil:
		s.openInTime(c, in)
		return Target{Role: Leading, Term: s.reign.record.Term, Open: s.reign.open}
	case in.Primary != nil:
		return Target{Role: Stopped, Why: "it does not reign"}
	case in.Rest && (s.founds(in) || s.hasReignedLast(in)):
		return Target{Role: Staying, Why: "the cluster is stopped"}
	case s.founds(in):
		return Target{Role: Staying, Why: "it claims the Lease"}
	case in.Lease == nil:
		return Target{Role: Following, Why: "nothing is known of a reign"}
	case s.hasReignedLast(in) && s.mayTakeBack(c, in):
		return Target{Role: Staying, Why: "it takes the Lease back"}
	case s.lost:
		return Target{Role: Staying, Term: in.Lease.Record.Term, Why: cmp.Or(s.waits, "the Lease does not tell of the last reign, and nobody has taken it yet")}
	case in.Lease.Holder.IsZero() || in.Lease.Holder.Instance == s.Me.Instance:
		return Target{Role: Following, Term: in.Lease.Record.Term, Why: "nobody reigns"}
	case s.Sealed > in.Lease.Record.Term:
		return Target{Role: Following, Term: s.Sealed, Why: "it has voted for another reign"}
	}
	return Target{Role: Following, Term: in.Lease.Record.Term, Upstream: in.Lease.Holder.Instance}
}

// openInTime lets clients use the primary once that is safe. What is open stays
// open for the life of the server, whatever becomes of the standbys.
func (s *State) openInTime(c Settings, in Input) {
	r := s.reign
	switch {
	case in.Primary == nil:
		r.open = false
	case !r.open || r.recovered != in.Primary.Recovered:
		r.open, r.recovered = s.mayOpen(c, in), in.Primary.Recovered
	}
}

// mayOpen says whether clients may use the primary. A server that has restarted
// shows nothing that its crash recovery brought back before its standbys have
// it, so that nobody sees what a failover would take away.
func (s *State) mayOpen(c Settings, in Input) bool {
	r, p := s.reign, in.Primary
	switch {
	case c.Mode == Async:
		return true
	case !p.SyncDone || !p.Sync.equal(r.sync):
		return false // waiting must be in force before the first commit
	case !s.nobodyElects():
		return s.areSafe(c, p, p.Recovered)
	case r.tookOver:
		return true
	}
	return c.Mode == Preferred && r.sync.Need == 0 && in.Now-r.beganAt > c.Absence
}

// areSafe says whether so many standbys have flushed the WAL up to a position
// that it counts as acknowledged.
func (s *State) areSafe(c Settings, p *Primary, position postgres.LSN) bool {
	flushed := 0
	for _, m := range s.reign.sync.Standbys {
		if hasFlushed(c, p, m, position) {
			flushed++
		}
	}
	return flushed >= s.reign.sync.Need || !c.has(ruleQuarantine)
}
