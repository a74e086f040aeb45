package instance

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lib/pq"

	"github.com/pgop/postgres-operator/pkg/backup"
	"github.com/pgop/postgres-operator/pkg/instance/walcall"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/postgres"
)

const (
	// fetchedAtOnce is how many objects of a backup are read at the same time, and
	// fetchedAhead how many WAL segments are there before recovery asks for them.
	fetchedAtOnce = 4
	fetchedAhead  = 6
	// recoveryStarts is how often a server is started that recovers, before the
	// restore has failed.
	recoveryStarts = 3
)

// restoreState is what an instance knows whose first database is made of a backup.
type restoreState struct {
	// recovery are the parameters of a server that recovers from an archive, and
	// walSource where it gets its WAL; nil: none does. Both are shared.
	recovery  atomic.Pointer[map[string]string]
	walSource atomic.Pointer[walSource]
	gaveUp    *givenUp
}

func (s *restoreState) recoveryNow() map[string]string {
	if parameters := s.recovery.Load(); parameters != nil {
		return *parameters
	}
	return nil
}

// finalError is a failure that trying again would only repeat, after hours maybe.
type finalError struct{ error }

func (e finalError) Unwrap() error { return e.error }

// lackError is that the archive lacks something, in words of its own.
type lackError struct{ error }

// Is makes it a backup.ErrNotFound.
func (lackError) Is(target error) bool { return target == backup.ErrNotFound }

// givenUp is a restore that has failed for good, with the bootstrap that asked for
// it.
type givenUp struct {
	bootstrap instanceapi.Bootstrap
	why       string
}

// on is why the restore that the configuration asks for is not tried again;
// empty: it is.
func (g *givenUp) on(b instanceapi.Bootstrap) string {
	if g == nil || !reflect.DeepEqual(g.bootstrap, b) {
		return ""
	}
	return g.why
}

// noteFinal takes note of a restore that has failed for good, and of one that needs
// what the archive does not have, or has damaged: that is tried again, should somebody
// put it back.
func (a *Agent) noteFinal(j *job) {
	if j.name != "restore" {
		return
	}
	lacks := errors.Is(j.err, backup.ErrNotFound) || errors.Is(j.err, backup.ErrDamaged) || errors.Is(j.err, backup.ErrNoBackup)
	if final := (finalError{}); errors.As(j.err, &final) {
		j.err = fmt.Errorf("%w (it is not tried again by itself; delete the pod to try again)", j.err)
		a.gaveUp = &givenUp{bootstrap: j.config.Config.Bootstrap, why: j.err.Error()}
	}
	if lacks || a.gaveUp != nil {
		why := j.err.Error()
		a.status.update(func(s *instanceapi.State) { s.RestoreFailed = why })
	}
}

// restore makes the first database of a backup: it leaves a complete data directory
// on a timeline of its own, and no server. When anything fails, what it made is
// deleted, since nobody has seen it.
func (a *Agent) restore(ctx context.Context, config instanceapi.Config) error {
	defer a.room.enter()()
	if a.failures == 0 {
		a.status.enter(instanceapi.PhaseBootstrapping, "looking for the backup")
		a.status.update(func(s *instanceapi.State) { s.RestoreFailed = "" })
	}
	return a.makeFirst(ctx, func() error { return a.makeOfBackup(ctx, config) })
}

// makeFirst makes a first database of what exists elsewhere. Where that fails, nothing
// is left of it.
func (a *Agent) makeFirst(ctx context.Context, make func() error) error {
	err := make()
	a.recovery.Store(nil)
	if err != nil {
		after := context.WithoutCancel(ctx)
		err = errors.Join(err, a.abandonServer(after), a.volume.wipeUnfinished())
		a.status.update(func(s *instanceapi.State) { s.Restored, s.RestoreTotal = 0, 0 })
	}
	return errors.Join(err, a.inspect(context.WithoutCancel(ctx)))
}

func (a *Agent) makeOfBackup(ctx context.Context, config instanceapi.Config) error {
	app, err := a.readOwner(ctx, config)
	if err != nil {
		return err
	}
	source, err := a.findSource(ctx, *config.Bootstrap.Restore)
	if err != nil {
		return err
	}
	if err := a.fitsVolume(source); err != nil {
		return err
	}
	if err := killHolders(ctx, a.lock); err != nil {
		return err
	}
	wal, err := a.volume.begin(byRestore)
	if err != nil {
		return err
	}
	if err := a.unpackBackup(ctx, source, wal); err != nil {
		return err
	}
	recovered, err := a.replayArchive(ctx, source)
	if err != nil {
		return err
	}
	if err := a.matchLogins(ctx, config.Bootstrap, app); err != nil {
		return err
	}
	return a.finishFirst(ctx, recovered)
}

