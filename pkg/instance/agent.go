package instance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/pgop/postgres-operator/pkg/election"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/postgres/pgrun"
)

const (
	// beatEvery is how often the loop runs if nothing wakes it.
	beatEvery = 500 * time.Millisecond
	// apiPatience is how long an instance waits for the API before it goes on
	// with what its volume remembers.
	apiPatience = 5 * time.Second
	// tendEvery is how often slots, logins and the slice are looked after.
	tendEvery = 10 * time.Second
)

// Agent runs one instance. Fields without a comment on sharing belong to the
// loop, or to the job while one runs.
type Agent struct {
	options   Options
	log       *logrus.Entry
	serverLog io.Writer
	kube      Kubernetes

	volume   volume
	config   configDir
	children *pgrun.Children
	programs *pgrun.Programs
	osUser   string

	// Shared: each has its own lock.
	view        *view
	inbox       *inbox
	peers       *peers
	replication *replication
	prober      *prober
	status      *status
	observer    *observer
	credentials *credentials
	sql         *pgrun.Server
	// peerSQL is for what other instances ask.
	peerSQL *pgrun.Server

	wake chan struct{}
	// beat is when the loop last ran, in nanoseconds since started, by the monotonic
	// clock, 0: never; shared.
	beat    atomic.Int64
	started time.Time

	// elector is the loop's.
	elector *elector
	// leading is the term in which this instance reigns, 0: it does not; shared,
	// changed under fenceMu, as is the alarm. fenced is true from a fence on
	// until the server has been taken out of service.
	leading atomic.Uint64
	fenced  atomic.Bool
	fenceMu sync.Mutex
	alarm   *time.Timer
	// killMu is held while a fence kills.
	killMu sync.Mutex
	// confMu is held while configuration files are rendered and written.
	confMu sync.Mutex
	// shown is what the election core knows of the data.
	shown shownData
	// sealed is the highest term on the volume; cut the highest for which the WAL
	// receiver was cut in this life of the agent, sealing the one for which it is
	// to be, and position what was measured after the cut.
	sealed, cut, sealing uint64
	position             position
	// resign is there once the server has stopped for another to reign, and
	// resignAt is since when.
	resign   *election.Resign
	resignAt time.Time
	// halt is there once the server has stopped for nobody to reign.
	halt     *election.Halt
	haltedAt time.Time
	// gaveIn is true while another instance is to be promoted by force.
	gaveIn bool
	// refused is a switchover that failed, and is not tried again.
	refused *instanceapi.Switchover
	// downSince is since when a primary's server has not been up, and upSince
	// since when it has; one of them is zero.
	downSince, upSince time.Time
	// roomier is a member with room on its volume while this one's is full.
	roomier string
	// remedy is what a replica that can't stream needs. cantStart is true when its
	// server has not even started, and nobody has asked the primary why.
	remedy    remedy
	cantStart bool
	// rejoinAt is when a replica last found out why it does not stream,
	// missedWAL how often it found that WAL is missing, and askedAbsent when a
	// primary last asked those that do not stream.
	rejoinAt    time.Time
	missedWAL   int
	askedAbsent time.Time
	// leaving is true once the pod is to end, and left when nothing keeps it;
	// handedOver and halted say that a primary has been ended for that.
	leaving, left, handedOver, halted bool

	lock *os.File
	job  *job
	// retry is when a failed move may be tried again, and failures how many
	// times it has failed in a row.
	retry    time.Time
	failures int
	// prepared is true once the volume is locked and known.
	prepared bool
	data     dataKind
	wal      walKind
	identity identity
	systemID string
	// segmentSize is that of WAL files, in bytes.
	segmentSize uint64
	other       string
	memory      reignMemory

	server *server
	// running says what server runs as; shared, under serverMu.
	running  running
	serverMu sync.Mutex
	// applied is the version of the ConfigMap that was last acted on, and
	// inForce what the server runs with.
	applied int
	inForce settings
	// raised is what instance.conf gives a standby more of than the configuration;
	// shared. givenBy and gives are what was last asked of a configuration.
	raised  atomic.Pointer[demands]
	givenBy settings
	gives   demands
	// outgrown is a parameter of which a replica has less than its data demands.
	outgrown string
	// restartHelps is true while another configuration is in force than the server
	// was started with; shared.
	restartHelps atomic.Bool
	// rejected are configurations that the server did not start with, and why.
	rejected map[settings]string
	// blameless is true once a configuration that was good did not start either.
	blameless bool
	// newsConfig and newsLease are what was last noticed.
	newsConfig int
	newsLease  election.Record
	newsHolder election.Holder
	// tended is when the server was last looked after.
	tended time.Time
	// problem is what tending last found wrong.
	problem string
}

