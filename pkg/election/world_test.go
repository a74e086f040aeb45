package election

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/pgop/postgres-operator/pkg/postgres"
)

// world is a cluster of instances, the API server, and all that may go wrong
// between them, in simulated time. Whatever it judges by, it knows by itself
// and not from the state of the core.
type world struct {
	r        *rand.Rand
	settings Settings
	weather  weather
	now      time.Duration
	// nodes are the instances; ghosts among them are pods that go on although
	// another pod and volume have taken their name.
	nodes    []*node
	lease    Lease
	last     Record // what was written last, should the Lease be lost
	first    string // the data that was made, and not copied
	versions int
	ids      int
	messages []message
	writes   []*write
	cut      map[[2]*node]bool // directions in which nothing gets through

	// acked are the commits that a client was told of or has seen, with their
	// place in the WAL.
	acked map[int]int
	// newest is the highest term of an acknowledgement so far.
	newest uint64
	// leader is the WAL with which the last reign began, and leads its term.
	leader []entry
	leads  uint64
	// forgiven is the last term that a user has forced: what older reigns
	// acknowledged may be lost.
	forgiven uint64

	takeovers, commits, handovers int
	faults                        bool
	// tracing keeps a trace, which costs time.
	tracing bool
	trace   []string
	problem string
}

// node is an instance: its agent, its server, and its volume.
type node struct {
	name string
	// offset and drift make its clock: a second of the world takes drift seconds.
	offset time.Duration
	drift  float64

	// The volume. Sealed and memory lie beside the data, which is complete if it
	// has an id; standby is the mark in it that makes a server recover for ever.
	data    string
	wal     []entry
	standby bool
	sealed  uint64
	memory  *Lease

	// up is false while the pod is down, gone when it won't come back, and ghost
	// when its name belongs to another by now. A frozen node is paused, an agent
	// that is stuck does nothing while its server goes on, and apart is cut off
	// from the API.
	up, gone, ghost, frozen, stuck, apart bool

	// The agent.
	state    *State
	settings Settings
	seen     *Lease
	// fresh is true in a step that comes after a read, and reads while an answer to one
	// is on its way.
	fresh, reads bool
	cutFor       uint64
	inbox        []any
	outcome      *Written
	// cloning is when a new copy of the data will be complete.
	cloning time.Duration
	// handover is there while the agent gives the Lease up, at most until gives.
	handover *Resign
	gives    time.Duration
	// forced is the term of the last reign that a user wants this instance to
	// follow by force.
	forced uint64

	// The server. It serves from startsAt on.
	role      Role
	term      uint64
	startsAt  time.Duration
	recovered int
	open      bool

	// A standby: what it streams from, and what it shall from changesAt on.
	upstream  string
	source    *node
	wanted    string
	changesAt time.Duration
	sealing   uint64

	// A primary: the values of synchronous_standby_names that are in force
	// somewhere, the last in all processes once it is alone; and its walsenders.
	syncs   []Sync
	since   postgres.LSN
	settled time.Duration
	senders []*sender
	waiting []int // places in the WAL
}

// entry is a commit in the WAL, or the mark of a new timeline. Its id is its own,
// so that two WALs are the same up to a place if they are the same there.
type entry struct {
	timeline uint32
	id       int
	mark     bool
}

// sender is a walsender: it knows what a standby has told it, and outlives it
// for a while.
type sender struct {
	node    *node
	member  Member
	flushed int
	gone    bool
}

type message struct {
	to   string
	at   time.Duration
	what any
}

// write is a compare-and-swap on its way to the API server and back.
type write struct {
	Write
	from    *node
	state   *State // the life of the agent that asked
	forced  bool
	lands   time.Duration
	lost    bool // it never lands
	answers time.Duration
	mute    bool // its outcome stays unknown
	twice   bool // something sends it again, and its outcome is that of the second
	landed  *Written
}

var names = []string{"a", "b", "c", "d", "e"}

