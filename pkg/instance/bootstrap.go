package instance

import (
	"context"
	"errors"
	"fmt"

	"github.com/lib/pq"

	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/postgres"
	"github.com/pgop/postgres-operator/pkg/postgres/pgrun"
)

// initdb makes the first database: it leaves a complete data directory and a
// server that runs on it, closed to everybody but the agent. When anything
// fails, what it made is deleted, since nobody has seen it.
func (a *Agent) initdb(ctx context.Context, config instanceapi.Config) error {
	a.status.enter(instanceapi.PhaseBootstrapping, "making the database")
	err := a.makeDatabase(ctx, config)
	if err != nil {
		after := context.WithoutCancel(ctx)
		err = errors.Join(err, a.abandonServer(after), a.volume.wipeUnfinished())
	}
	return errors.Join(err, a.inspect(context.WithoutCancel(ctx)))
}

func (a *Agent) makeDatabase(ctx context.Context, config instanceapi.Config) error {
	app, err := a.readOwner(ctx, config)
	if err != nil {
		return err
	}
	if err := killHolders(ctx, a.lock); err != nil {
		return err
	}
	wal, err := a.volume.begin(byInitdb)
	if err != nil {
		return err
	}
	if err := a.programs.Initdb(ctx, pgrun.InitdbOptions{
		Data: a.volume.data(), WAL: wal, Major: a.options.Major, Encoding: config.Bootstrap.Encoding,
		Locale: config.Bootstrap.Locale, Checksums: config.Bootstrap.DataChecksums,
	}); err != nil {
		return err
	}
	// What initdb wrote reaches the disk while the server already works; what
	// the server writes, it syncs itself.
	synced := make(chan error, 1)
	go func() { synced <- a.volume.sync() }()
	if err := a.startClosed(ctx); err != nil {
		return errors.Join(err, <-synced)
	}
	if err := errors.Join(a.fillDatabase(ctx, config.Bootstrap, app), <-synced); err != nil {
		return err
	}
	if _, err := a.volume.finish(identity{Origin: byInitdb}); err != nil {
		return err
	}
	a.runs(running{Role: instanceapi.RolePrimary, server: a.server})
	return nil
}

// startClosed starts the server with nobody let in but the agent.
func (a *Agent) startClosed(ctx context.Context) error {
	a.replication.reset()
	return a.startServer(ctx, upstream{}, func() (*server, error) {
		if err := a.config.installHBA(postgres.RenderClosedHBA()); err != nil {
			return nil, err
		}
		return a.launch()
	})
}

// fillDatabase makes the roles and the application's database, and runs the
// user's SQL in it.
func (a *Agent) fillDatabase(ctx context.Context, b instanceapi.Bootstrap, app login) error {
	if err := a.server.waitReady(ctx); err != nil {
		return err
	}
	if err := keepReplicationRole(ctx, a.sql); err != nil {
		return err
	}
	if err := createRole(ctx, a.sql, app); err != nil {
		return err
	}
	create := "CREATE DATABASE " + pq.QuoteIdentifier(b.Database) + " OWNER " + pq.QuoteIdentifier(b.Owner)
	if err := a.sql.Exec(ctx, create); err != nil {
		return fmt.Errorf("create database %s: %w", b.Database, err)
	}
	if len(b.SQL) == 0 {
		return nil
	}
	server, err := pgrun.OpenForScript(a.options.RunDir, a.options.Port, b.Database)
	if err != nil {
		return err
	}
	defer server.Close()
	return runInitSQL(ctx, server, b.SQL)
}

// baseBackup is how this instance copies up, with the WAL in a directory of its
// own if one is given. Its name is none that a primary would ever wait for.
func (a *Agent) baseBackup(up upstream, wal string) pgrun.BaseBackupOptions {
	return pgrun.BaseBackupOptions{
		Data:     a.volume.data(),
		WAL:      wal,
		ConnInfo: conninfo(a.options, a.serverFiles(), up, a.options.Instance+"-clone", ""),
		Slot:     postgres.SlotName(a.options.Instance),
	}
}