// finishFirst stops the server that has recovered: it starts anew, with its own
// configuration and without an archive.
func (a *Agent) finishFirst(ctx context.Context, recovered instanceapi.Recovered) error {
	if err := a.stopServer(ctx); err != nil {
		return err
	}
	if err := errors.Join(os.RemoveAll(a.volume.fetched()), a.volume.sync()); err != nil {
		return fmt.Errorf("finish the database: %w", err)
	}
	_, err := a.volume.finish(identity{Origin: byRestore, Recovered: &recovered})
	return err
}

// restoreSource is the backup that is restored, and how far.
type restoreSource struct {
	repository *backup.Repository
	// chain are the backup and those that it goes on from, the full one first.
	chain  []backup.Record
	target backup.Target
	// timeline is what recovery_target_timeline is to be.
	timeline string
	gap      string
}

func (s restoreSource) record() backup.Record { return s.chain[len(s.chain)-1] }

// size is that of the data, in bytes; while it is put together from several backups,
// the volume holds it twice.
func (s restoreSource) size() (unpacked, needed int64) {
	for _, record := range s.chain {
		unpacked += record.Size
	}
	if len(s.chain) == 1 {
		return unpacked, unpacked
	}
	return unpacked, unpacked + s.chain[0].Size
}

// findSource finds the backup, and sees that all of it is there, before anything is
// written. It only reads, and so it can be tried again at little cost.
func (a *Agent) findSource(ctx context.Context, from instanceapi.Restore) (restoreSource, error) {
	target, err := backup.ParseTarget(backup.TargetSpec(from.Target))
	if err != nil {
		return restoreSource{}, err
	}
	store, prefix, err := newStore(a.kube, a.options.BackupMounts, from.Store)
	if err != nil {
		return restoreSource{}, err
	}
	owner, err := backup.ReadOwner(ctx, store, prefix)
	switch {
	case errors.Is(err, backup.ErrNotFound):
		return restoreSource{}, fmt.Errorf("there is no archive under %q in %s", prefix, store)
	case err != nil:
		return restoreSource{}, err
	case owner.Major != a.options.Major:
		return restoreSource{}, fmt.Errorf("the archive under %q in %s is of PostgreSQL %d and can't be restored by PostgreSQL %d: set spec.postgres.version to %d",
			prefix, store, owner.Major, a.options.Major, owner.Major)
	}
	repository := backup.NewRepository(store, prefix, owner)
	catalog, err := repository.ReadCatalog(ctx)
	if err != nil {
		return restoreSource{}, err
	}
	record, err := chooseBackup(catalog, from.ID, target)
	if err != nil {
		return restoreSource{}, err
	}
	s := restoreSource{repository: repository, target: target,
		timeline: backup.RecoveryTimeline(catalog, record), gap: backup.Gap(catalog, record)}
	if s.chain, err = backup.Chain(catalog.Records, record.ID); err != nil {
		return restoreSource{}, err
	}
	if err := repository.CheckBackup(ctx, s.chain); err != nil {
		return restoreSource{}, err
	}
	if s.gap != "" && target.IsEnd() {
		return restoreSource{}, lackError{fmt.Errorf("the archive lacks the WAL segment %s, and has later ones: what was committed from there on can't be restored; "+
			"put it back, or restore to a target before it", s.gap)}
	}
	return s, nil
}

// chooseBackup is the backup with that id, or without one the one from which the
// target is reached soonest.
func chooseBackup(catalog backup.Catalog, id string, target backup.Target) (backup.Record, error) {
	if id == "" {
		return backup.Choose(catalog, target)
	}
	for _, record := range catalog.Records {
		if record.ID == id {
			return record, backup.CheckTarget(record, target)
		}
	}
	for _, damaged := range catalog.Damaged {
		if damaged.ID == id {
			return backup.Record{}, damaged.Err
		}
	}
	for _, incomplete := range catalog.Incomplete {
		if incomplete == id {
			return backup.Record{}, fmt.Errorf("backup %s is not complete: it is being taken, has failed, or is being removed", id)
		}
	}
	return backup.Record{}, fmt.Errorf("backup %s: %w", id, backup.ErrNotFound)
}

