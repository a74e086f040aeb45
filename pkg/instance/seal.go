package instance

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/postgres"
	"github.com/pgop/postgres-operator/pkg/postgres/pgrun"
)

// position is the end of the WAL that an instance has, and its timeline.
type position struct {
	Timeline uint32
	End      postgres.LSN
}

// sealState is how far this instance has given up earlier primaries.
type sealState struct {
	// sealed is the highest term on the volume; cut the highest for which the WAL
	// receiver was cut in this life of the agent, sealing the one for which it is
	// to be, and position what was measured after the cut.
	sealed, cut, sealing uint64
	position             position
}

// mustSeal says whether an election waits for this instance to be cut off.
func (a *Agent) mustSeal() bool { return a.sealing > a.cut && a.sealCounts() }

// sealCounts says whether a vote for that term may still count: once a reign has it,
// none does. What keeps the instance from being cut off, such as a server that does not
// start, may need that reign's primary to heal. Also while it is being cut off.
func (a *Agent) sealCounts() bool { return a.sealing > a.view.knownLease().Record.Term }

// seal remembers the term on the volume, cuts this instance's WAL receiver and
// measures how far its WAL goes. Only then may its vote leave.
func (a *Agent) seal(ctx context.Context, term uint64) error {
	if err := a.volume.writeSealed(term); err != nil {
		return err
	}
	// A holder has to know, even if this goes no further: this instance follows none
	// of an older term.
	a.sealed = max(a.sealed, term)
	sealed := a.sealed
	a.status.update(func(s *instanceapi.State) { s.Sealed = sealed })
	if err := a.cutReceiver(ctx); err != nil {
		return err
	}
	measured, err := a.measure(ctx)
	if err != nil {
		return err
	}
	a.position, a.cut = measured, term
	a.log.WithField("term", term).WithField("timeline", measured.Timeline).WithField("end", measured.End.String()).Info("sealed: this instance receives nothing more from the primary before")
	return nil
}

// cutReceiver ends streaming and keeps it from beginning again. A setting that
// is cleared is not enough: a receiver goes on for many seconds while replay is
// paused or in conflict. One that can't be ended in time ends with the server.
func (a *Agent) cutReceiver(ctx context.Context) error {
	if a.server == nil {
		return a.startAlone(ctx)
	}
	const longest = time.Second
	quick, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	err := a.endReceiver(quick)
	if err == nil {
		now := a.runningAs()
		now.Upstream = upstream{}
		a.runs(now)
		return nil
	}
	if ctx.Err() != nil {
		return fmt.Errorf("cut the WAL receiver: %w", context.Cause(ctx))
	}
	a.log.WithError(err).Warn("the WAL receiver does not end; stopping the server")
	if err := a.killServer(ctx); err != nil {
		return err
	}
	return a.startAlone(ctx)
}

// startAlone starts the server in recovery without anybody to follow.
func (a *Agent) startAlone(ctx context.Context) error {
	if err := a.follow(ctx, upstream{}); err != nil {
		return err
	}
	return a.server.waitReady(ctx)
}

func (a *Agent) endReceiver(ctx context.Context) error {
	if err := a.server.waitReady(ctx); err != nil {
		return err
	}
	if err := a.installInstance(upstream{}); err != nil {
		return err
	}
	if err := a.reload(ctx); err != nil {
		return err
	}
	fresh, err := pgrun.Open(a.options.RunDir, a.options.Port, "postgres")
	if err != nil {
		return err
	}
	defer fresh.Close()
	for {
		var cleared bool
		var receivers int
		if err := fresh.Row(ctx, `SELECT current_setting('primary_conninfo') = '' AND current_setting('restore_command') = '',
			(SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE backend_type = 'walreceiver')`, &cleared, &receivers); err != nil {
			return fmt.Errorf("end the WAL receiver: %w", err)
		}
		if cleared && receivers == 0 {
			return nil
		}
		if err := pause(ctx, 5*time.Millisecond); err != nil {
			return fmt.Errorf("end the WAL receiver: %w", err)
		}
	}
}

// measure finds the end of the WAL that this instance has: the larger of what
// was received and replayed. What a server has received in an earlier life it
// only knows once it has replayed it.
func (a *Agent) measure(ctx context.Context) (position, error) {
	for {
		end, whole, err := a.endOfWAL(ctx)
		if err != nil {
			return position{}, err
		}
		if whole {
			files, err := a.volume.walFiles()
			if err != nil {
				return position{}, err
			}
			timeline, err := a.timelineAt(ctx, end, files)
			return position{Timeline: timeline, End: end}, err
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return position{}, fmt.Errorf("measure the WAL: %w", err)
		}
	}
}

// endOfWAL asks a server in recovery how far its WAL goes, and whether that is
// all of it.
func (a *Agent) endOfWAL(ctx context.Context) (end postgres.LSN, whole bool, err error) {
	var received, replayed sql.NullString
	var waits bool
	if err := a.sql.Row(ctx, `SELECT pg_last_wal_receive_lsn()::text, pg_last_wal_replay_lsn()::text,
		EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'startup'
			AND wait_event IN ('RecoveryWalStream', 'RecoveryRetrieveRetryInterval'))`, &received, &replayed, &waits); err != nil {
		return 0, false, fmt.Errorf("ask for the end of the WAL: %w", err)
	}
	for _, text := range []sql.NullString{received, replayed} {
		if !text.Valid {
			continue
		}
		at, err := postgres.ParseLSN(text.String)
		if err != nil {
			return 0, false, err
		}
		end = max(end, at)
	}
	// pg_last_wal_receive_lsn begins as soon as a receiver has run, and then what
	// was on disk before had been replayed.
	return end, waits || received.Valid, nil
}

// timelineAt is the timeline of the WAL that ends at a position.
func (a *Agent) timelineAt(ctx context.Context, end postgres.LSN, files []string) (uint32, error) {
	if timeline := postgres.TimelineAt(files, end, a.segmentSize); timeline != 0 {
		return timeline, nil
	}
	// The segment is gone, or was never begun.
	control, err := a.programs.ControlData(ctx, a.volume.data())
	return control.Timeline, err
}

// walFiles are the names of the files in pg_wal.
func (v volume) walFiles() ([]string, error) {
	entries, err := os.ReadDir(v.inside("pg_wal"))
	if err != nil {
		return nil, fmt.Errorf("list the WAL: %w", err)
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names, nil
}

// history are the ancestors of a timeline, as pg_wal tells.
func (v volume) history(timeline uint32) ([]postgres.Switch, error) {
	text, err := os.ReadFile(v.inside("pg_wal/" + postgres.HistoryFile(timeline)))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil // the first has none
	}
	if err != nil {
		return nil, fmt.Errorf("read the history of timeline %d: %w", timeline, err)
	}
	return postgres.ParseHistory(string(text))
}
