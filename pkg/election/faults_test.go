package election

import (
	"slices"
	"time"
)

// weather is how bad a world is: each seed has its own, so that some worlds are
// all delays and others all crashes.
type weather struct {
	// strikes is the chance of a fault in each turn, and weights are how often
	// each kind comes. All chances are percents.
	strikes float64
	weights []int
	total   int
	// late is at most how late messages arrive, loss how many get lost, and as
	// many come twice.
	late time.Duration
	loss float64
	// answer is at most how long the API takes, and lostWrites the chance that a
	// write, or its outcome, is lost.
	answer     time.Duration
	lostWrites float64
	// reload is at most how long a server's setting takes to be in force, and
	// start how long a server or a copy takes.
	reload, start time.Duration
	// attention is the chance that an agent acts in a turn, watch that it has
	// news of the Lease, flow that a standby gets some WAL, commits that a
	// client writes, and timeout that a dead connection is noticed.
	attention, watch, flow, commits, timeout float64
	// patience is how long candidates wait for votes.
	patience time.Duration
	// early is the chance that a Lease looks ended, and strangers that others
	// stream, too.
	early, strangers float64
	// robbery is the chance that the Lease is lost with who has just written it, when
	// another still believes that it reigns.
	robbery float64
}

func (w *world) newWeather() weather {
	pick := func(values ...float64) float64 { return values[w.r.IntN(len(values))] }
	seconds := func(values ...float64) time.Duration { return time.Duration(pick(values...) * float64(time.Second)) }
	x := weather{
		strikes: pick(2, 6, 15), late: seconds(0.1, 0.4, 2), loss: pick(0, 5, 20),
		answer: seconds(0.1, 0.6, 1.5), lostWrites: pick(0, 2, 10), reload: seconds(0.1, 1, 5), start: seconds(0.1, 1, 4),
		attention: pick(80, 100), watch: pick(20, 70, 100), flow: pick(30, 80), commits: pick(20, 60, 100), timeout: pick(5, 30, 100),
		strangers: pick(0, 5), patience: seconds(1, 2, 15), robbery: pick(0, 0, 30),
	}
	if w.settings.Mode != Async {
		x.late, x.attention, x.flow, x.early = seconds(0.1, 0.4, 2, 10), pick(30, 80, 100), pick(5, 30, 80), pick(0, 0, 1, 5, 20, 100)
	}
	for _, f := range faults {
		weight := w.r.IntN(4)
		if weight > 0 && f.rare {
			weight = 1
		}
		if f.timed && w.settings.Mode == Async {
			weight = 0 // a server that thaws, or has lost its agent, may acknowledge late
		}
		x.weights = append(x.weights, weight)
		x.total += weight
	}
	return x
}

// calm is the weather when the faults end.
func (w *world) calm() {
	w.weather = weather{
		late: 200 * time.Millisecond, answer: 400 * time.Millisecond, reload: time.Second, start: time.Second,
		attention: 100, watch: 70, flow: 80, commits: 60, timeout: 30,
	}
}

// fault is what may go wrong.
type fault struct {
	strike func(w *world, n *node)
	// rare faults come rarely, and timed ones only where safety does not rest on
	// time.
	rare, timed bool
}

var faults = []fault{
	{strike: (*world).crash},
	{strike: (*world).restart},
	{strike: (*world).crashServer},
	{strike: (*world).freeze, timed: true},
	{strike: (*world).getStuck, timed: true},
	{strike: (*world).cutFromAPI},
	{strike: (*world).cutOff},
	{strike: (*world).cutOneWay},
	{strike: (*world).loseVolume},
	{strike: (*world).replace, rare: true, timed: true},
	{strike: (*world).handOver},
	{strike: (*world).loseLease, rare: true},
	{strike: (*world).changeRules, rare: true},
	{strike: (*world).changeLength},
	{strike: (*world).force, rare: true},
}

// strike lets something go wrong, or right again.
func (w *world) strike() {
	if w.chance(w.weather.strikes / 2) {
		w.repair(w.nodes[w.r.IntN(len(w.nodes))])
	}
	if w.weather.total == 0 || !w.chance(w.weather.strikes) {
		return
	}
	n, lot := w.nodes[w.r.IntN(len(w.nodes))], w.r.IntN(w.weather.total)
	for i, weight := range w.weather.weights {
		if lot -= weight; lot < 0 {
			faults[i].strike(w, n)
			return
		}
	}
}

