package instance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"time"

	"github.com/lib/pq"

	"github.com/pgop/postgres-operator/pkg/backup"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/postgres"
	"github.com/pgop/postgres-operator/pkg/postgres/pgrun"
)

var (
	errNotAsked   = errors.New("nobody asks for the backup any more")
	errOtherStore = errors.New("spec.backup.store has changed meanwhile")
	errNoStore    = errors.New("spec.backup names no store")
	errServerGone = errors.New("the server has ended")
	errAgentEnds  = errors.New("the pod is being stopped")
)

// backupTaker is the base backup that this agent takes, or took last. It runs beside
// whatever job runs, since it may take hours.
type backupTaker struct {
	mu    sync.Mutex
	state *instanceapi.BackupState
	// in is the store that it goes to, and cancel ends it; nil: none runs.
	in     instanceapi.Store
	cancel context.CancelCauseFunc
	ended  chan struct{}
}

// report is how far the backup is; nil: none was asked for yet.
func (b *backupTaker) report() *instanceapi.BackupState {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state == nil {
		return nil
	}
	report := *b.state
	return &report
}

func (b *backupTaker) update(change func(*instanceapi.BackupState)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change(b.state)
}

// backupStep is what is to be done about base backups.
type backupStep struct {
	begin bool
	// cancel is why the one that runs is to end; nil: it goes on.
	cancel error
}

// stepBackup decides what is to be done, from what is asked of this life of this
// instance, and the backup that runs (by its id, empty: none) or was the last.
func stepBackup(c instanceapi.Config, me, life, running, last string, in instanceapi.Store) backupStep {
	asked := c.TakeBackup
	mine := asked != nil && asked.Instance == me && asked.Life == life
	switch {
	case running != "" && (!mine || asked.ID != running):
		return backupStep{cancel: errNotAsked}
	case running != "" && (c.Backups == nil || !reflect.DeepEqual(c.Backups.Store, in)):
		return backupStep{cancel: errOtherStore}
	case running != "" || !mine || asked.ID == last:
		return backupStep{}
	}
	return backupStep{begin: true}
}

// tendBackup begins the base backup that is asked for, or ends the one that is not
// any more. It never blocks.
func (a *Agent) tendBackup(ctx context.Context) {
	known := a.view.knownConfig()
	if !known.Known {
		return
	}
	b := a.backups
	b.mu.Lock()
	defer b.mu.Unlock()
	running, last := "", ""
	if b.state != nil {
		last = b.state.ID
	}
	if b.cancel != nil {
		running = last
	}
	step := stepBackup(known.Config, a.options.Instance, a.life, running, last, b.in)
	if step.cancel != nil {
		b.cancel(step.cancel)
	}
	if !step.begin {
		return
	}
	asked := *known.Config.TakeBackup
	b.state = &instanceapi.BackupState{ID: asked.ID}
	if known.Config.Backups == nil {
		b.state.Failed = errNoStore.Error()
		return
	}
	to := *known.Config.Backups
	ctx, b.cancel = context.WithCancelCause(ctx)
	b.in, b.ended = to.Store, make(chan struct{})
	go a.takeBackup(ctx, asked, to, b.ended)
}

// stopBackup ends the base backup that runs, and returns when it has: the server is
// to stop.
func (a *Agent) stopBackup() {
	b := a.backups
	b.mu.Lock()
	cancel, ended := b.cancel, b.ended
	b.mu.Unlock()
	if cancel == nil {
		return
	}
	cancel(errAgentEnds)
	const longest = 5 * time.Second // leftovers in the store are retention's
	select {
	case <-ended:
	case <-time.After(longest):
	}
}

// takeBackup takes a base backup, and says how it has ended.
func (a *Agent) takeBackup(ctx context.Context, asked instanceapi.TakeBackup, to instanceapi.Backups, ended chan struct{}) {
	defer close(ended)
	defer a.room.enter()()
	log := a.log.WithField("backup", asked.ID)
	log.Info("taking a base backup")
	record, err := a.takeBase(ctx, asked, to)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = fmt.Errorf("%w (%w)", cause, err)
	}
	b := a.backups
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cancel(nil)
	b.cancel = nil
	if err != nil {
		log.WithError(err).Error("the base backup has failed")
		b.state.Failed = err.Error()
		return
	}
	log.WithField("size", record.Size).WithField("stored", record.StoredSize).Info("the base backup is complete")
	info := backupInfo(record)
	b.state.Complete, b.state.AwaitsWAL = &info, false
}