// newWorld makes the weather and the instances. The first has initialised its
// database, and the others are its copies or empty.
func newWorld(seed uint64, settings Settings, instances int) *world {
	w := &world{
		r: rand.New(rand.NewPCG(seed, 1)), settings: settings,
		acked: map[int]int{}, cut: map[[2]*node]bool{}, faults: true,
	}
	w.weather = w.newWeather()
	w.lease = Lease{Version: w.newVersion()}
	first := []entry{{timeline: 1, id: -1, mark: true}}
	for i, name := range names[:instances] {
		n := w.newNode(name)
		if i == 0 || w.chance(60) {
			n.data, n.wal = w.newID(), first
		}
	}
	w.first = w.nodes[0].data
	w.last.HolderDataID = w.first
	return w
}

func (w *world) newNode(name string) *node {
	n := &node{
		name: name, settings: w.settings, up: true, role: Stopped,
		offset: time.Duration(w.r.Int64N(int64(time.Hour))), drift: 0.97 + 0.06*w.r.Float64(),
	}
	if w.settings.Mode != Async && w.chance(50) {
		n.drift = 0.5 + 4*w.r.Float64() // safety must not rest on time
	}
	if w.settings.Mode != Async {
		n.settings.VoteWindow = w.weather.patience
	}
	n.state = &State{Me: w.holder(n), Address: name}
	n.reads = false
	w.nodes = append(w.nodes, n)
	return n
}

func (w *world) newID() string {
	w.ids++
	return fmt.Sprint("d", w.ids)
}

func (w *world) newVersion() string {
	w.versions++
	return fmt.Sprint(w.versions)
}

// holder is n in this life of its pod.
func (w *world) holder(n *node) Holder { return Holder{Instance: n.name, PodUID: w.newID()} }

// node is who has the name now; nil if it is nobody's.
func (w *world) node(name string) *node {
	for _, n := range w.nodes {
		if n.name == name && !n.ghost {
			return n
		}
	}
	return nil
}

func (w *world) say(format string, args ...any) {
	if w.tracing {
		w.trace = append(w.trace, fmt.Sprintf("%7.1fs  ", w.now.Seconds())+fmt.Sprintf(format, args...))
	}
}

func (w *world) fail(format string, args ...any) {
	if w.problem == "" {
		w.problem = fmt.Sprintf(format, args...)
		w.say("VIOLATION: %s", w.problem)
	}
}

func (w *world) chance(percent float64) bool { return w.r.Float64()*100 < percent }

func (w *world) upTo(d time.Duration) time.Duration { return time.Duration(w.r.Int64N(int64(d) + 1)) }

// clock is a moment of n's own clock.
func (n *node) clock(now time.Duration) Time { return n.offset + time.Duration(float64(now)*n.drift) }

func (n *node) runs() bool { return n.up && !n.frozen }
func (n *node) acts() bool { return n.runs() && !n.stuck }

func (w *world) serves(n *node) bool { return n.runs() && n.role != Stopped && n.startsAt <= w.now }
func (w *world) leadsNow(n *node) bool {
	return n.role == Leading && w.serves(n)
}

// reach says whether what a sends gets to b.
func (w *world) reach(a, b *node) bool { return len(w.cut) == 0 || !w.cut[[2]*node{a, b}] }

// turn lets some time go by, in which everybody does a little.
func (w *world) turn() {
	w.now += 200 * time.Millisecond
	if w.faults {
		w.strike()
	}
	w.landWrites()
	for _, i := range w.r.Perm(len(w.nodes)) {
		n := w.nodes[i]
		if !n.runs() {
			continue
		}
		w.finishReload(n)
		w.changeUpstream(n)
		w.stream(n)
		if w.leadsNow(n) {
			w.dropSenders(n)
			w.commit(n)
		}
		if n.acts() && w.chance(w.weather.attention) {
			w.agent(n)
		}
	}
	w.checkOverlap()
}

// The agent.