// running is what the server runs as. Zero: it does not run.
type running struct {
	Role instanceapi.Role
	// Open is true on a primary once clients are let in.
	Open bool
	// Reigning is true on a primary that has the Lease; one that has just been
	// made has not.
	Reigning bool
	// Upstream is whom a replica follows.
	Upstream upstream
	Term     uint64

	server *server
}

// answers says whether there is a server that accepts connections.
func (r running) answers() bool {
	return r.server != nil && r.server.isReady() && !r.server.hasExited()
}

// role is what others see: a primary is one only once it is open.
func (r running) role() instanceapi.Role {
	if r.Role == instanceapi.RolePrimary && !r.Open {
		return instanceapi.RoleNone
	}
	return r.Role
}

// New makes an agent. The server's log goes to serverLog.
func New(o Options, kube Kubernetes, log *logrus.Entry, serverLog io.Writer) (*Agent, error) {
	if err := o.validate(); err != nil {
		return nil, fmt.Errorf("start agent: %w", err)
	}
	if o.Listen == "" {
		o.Listen = "*"
	}
	a := &Agent{
		options: o, log: log, serverLog: serverLog, kube: kube,
		volume:      volume{mount: o.Mount, major: o.Major, walMount: o.WALMount},
		credentials: &credentials{options: o},
		children:    &pgrun.Children{},
		wake:        make(chan struct{}, 1),
		rejected:    map[settings]string{},
		started:     time.Now(),
	}
	a.config = configDir{path: a.volume.config()}
	a.programs = &pgrun.Programs{Bin: o.Bin, Children: a.children}
	a.view = &view{wake: a.wakeUp, log: log}
	a.status = &status{log: log, state: instanceapi.State{Instance: o.Instance, PodUID: o.PodUID, AgentVersion: o.Version}}
	a.inbox = &inbox{wake: a.wakeUp}
	a.peers = &peers{options: o, credentials: a.credentials, view: a.view}
	a.peers.find = a.peers.addresses
	a.elector = &elector{kube: kube, view: a.view, peers: a.peers, inbox: a.inbox, log: log, since: a.started,
		state: election.State{Me: o.holder(), Address: o.PodIP}}
	a.prober = &prober{agent: a}
	server, err := pgrun.Open(o.RunDir, o.Port, "postgres")
	if err != nil {
		return nil, fmt.Errorf("start agent: %w", err)
	}
	a.sql = server
	standbys, err := pgrun.Open(o.RunDir, o.Port, "postgres")
	if err != nil {
		return nil, fmt.Errorf("start agent: %w", err)
	}
	if a.peerSQL, err = pgrun.Open(o.RunDir, o.Port, "postgres"); err != nil {
		return nil, fmt.Errorf("start agent: %w", err)
	}
	a.replication = &replication{agent: a, sql: standbys, log: log, kicked: make(chan struct{}, 1)}
	a.observer = &observer{server: server, runs: func() bool { return a.runningAs().answers() }}
	return a, nil
}

