package instance

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pgop/postgres-operator/pkg/backup"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/test/s3test"
)

func alone(t *testing.T) (*world, *testPod) {
	t.Helper()
	w := newWorld(t)
	p := w.start("shop-1", "127.0.0.1")
	p.waitFor("ready", isReady)
	return w, p
}

// D-15: without backups WAL is recycled, though archive_mode is on, and backups are
// turned on and off without a restart.
func TestD15WithoutBackupsNoWALIsKept(t *testing.T) {
	t.Parallel()
	w, p := alone(t)
	started := p.query("SELECT pg_postmaster_start_time()")
	name := p.endSegment()
	p.world.eventually("the server to forget "+name, func() bool {
		_, err := os.Stat(filepath.Join(p.volume.pgWAL(), "archive_status", name+".ready"))
		return os.IsNotExist(err)
	}, func() string { return "it is ready still" })
	if s := p.State(context.Background()); s.Archive != nil {
		t.Errorf("archiving: %+v", s.Archive)
	}

	store := w.onVolume("shop")
	w.backUp(store)
	p.waitFor("configured", func(s instanceapi.State) bool { return p.view.knownConfig().Config.Backups != nil })
	r := p.repository(store)
	p.awaitArchived(r, p.endSegment())
	p.waitFor("archives", archivesWell)

	w.apply(func() { w.config.Backups = nil })
	p.waitFor("says nothing", func(s instanceapi.State) bool { return s.Archive == nil })
	if now := p.query("SELECT pg_postmaster_start_time()"); now != started {
		t.Error("the server was restarted")
	}
}

// D-13: a login that is corrected is used at the next attempt. F-07: after that the
// failure shows only with its time.
func TestD13F07CorrectedLoginIsUsedAtOnce(t *testing.T) {
	t.Parallel()
	w, p := alone(t)
	server := s3test.Start(t)
	store := w.inBucket(server, "shop")
	store.S3.CredentialsSecret = "wrong"
	w.backUp(store)
	name := p.endSegment()
	p.waitFor("misses the Secret", archivesFailing("wrong"))
	w.kube.setSecret("wrong", false, map[string]string{instanceapi.S3KeyID: server.Login.KeyID, instanceapi.S3Key: "guessed"})
	failed := p.waitFor("is refused", archivesFailing("SignatureDoesNotMatch"))
	w.kube.setSecret("wrong", false, map[string]string{instanceapi.S3KeyID: server.Login.KeyID, instanceapi.S3Key: server.Login.Secret + "\n"})
	well := p.waitFor("archives", archivesWell)
	if well.Archive.Failed == "" || well.Archive.FailedAt.Before(failed.Archive.FailedAt) || !well.Archive.FailingSince.IsZero() {
		t.Errorf("before: %+v, after: %+v", failed.Archive, well.Archive)
	}
	p.awaitArchived(p.repository(store), name)
	if strings.Contains(fmt.Sprintf("%+v", p.State(context.Background())), server.Login.Secret) {
		t.Error("the state tells the login")
	}
}

// D-14: a bucket that is missing, or a store that is away, is told in the store's
// words; the server goes on, and archiving goes on once it is there.
func TestD14MissingStoreIsTold(t *testing.T) {
	t.Parallel()
	w, p := alone(t)
	server := s3test.Start(t)
	store := w.inBucket(server, "shop")
	store.S3.Bucket = "nothing-here"
	w.backUp(store)
	p.endSegment()
	p.waitFor("misses the bucket", archivesFailing("NoSuchBucket"))

	store = w.inBucket(server, "shop")
	w.backUp(store)
	p.waitFor("archives", archivesWell)
	server.Stop()
	name := p.endSegment()
	failing := p.waitFor("misses the store", archivesFailing("connection refused"))
	must(t, p.sql.Exec(t.Context(), "CREATE TABLE public.t AS SELECT 1"))
	p.waitFor("counts what waits", func(s instanceapi.State) bool { return s.Archive.Waiting > 0 })
	must(t, p.archiver.claim(t.Context(), store)) // it remembers whose the archive is
	if !archivesFailing("connection refused")(p.State(t.Context())) {
		t.Errorf("archiving counts as well while a file waits and the store is away: %s", p.archiveState())
	}
	server.Run()
	p.waitFor("archives", archivesWell)
	p.awaitArchived(p.repository(store), name)
	if since := failing.Archive.FailingSince; since.IsZero() || since.After(failing.Archive.FailedAt) {
		t.Errorf("it fails since %s", since)
	}
}

// D-12: what another database has archived under the cluster's name stays as it
// is; the server runs on, and the refusal says the way out.
func TestD12ArchiveOfAnotherDatabaseIsLeftAlone(t *testing.T) {
	t.Parallel()
	w, p := alone(t)
	store := w.onVolume("shop")
	opened, prefix, err := newStore(w.kube, p.options.BackupMounts, store)
	must(t, err)
	former := backup.NewRepository(opened, prefix, backup.Owner{SystemID: "7000000000000000001", Major: w.major, Cluster: p.options.owner()})
	must(t, former.Claim(t.Context()))
	w.backUp(store)
	p.endSegment()
	p.waitFor("refuses", archivesFailing("7000000000000000001"))
	p.waitFor("serves", isReady)
	files, err := filepath.Glob(filepath.Join(w.backups(), "team", "shop", "*"))
	if err != nil || len(files) != 1 {
		t.Errorf("under the prefix there are %v (%v)", files, err)
	}
}

// A store that doesn't answer holds up no shutdown.
func TestD14StoreThatHangsHoldsUpNoShutdown(t *testing.T) {
	t.Parallel()
	w, p := alone(t)
	hanging := listenAndSayNothing(t)
	w.kube.setSecret("s3-login", false, map[string]string{instanceapi.S3KeyID: "a", instanceapi.S3Key: "b"})
	w.backUp(instanceapi.Store{S3: &instanceapi.S3Store{Bucket: "backups", Prefix: "shop", Endpoint: "http://" + hanging, Region: "us-east-1", CredentialsSecret: "s3-login"}})
	p.endSegment()
	p.waitFor("waits", func(s instanceapi.State) bool { return s.Archive != nil && s.Archive.Waiting > 0 })
	log := p.server.log
	p.stop()
	if strings.Contains(log.String(), "immediate shutdown") {
		t.Error("the server did not stop in order: it waited for the store")
	}
	control, err := p.programs.ControlData(t.Context(), p.volume.data())
	if err != nil || control.State != "shut down" {
		t.Errorf("the server is %q (%v)", control.State, err)
	}
}

// D-14: a store that takes connections and then neither takes nor refuses anything is told
// of long before a connection is given up.
func TestD14StoreThatHangsIsToldOf(t *testing.T) {
	t.Parallel()
	w, p := alone(t)
	p.archiver.patience = time.Second
	hanging := listenAndSayNothing(t)
	w.kube.setSecret("s3-login", false, map[string]string{instanceapi.S3KeyID: "a", instanceapi.S3Key: "b"})
	w.backUp(instanceapi.Store{S3: &instanceapi.S3Store{Bucket: "backups", Prefix: "shop", Endpoint: "http://" + hanging, Region: "us-east-1", CredentialsSecret: "s3-login"}})
	name := p.endSegment()
	p.waitFor("tells of it", archivesFailing(name+": the store has neither taken nor refused it"))
	store := w.onVolume("shop")
	w.backUp(store)
	p.waitFor("archives well elsewhere", archivesWell)
}
