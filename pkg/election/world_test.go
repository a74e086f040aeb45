package election

import (
	"fmt"
	"maps"
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
	now      time.Duration
	nodes    []*node
	lease    Lease
	versions int
	messages []message
	ids      int

	// acked are the commits that a client was told of, with the term.
	acked map[int]uint64
	// newest is the highest term of an acknowledgement so far.
	newest    uint64
	takeovers int
	commits   int
	faults    bool
	trace     []string
	problem   string
}

// node is an instance: its agent, its server, and its volume.
type node struct {
	name string
	// offset and drift make its clock: a second of the world takes drift seconds.
	offset time.Duration
	drift  float64

	// The volume. sealed lies beside the data.
	data   string
	wal    []entry
	sealed uint64

	// up is false while the pod is down, and frozen while its node is paused.
	// apart is cut off from the API, alone from the other instances; stuck is an
	// agent that does nothing while its server goes on.
	up, frozen, apart, alone, stuck bool

	// The agent.
	state    *State
	seen     *Lease
	fresh    bool
	cut      uint64
	inbox    []message
	outcome  *Written
	outcomes []pendingWrite

	// The server.
	role     Role
	term     uint64
	upstream string
	reload   *reload
	sync     Sync
	since    postgres.LSN
	waiting  []entry
}

// entry is a commit in the WAL, or the mark of a new timeline when id is 0.
type entry struct {
	timeline uint32
	id       int
}

// reload is a value of synchronous_standby_names on its way into every process.
type reload struct {
	to   Sync
	done time.Duration
}

type pendingWrite struct {
	at      time.Duration
	outcome Written
}

type message struct {
	to   string
	at   time.Duration
	what any
}

func newWorld(seed uint64, settings Settings) *world {
	w := &world{r: rand.New(rand.NewPCG(seed, 1)), settings: settings, acked: map[int]uint64{}, faults: true}
	for _, name := range []string{"a", "b", "c"} {
		n := &node{
			name: name, up: true, data: w.newID(), role: Stopped,
			offset: time.Duration(w.r.Int64N(int64(time.Hour))), drift: 0.97 + 0.06*w.r.Float64(),
		}
		if settings.Mode != Async {
			n.drift = 0.5 + 4*w.r.Float64() // safety must not rest on time
		}
		n.state = &State{Me: w.holder(n)}
		w.nodes = append(w.nodes, n)
	}
	first := w.nodes[0]
	first.wal = []entry{{timeline: 1}}
	w.lease = Lease{Version: w.newVersion(), Record: Record{Term: 1, Timeline: 1, HolderDataID: first.data}}
	for _, n := range w.nodes[1:] {
		n.wal = []entry{{timeline: 1}}
	}
	return w
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

func (w *world) node(name string) *node {
	return w.nodes[slices.IndexFunc(w.nodes, func(n *node) bool { return n.name == name })]
}

func (w *world) say(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf("%7.1fs  ", w.now.Seconds())+fmt.Sprintf(format, args...))
}

func (w *world) fail(format string, args ...any) {
	if w.problem == "" {
		w.problem = fmt.Sprintf(format, args...)
		w.say("VIOLATION: %s", w.problem)
	}
}

func (w *world) chance(percent float64) bool { return w.r.Float64()*100 < percent }

// clock is a moment of n's own clock.
func (n *node) clock(now time.Duration) Time { return n.offset + time.Duration(float64(now)*n.drift) }

func (n *node) runs() bool   { return n.up && !n.frozen }
func (n *node) acts() bool   { return n.runs() && !n.stuck }
func (n *node) serves() bool { return n.runs() && n.role != Stopped }

func (w *world) reach(a, b *node) bool { return !a.alone && !b.alone }

// turn lets some time go by, in which everybody does a little.
func (w *world) turn() {
	const step = 200 * time.Millisecond
	w.now += step
	if w.faults {
		w.strike()
	}
	order := w.r.Perm(len(w.nodes))
	for _, i := range order {
		n := w.nodes[i]
		w.finishReload(n)
		w.followUpstream(n)
		w.stream(n)
		if n.serves() && n.role == Leading {
			w.commit(n)
		}
		if n.acts() {
			w.watch(n)
			w.deliver(n)
			w.agent(n)
		}
	}
	w.checkOverlap()
}