// agent lets n's agent see, take a step, and do what it asks for.
func (w *world) agent(n *node) {
	w.copyData(n)
	n.fresh = false
	w.deliver(n)
	if w.chance(w.weather.watch) {
		w.see(n)
	}
	if n.reads || slices.ContainsFunc(n.inbox, isRequest) {
		w.read(n) // as an agent does that is asked for its vote
	}
	if n.handover != nil && (w.now > n.gives || !n.state.Reigns()) {
		n.handover = nil
	}
	out := w.step(n, w.input(n))
	n.fresh = false // a look counts for one step
	if n.reads = out.Read && w.chance(50); out.Read && !n.reads {
		w.read(n)
		w.carryOut(n, out)
		n.inbox, n.outcome = nil, nil
		out = w.step(n, w.input(n))
	}
	w.carryOut(n, out)
	if n.role != out.Target.Role || out.Target.Upstream != n.wanted || w.chance(5) {
		w.remember(n)
	}
	w.become(n, out.Target)
	if out.Sync != nil && n.role == Leading {
		w.setSync(n, *out.Sync)
	}
}

func isRequest(what any) bool { _, is := what.(VoteRequest); return is }

// step keeps what was sealed before anything else happens.
func (w *world) step(n *node, in Input) Output {
	out := Step(n.settings, n.state, in)
	n.sealed = max(n.sealed, n.state.Sealed)
	return out
}

// see tells of the Lease as a watch does, if the API can be reached.
func (w *world) see(n *node) {
	if n.apart {
		return
	}
	if n.seen == nil || n.seen.Version != w.lease.Version {
		seen := w.lease
		seen.SeenAt = n.clock(w.now)
		n.seen = &seen
	}
}

// read reads the Lease, if the API can be reached.
func (w *world) read(n *node) {
	w.see(n)
	n.fresh = n.fresh || !n.apart
}

// remember keeps the last record on the volume, as an agent does before its server
// changes, and now and then.
func (w *world) remember(n *node) {
	if n.seen != nil && !n.seen.Record.IsEmpty() && (n.memory == nil || n.memory.Record.Term <= n.seen.Record.Term) {
		n.memory = &Lease{Holder: n.seen.Holder, Record: n.seen.Record}
	}
}

// deliver hands over what has arrived.
func (w *world) deliver(n *node) {
	n.inbox, n.outcome = nil, nil
	if !n.ghost {
		w.messages = slices.DeleteFunc(w.messages, func(m message) bool {
			if m.to != n.name || m.at > w.now {
				return false
			}
			n.inbox = append(n.inbox, m.what)
			return true
		})
	}
	for i, wr := range w.writes {
		if wr.state == n.state && wr.from == n && wr.answers <= w.now && wr.answers >= 0 {
			n.outcome = &Written{Outcome: Unknown}
			if wr.landed != nil && !wr.mute {
				n.outcome = wr.landed
				if wr.landed.Outcome == Done && !wr.twice && n.memoryTerm() <= wr.Record.Term {
					n.memory = &Lease{Holder: wr.Holder, Record: wr.Record}
				}
				if wr.twice {
					n.outcome = &Written{Outcome: Refused}
				}
			}
			wr.answers = -1
			if wr.landed != nil || wr.lost {
				w.writes = slices.Delete(w.writes, i, i+1)
			}
			return
		}
	}
}

func (w *world) input(n *node) Input {
	in := Input{
		Now: n.clock(w.now), Lease: n.seen, Fresh: n.fresh, Data: w.dataOf(n), Cut: n.cutFor, Primary: w.primaryOf(n),
		Written: n.outcome, Forced: n.isForced(),
	}
	if in.Lease != nil && w.chance(w.weather.early) {
		old := *in.Lease // in synchronous modes a Lease may look ended at any time
		old.SeenAt -= time.Hour
		in.Lease = &old
	}
	in.Founds = n.data == w.first && n.memory == nil
	if n.memory != nil {
		in.Memory = n.memory.Record
	}
	for _, other := range w.nodes {
		if !other.gone && !other.ghost {
			in.Instances = append(in.Instances, other.name)
		}
	}
	if n.role == Stopped {
		in.Resign = n.handover
	}
	for _, other := range w.nodes {
		if other != n && other.acts() && w.reach(other, n) && !other.ghost {
			in.Sealed = max(in.Sealed, other.sealed)
		}
	}
	for _, what := range n.inbox {
		switch what := what.(type) {
		case VoteRequest:
			in.Requests = append(in.Requests, what)
		case Vote:
			in.Votes = append(in.Votes, what)
		case PromiseRequest:
			in.Pleas = append(in.Pleas, what)
		case Promise:
			in.Promises = append(in.Promises, what)
		case Testimony:
			in.Testimonies = append(in.Testimonies, what)
		case inquiry:
			t := Testimony{Instance: n.name, Version: what.version, DataID: n.data, Sealed: n.sealed}
			if n.memory != nil {
				t.Record = n.memory.Record
			}
			w.send(n, what.from, t)
		}
	}
	return in
}

