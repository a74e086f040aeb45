package instance

import (
	"context"
	"crypto/rand"
	"encoding/hex"
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
	options Options
	// life tells this process from those that were or will be the agent of the
	// instance.
	life      string
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
	declarer    *declarer
	status      *status
	observer    *observer
	credentials *credentials
	sql         *pgrun.Server
	// peerSQL is for what other instances ask.
	peerSQL  *pgrun.Server
	room     *room
	deposits *deposits
	archiver *archiver
	backups  *backupTaker
	catalog  *cataloguer

	wake chan struct{}
	// beat is when the loop last ran, in nanoseconds since started, by the monotonic
	// clock, 0: never; shared.
	beat    atomic.Int64
	started time.Time

	// elector is the loop's, and shown what its core knows of the data.
	elector *elector
	shown   shownData

	// What each of the agent's tasks remembers, in the file of that task.
	volumeState
	configState
	fenceState
	sealState
	handoverState
	leaveState
	rejoinState
	restoreState
	newsState

	job *job
	// retry is when a failed move may be tried again, and failures how many
	// times it has failed in a row.
	retry    time.Time
	failures int
	server   *server
	// running says what server runs as; shared, under serverMu.
	running  running
	serverMu sync.Mutex
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
		started:     time.Now(),
	}
	a.rejected = map[settings]string{}
	a.config = configDir{path: a.volume.config()}
	a.programs = &pgrun.Programs{Bin: o.Bin, Children: a.children}
	a.view = &view{wake: a.wakeUp, log: log}
	life := make([]byte, 8)
	if _, err := rand.Read(life); err != nil {
		return nil, fmt.Errorf("start agent: %w", err)
	}
	a.life = hex.EncodeToString(life)
	a.status = &status{log: log, state: instanceapi.State{Instance: o.Instance, PodUID: o.PodUID, AgentVersion: o.Version, Life: a.life}}
	a.inbox = &inbox{wake: a.wakeUp}
	a.peers = &peers{options: o, credentials: a.credentials, view: a.view}
	a.peers.find = a.peers.addresses
	a.elector = &elector{kube: kube, view: a.view, peers: a.peers, inbox: a.inbox, log: log, since: a.started,
		state: election.State{Me: o.holder(), Address: o.PodIP}}
	a.prober = &prober{agent: a}
	a.room, a.backups = &room{}, &backupTaker{}
	a.catalog = &cataloguer{agent: a, kicked: make(chan struct{}, 1)}
	a.deposits = &deposits{options: o, kube: kube, dir: a.volume.pgWAL()}
	a.archiver = &archiver{view: a.view, log: log, deposits: a.deposits, room: a.room, now: time.Now, patience: slowAfter,
		systemID: func() string { return a.status.snapshot().SystemID }}
	a.declarer = newDeclarer(a)
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
	group.Go(func() { a.archiver.run(beside) })
	group.Go(func() { a.catalog.run(beside) })
	group.Go(func() { a.declarer.run(beside) })
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
	if r.Role == instanceapi.RoleReplica || r.Reigning {
		a.archiver.serve()
	} else {
		a.archiver.hold()
	}
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
	defer a.deposits.close()
	defer a.sql.Close()
	if a.lock == nil {
		return nil
	}
	a.stopBackup()
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
