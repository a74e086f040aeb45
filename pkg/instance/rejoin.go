package instance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/postgres"
)

// rejoinEvery is how often a replica that does not stream finds out why.
const rejoinEvery = 2 * time.Second

// rejoinState is what a replica knows that does not stream.
type rejoinState struct {
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
}

// needsRejoin says whether the replica should find out why it does not stream.
func (a *Agent) needsRejoin(now running) bool {
	return now.Role == instanceapi.RoleReplica && !now.Upstream.isZero() && now.answers() && time.Since(a.rejoinAt) >= rejoinEvery &&
		!a.observer.recent().Streaming
}

// remedy is what makes a replica fit to stream again.
type remedy struct {
	rewind, clone bool
	why           string
}

func (r remedy) isNeeded() bool { return r.rewind || r.clone }

// diagnose finds out why a replica does not stream. It is to be rewound if it
// has WAL that is none of the primary's past, and cloned again if the primary
// no longer has the WAL that it needs.
func (a *Agent) diagnose(ctx context.Context, up upstream) error {
	a.rejoinAt = time.Now()
	asking, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	primary, knows := a.askPrimary(asking, up)
	if !knows {
		return nil // it is not there yet; the next look asks again
	}
	mine, err := a.measureReplay(asking)
	if err != nil {
		return err
	}
	diverges, why := postgres.Diverges(mine.Timeline, mine.End, primary.Timeline, primary.History)
	switch {
	case diverges && primary.Checkpointed == primary.Timeline:
		a.remedy = remedy{rewind: true, why: why}
	case diverges:
		a.status.enter(instanceapi.PhaseRunning, why+"; it is rewound after the primary's checkpoint")
	case primary.OldestWAL > mine.End:
		if a.missedWAL++; a.missedWAL >= 3 { // it may just have begun to stream
			a.remedy = remedy{clone: true, why: fmt.Sprintf("it needs WAL from %s on, and %s has none before %s", mine.End, up.Instance, primary.OldestWAL)}
		}
		return nil
	}
	a.missedWAL = 0
	return nil
}

// askPrimary asks the primary of this reign for its past; false: it does not say.
func (a *Agent) askPrimary(ctx context.Context, up upstream) (instanceapi.Peer, bool) {
	primary, err := a.peers.peer(ctx, up.Instance)
	return primary, err == nil && primary.Role == instanceapi.RolePrimary && primary.Timeline != 0 &&
		primary.Term == a.view.knownLease().Record.Term
}

// diagnoseStopped finds out whether a replica's server does not start because its
// data has left the primary's past: once it has seen where timelines parted, as its
// receiver has asked the primary, it refuses to. After that the start is tried again.
func (a *Agent) diagnoseStopped(ctx context.Context, up upstream) error {
	a.cantStart = false
	asking, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	primary, knows := a.askPrimary(asking, up)
	if !knows {
		return nil
	}
	control, err := a.programs.ControlData(ctx, a.volume.data())
	if err != nil {
		return err
	}
	// The checkpoint itself must be in the past, not only what comes before it.
	diverges, why := postgres.Diverges(control.Timeline, control.CheckpointLSN+1, primary.Timeline, primary.History)
	if !diverges && control.MinRecoveryTimeline != 0 {
		diverges, why = postgres.Diverges(control.MinRecoveryTimeline, control.MinRecoveryLSN, primary.Timeline, primary.History)
	}
	if diverges && primary.Checkpointed == primary.Timeline {
		a.remedy = remedy{rewind: true, why: why}
	}
	return nil
}

// cure applies a remedy.
func (a *Agent) cure(ctx context.Context, up upstream, r remedy) error {
	if r.rewind {
		return a.rewind(ctx, up, r.why)
	}
	return a.cloneAgain(ctx, r.why)
}

// measureReplay is how far this replica has replayed: what it has received and
// not replayed may go.
func (a *Agent) measureReplay(ctx context.Context) (position, error) {
	var replayed string
	if err := a.sql.Row(ctx, "SELECT coalesce(pg_last_wal_replay_lsn()::text, '0/0')", &replayed); err != nil {
		return position{}, fmt.Errorf("ask for the end of replay: %w", err)
	}
	end, err := postgres.ParseLSN(replayed)
	if err != nil {
		return position{}, err
	}
	files, err := a.volume.walFiles()
	if err != nil {
		return position{}, err
	}
	timeline, err := a.timelineAt(ctx, end, files)
	return position{Timeline: timeline, End: end}, err
}

// rewind takes back what this instance has and the primary has not, and leaves
// the data ready to follow. If it fails, the data is moved aside and cloned
// again.
func (a *Agent) rewind(ctx context.Context, up upstream, why string) error {
	a.log.WithField("upstream", up.Instance).WithField("why", why).Warn("rewinding this instance, which has left the primary's past")
	a.status.enter(instanceapi.PhaseRewinding, why)
	if err := a.stopServer(ctx); err != nil {
		return err
	}
	err := a.rewindData(ctx, up)
	if err != nil {
		a.log.WithError(err).Error("rewinding failed; the data is moved aside and cloned again")
	}
	return errors.Join(err, a.inspect(context.WithoutCancel(ctx)))
}

func (a *Agent) rewindData(ctx context.Context, up upstream) error {
	if err := a.volume.beginRewind(); err != nil {
		return err
	}
	source := conninfo(a.options, a.serverFiles(), up, a.options.Instance+"-rewind", "postgres")
	if err := a.programs.Rewind(ctx, a.volume.data(), source, a.config.serverConf()); err != nil {
		return err
	}
	if err := writeFile(a.volume.standby(), "", 0o600); err != nil {
		return err
	}
	if err := a.volume.sync(); err != nil {
		return err
	}
	_, err := a.volume.finish(identity{Origin: byRewind})
	return err
}

// cloneAgain gives the data up: the loop clones.
func (a *Agent) cloneAgain(ctx context.Context, why string) error {
	a.missedWAL = 0
	a.log.WithField("why", why).Warn("cloning this instance again")
	a.status.enter(instanceapi.PhaseCloning, why)
	if err := a.stopServer(ctx); err != nil {
		return err
	}
	path, err := a.volume.giveUp(time.Now())
	if err != nil {
		return err
	}
	a.log.WithField("path", path).Warn("moved the data directory aside")
	return a.inspect(context.WithoutCancel(ctx))
}