// inquiry asks for a Testimony.
type inquiry struct{ from, version string }

func (n *node) memoryTerm() uint64 {
	if n.memory == nil {
		return 0
	}
	return n.memory.Record.Term
}

func (n *node) isForced() bool {
	return n.forced != 0 && n.seen != nil && n.seen.Record.Term == n.forced
}

func (w *world) dataOf(n *node) Data {
	if n.data == "" {
		return Data{}
	}
	return Data{ID: n.data, SystemID: "7", Timeline: n.wal[len(n.wal)-1].timeline, End: postgres.LSN(len(n.wal))}
}

func (w *world) primaryOf(n *node) *Primary {
	if n.role != Leading || n.startsAt > w.now {
		return nil
	}
	p := &Primary{
		End: postgres.LSN(len(n.wal)), Timeline: n.wal[len(n.wal)-1].timeline, Recovered: postgres.LSN(n.recovered),
		Sync: n.syncs[len(n.syncs)-1], SyncDone: len(n.syncs) == 1, SyncSince: n.since,
	}
	for _, s := range n.senders {
		p.Standbys = append(p.Standbys, Standby{Member: s.member, Flushed: postgres.LSN(s.flushed), Address: s.member.Instance})
	}
	if w.chance(w.weather.strangers) {
		p.Standbys = append(p.Standbys, Standby{Member: Member{Instance: "somebody"}, Flushed: p.End}, Standby{Member: Member{DataID: "d0"}})
	}
	return p
}

func (w *world) send(from *node, to string, what any) {
	target := w.node(to)
	if target == nil || !w.reach(from, target) || w.chance(w.weather.loss) {
		return
	}
	w.messages = append(w.messages, message{to: to, at: w.now + w.upTo(w.weather.late), what: what})
	if w.chance(w.weather.loss) {
		w.messages = append(w.messages, message{to: to, at: w.now + w.upTo(20*w.weather.late), what: what})
	}
}

// carryOut sends and writes what a step asks for.
func (w *world) carryOut(n *node, out Output) {
	if out.Seal > n.cutFor {
		w.say("%s seals term %d", n.name, out.Seal)
		n.sealing = out.Seal
		w.wantUpstream(n, "")
	}
	for _, to := range out.AskWhom {
		w.send(n, to.Instance, *out.Ask)
	}
	for _, vote := range out.Votes {
		w.say("%s votes for %s, term %d, with %d/%d", n.name, vote.Request.Candidate.Instance, vote.Request.Term, vote.Timeline, vote.End)
		w.send(n, vote.Request.Candidate.Instance, vote)
	}
	for _, to := range out.PleadWith {
		w.send(n, to.Instance, *out.Plead)
	}
	for _, promise := range out.Promises {
		w.send(n, promise.Request.Holder.Instance, promise)
	}
	for _, to := range out.Inquire {
		w.send(n, to, inquiry{from: n.name, version: n.seen.Version})
	}
	if out.Write != nil {
		w.beginWrite(n, *out.Write)
	}
}

// The API server.