// watch shows the Lease to an agent, a little late at times.
func (w *world) watch(n *node) {
	n.fresh = false
	if !n.apart && w.chance(70) {
		w.read(n)
	}
}

func (w *world) read(n *node) {
	if n.seen == nil || n.seen.Version != w.lease.Version {
		seen := w.lease
		seen.SeenAt = n.clock(w.now)
		n.seen = &seen
	}
	n.fresh = true
}

// deliver hands over what has arrived.
func (w *world) deliver(n *node) {
	n.inbox = nil
	w.messages = slices.DeleteFunc(w.messages, func(m message) bool {
		if m.to != n.name || m.at > w.now {
			return false
		}
		n.inbox = append(n.inbox, m)
		return true
	})
	n.outcome = nil
	if len(n.outcomes) > 0 && n.outcomes[0].at <= w.now {
		outcome := n.outcomes[0].outcome
		n.outcome, n.outcomes = &outcome, n.outcomes[1:]
	}
}

func (w *world) send(from *node, to string, what any) {
	if !w.reach(from, w.node(to)) || w.faults && w.chance(5) {
		return
	}
	w.messages = append(w.messages, message{to: to, at: w.now + time.Duration(w.r.Int64N(int64(400*time.Millisecond))), what: what})
}

// agent lets n's agent take a step and do what it asks for.
func (w *world) agent(n *node) {
	in := w.input(n)
	if len(in.Requests) > 0 && !n.apart {
		w.read(n) // as an agent does that is asked for its vote
		in.Lease, in.Fresh = n.seen, true
	}
	out := Step(w.settings, n.state, in)
	n.sealed = max(n.sealed, n.state.Sealed)
	if out.Read && !n.apart {
		w.read(n)
		in = Input{Now: in.Now, Lease: n.seen, Fresh: true, Data: w.dataOf(n), Cut: n.cut, Primary: w.primaryOf(n)}
		w.carryOut(n, out, true)
		out = Step(w.settings, n.state, in)
		n.sealed = max(n.sealed, n.state.Sealed)
	}
	w.carryOut(n, out, false)
}

func (w *world) input(n *node) Input {
	in := Input{Now: n.clock(w.now), Lease: n.seen, Fresh: n.fresh, Data: w.dataOf(n), Cut: n.cut, Primary: w.primaryOf(n), Written: n.outcome}
	for _, other := range w.nodes {
		if other != n && other.acts() && w.reach(n, other) {
			in.Sealed = max(in.Sealed, other.sealed)
		}
	}
	for _, m := range n.inbox {
		switch what := m.what.(type) {
		case VoteRequest:
			in.Requests = append(in.Requests, what)
		case Vote:
			in.Votes = append(in.Votes, what)
		case PromiseRequest:
			in.Pleas = append(in.Pleas, what)
		case Promise:
			in.Promises = append(in.Promises, what)
		}
	}
	return in
}

func (w *world) dataOf(n *node) Data {
	last := n.wal[len(n.wal)-1]
	return Data{ID: n.data, SystemID: "7", Timeline: last.timeline, End: postgres.LSN(len(n.wal))}
}

func (w *world) primaryOf(n *node) *Primary {
	if n.role != Leading {
		return nil
	}
	p := &Primary{End: postgres.LSN(len(n.wal)), Sync: n.sync, SyncDone: n.reload == nil, SyncSince: n.since}
	if n.reload != nil {
		p.Sync = n.reload.to
	}
	for _, other := range w.nodes {
		if w.streams(other, n) {
			p.Standbys = append(p.Standbys, Standby{Member: Member{Instance: other.name, DataID: other.data}, Flushed: postgres.LSN(len(other.wal))})
		}
	}
	return p
}