// fitsVolume refuses a backup for which there is no room.
func (a *Agent) fitsVolume(s restoreSource) error {
	_, needed := s.size()
	_, free, err := volumeSize(a.options.Mount)
	if err != nil {
		return err
	}
	if uint64(needed) > free {
		return fmt.Errorf("backup %s takes %d bytes while it is restored, and %d are free on the volume: raise spec.storage.size", s.record().ID, needed, free)
	}
	return nil
}

// unpackBackup brings the data onto the volume.
func (a *Agent) unpackBackup(ctx context.Context, s restoreSource, wal string) error {
	total, _ := s.size()
	a.status.update(func(state *instanceapi.State) { state.Restored, state.RestoreTotal = 0, total })
	a.status.enter(instanceapi.PhaseBootstrapping, fmt.Sprintf("restoring backup %s to %s", s.record().ID, s.target))
	err := s.repository.RestoreBase(ctx, a.programs, s.chain, backup.RestoreOptions{
		Data: a.volume.data(), Work: a.volume.combined(), Parallel: fetchedAtOnce,
		Progress: func(done, _ int64) {
			a.status.update(func(state *instanceapi.State) { state.Restored = max(state.Restored, done) })
		},
	})
	if errors.Is(err, backup.ErrDamaged) {
		return finalError{err}
	}
	if err != nil {
		return err
	}
	a.status.update(func(state *instanceapi.State) { state.Restored = total })
	return a.volume.linkNewWAL(wal)
}

// replayArchive lets a server, closed to everybody, replay the archive's WAL to the target
// and open its own timeline there.
func (a *Agent) replayArchive(ctx context.Context, s restoreSource) (instanceapi.Recovered, error) {
	fetcher, err := backup.NewFetcher(s.repository, a.volume.fetched(), s.record().SegmentSize, fetchedAhead)
	if err != nil {
		return instanceapi.Recovered{}, err
	}
	source := &walSource{fetcher: fetcher}
	a.walSource.Store(source)
	defer func() {
		a.walSource.Store(nil)
		if err := fetcher.Close(); err != nil {
			a.log.WithError(err).Warn("removing fetched WAL failed")
		}
	}()
	command, err := restoreCommand()
	if err != nil {
		return instanceapi.Recovered{}, err
	}
	parameters := s.target.Parameters()
	parameters["recovery_target_timeline"] = s.timeline
	parameters["restore_command"] = command
	// The history of its own timeline is to be archived, and not what it restores.
	parameters["archive_mode"] = "on"
	return a.recoverData(ctx, recovering{
		parameters: parameters, words: source.words, what: "backup " + s.record().ID,
		whyEnded: func() error { return s.whyEnded(a.server.log.String(), source) },
	})
}

// recovering is how a server recovers to a target, and opens its own timeline there.
type recovering struct {
	// parameters are the server's, and settings win over all others.
	parameters map[string]string
	settings   []string
	// what it recovers from, and how far it is, for people.
	what  string
	words func() string
	// whyEnded is why a server that has ended would end in the same way again; nil: it
	// may not.
	whyEnded func() error
}

// recoverData starts a server that recovers, and returns once it has, with where that
// ended. A server that ends is started again; what would only end again is a finalError.
func (a *Agent) recoverData(ctx context.Context, r recovering) (instanceapi.Recovered, error) {
	a.recovery.Store(&r.parameters)
	for start := 1; ; start++ {
		if err := a.startRecovery(ctx, r.settings); err != nil {
			return instanceapi.Recovered{}, err
		}
		err := a.awaitRecovery(ctx, r.words)
		switch {
		case err == nil:
			return a.askRecovered(ctx)
		case ctx.Err() != nil:
			return instanceapi.Recovered{}, err
		}
		if final := r.whyEnded(); final != nil {
			return instanceapi.Recovered{}, finalError{final}
		}
		if start == recoveryStarts {
			return instanceapi.Recovered{}, finalError{fmt.Errorf("recover from %s: %w", r.what, err)}
		}
		a.log.WithError(err).Warn("the recovering server has ended; starting it again")
	}
}

// askRecovered asks a server that has recovered where that ended. One that has restarted
// since, with nothing to replay, knows where its own timeline is.
func (a *Agent) askRecovered(ctx context.Context) (instanceapi.Recovered, error) {
	var recovered instanceapi.Recovered
	var end string
	var last sql.NullTime
	if err := a.sql.Row(ctx, "SELECT coalesce(pg_last_wal_replay_lsn(), pg_current_wal_lsn()), pg_last_xact_replay_timestamp()", &end, &last); err != nil {
		return recovered, fmt.Errorf("ask where recovery has ended: %w", err)
	}
	var err error
	if recovered.LSN, err = postgres.ParseLSN(end); err != nil {
		return recovered, fmt.Errorf("ask where recovery has ended: %w", err)
	}
	recovered.LastCommit = last.Time
	return recovered, nil
}