func (w *world) repair(n *node) {
	if n.ghost {
		w.end(n)
		return
	}
	n.frozen, n.stuck, n.apart = false, false, false
	for pair := range w.cut {
		if pair[0] == n || pair[1] == n {
			delete(w.cut, pair)
		}
	}
	if !n.up {
		w.start(n)
	}
	w.say("%s is repaired", n.name)
}

func (w *world) crash(n *node) {
	w.say("%s crashes", n.name)
	w.stop(n)
	n.up = false
}

func (w *world) restart(n *node) {
	w.crash(n)
	if !n.ghost {
		w.start(n)
	}
}

// start is a new life of the pod: of the agent's state only the volume's is
// left.
func (w *world) start(n *node) {
	n.up, n.frozen, n.stuck = true, false, false
	n.state = &State{Me: w.holder(n), Address: n.name}
	if n.settings.has(ruleRemember) {
		n.state.Sealed = n.sealed
	}
	n.seen, n.outcome, n.inbox, n.cutFor, n.sealing, n.handover, n.cloning = nil, nil, nil, 0, 0, nil, 0
	if n.memory != nil && n.apart {
		seen := *n.memory
		seen.SeenAt = n.clock(w.now)
		n.seen = &seen
	}
	w.say("%s starts", n.name)
}

// crashServer ends the server only.
func (w *world) crashServer(n *node) {
	if n.runs() && n.role != Stopped {
		w.say("%s: the server crashes", n.name)
		w.stop(n)
	}
}

func (w *world) freeze(n *node) {
	n.frozen = !n.frozen
	w.say("%s: frozen is %v", n.name, n.frozen)
}

func (w *world) getStuck(n *node) {
	n.stuck = !n.stuck
	w.say("%s: stuck is %v", n.name, n.stuck)
}

func (w *world) cutFromAPI(n *node) {
	n.apart = !n.apart
	w.say("%s: cut off from the API is %v", n.name, n.apart)
}

// cutOff cuts n off from all others.
func (w *world) cutOff(n *node) {
	w.say("%s is cut off from the others", n.name)
	for _, other := range w.nodes {
		w.cut[[2]*node{n, other}], w.cut[[2]*node{other, n}] = true, true
	}
}

func (w *world) cutOneWay(n *node) {
	other := w.nodes[w.r.IntN(len(w.nodes))]
	w.say("nothing gets from %s to %s", n.name, other.name)
	w.cut[[2]*node{n, other}] = true
}

// mayLose says whether n's volume may be lost without a loss by nature: the
// holder's may not.
func (w *world) mayLose(n *node) bool {
	return n.data != w.last.HolderDataID && n.role != Leading && !n.ghost && !n.state.Reigns() && !w.hasWrites(n)
}

func (w *world) hasWrites(n *node) bool {
	for _, wr := range w.writes {
		if wr.from == n && wr.landed == nil && !wr.lost {
			return true // it may be the holder in a moment
		}
	}
	return false
}

func (w *world) loseVolume(n *node) {
	if !w.mayLose(n) {
		return
	}
	w.say("%s loses its volume", n.name)
	w.stop(n)
	n.sealed, n.data, n.wal, n.memory = 0, "", nil, nil
	w.start(n)
}

// replace gives n's name to a new pod with a new volume, while n goes on as
// long as nobody ends it.
func (w *world) replace(n *node) {
	if n.ghost || n.data == w.last.HolderDataID || w.hasWrites(n) || len(w.nodes) > 2*len(names) {
		return
	}
	w.say("%s is replaced, and goes on", n.name)
	n.ghost = true
	w.newNode(n.name)
}

// end is the end of a pod whose name belongs to another.
func (w *world) end(n *node) {
	if n.data == w.last.HolderDataID || w.hasWrites(n) {
		return
	}
	w.crash(n)
	n.gone, n.data, n.wal = true, "", nil
	for i := range w.nodes {
		if w.nodes[i] == n {
			w.nodes = append(w.nodes[:i:i], w.nodes[i+1:]...)
			return
		}
	}
}

// handOver lets the primary give way, for whoever is fit or for somebody.
func (w *world) handOver(*node) {
	for _, n := range w.nodes {
		if n.state.Reigns() && n.role == Leading && n.acts() {
			n.handover, n.gives = &Resign{}, w.now+w.upTo(10*time.Second)
			if w.chance(50) {
				n.handover.Nominee = w.nodes[w.r.IntN(len(w.nodes))].name
			}
			w.say("%s shall hand over to %q", n.name, n.handover.Nominee)
		}
	}
}