// streams says whether n receives the WAL of p.
func (w *world) streams(n, p *node) bool {
	return n != p && n.serves() && p.serves() && n.role == Following && n.upstream == p.name && p.role == Leading && n.term == p.term &&
		w.reach(n, p) && isPrefix(n.wal, p.wal)
}

func isPrefix(a, b []entry) bool { return len(a) <= len(b) && slices.Equal(a, b[:len(a)]) }

// carryOut does what a step asks for.
func (w *world) carryOut(n *node, out Output, again bool) {
	if out.Seal > n.cut {
		n.cut, n.upstream = out.Seal, ""
		w.say("%s seals term %d at %d", n.name, out.Seal, len(n.wal))
	}
	for _, to := range out.AskWhom {
		w.send(n, to.Instance, *out.Ask)
	}
	for _, vote := range out.Votes {
		w.send(n, vote.Request.Candidate.Instance, vote)
	}
	for _, to := range out.PleadWith {
		w.send(n, to.Instance, *out.Plead)
	}
	for _, promise := range out.Promises {
		w.send(n, promise.Request.Holder.Instance, promise)
	}
	if out.Write != nil {
		w.tryWrite(n, *out.Write)
	}
	if again {
		return
	}
	w.become(n, out.Target)
	if out.Sync != nil && n.role == Leading {
		w.setSync(n, *out.Sync)
	}
}

// tryWrite is a compare-and-swap, whose request or answer may be lost.
func (w *world) tryWrite(n *node, write Write) {
	later := w.now + time.Duration(w.r.Int64N(int64(600*time.Millisecond)))
	outcome := Written{Outcome: Refused}
	switch {
	case n.apart || w.faults && w.chance(2):
		outcome.Outcome = Unknown // it has not arrived
	case write.Version == w.lease.Version:
		outcome = Written{Outcome: Done, Version: w.newVersion()}
		if before := w.lease; before.Holder != write.Holder || before.Record.Term != write.Record.Term {
			w.say("%s takes the Lease, term %d", n.name, write.Record.Term)
		} else if !before.Record.Equal(write.Record) {
			w.say("%s writes members %v, votes %d", n.name, write.Record.Members, write.Record.Votes)
		}
		w.lease = Lease{Version: outcome.Version, Holder: write.Holder, Record: write.Record}
		if w.faults && w.chance(2) {
			outcome.Outcome = Unknown // the answer is lost
		}
	}
	n.outcomes = append(n.outcomes, pendingWrite{at: later, outcome: outcome})
}

// become makes the server what it shall be.
func (w *world) become(n *node, t Target) {
	switch {
	case t.Role == Stopped || n.role == Leading && (t.Role != Leading):
		w.stop(n)
	case t.Role == Leading && n.role != Leading:
		w.lead(n, t.Term)
	case t.Role == Leading:
		n.term = t.Term
	case t.Role == Following:
		if n.role != Following || n.upstream != t.Upstream || n.term != t.Term {
			n.role, n.upstream, n.term = Following, t.Upstream, t.Term
		}
	}
}

func (w *world) stop(n *node) {
	if n.role == Leading {
		w.say("%s stops to lead term %d", n.name, n.term)
	}
	n.role, n.upstream, n.waiting, n.reload = Stopped, "", nil, nil
}

// lead makes n's server take writes: on a new timeline if it was a standby's.
func (w *world) lead(n *node, term uint64) {
	missing := []int{}
	for id := range w.acked {
		if !slices.ContainsFunc(n.wal, func(e entry) bool { return e.id == id }) {
			missing = append(missing, id)
		}
	}
	w.takeovers++
	w.say("%s leads term %d from %d", n.name, term, len(n.wal))
	if len(missing) > 0 && w.settings.Mode != Async {
		slices.Sort(missing)
		w.fail("%s takes over in term %d without acknowledged commits %v", n.name, term, missing)
	}
	if w.settings.Mode == Async {
		w.acked = map[int]uint64{} // what is lost is lost
	}
	last := uint32(0)
	for _, other := range w.nodes {
		last = max(last, other.wal[len(other.wal)-1].timeline)
	}
	n.wal = append(slices.Clone(n.wal), entry{timeline: last + 1})
	n.role, n.term, n.upstream, n.waiting, n.reload = Leading, term, "", nil, nil
	n.sync = Sync{Need: w.settings.Need} // what it starts with
	if w.settings.Mode == Async {
		n.sync = Sync{}
	}
	n.since = postgres.LSN(len(n.wal))
}

