package instance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/pgop/postgres-operator/pkg/backup"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/postgres/pgrun"
)

const (
	// provingTries is how often a backup is fetched that could not be, though nothing
	// that was read is wrong, and provingPause how long it takes to try again.
	provingTries = 3
	provingPause = time.Minute
	// configPatience is how long the cluster's configuration may take to come.
	configPatience = time.Minute
)

// aloneSettings are those of a server that only proves a backup. Nothing that the
// database itself does at a start may reach out: a copy's subscription would take what
// the publisher keeps for the original, and its workers would run the original's jobs
// again. What it writes is thrown away.
func aloneSettings(major int) []string {
	settings := []string{
		"listen_addresses=", "ssl=off", "archive_mode=off", "max_worker_processes=0", "max_logical_replication_workers=0",
		"autovacuum=off", "fsync=off",
	}
	const eventTriggersSince = 17
	if major >= eventTriggersSince {
		settings = append(settings, "event_triggers=off")
	}
	return settings
}

// Prove restores the backup with that id, replays all WAL of the archive and reads
// every table and index of every database. It leaves no server, and data that is of no
// use to anybody. The archive is only read. It returns an error as soon as ctx ends.
func (a *Agent) Prove(ctx context.Context, id string) (instanceapi.Proof, error) {
	if !a.options.Alone {
		return instanceapi.Proof{}, errors.New("prove a backup: this agent is that of an instance")
	}
	beside, stop := context.WithCancel(ctx)
	var group sync.WaitGroup
	defer group.Wait()
	defer stop()
	defer a.deposits.close()
	defer a.room.enter()()
	if err := a.listenForWAL(beside, &group); err != nil {
		return instanceapi.Proof{}, err
	}
	if os.Getpid() == 1 {
		group.Go(func() { a.reapOrphans(beside) })
	}
	group.Go(func() { a.kube.Watch(beside, a.view) })

	until, err := a.prove(ctx, id)
	if a.lock != nil {
		err = errors.Join(err, a.abandonServer(context.WithoutCancel(ctx)), a.lock.Close())
	}
	if cause := context.Cause(ctx); cause != nil {
		return instanceapi.Proof{}, fmt.Errorf("prove backup %s: %w", id, cause)
	}
	if err != nil {
		return instanceapi.Proof{Failed: err.Error()}, nil
	}
	return instanceapi.Proof{Until: until}, nil
}

// prove returns when the last transaction was committed that was restored. The server
// may run on.
func (a *Agent) prove(ctx context.Context, id string) (time.Time, error) {
	backups, err := a.awaitBackups(ctx)
	if err != nil {
		return time.Time{}, err
	}
	if err := a.prepare(ctx); err != nil {
		return time.Time{}, err
	}
	source, err := a.fetchToProve(ctx, instanceapi.Restore{Store: backups.Store, ID: id})
	if err != nil {
		return time.Time{}, err
	}
	recovered, err := a.replayArchive(ctx, source)
	if err != nil {
		return time.Time{}, err
	}
	a.status.enter(instanceapi.PhaseBootstrapping, "reading every table and index")
	if err := a.programs.Amcheck(ctx, pgrun.AmcheckOptions{Host: a.options.RunDir, Port: a.options.Port}); err != nil {
		return time.Time{}, fmt.Errorf("read the restored databases: %w", err)
	}
	if complete := source.record().StoppedAt; recovered.LastCommit.Before(complete) {
		return complete, nil // nothing was committed later
	}
	return recovered.LastCommit, nil
}

// awaitBackups waits for the cluster's configuration, which says where its backups
// are.
func (a *Agent) awaitBackups(ctx context.Context) (*instanceapi.Backups, error) {
	const again = 50 * time.Millisecond
	waiting, cancel := context.WithTimeout(ctx, configPatience)
	defer cancel()
	for {
		switch known := a.view.knownConfig(); {
		case known.Known && known.Config.Backups != nil:
			return known.Config.Backups, nil
		case known.Known:
			return nil, errors.New("the cluster's configuration names no store for backups")
		}
		if err := pause(waiting, again); err != nil {
			return nil, fmt.Errorf("wait for the cluster's configuration: %w", err)
		}
	}
}

// fetchToProve brings the backup onto the volume. A store that is away for a moment
// disproves nothing.
func (a *Agent) fetchToProve(ctx context.Context, from instanceapi.Restore) (restoreSource, error) {
	for try := 1; ; try++ {
		source, err := a.fetchOnce(ctx, from)
		if err == nil || try == provingTries || isDecided(err) {
			return source, err
		}
		a.log.WithError(err).Warn("fetching the backup failed; trying again")
		if pause(ctx, provingPause) != nil {
			return restoreSource{}, err
		}
	}
}

// isDecided says whether an error tells of what the archive holds.
func isDecided(err error) bool {
	final := finalError{}
	return errors.As(err, &final) || errors.Is(err, backup.ErrNotFound) || errors.Is(err, backup.ErrDamaged) || errors.Is(err, backup.ErrNoBackup)
}

func (a *Agent) fetchOnce(ctx context.Context, from instanceapi.Restore) (restoreSource, error) {
	source, err := a.findSource(ctx, from)
	if err != nil {
		return restoreSource{}, err
	}
	if err := a.fitsVolume(source); err != nil {
		return restoreSource{}, err
	}
	wal, err := a.volume.begin(byRestore)
	if err != nil {
		return restoreSource{}, err
	}
	return source, a.unpackBackup(ctx, source, wal)
}
