package instance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/pgop/postgres-operator/pkg/backup"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/postgres"
	"github.com/pgop/postgres-operator/pkg/postgres/pgrun"
)

// copyCluster makes the first database a copy of another cluster's: it leaves a
// complete data directory on a timeline of its own, and no server. The other cluster
// notices no more than two connections. When anything fails, what it made is deleted,
// since nobody has seen it, and the next try begins anew.
func (a *Agent) copyCluster(ctx context.Context, config instanceapi.Config) error {
	return a.makeFirst(ctx, func() error { return a.makeOfCluster(ctx, config) })
}

func (a *Agent) makeOfCluster(ctx context.Context, config instanceapi.Config) error {
	from := *config.Bootstrap.Clone
	app, err := a.readOwner(ctx, config)
	if err != nil {
		return err
	}
	a.status.enter(instanceapi.PhaseBootstrapping, "reaching for cluster "+from.Cluster)
	certificates, err := a.readCloneSecret(ctx, from)
	if err != nil {
		return err
	}
	if err := killHolders(ctx, a.lock); err != nil {
		return err
	}
	wal, err := a.volume.begin(byRestore)
	if err != nil {
		return err
	}
	if err := a.streamCluster(ctx, from, certificates, wal); err != nil {
		return err
	}
	recovered, err := a.leaveTimeline(ctx, from)
	if err != nil {
		return err
	}
	if err := a.disableSubscriptions(ctx); err != nil {
		return err
	}
	if err := a.matchLogins(ctx, config.Bootstrap, app); err != nil {
		return err
	}
	return a.finishFirst(ctx, recovered)
}

// cloneFiles are what the Secret for a copy must have, by key.
var cloneFiles = []string{instanceapi.CAFile, instanceapi.ReplicationCertFile, instanceapi.ReplicationKeyFile}

// readCloneSecret reads what lets the copy in.
func (a *Agent) readCloneSecret(ctx context.Context, from instanceapi.Clone) (map[string][]byte, error) {
	const longest = 5 * time.Second
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	secret, err := a.kube.Secret(ctx, from.Secret)
	if err != nil {
		return nil, fmt.Errorf("read Secret %s for the copy of cluster %s: %w", from.Secret, from.Cluster, err)
	}
	for _, key := range cloneFiles {
		if len(secret[key]) == 0 {
			return nil, fmt.Errorf("secret %s for the copy of cluster %s has no key %s", from.Secret, from.Cluster, key)
		}
	}
	return secret, nil
}

// streamCluster copies the other cluster's server. Its keys are in a directory of
// memory for as long as that takes: libpq reads them from nowhere but files.
func (a *Agent) streamCluster(ctx context.Context, from instanceapi.Clone, certificates map[string][]byte, wal string) (err error) {
	dir := filepath.Join(a.options.RunDir, ".clone")
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove the keys of an earlier copy: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := os.Mkdir(dir, 0o700); err != nil {
		return fmt.Errorf("make directory for the keys of the copy: %w", err)
	}
	for _, name := range cloneFiles {
		if err := os.WriteFile(filepath.Join(dir, name), certificates[name], 0o600); err != nil {
			return fmt.Errorf("write the keys of the copy: %w", err)
		}
	}
	a.status.enter(instanceapi.PhaseBootstrapping, "copying cluster "+from.Cluster)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	err = a.programs.BaseBackup(ctx, pgrun.BaseBackupOptions{
		Data: a.volume.data(), WAL: wal, ConnInfo: cloneConnInfo(a.options, from, dir),
		Progress: func(done, estimated int64) {
			a.status.update(func(s *instanceapi.State) { s.Restored, s.RestoreTotal = done, max(done, estimated) })
			if _, free, err := volumeSize(a.options.Mount); err == nil && estimated > done && uint64(estimated-done) > free {
				cancel(fmt.Errorf("another %d bytes are to be copied, and %d are free on the volume: raise spec.storage.size", estimated-done, free))
			}
		},
	})
	if err != nil {
		return fmt.Errorf("copy cluster %s from %s: %w", from.Cluster, from.Host, err)
	}
	return nil
}

// cloneConnInfo is how this instance reaches the other cluster. Its name is none that
// a primary would ever wait for: those have a dot.
func cloneConnInfo(o Options, from instanceapi.Clone, dir string) string {
	options := replicationOptions(o.Instance+"-clone", func(name string) string { return filepath.Join(dir, name) })
	options["hostaddr"] = from.Address
	return postgres.ConnInfo{Host: from.Host, Port: from.Port, User: postgres.ReplicationRole, Options: options}.KeyValue()
}

// leaveTimeline lets a server, closed to everybody, make the copy consistent and open
// a timeline of its own there. It finds all the WAL for that beside the data.
func (a *Agent) leaveTimeline(ctx context.Context, from instanceapi.Clone) (instanceapi.Recovered, error) {
	if err := errors.Join(backup.MarkForRecovery(a.volume.data()), a.volume.sync()); err != nil {
		return instanceapi.Recovered{}, fmt.Errorf("ready the copy of cluster %s: %w", from.Cluster, err)
	}
	return a.recoverData(ctx, recovering{
		// There is no target, so that recovery ends where the WAL beside the data does. It
		// has to be no less than what makes the data consistent, which the server checks.
		// recovery_target "immediate" would ask for more: a server stops for it after a
		// transaction or before the next record, and a cluster at rest has neither.
		parameters: map[string]string{
			"recovery_target_timeline": "latest",
			// The server wants a command, and there is no archive to ask.
			"restore_command": "exit 1",
			"archive_mode":    "on",
		},
		// The other cluster's subscriptions are its own: two who apply the same changes
		// take them from each other.
		settings: []string{"max_logical_replication_workers=0"},
		what:     "the copy of cluster " + from.Cluster,
		words:    func() string { return "making the copy of cluster " + from.Cluster + " consistent" },
		whyEnded: func() error { return nil },
	})
}

// disableSubscriptions leaves the other cluster's subscriptions in the copy, to be
// enabled by people once they have a slot of their own.
func (a *Agent) disableSubscriptions(ctx context.Context) error {
	if err := a.sql.Exec(ctx, "UPDATE pg_catalog.pg_subscription SET subenabled = false WHERE subenabled"); err != nil {
		return fmt.Errorf("disable the subscriptions in the copy: %w", err)
	}
	return nil
}