func (w *world) setSync(n *node, want Sync) {
	current := n.sync
	if n.reload != nil {
		current = n.reload.to
	}
	if !current.equal(want) {
		n.reload = &reload{to: want, done: w.now + time.Duration(w.r.Int64N(int64(3*time.Second)))}
		w.say("%s lets %d of %v acknowledge", n.name, want.Need, want.Standbys)
	}
}

// finishReload is when every process has the new value.
func (w *world) finishReload(n *node) {
	if n.reload != nil && n.serves() && n.reload.done <= w.now {
		n.sync, n.since, n.reload = n.reload.to, postgres.LSN(len(n.wal)), nil
		w.acknowledge(n)
	}
}

// followUpstream lets n rejoin: data that has gone another way is rewound or
// cloned, which makes it other data.
func (w *world) followUpstream(n *node) {
	if !n.serves() || n.role != Following || n.upstream == "" || n.stuck {
		return
	}
	p := w.node(n.upstream)
	if !p.serves() || p.role != Leading || p.term != n.term || !w.reach(n, p) || isPrefix(n.wal, p.wal) || !w.chance(30) {
		return
	}
	n.data, n.wal = w.newID(), slices.Clone(p.wal[:1+w.r.IntN(len(p.wal))])
	w.say("%s is rewound or cloned from %s: data %s, WAL to %d of %d", n.name, p.name, n.data, len(n.wal), len(p.wal))
}

// stream brings some WAL to n.
func (w *world) stream(n *node) {
	if n.role != Following || n.upstream == "" {
		return
	}
	p := w.node(n.upstream)
	if !w.streams(n, p) || !w.chance(80) {
		return
	}
	n.wal = slices.Clone(p.wal[:len(n.wal)+w.r.IntN(len(p.wal)-len(n.wal)+1)])
	w.acknowledge(p)
}

// commit is what a client does on a primary that it reaches.
func (w *world) commit(n *node) {
	if !w.chance(60) {
		return
	}
	w.ids++
	e := entry{timeline: n.wal[len(n.wal)-1].timeline, id: w.ids}
	n.wal = append(n.wal, e)
	n.waiting = append(n.waiting, e)
	w.acknowledge(n)
}

// acknowledge tells clients of commits that enough standbys have flushed, by
// the value of synchronous_standby_names that any process may have.
func (w *world) acknowledge(n *node) {
	if !n.serves() {
		return
	}
	values := []Sync{n.sync}
	if n.reload != nil {
		values = append(values, n.reload.to)
	}
	n.waiting = slices.DeleteFunc(n.waiting, func(e entry) bool {
		position := slices.Index(n.wal, e) + 1
		for _, value := range values {
			if w.flushedBy(n, value, position) {
				w.acked[e.id] = n.term
				w.commits++
				if n.term < w.newest && w.settings.Mode == Async {
					w.fail("%s acknowledges in term %d after term %d", n.name, n.term, w.newest)
				}
				w.newest = max(w.newest, n.term)
				return true
			}
		}
		return false
	})
}

func (w *world) flushedBy(p *node, value Sync, position int) bool {
	flushed := 0
	for _, m := range value.Standbys {
		n := w.node(m.Instance)
		if w.streams(n, p) && n.data == m.DataID && len(n.wal) >= position {
			flushed++
		}
	}
	return flushed >= value.Need
}