func (a *Agent) takeBase(ctx context.Context, asked instanceapi.TakeBackup, to instanceapi.Backups) (backup.Record, error) {
	running, err := a.awaitServer(ctx)
	if err != nil {
		return backup.Record{}, err
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	go func() {
		select {
		case <-running.server.exited:
			end(errServerGone)
		case <-ctx.Done():
		}
	}()
	d, err := a.deposits.deposit(to.Store, a.status.snapshot().SystemID)
	if err != nil {
		return backup.Record{}, err
	}
	o := a.baseOptions(asked, to)
	if asked.Parent != "" {
		parent, err := d.repository.Record(ctx, asked.Parent)
		if err != nil {
			return backup.Record{}, err
		}
		o.Parent = &parent
	}
	if err := makeEmpty(o.TempDir); err != nil {
		return backup.Record{}, err
	}
	defer os.RemoveAll(o.TempDir) // what stays there goes before the next one
	sql, err := a.openServer()
	if err != nil {
		return backup.Record{}, err
	}
	defer sql.Close()
	o.SQL = sql
	if running.Role == instanceapi.RoleReplica {
		if err := a.awaitRestartpoint(ctx, sql); err != nil {
			return backup.Record{}, err
		}
	}
	if o.Parent != nil {
		covers, err := hasSummaries(ctx, sql, o.Parent.StartLSN())
		if err != nil {
			return backup.Record{}, err
		}
		if !covers {
			a.log.WithField("backup", asked.ID).Warn("the server lacks summaries of WAL since the backup to go on from: a full one is taken")
			o.Parent = nil
		}
	}
	record, err := d.repository.TakeBase(ctx, a.programs, o)
	if err != nil && ctx.Err() == nil {
		// A server that ends is seen a moment later than what comes of it.
		const moment = time.Second
		select {
		case <-ctx.Done():
		case <-time.After(moment):
		}
	}
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, errServerGone) {
		err = fmt.Errorf("%w: %w", cause, err)
	}
	return record, err
}

// hasSummaries says whether the server has the WAL summaries since a position that an
// incremental backup needs, as far as it has made any. One that was cloned or restored since
// then has none from before, and old ones are removed (wal_summary_keep_time).
func hasSummaries(ctx context.Context, sql *pgrun.Server, since postgres.LSN) (bool, error) {
	query := `WITH RECURSIVE made AS MATERIALIZED (SELECT start_lsn, end_lsn FROM pg_available_wal_summaries()),
		covered AS (SELECT ` + pq.QuoteLiteral(since.String()) + `::pg_lsn AS until
			UNION SELECT end_lsn FROM covered JOIN made ON start_lsn <= until AND end_lsn > until)
		SELECT (SELECT max(until) FROM covered) >= summarized_lsn FROM pg_get_wal_summarizer_state()`
	var covers bool
	if err := sql.Row(ctx, query, &covers); err != nil {
		return false, fmt.Errorf("look for WAL summaries since %s: %w", since, err)
	}
	return covers, nil
}

// baseOptions are how the server is backed up: over the local socket, since it is in
// the same pod.
func (a *Agent) baseOptions(asked instanceapi.TakeBackup, to instanceapi.Backups) backup.BaseOptions {
	return backup.BaseOptions{
		ID: asked.ID, Name: asked.Name, Cluster: a.options.owner(), Instance: a.options.Instance,
		ConnInfo: postgres.ConnInfo{Host: a.options.RunDir, Port: a.options.Port, User: postgres.Superuser,
			Options: map[string]string{"application_name": a.options.Instance + "-backup", "sslmode": "disable"}}.KeyValue(),
		SwitchWAL: a.switchWAL, MaxRate: to.MaxRate, TempDir: filepath.Join(a.volume.dir(), "backup.tmp"), Now: time.Now,
		Progress: func(p backup.Progress) {
			a.backups.update(func(s *instanceapi.BackupState) { s.Done, s.Estimated, s.AwaitsWAL = p.Done, p.Estimated, p.AwaitsWAL })
		},
	}
}

// awaitServer waits a little for a server that can be backed up: it may be
// restarting.
func (a *Agent) awaitServer(ctx context.Context) (running, error) {
	const longest = 30 * time.Second
	waiting, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	for {
		now := a.runningAs()
		if now.answers() && (now.Role == instanceapi.RoleReplica || now.Reigning) {
			return now, nil
		}
		if pause(waiting, 100*time.Millisecond) != nil {
			return running{}, errors.New("the instance's server does not run")
		}
	}
}

// makeEmpty makes an empty directory.
func makeEmpty(path string) error {
	if err := os.RemoveAll(path); err != nil {
		return fmt.Errorf("empty directory: %w", err)
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	return nil
}

// backupInfo is what people are told of a backup.
func backupInfo(r backup.Record) instanceapi.BackupInfo {
	info := instanceapi.BackupInfo{
		ID: r.ID, Name: r.Name, Incremental: r.Kind == backup.Incremental, Parent: r.Parent, Instance: r.Instance, Version: r.Version,
		Timeline: r.Timeline(), StartLSN: r.StartLSN().String(), StopLSN: r.StopLSN().String(), StartedAt: r.StartedAt, StoppedAt: r.StoppedAt,
		Size: r.Size, StoredSize: r.StoredSize,
	}
	if segments := r.Segments(); len(segments) > 0 {
		info.FirstWAL, info.LastWAL = segments[0], segments[len(segments)-1]
	}
	return info
}