func (w *world) beginWrite(n *node, asked Write) {
	wr := &write{Write: asked, from: n, state: n.state, forced: n.isForced()}
	wr.lands = w.now + w.upTo(w.weather.answer/2)
	wr.answers = wr.lands + w.upTo(w.weather.answer/2)
	wr.lost = n.apart || w.chance(w.weather.lostWrites)
	wr.mute = wr.lost || w.chance(w.weather.lostWrites)
	wr.twice = w.chance(w.weather.lostWrites)
	if w.chance(w.weather.lostWrites) {
		wr.lands += w.upTo(w.weather.answer * 10) // the answer is not waited for
		wr.mute = true
	}
	w.writes = append(w.writes, wr)
}

// landWrites lets writes arrive, in whatever order.
func (w *world) landWrites() {
	w.writes = slices.DeleteFunc(w.writes, func(wr *write) bool {
		if wr.landed == nil && !wr.lost && wr.lands <= w.now {
			wr.landed = w.land(wr)
			if wr.landed.Outcome == Done {
				w.rob(wr.from)
			}
		}
		return wr.state != wr.from.state && (wr.lost || wr.landed != nil) || // nobody waits for the answer
			wr.answers < 0 && wr.landed != nil
	})
}

// land is the compare-and-swap.
func (w *world) land(wr *write) *Written {
	if wr.Version != w.lease.Version {
		return &Written{Outcome: Refused}
	}
	before := w.lease
	w.lease = Lease{Version: w.newVersion(), Holder: wr.Holder, Record: wr.Record, Lasts: wr.Lasts}
	w.last = wr.Record
	switch {
	case wr.Holder.IsZero():
		w.handovers++
		w.say("%s releases the Lease for %q", wr.from.name, wr.Record.Nominee)
	case before.Record.IsEmpty() && w.settings.Mode != Async && wr.from.role == Leading:
		w.say("%s writes the lost Lease again, term %d", wr.from.name, wr.Record.Term)
		w.checkAcked(wr.from, wr.Record.Term)
	case before.Holder != wr.Holder || before.Record.HolderDataID != wr.Record.HolderDataID:
		w.say("%s takes the Lease, term %d", wr.from.name, wr.Record.Term)
		if wr.forced {
			w.acked, w.forgiven = map[int]int{}, wr.Record.Term // what is lost is lost
		}
	case !slices.Equal(before.Record.Members, wr.Record.Members) || before.Record.Votes != wr.Record.Votes:
		w.say("%s writes members %v, votes %d", wr.from.name, wr.Record.Members, wr.Record.Votes)
	case before.Record.Term != wr.Record.Term:
		w.say("%s raises its term to %d", wr.from.name, wr.Record.Term)
	}
	return &Written{Outcome: Done, Version: w.lease.Version}
}

// The server.

// become makes the server what it shall be.
func (w *world) become(n *node, t Target) {
	switch {
	case n.handover != nil && n.role == Leading && t.Role == Leading:
		w.stop(n)
	case n.handover != nil && t.Role == Leading:
		// It stays stopped until the Lease is another's, or the agent gives up.
	case t.Role == Stopped || t.Role == Following && n.role == Leading:
		w.stop(n)
	case t.Role == Leading && n.role != Leading:
		w.lead(n, t.Term)
	case t.Role == Leading:
		n.term = t.Term
		if t.Open && !n.open && n.startsAt <= w.now {
			w.openServer(n)
		}
	case t.Role == Following:
		if n.role != Following {
			n.role, n.standby, n.upstream, n.wanted, n.source, n.startsAt = Following, true, "", "", nil, w.now+w.upTo(w.weather.start)
		}
		n.term = t.Term
		w.wantUpstream(n, t.Upstream)
	}
}

func (w *world) stop(n *node) {
	if n.role == Leading {
		w.say("%s stops to lead term %d", n.name, n.term)
	}
	n.role, n.waiting, n.syncs, n.senders, n.open = Stopped, nil, nil, nil, false
	n.upstream, n.wanted, n.source = "", "", nil
	if n.sealing > 0 {
		n.cutFor, n.sealing = max(n.cutFor, n.sealing), 0
	}
}