// checkOverlap is the invariant of tendMembers, as the world sees it.
func (w *world) checkOverlap() {
	p := slices.IndexFunc(w.nodes, func(n *node) bool {
		return n.role == Leading && n.up && n.term == w.lease.Record.Term && n.name == w.lease.Holder.Instance
	})
	members := w.lease.Record.Members
	if p < 0 || len(members) == 0 || w.settings.Mode == Async {
		return
	}
	values := []Sync{w.nodes[p].sync}
	if reload := w.nodes[p].reload; reload != nil {
		values = append(values, reload.to)
	}
	for _, value := range values {
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

// strike lets something go wrong, or right again.
func (w *world) strike() {
	n := w.nodes[w.r.IntN(len(w.nodes))]
	if !w.chance(6) {
		return
	}
	flip := func(what string, flag *bool) {
		*flag = !*flag
		w.say("%s: %s is %v", n.name, what, *flag)
	}
	fault := w.r.IntN(12)
	if w.settings.Mode == Async && (fault == 3 || fault == 6) {
		return // a server that thaws, or has lost its agent, may acknowledge late
	}
	switch fault {
	case 0, 1:
		if n.up {
			w.crash(n)
		} else {
			w.start(n)
		}
	case 2:
		if n.up {
			w.crash(n)
			w.start(n)
		}
	case 3:
		flip("frozen", &n.frozen)
	case 4:
		flip("cut off from the API", &n.apart)
	case 5:
		flip("cut off from the others", &n.alone)
	case 6:
		flip("agent stuck", &n.stuck)
	case 7:
		if w.lease.Record.HolderDataID != n.data && n.role != Leading {
			w.loseVolume(n)
		}
	default: // more often right than wrong
		n.frozen, n.apart, n.alone, n.stuck = false, false, false, false
		if !n.up {
			w.start(n)
		}
	}
}

func (w *world) crash(n *node) {
	w.say("%s crashes", n.name)
	w.stop(n)
	n.up = false
}

// start is a new life of the pod: of the agent's state only the volume's is left.
func (w *world) start(n *node) {
	n.up, n.frozen, n.stuck = true, false, false
	n.state = &State{Me: w.holder(n), Sealed: n.sealed}
	n.seen, n.outcomes, n.inbox, n.cut = nil, nil, nil, 0
	w.messages = slices.DeleteFunc(w.messages, func(m message) bool { return m.to == n.name })
	w.say("%s starts", n.name)
}

func (w *world) loseVolume(n *node) {
	w.say("%s loses its volume", n.name)
	w.stop(n)
	n.sealed, n.data, n.wal = 0, w.newID(), []entry{{timeline: 1}}
	w.start(n)
}

// heal ends all faults.
func (w *world) heal() {
	w.faults = false
	for _, n := range w.nodes {
		n.frozen, n.apart, n.alone, n.stuck = false, false, false, false
		if !n.up {
			w.start(n)
		}
	}
	w.say("the faults end")
}

// isWell says whether one leads, all stream and commits are acknowledged.
func (w *world) isWell(commitsBefore int) bool {
	leaders, streaming := 0, 0
	for _, p := range w.nodes {
		if p.role != Leading {
			continue
		}
		leaders++
		for _, n := range w.nodes {
			if w.streams(n, p) {
				streaming++
			}
		}
	}
	return leaders == 1 && streaming == len(w.nodes)-1 && w.commits > commitsBefore
}

func (w *world) describe() string {
	var b strings.Builder
	for _, line := range w.trace[max(0, len(w.trace)-traceLines):] {
		b.WriteString(line + "\n")
	}
	fmt.Fprintf(&b, "Lease: holder %v, record %v\n", w.lease.Holder, w.lease.Record)
	for _, n := range w.nodes {
		fmt.Fprintf(&b, "%s: up %v frozen %v apart %v alone %v stuck %v, data %s, WAL %d, sealed %d, %s term %d upstream %q, sync %v\n",
			n.name, n.up, n.frozen, n.apart, n.alone, n.stuck, n.data, len(n.wal), n.sealed, n.role, n.term, n.upstream, n.sync)
	}
	fmt.Fprintf(&b, "%d acknowledged\n", len(slices.Collect(maps.Keys(w.acked))))
	return b.String()
}
