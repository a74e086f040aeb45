package instance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/postgres"
)

// volumeState is what is on the volume, once it is locked.
type volumeState struct {
	lock *os.File
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
}

// prepare checks that this image can run the instance, locks the volume and
// looks at what is on it.
func (a *Agent) prepare(ctx context.Context) error {
	name, err := lookupUser()
	if err != nil {
		return err
	}
	a.osUser = name
	version, err := a.programs.Version(ctx)
	if err != nil {
		return fmt.Errorf("ask the image for its version of PostgreSQL: %w", err)
	}
	if version.Major != a.options.Major {
		return fmt.Errorf("the image has PostgreSQL %d (%s), and spec.postgres.version says %d: "+
			"give spec.postgres.image one of that version", version.Major, version, a.options.Major)
	}
	if err := a.takeLock(ctx); err != nil {
		return err
	}
	if err := a.volume.settleWAL(); err != nil {
		return err
	}
	if err := a.recall(); err != nil { // before others are told that the volume is known
		return err
	}
	if err := a.inspect(ctx); err != nil {
		return err
	}
	if err := a.useWALVolume(ctx); err != nil {
		return err
	}
	a.prepared = true
	return nil
}

// recall reads what the volume remembers of reigns and elections.
func (a *Agent) recall() error {
	memory, err := a.volume.readReign()
	if err != nil {
		return err
	}
	a.knowReign(memory)
	// What was cut and measured in an earlier life counts no more.
	if a.sealed, err = a.volume.readSealed(); err != nil {
		return err
	}
	a.status.update(func(s *instanceapi.State) { s.Sealed = a.sealed })
	return nil
}

// useWALVolume moves the WAL of complete data to the WAL volume, if the pod has
// got one since.
func (a *Agent) useWALVolume(ctx context.Context) error {
	if a.data != dataComplete || !a.volume.needsWALMoved() {
		return nil
	}
	a.status.enter(instanceapi.PhaseStarting, "moving pg_wal to the WAL volume")
	if err := killHolders(ctx, a.lock); err != nil {
		return err
	}
	if err := a.volume.moveWAL(ctx); err != nil {
		return fmt.Errorf("move pg_wal to the WAL volume: %w", err)
	}
	a.log.Info("moved pg_wal to the WAL volume")
	return nil
}

// takeLock waits for the volume's lock.
func (a *Agent) takeLock(ctx context.Context) error {
	const again = 100 * time.Millisecond
	for a.lock == nil {
		lock, err := a.volume.tryLock()
		if err == nil {
			a.lock, a.programs.Held = lock, lock
			return nil
		}
		if !errors.Is(err, errVolumeInUse) {
			return err
		}
		a.status.enter(instanceapi.PhaseWaiting, err.Error())
		if err := pause(ctx, again); err != nil {
			return fmt.Errorf("wait for the volume's lock: %w", err)
		}
	}
	return nil
}

// inspect looks at the data on the volume.
func (a *Agent) inspect(ctx context.Context) error {
	kind, id, err := a.volume.lookAtData()
	if err != nil {
		return err
	}
	a.data, a.identity, a.systemID = kind, id, ""
	if a.wal, err = a.volume.lookAtWAL(); err != nil {
		return err
	}
	if kind == dataComplete || kind == dataForeign || kind == dataWithoutWAL {
		control, err := a.programs.ControlData(ctx, a.volume.data())
		if err == nil {
			a.systemID, a.segmentSize = control.SystemID, control.SegmentSize
			a.position = position{Timeline: control.Timeline, End: control.CheckpointLSN}
		}
		if err != nil && kind != dataForeign {
			a.log.WithError(err).Error("the data directory has no control file that can be read")
			a.data = dataDamaged
		}
	}
	if a.other, err = a.volume.otherData(); err != nil {
		return err
	}
	a.status.update(func(s *instanceapi.State) {
		s.Inspected, s.HasData, s.DataID, s.SystemID = true, a.data == dataComplete, a.identity.ID, a.systemID
		s.Recovered = a.identity.Recovered
	})
	return nil
}

