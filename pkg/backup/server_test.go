package backup_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pgop/postgres-operator/pkg/backup"
	"github.com/pgop/postgres-operator/pkg/internal/pgtest"
	"github.com/pgop/postgres-operator/pkg/postgres"
	"github.com/pgop/postgres-operator/pkg/postgres/pgrun"
	"github.com/pgop/postgres-operator/test/s3test"
)

// shopServers are the servers of a cluster, and its archive.
type shopServers struct {
	*testing.T
	installation pgtest.Installation
	store        *watched
	repository   *backup.Repository
	primary      *pgtest.Server
	backups      int
}

// newShop starts a primary that archives into a real S3 server.
func newShop(t *testing.T, least int, parameters map[string]string) *shopServers {
	t.Helper()
	return newShopIn(t, least, s3test.Start(t).Store(), parameters)
}

func newShopIn(t *testing.T, least int, store backup.Store, parameters map[string]string) *shopServers {
	t.Helper()
	s := &shopServers{T: t, installation: pgtest.Find(t, least), store: &watched{Store: store}}
	s.primary = s.installation.New(t, nil)
	control, err := s.installation.Programs.ControlData(context.Background(), s.primary.Data)
	must(t, err)
	s.repository = backup.NewRepository(s.store, "shop", backup.Owner{SystemID: control.SystemID, Major: s.installation.Version.Major, Cluster: "default/shop"})
	s.configure(s.primary, parameters)
	s.primary.Start()
	return s
}

// configure gives a server an archive_command, and those parameters.
func (s *shopServers) configure(server *pgtest.Server, parameters map[string]string) {
	s.Helper()
	all := map[string]string{"archive_mode": "on", "archive_command": s.archiveCommand(server.Data)}
	for name, value := range parameters {
		all[name] = value
	}
	server.Configure(all)
}

func (s *shopServers) archiveCommand(data string) string {
	pusher := backup.NewPusher(s.repository, filepath.Join(data, "pg_wal"), 4)
	s.Cleanup(pusher.Close)
	return pgtest.WALCommand(s.T, func(name, _ string) int {
		if err := pusher.Push(context.Background(), name); err != nil {
			s.Log("archive_command:", err)
			return 1
		}
		return 0
	})
}

func (s *shopServers) restoreCommand(repository *backup.Repository, data string) string {
	s.Helper()
	fetcher, err := backup.NewFetcher(repository, filepath.Join(filepath.Dir(data), "fetched"), 16<<20, 4)
	must(s.T, err)
	s.Cleanup(func() { must(s.T, fetcher.Close()) })
	return pgtest.WALCommand(s.T, func(name, path string) int {
		err := fetcher.Fetch(context.Background(), name, path)
		switch {
		case err == nil:
			return 0
		case errors.Is(err, backup.ErrNotFound):
			return 1
		}
		s.Log("restore_command:", err)
		return 255
	})
}

// addStandby starts a standby of the primary, which archives as well if the
// parameters say so.
func (s *shopServers) addStandby(parameters map[string]string) *pgtest.Server {
	s.Helper()
	standby := s.installation.At(s.T, filepath.Join(s.TempDir(), "data"))
	stream, err := s.installation.Programs.Stream(context.Background(), pgrun.StreamOptions{ConnInfo: s.primary.ConnInfo(), Label: "standby"})
	must(s.T, err)
	s.untar(stream, standby.Data)
	all := map[string]string{"primary_conninfo": s.primary.ConnInfo(), "wal_retrieve_retry_interval": "100ms"}
	for name, value := range parameters {
		all[name] = value
	}
	s.configure(standby, all)
	must(s.T, os.WriteFile(filepath.Join(standby.Data, "standby.signal"), nil, 0o600))
	standby.Start()
	s.awaitReplay(standby)
	return standby
}

// awaitReplay waits until a standby has all that the primary has.
func (s *shopServers) awaitReplay(standby *pgtest.Server) {
	s.Helper()
	lsn := s.primary.Text("pg_current_wal_flush_lsn()")
	eventually(s.T, "the standby", func() bool {
		return standby.Text(fmt.Sprintf("coalesce(pg_last_wal_replay_lsn() >= '%s', false)", lsn)) == "true"
	})
}