// lead makes n's server take writes: on a new timeline if it was a standby's.
func (w *world) lead(n *node, term uint64) {
	w.takeovers++
	w.say("%s leads term %d from %d", n.name, term, len(n.wal))
	if w.settings.Mode != Async && term >= w.leads { // else it does not know yet that its reign is over
		w.checkAcked(n, term)
	}
	if n.standby {
		n.standby = false
		w.ids++
		mark := entry{timeline: max(w.lease.Record.Timeline, n.wal[len(n.wal)-1].timeline) + 1, id: w.ids, mark: true}
		n.wal = append(slices.Clip(n.wal), mark)
	}
	w.stop(n)
	n.role, n.term, n.recovered = Leading, term, len(n.wal)
	n.startsAt = w.now + w.upTo(w.weather.start)
	n.syncs, n.since = []Sync{{}}, postgres.LSN(len(n.wal))
	if n.settings.Mode != Async && n.settings.has(ruleWaitFirst) { // commits wait a moment after the start, not before
		n.syncs, n.settled = append(n.syncs, Sync{Need: n.settings.Need}), n.startsAt+w.upTo(w.weather.reload)
	}
	if term >= w.leads {
		w.leader, w.leads = slices.Clip(n.wal), term
	}
}

func (w *world) checkAcked(n *node, term uint64) {
	var missing []int
	for id, place := range w.acked {
		if !has(n.wal, id, place) {
			missing = append(missing, id)
		}
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		w.fail("%s takes over in term %d without acknowledged commits %v", n.name, term, missing)
	}
}

func has(wal []entry, id, place int) bool { return place <= len(wal) && wal[place-1].id == id }

// openServer lets clients in, who see all that there is.
func (w *world) openServer(n *node) {
	n.open = true
	w.say("%s opens", n.name)
	for _, other := range w.nodes {
		other.forced = 0 // the operator drops the request when a primary serves
	}
	for i, e := range n.wal[:n.recovered] {
		if w.settings.Mode != Async && !e.mark {
			w.tell(n, e.id, i+1)
		}
	}
}

// tell makes a commit known to clients: it may not be lost any more.
func (w *world) tell(n *node, id, place int) {
	if n.term < w.forgiven {
		return
	}
	w.acked[id] = place
	if w.settings.Mode != Async && n.term < w.leads && !has(w.leader, id, place) {
		w.fail("%s acknowledges %d in term %d, which term %d lacks", n.name, id, n.term, w.leads)
	}
}

// wantUpstream begins to bring n's receiver elsewhere. A cut for a seal is gone
// through with first.
func (w *world) wantUpstream(n *node, upstream string) {
	if n.wanted != upstream && (n.sealing == 0 || upstream == "") {
		n.wanted, n.changesAt = upstream, w.now+w.upTo(w.weather.reload)
	}
}

// changeUpstream is when a standby's receiver is cut, or comes up elsewhere.
func (w *world) changeUpstream(n *node) {
	if n.changesAt > w.now {
		return
	}
	if n.upstream != n.wanted {
		n.upstream, n.source = n.wanted, nil
	}
	if n.sealing > 0 && n.upstream == "" {
		n.cutFor = max(n.cutFor, n.sealing)
	}
	n.sealing = 0
}

// stream brings some WAL to n.
func (w *world) stream(n *node) {
	if n.role != Following || n.upstream == "" || !w.serves(n) {
		n.source = nil
		return
	}
	if n.source == nil {
		w.connect(n)
	}
	p := n.source
	if p == nil || !w.leadsNow(p) || !w.reach(n, p) || !w.reach(p, n) {
		if p != nil && (p.runs() || w.chance(w.weather.timeout)) {
			n.source = nil
		}
		return
	}
	s := p.sender(n)
	if s == nil {
		n.source = nil // the server has another life
		return
	}
	if !w.chance(w.weather.flow) {
		return
	}
	n.wal = p.wal[: len(n.wal)+w.r.IntN(len(p.wal)-len(n.wal)+1) : len(p.wal)]
	n.wal = n.wal[:len(n.wal):len(n.wal)]
	s.flushed = len(n.wal)
	w.acknowledge(p)
}