// clone copies the primary, and leaves the data ready to follow it. What is in
// the way and not of our making is moved aside.
func (a *Agent) clone(ctx context.Context, up upstream) error {
	a.status.enter(instanceapi.PhaseCloning, "copying "+up.Instance)
	if err := a.remember(); err != nil {
		return err
	}
	if err := killHolders(ctx, a.lock); err != nil {
		return err
	}
	if a.data == dataForeign || a.data == dataDamaged {
		path, err := a.volume.moveAside(time.Now())
		if err != nil {
			return err
		}
		a.log.WithField("path", path).Warn("moved a data directory aside that this instance can't use")
	}
	if a.data == dataUnfinished && a.volume.isHalfRewound() {
		if _, err := a.volume.giveUp(time.Now()); err != nil {
			return err
		}
	}
	err := a.copyFrom(ctx, up)
	return errors.Join(err, a.inspect(context.WithoutCancel(ctx)))
}

func (a *Agent) copyFrom(ctx context.Context, up upstream) error {
	wal, err := a.volume.begin(byClone)
	if err != nil {
		return err
	}
	if err := a.programs.BaseBackup(ctx, a.baseBackup(up, wal)); err != nil {
		return err
	}
	if err := writeFile(a.volume.standby(), "", 0o600); err != nil {
		return err
	}
	if err := a.volume.sync(); err != nil {
		return err
	}
	a.learnConfiguration(ctx, up.Instance)
	_, err = a.volume.finish(identity{Origin: byClone})
	return err
}

// learnConfiguration keeps what the source has started with as good, should the server
// refuse the ConfigMap's: a copy has no configuration of its own that it could fall
// back on. Without, it waits for one that is not refused.
func (a *Agent) learnConfiguration(ctx context.Context, source string) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	good, err := a.peers.configuration(ctx, source)
	if err == nil {
		err = a.config.keep(settings{Conf: good.Conf, HBA: good.HBA, Ident: good.Ident}, goodDir)
	}
	if err != nil {
		a.log.WithError(err).Warn("can't learn with which configuration the source has started")
	}
}

// openUp lets clients into a server that runs.
func (a *Agent) openUp(ctx context.Context) error {
	if err := a.config.installHBA(a.inForce.HBA); err != nil {
		return err
	}
	return a.reload(ctx)
}

// startPrimary starts the server as the primary. Where commits wait for
// standbys it is closed to clients at first. What was a replica when it was elected,
// and has not been promoted, starts as a replica of nobody, which is promoted next:
// else it would go on with a timeline that the former primary may have gone on with
// as well, and nobody could tell whose WAL is whose.
func (a *Agent) startPrimary(ctx context.Context, open bool) error {
	if a.roomier = a.findRoom(ctx); a.roomier != "" {
		return nil // it would only run into the end of its volume again
	}
	a.status.enter(instanceapi.PhaseStarting, "")
	promoted, err := a.isPromoted(ctx)
	if err != nil {
		return err
	}
	if !promoted {
		return a.follow(ctx, upstream{})
	}
	a.replication.beginWith(a.electionSettings())
	if err := a.remember(); err != nil {
		return err
	}
	launch := a.launchPrimary
	if !open {
		launch = func() (*server, error) {
			if err := a.config.installHBA(postgres.RenderReplicationHBA()); err != nil {
				return nil, err
			}
			return a.launchPrimary()
		}
	}
	if err := a.startServer(ctx, upstream{}, launch); err != nil {
		return err
	}
	a.runs(running{Role: instanceapi.RolePrimary, Open: open, Reigning: true, Term: a.reignTerm(), server: a.server})
	return nil
}

// isPromoted says whether the data is a primary's. In a promotion the server removes
// standby.signal first, and says last that it is in recovery no more.
func (a *Agent) isPromoted(ctx context.Context) (bool, error) {
	if exists(a.volume.standby()) {
		return false, nil
	}
	control, err := a.programs.ControlData(ctx, a.volume.data())
	return control.State != "in archive recovery" && control.State != "shut down in recovery", err
}