// options are those of a backup of a server.
func (s *shopServers) options(of *pgtest.Server) backup.BaseOptions {
	s.backups++
	now := time.Now()
	return backup.BaseOptions{
		ID: backup.NewID(now, backup.Full, fmt.Sprintf("b%d", s.backups)), Name: "nightly", Cluster: "default/shop", Instance: "shop-1",
		ConnInfo: of.ConnInfo(), SQL: of.SQL(), TempDir: s.TempDir(), Now: time.Now,
		SwitchWAL: func(ctx context.Context, beyond postgres.LSN) error {
			return s.primary.SQL().Exec(ctx, "SELECT pg_switch_wal()")
		},
	}
}

func (s *shopServers) take(o backup.BaseOptions) backup.Record {
	s.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	record, err := s.repository.TakeBase(ctx, s.installation.Programs, o)
	must(s.T, err)
	return record
}

// restored is a server on a restored backup, with what recovery needs; it is
// not started.
func (s *shopServers) restored(record backup.Record, target backup.TargetSpec) *pgtest.Server {
	s.Helper()
	catalog, err := s.repository.ReadCatalog(context.Background())
	must(s.T, err)
	chain, err := backup.Chain(catalog.Records, record.ID)
	must(s.T, err)
	server := s.installation.At(s.T, filepath.Join(s.TempDir(), "data"))
	must(s.T, s.repository.RestoreBase(context.Background(), s.installation.Programs, chain, s.restoreOptions(server.Data)))
	s.prepare(server, target)
	return server
}

func (s *shopServers) restoreOptions(data string) backup.RestoreOptions {
	return backup.RestoreOptions{Data: data, Work: data + "-work", Parallel: 2}
}

func (s *shopServers) prepare(server *pgtest.Server, target backup.TargetSpec) {
	s.Helper()
	parsed, err := backup.ParseTarget(target)
	must(s.T, err)
	needs, err := s.installation.Programs.RecoveryNeeds(context.Background(), server.Data)
	must(s.T, err)
	configured := map[string]string{"archive_mode": "off"}
	server.Configure(backup.RecoveryParameters(configured, needs, parsed, s.restoreCommand(s.repository, server.Data)))
}

// startPromoted starts a restored server and waits until it is open.
func (s *shopServers) startPromoted(server *pgtest.Server) {
	s.Helper()
	server.Start()
	s.Cleanup(func() {
		if s.Failed() {
			s.Log(server.Log())
		}
	})
	eventually(s.T, "the end of recovery", func() bool { return server.Text("pg_is_in_recovery()") == "false" })
}

// rows are those of the ledger.
func rows(server *pgtest.Server) string {
	return server.Text("SELECT coalesce(string_agg(n::text, ' ' ORDER BY n), '') FROM ledger")
}

var lastRow atomic.Int32

// write adds rows to the ledger, each in a transaction, and returns all.
func (s *shopServers) write(count int) string {
	s.Helper()
	s.primary.Exec("CREATE TABLE IF NOT EXISTS ledger (n int, filler text)")
	for range count {
		s.primary.Exec(fmt.Sprintf("INSERT INTO ledger VALUES (%d, repeat('x', 2000))", lastRow.Add(1)))
	}
	return rows(s.primary)
}

// switchWAL ends the primary's segment, and returns when the archive has it.
func (s *shopServers) switchWAL() {
	s.Helper()
	name := s.primary.Text("pg_walfile_name(pg_switch_wal())")
	parsed, err := backup.ParseWALName(name)
	must(s.T, err)
	eventually(s.T, "segment "+name, func() bool {
		_, err := s.store.Stat(context.Background(), s.repository.Layout().WAL(parsed))
		return err == nil
	})
}

// untar unpacks a stream with the program tar.
func (s *shopServers) untar(stream *pgrun.Stream, dir string) {
	s.Helper()
	must(s.T, os.MkdirAll(dir, 0o700))
	cmd := s.installation.Programs.Command(context.Background(), "tar", "-x", "-C", dir)
	cmd.Path = "/bin/tar"
	cmd.Stdin = stream
	output, err := cmd.CombinedOutput()
	if err := errors.Join(err, stream.Wait()); err != nil {
		s.Fatalf("unpack: %v: %s", err, output)
	}
}

// objects are the keys in the store that hold a word.
func (s *shopServers) objects(word string) []string {
	s.Helper()
	var keys []string
	must(s.T, s.store.List(context.Background(), "", func(o backup.Object) error {
		if strings.Contains(o.Key, word) {
			keys = append(keys, o.Key)
		}
		return nil
	}))
	return keys
}
