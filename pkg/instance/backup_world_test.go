package instance

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pgop/postgres-operator/pkg/backup"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/internal/pgtest"
	"github.com/pgop/postgres-operator/test/s3test"
)

// onVolume is a store on a volume that all pods have mounted.
func (w *world) onVolume(cluster string) instanceapi.Store {
	w.Helper()
	must(w.T, os.MkdirAll(w.backups(), 0o700))
	return instanceapi.Store{Volume: &instanceapi.VolumeStore{Dir: filepath.Join(w.backups(), "team", cluster)}}
}

// inBucket is a store in a bucket of a real S3 server, with its login in the
// Secret s3-login.
func (w *world) inBucket(server *s3test.Server, cluster string) instanceapi.Store {
	w.kube.setSecret("s3-login", false, map[string]string{instanceapi.S3KeyID: server.Login.KeyID, instanceapi.S3Key: server.Login.Secret})
	return instanceapi.Store{S3: &instanceapi.S3Store{Bucket: server.Bucket, Prefix: "team/" + cluster, Endpoint: server.Endpoint,
		Region: "us-east-1", CredentialsSecret: "s3-login"}}
}

// backUp gives the cluster that store.
func (w *world) backUp(store instanceapi.Store) {
	w.apply(func() { w.config.Backups = &instanceapi.Backups{Store: store} })
}

// repository is how a test reads what the pod's cluster has in the store.
func (p *testPod) repository(store instanceapi.Store) *backup.Repository {
	p.world.Helper()
	opened, prefix, err := newStore(p.world.kube, p.options.BackupMounts, store)
	must(p.world.T, err)
	return backup.NewRepository(opened, prefix, backup.Owner{SystemID: p.status.snapshot().SystemID, Major: p.world.major, Cluster: p.options.owner()})
}

// endSegment writes a little WAL, ends the segment and returns its name.
func (p *testPod) endSegment() string {
	p.world.Helper()
	must(p.world.T, p.sql.Exec(context.Background(), "SELECT pg_create_restore_point('filler')"))
	return p.query("SELECT pg_walfile_name(pg_switch_wal())")
}

// awaitArchived waits until the archive has a file.
func (p *testPod) awaitArchived(r *backup.Repository, name string) {
	p.world.Helper()
	parsed, err := backup.ParseWALName(name)
	must(p.world.T, err)
	p.world.eventually(name+" in the archive", func() bool {
		_, err := r.Store().Stat(context.Background(), r.Layout().WAL(parsed))
		if err != nil && !errors.Is(err, backup.ErrNotFound) {
			p.world.Fatal(err)
		}
		return err == nil
	}, func() string { return p.archiveState() })
}

func (p *testPod) archiveState() string {
	if s := p.State(context.Background()).Archive; s != nil {
		return strings.Join([]string{s.Archived, s.Failing, s.Failed}, "|")
	}
	return "none"
}

// archivesFailing waits until archiving fails with those words.
func archivesFailing(words string) func(instanceapi.State) bool {
	return func(s instanceapi.State) bool { return s.Archive != nil && strings.Contains(s.Archive.Failing, words) }
}

// archivesWell waits until archiving works, after a file was archived.
func archivesWell(s instanceapi.State) bool {
	return s.Archive != nil && s.Archive.Failing == "" && s.Archive.Archived != ""
}

// newWorldFor is newWorld with at least that major version of PostgreSQL.
func newWorldFor(t *testing.T, least int) *world {
	t.Helper()
	found := pgtest.Find(t, least)
	return newWorldOf(t, found.Programs.Bin, found.Version.Major)
}

// listenAndSayNothing is the address of a server that takes connections, and no
// more.
func listenAndSayNothing(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	return listener.Addr().String()
}