// restoreCommand is this program, called by the server.
func restoreCommand() (string, error) {
	program, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find the program for restore_command: %w", err)
	}
	return "'" + strings.ReplaceAll(strings.ReplaceAll(program, "'", `'\''`), "%", "%%") + "' " + walcall.Restore + " %f %p", nil
}

// startRecovery starts the server closed to everybody but the agent, and to that one
// until the end: a server that answers readers while it recovers would need
// parameters that may change on the way, and wait for its readers.
func (a *Agent) startRecovery(ctx context.Context, settings []string) error {
	a.replication.reset()
	return a.startServer(ctx, upstream{}, func() (*server, error) {
		if err := a.config.installHBA(postgres.RenderClosedHBA()); err != nil {
			return nil, err
		}
		return a.launchWith(append([]string{"hot_standby=off"}, settings...)...)
	})
}

// awaitRecovery returns when the server is out of recovery, and tells meanwhile how
// far it is.
func (a *Agent) awaitRecovery(ctx context.Context, words func() string) error {
	const interval = 5 * time.Second
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	a.status.enter(instanceapi.PhaseBootstrapping, words())
	for {
		select {
		case <-a.server.ready:
			return nil
		case <-a.server.exited:
			return a.server.exitError()
		case <-ctx.Done():
			return fmt.Errorf("wait for the end of recovery: %w", context.Cause(ctx))
		case <-ticker.C:
			a.status.enter(instanceapi.PhaseBootstrapping, words())
		}
	}
}

// whyEnded is why a server has ended that recovers, where another start would end in
// the same way; nil: it may not.
func (s restoreSource) whyEnded(log string, source *walSource) error {
	if err := source.damaged(); err != nil {
		return err
	}
	end := backup.ParseRecoveryEnd(log)
	if !end.Missed {
		return nil
	}
	last := fmt.Sprintf("nothing was committed after the backup ended at %s", s.record().StoppedAt.UTC().Format(time.RFC3339Nano))
	if !end.LastCommit.IsZero() {
		last = fmt.Sprintf("the last transaction that can be reached is of %s", end.LastCommit.UTC().Format(time.RFC3339Nano))
	}
	if s.gap != "" {
		last += fmt.Sprintf(", since the archive lacks the WAL segment %s", s.gap)
	}
	return fmt.Errorf("the archive ends before target %s: %s; restore to a target that is not later, or to none, which is the end of the archive", s.target, last)
}

// matchLogins makes the roles of the restored database those of this cluster.
func (a *Agent) matchLogins(ctx context.Context, b instanceapi.Bootstrap, app login) error {
	a.status.enter(instanceapi.PhaseBootstrapping, "matching logins")
	if err := keepReplicationRole(ctx, a.sql); err != nil {
		return err
	}
	var role, database bool
	query := "SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = " + pq.QuoteLiteral(app.User) + "), EXISTS (SELECT FROM pg_database WHERE datname = " +
		pq.QuoteLiteral(b.Database) + ")"
	if err := a.sql.Row(ctx, query, &role, &database); err != nil {
		return fmt.Errorf("look for role %s and database %s: %w", app.User, b.Database, err)
	}
	if !database {
		a.log.WithField("database", b.Database).Warn("what the database was made of has none of that name; spec.bootstrap names it")
	}
	if !role {
		return createRole(ctx, a.sql, app)
	}
	password, err := app.Password.clause("")
	if err != nil {
		return err
	}
	if err := a.sql.Exec(ctx, "ALTER ROLE "+pq.QuoteIdentifier(app.User)+" LOGIN "+password); err != nil {
		return fmt.Errorf("let role %s log in: %w", app.User, err)
	}
	return nil
}

// fetched is where WAL lies that recovery will ask for. It is on the volume of
// pg_wal.
func (v volume) fetched() string {
	if v.walMount != "" {
		return filepath.Join(v.walDir(), "fetched")
	}
	return filepath.Join(v.dir(), "fetched")
}

// combined is where backups lie while they are put together.
func (v volume) combined() string { return filepath.Join(v.dir(), "combining") }
