package instance

import (
	"context"
	"fmt"
	"time"

	"github.com/pgop/postgres-operator/pkg/election"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/postgres"
)

// promote makes a replica, which has been elected, the primary. Its own readers
// go first: replay may wait for them.
func (a *Agent) promote(ctx context.Context, open bool) error {
	began := time.Now()
	a.status.enter(instanceapi.PhasePromoting, "")
	a.replication.beginWith(a.electionSettings())
	if err := a.remember(); err != nil {
		return err
	}
	if err := a.server.waitReady(ctx); err != nil {
		return err
	}
	hba := a.inForce.HBA
	if !open {
		hba = postgres.RenderReplicationHBA()
	}
	if err := a.config.installHBA(hba); err != nil {
		return err
	}
	a.raise(nil) // a primary has what it is given, from its next start on
	a.noteWhetherRestartHelps()
	if err := a.installInstance(upstream{}); err != nil {
		return err
	}
	if err := a.reload(ctx); err != nil {
		return err
	}
	if err := a.sql.Exec(ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()`); err != nil {
		return fmt.Errorf("end sessions of readers: %w", err)
	}
	if err := a.sql.Exec(ctx, "SELECT pg_wal_replay_resume() WHERE pg_is_wal_replay_paused()"); err != nil {
		return fmt.Errorf("resume replay: %w", err)
	}
	if err := a.volume.skipTimelines(a.position.Timeline, a.view.knownLease().Record.Timeline); err != nil {
		return err
	}
	if !a.mayLead() {
		return errFenced
	}
	if err := a.sql.Exec(ctx, "SELECT pg_promote(false) WHERE pg_is_in_recovery()"); err != nil {
		return fmt.Errorf("promote: %w", err)
	}
	if err := a.awaitWriting(ctx); err != nil {
		return err
	}
	if err := a.keepOwnSlots(ctx); err != nil {
		a.log.WithError(err).Warn("making the replication slots failed; it is tried again")
	}
	now := a.runningAs()
	now.Role, now.Upstream, now.Open, now.Reigning, now.Term = instanceapi.RolePrimary, upstream{}, open, true, a.reignTerm()
	a.runs(now)
	a.log.WithField("took", time.Since(began).Round(time.Millisecond).String()).Info("promoted")
	if !open {
		return nil
	}
	return a.welcome(ctx)
}

// skipTimelines keeps a promotion from taking the number of a timeline after own, up
// to the newest that is known. A replica that was promoted by force may not have
// followed the last primary: two timelines of one number can't be told apart, neither
// by that primary when it comes back nor in the archive.
func (v volume) skipTimelines(own, newest uint32) error {
	const first = 1
	for timeline := max(own, first) + 1; timeline <= newest; timeline++ {
		path := v.inside("pg_wal/" + postgres.HistoryFile(timeline))
		if exists(path) {
			continue // its own past, or that of a primary that it has followed
		}
		if err := writeFile(path, postgres.UnusedHistory, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func (a *Agent) awaitWriting(ctx context.Context) error {
	for {
		var recovers bool
		if err := a.sql.Row(ctx, "SELECT pg_is_in_recovery()", &recovers); err != nil {
			return fmt.Errorf("wait for the promotion: %w", err)
		}
		if !recovers {
			return nil
		}
		if err := pause(ctx, 5*time.Millisecond); err != nil {
			return fmt.Errorf("wait for the promotion: %w", err)
		}
	}
}

// open lets clients into a primary that has been closed to them so far.
func (a *Agent) open(ctx context.Context) error {
	if err := a.openUp(ctx); err != nil {
		return err
	}
	now := a.runningAs()
	now.Open, now.Term = true, a.reignTerm()
	a.runs(now)
	return a.welcome(ctx)
}

// welcome leads clients to this primary, and then sees to what can wait: until
// the checkpoint, nobody can rewind to follow it.
func (a *Agent) welcome(ctx context.Context) error {
	a.status.enter(instanceapi.PhaseRunning, "")
	err := a.serveInSlice(ctx, a.reignTerm())
	go a.checkpointAfterPromotion()
	return err
}

func (a *Agent) checkpointAfterPromotion() {
	const longest = 5 * time.Minute
	ctx, cancel := context.WithTimeout(context.Background(), longest)
	defer cancel()
	if err := a.checkpoint(ctx); err != nil {
		a.log.WithError(err).Warn("the checkpoint after taking over failed; the server makes one by itself")
	}
}

// isPreparing says whether this instance reigns and has not let clients in yet.
func (a *Agent) isPreparing() bool {
	now := a.runningAs()
	return now.Role == instanceapi.RolePrimary && now.Reigning && !now.Open
}

// reignTerm is the term in which this instance leads.
func (a *Agent) reignTerm() uint64 { return a.leading.Load() }

func (a *Agent) electionSettings() election.Settings {
	return electionSettings(a.view.knownConfig().Config.HA)
}