// reignOver lets the server that initdb has left, closed to everybody, take its
// place as the primary.
func (a *Agent) reignOver(ctx context.Context, open bool) error {
	a.replication.beginWith(a.electionSettings())
	hba := a.inForce.HBA
	if !open {
		hba = postgres.RenderReplicationHBA()
	}
	if err := errors.Join(a.remember(), a.config.installHBA(hba), a.installInstance(upstream{})); err != nil {
		return err
	}
	if err := a.reload(ctx); err != nil {
		return err
	}
	a.runs(running{Role: instanceapi.RolePrimary, Open: open, Reigning: true, Term: a.reignTerm(), server: a.server})
	if !open {
		return nil
	}
	return a.serveInSlice(ctx, a.reignTerm())
}

// follow starts the server as a replica of up.
func (a *Agent) follow(ctx context.Context, up upstream) error {
	a.status.enter(instanceapi.PhaseStarting, "")
	if err := a.remember(); err != nil {
		return err
	}
	if err := writeFile(a.volume.standby(), "", 0o600); err != nil {
		return err
	}
	a.replication.reset()
	if err := a.startServer(ctx, up, a.launch); err != nil {
		return err
	}
	a.runs(running{Role: instanceapi.RoleReplica, Upstream: up, server: a.server})
	return nil
}

// followAnother points a replica at another upstream. It works while the
// server is still starting: that may be what it waits for.
func (a *Agent) followAnother(_ context.Context, up upstream) error {
	if err := errors.Join(a.remember(), a.installInstance(up)); err != nil {
		return err
	}
	a.log.WithField("upstream", up.Instance).WithField("address", up.Address).Info("following another address")
	if err := a.server.signal(syscall.SIGHUP); err != nil {
		return err
	}
	now := a.runningAs()
	now.Upstream = up
	a.runs(now)
	return nil
}

// startServer puts the configuration in force and launches the server.
func (a *Agent) startServer(ctx context.Context, up upstream, launch func() (*server, error)) error {
	if err := killHolders(ctx, a.lock); err != nil {
		return err
	}
	if err := a.installConfig(ctx, up); err != nil {
		return err
	}
	certificates := a.credentials.hash() // before the server reads them, or newer ones
	server, err := launch()
	if err != nil {
		return err
	}
	server.credentials.Store(certificates)
	server.settings, server.raised = a.inForce, a.raisedNow()
	a.server = server
	a.noteWhetherRestartHelps()
	return nil
}

// needsTending says whether the server should be looked after now.
func (a *Agent) needsTending(now running) bool {
	const pauseBetween = time.Second
	since := time.Since(a.tended)
	switch {
	case now.Role == instanceapi.RoleReplica && len(a.raisedNow()) > 0:
		return since > 2*pauseBetween // what it has more of goes when the primary has less
	case now.Open && a.sliceIsWrong(a.reignTerm()):
		return since > pauseBetween
	}
	return since > tendEvery
}

// tend looks after the server: the slots, and on a primary the role of replicas and the
// EndpointSlice. It tries everything, whatever fails.
func (a *Agent) tend(ctx context.Context) error {
	a.tended = time.Now()
	const longest = 5 * time.Second
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	problems := []error{a.remember()}
	now := a.runningAs()
	if now.Open {
		problems = append(problems, a.serveInSlice(ctx, a.reignTerm()))
	}
	if now.Role == instanceapi.RoleReplica {
		problems = append(problems, a.keepSlotsLikePrimary(ctx, now.Upstream), a.keepDemands(ctx, now.Upstream))
	}
	if now.Open {
		a.roomier = a.findRoom(ctx)
	}
	if now.Role == instanceapi.RolePrimary {
		problems = append(problems, a.keepOwnSlots(ctx), keepReplicationRole(ctx, a.sql))
	}
	a.sayProblem(errors.Join(problems...))
	return nil
}

// sayProblem logs what tending finds wrong when it changes, not each time.
func (a *Agent) sayProblem(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text == a.problem {
		return
	}
	a.problem = text
	if err != nil {
		a.log.WithError(err).Warn("looking after the server: not everything worked")
		return
	}
	a.log.Info("looking after the server: everything works again")
}