// Run runs the instance until ctx ends, and then stops it in order. It returns
// when no process of the server is left.
func (a *Agent) Run(ctx context.Context) error {
	a.status.enter(instanceapi.PhaseWaiting, "waiting for the volume")
	a.beats()
	// What serves and watches goes on until the server has stopped.
	beside, stop := context.WithCancel(context.WithoutCancel(ctx))
	var group sync.WaitGroup
	defer group.Wait()
	defer stop()
	if err := a.listen(beside, &group); err != nil {
		return err
	}
	if os.Getpid() == 1 {
		group.Go(func() { a.reapOrphans(beside) })
	}
	group.Go(func() { a.kube.Watch(beside, a.view) })
	group.Go(func() { a.observeForever(beside) })
	group.Go(func() { a.replication.run(beside) })
	group.Go(func() { a.prober.run(beside) })
	a.loop(ctx, beside)
	return a.shutDown(beside)
}

// wakeUp makes the loop look again soon. Calls before it does so collapse.
func (a *Agent) wakeUp() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// loop makes passes until ctx ends, and then until nothing keeps this instance.
// Jobs live in beside.
func (a *Agent) loop(ctx, beside context.Context) {
	ticker := time.NewTicker(beatEvery)
	defer ticker.Stop()
	asked := ctx.Done()
	var longest <-chan time.Time
	for {
		a.beats()
		a.pass(beside)
		if a.left {
			return
		}
		select {
		case <-asked:
			asked, a.leaving, longest = nil, true, time.After(a.options.StopTimeout/2)
			if a.job != nil {
				a.job.cancel(context.Canceled)
			}
		case <-longest:
			return
		case <-a.wake:
		case <-ticker.C:
		}
	}
}

// beats notes that the loop runs.
func (a *Agent) beats() { a.beat.Store(int64(time.Since(a.started))) }

// alive says whether the loop has run lately: it never blocks, so a loop that
// hasn't hangs.
func (a *Agent) alive(now time.Time) bool {
	const longest = 5 * time.Second
	beat := a.beat.Load()
	return beat > 0 && now.Sub(a.started)-time.Duration(beat) < longest
}

func (a *Agent) runningAs() running {
	a.serverMu.Lock()
	defer a.serverMu.Unlock()
	return a.running
}

// runs says what the server runs as from now on.
func (a *Agent) runs(r running) {
	a.serverMu.Lock()
	a.running = r
	a.serverMu.Unlock()
	a.observer.forget()
	a.replication.kick()
	a.status.update(func(s *instanceapi.State) { s.Role, s.Streaming = r.role(), false })
	a.wakeUp()
}

// shutDown stops the instance in order: first no new clients, then the server.
func (a *Agent) shutDown(ctx context.Context) error {
	a.status.enter(instanceapi.PhaseStopping, "")
	if a.job != nil {
		a.job.cancel(context.Canceled)
		<-a.job.done
	}
	if !a.handedOver { // else the successor replaces it in a moment
		if err := a.leaveSlice(ctx); err != nil {
			a.log.WithError(err).Warn("leaving the rw EndpointSlice failed")
		}
	}
	defer a.sql.Close()
	if a.lock == nil {
		return nil
	}
	a.log.Info("stopping the server")
	err := a.stopServer(ctx)
	a.abdicate()
	err = errors.Join(err, a.lock.Close())
	a.log.Info("stopped")
	return err
}

// lookupUser returns the name of the operating system user that this runs as.
// The server's programs refuse to run as one without a name.
func lookupUser() (string, error) {
	uid := strconv.Itoa(os.Getuid())
	found, err := user.LookupId(uid)
	if err == nil {
		return found.Username, nil
	}
	if postgres, other := user.Lookup("postgres"); other == nil {
		return "", fmt.Errorf("the image has no user with the id %s that this pod runs as; its user postgres has the id %s: "+
			"set spec.postgres.uid: %s", uid, postgres.Uid, postgres.Uid)
	}
	return "", fmt.Errorf("the image has no user with the id %s that this pod runs as, and none named postgres: "+
		"set spec.postgres.uid to the id of the server's user in the image", uid)
}