func (p *node) sender(n *node) *sender {
	for _, s := range p.senders {
		if s.node == n && !s.gone && s.member.DataID == n.data {
			return s
		}
	}
	return nil
}

// connect makes n a standby of who has its upstream's name.
func (w *world) connect(n *node) {
	p := w.node(n.upstream)
	if p == nil || p == n || !w.leadsNow(p) || !w.reach(n, p) || !w.reach(p, n) || !isPrefix(n.wal, p.wal) {
		return
	}
	for _, s := range p.senders {
		s.gone = s.gone || s.node == n
	}
	n.source = p
	p.senders = append(p.senders, &sender{node: n, member: Member{Instance: n.name, DataID: n.data}, flushed: len(n.wal)})
}

func isPrefix(a, b []entry) bool { return len(a) <= len(b) && a[len(a)-1].id == b[len(a)-1].id }

// dropSenders ends walsenders some time after their connection.
func (w *world) dropSenders(p *node) {
	p.senders = slices.DeleteFunc(p.senders, func(s *sender) bool {
		return (s.gone || s.node.source != p || !s.node.runs()) && w.chance(w.weather.timeout)
	})
}

// copyData lets n rejoin: data that has gone another way than the reign's is
// cloned, which makes it other data. The same goes for a volume without any.
func (w *world) copyData(n *node) {
	if n.seen == nil || n.seen.Holder.IsZero() || n.seen.Record.Term < n.sealed || n.role == Leading || n.seen.Holder == n.state.Me {
		return
	}
	p := w.node(n.seen.Holder.Instance)
	switch {
	case p == nil || p == n || !w.leadsNow(p) || !w.reach(n, p):
		n.cloning = 0
	case n.data == "" && n.cloning != 0 && n.cloning <= w.now:
		n.data, n.wal, n.standby, n.cloning = w.newID(), slices.Clip(p.wal[:len(p.wal)-w.r.IntN(min(len(p.wal), 5))]), true, 0
		w.say("%s has cloned %s: data %s, WAL to %d of %d", n.name, p.name, n.data, len(n.wal), len(p.wal))
	case n.data == "" && n.cloning == 0:
		n.cloning = w.now + w.upTo(w.weather.start)
	case n.data != "" && !isPrefix(n.wal, p.wal) && w.seenReign(n, p):
		w.stop(n)
		w.say("%s has gone another way than %s: data %s goes", n.name, p.name, n.data)
		n.data, n.wal = "", nil
	}
}

// seenReign says whether p's server is that of the reign that n has seen.
func (w *world) seenReign(n, p *node) bool { return p.data == n.seen.Record.HolderDataID }

// setSync begins to bring a new value into all processes.
func (w *world) setSync(n *node, want Sync) {
	if current := n.syncs[len(n.syncs)-1]; !current.equal(want) {
		n.syncs = append(n.syncs, want)
		n.settled = w.now + w.upTo(w.weather.reload)
		w.say("%s lets %d of %v acknowledge", n.name, want.Need, want.Standbys)
	}
}

// finishReload is when every process has the new value.
func (w *world) finishReload(n *node) {
	if len(n.syncs) > 1 && w.leadsNow(n) && n.settled <= w.now {
		n.syncs, n.since = n.syncs[len(n.syncs)-1:], postgres.LSN(len(n.wal))
		w.say("%s: so it is in every process", n.name)
		w.acknowledge(n)
	}
}

// commit is what clients do on a primary that they reach.
func (w *world) commit(n *node) {
	if !n.open || !w.chance(w.weather.commits) {
		return
	}
	w.ids++
	n.wal = append(n.wal, entry{timeline: n.wal[len(n.wal)-1].timeline, id: w.ids})
	n.waiting = append(n.waiting, len(n.wal))
	w.acknowledge(n)
}