// loseLease deletes the Lease, and somebody makes an empty one: while all goes on, or
// when nothing is left but volumes, and whoever comes back first is the first to see.
func (w *world) loseLease(*node) {
	if !w.forgetLease() || !w.chance(50) {
		return
	}
	for _, n := range w.nodes {
		w.crash(n)
	}
}

// rob takes the Lease and its holder away while another believes that it reigns.
func (w *world) rob(holder *node) {
	another := slices.ContainsFunc(w.nodes, func(n *node) bool { return n != holder && n.up && n.state.Reigns() })
	if w.faults && another && w.chance(w.weather.robbery) && w.forgetLease() {
		w.crash(holder)
	}
}

// forgetLease loses the Lease, unless that would be a loss by nature: the newest reign
// that volumes remember must be known to the data that had it, which is needed from
// now on, and to whose name others come. A later claim, of which nobody has heard, is none.
func (w *world) forgetLease() bool {
	newest := Record{HolderDataID: w.first}
	for _, n := range w.nodes {
		if n.memoryTerm() > newest.Term {
			newest = n.memory.Record
		}
	}
	if !slices.ContainsFunc(w.nodes, func(n *node) bool {
		return !n.ghost && n.data == newest.HolderDataID && n.memoryTerm() == newest.Term
	}) {
		return false
	}
	w.say("the Lease is lost")
	w.lease, w.last = Lease{Version: w.newVersion()}, newest
	return true
}

// changeRules is people changing their minds on how many shall acknowledge. Each
// agent hears of it at some time.
func (w *world) changeRules(n *node) {
	if w.settings.Mode == Async {
		return
	}
	n.settings.Mode = []Mode{Required, Preferred}[w.r.IntN(2)]
	n.settings.Need = 1 + w.r.IntN(max(1, len(w.nodes)-2))
	w.say("%s is told %s, %d", n.name, n.settings.Mode, n.settings.Need)
}

// changeLength is people changing their minds on how long the Lease lasts. Not
// everybody hears of it.
func (w *world) changeLength(*node) {
	length := []time.Duration{6 * time.Second, w.settings.LeaseDuration, time.Minute}[w.r.IntN(3)]
	for _, n := range w.nodes {
		if w.chance(80) {
			n.settings.LeaseDuration, n.settings.RenewEvery, n.settings.Margin = length, length/5, length*3/10
		}
	}
	w.say("most are told that a Lease lasts %s", length)
}

// force is a user who has lost patience while nobody leads, and lets n reign
// whatever it lacks.
func (w *world) force(n *node) {
	for _, other := range w.nodes {
		if other.role == Leading || other.state.Reigns() {
			return
		}
	}
	w.say("%s is forced to reign", n.name)
	n.forced = w.lease.Record.Term
}

// heal ends all faults. One instance that is not needed may be gone for good.
func (w *world) heal() {
	w.faults = false
	w.calm()
	w.cut = map[[2]*node]bool{}
	var ghosts []*node
	for _, n := range w.nodes {
		if n.ghost {
			ghosts = append(ghosts, n)
			continue
		}
		n.offset, n.drift = n.clock(w.now)-w.now, 1
		n.settings = w.settings
		w.repair(n)
	}
	for _, n := range ghosts {
		w.heir(n)
	}
	if w.chance(30) && len(w.nodes)-2 >= w.settings.Need {
		if n := w.nodes[w.r.IntN(len(w.nodes))]; w.mayLose(n) {
			w.crash(n)
			n.gone = true
			w.say("%s is gone for good", n.name)
		}
	}
	w.say("the faults end")
}

// heir ends a ghost, or gives it its name back if it is the one that reigned.
func (w *world) heir(n *node) {
	for _, wr := range w.writes {
		wr.lost = wr.lost || wr.from == n
	}
	if n.data != w.last.HolderDataID {
		w.end(n)
		return
	}
	if heir := w.node(n.name); heir != nil {
		heir.ghost = true
		w.end(heir)
	}
	n.ghost = false
	n.offset, n.drift, n.settings = n.clock(w.now)-w.now, 1, w.settings
	w.repair(n)
}