// acknowledge tells clients of commits that enough standbys have flushed, by
// any value of synchronous_standby_names that a process may have. An instance
// counts once: its replication slot lets it in once.
func (w *world) acknowledge(n *node) {
	if len(n.waiting) == 0 {
		return
	}
	flushed := 0
	for _, value := range n.syncs {
		flushed = max(flushed, n.flushedBy(value))
	}
	done := 0
	for _, place := range n.waiting {
		if place > flushed {
			break
		}
		done++
		w.commits++
		w.tell(n, n.wal[place-1].id, place)
		if n.term < w.newest && w.settings.Mode == Async {
			w.fail("%s acknowledges in term %d after term %d", n.name, n.term, w.newest)
		}
		w.newest = max(w.newest, n.term)
	}
	n.waiting = n.waiting[done:]
}

// flushedBy is up to where so many standbys have flushed as a value wants.
func (n *node) flushedBy(value Sync) int {
	if value.Need == 0 {
		return len(n.wal)
	}
	var flushed []int
	for _, m := range value.Standbys {
		most := 0
		for _, s := range n.senders {
			if s.member == m {
				most = max(most, s.flushed)
			}
		}
		flushed = append(flushed, most)
	}
	if len(flushed) < value.Need {
		return 0
	}
	slices.Sort(flushed)
	return flushed[len(flushed)-value.Need]
}

// checkOverlap is the invariant of tendMembers, as the world sees it.
func (w *world) checkOverlap() {
	members := w.lease.Record.Members
	if len(members) == 0 || w.settings.Mode == Async {
		return
	}
	for _, p := range w.nodes {
		if p.role != Leading || !p.up || p.state.Me != w.lease.Holder {
			continue
		}
		for _, value := range p.syncs {
			if len(value.Standbys) < value.Need || !p.open {
				continue // nothing is acknowledged
			}
			outside := 0
			for _, m := range value.Standbys {
				if !slices.Contains(members, m) {
					outside++
				}
			}
			if w.lease.Record.Votes <= len(members)-max(0, value.Need-outside) {
				w.fail("%d of %v may acknowledge while %d of %v elect", value.Need, value.Standbys, w.lease.Record.Votes, members)
			}
		}
	}
}

// wellness says what is missing for all to be well: one leads, all who are there
// stream, and commits are acknowledged.
func (w *world) wellness(commitsBefore int) string {
	var leader *node
	there, streaming := 0, 0
	for _, n := range w.nodes {
		if n.gone {
			continue
		}
		there++
		if w.leadsNow(n) {
			if leader != nil {
				return "two lead"
			}
			leader = n
		}
	}
	switch {
	case leader == nil:
		return "nobody leads"
	case w.lease.Holder != leader.state.Me:
		return "who leads does not hold the Lease"
	}
	for _, n := range w.nodes {
		if n.source == leader && leader.sender(n) != nil && !n.gone {
			streaming++
		}
	}
	switch {
	case streaming < there-1:
		return fmt.Sprintf("%d of %d stream", streaming, there-1)
	case w.commits <= commitsBefore:
		return "commits wait"
	}
	return ""
}

func (w *world) describe() string {
	var b strings.Builder
	for _, line := range w.trace[max(0, len(w.trace)-*traceLines):] {
		b.WriteString(line + "\n")
	}
	fmt.Fprintf(&b, "weather %+v\nLease: holder %v, record %v\n", w.weather, w.lease.Holder, w.lease.Record)
	for _, n := range w.nodes {
		fmt.Fprintf(&b, "%s: up %v gone %v ghost %v frozen %v stuck %v apart %v, data %q, WAL %d, sealed %d, %s term %d open %v upstream %q, sync %v, reigns %v, remembers term %d, waits %q\n",
			n.name, n.up, n.gone, n.ghost, n.frozen, n.stuck, n.apart, n.data, len(n.wal), n.sealed, n.role, n.term, n.open, n.upstream, n.syncs, n.state.Reigns(), n.memoryTerm(), n.state.waits)
	}
	fmt.Fprintf(&b, "%d acknowledged\n", len(w.acked))
	return b.String()
}
