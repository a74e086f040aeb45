package instance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pgop/postgres-operator/pkg/backup"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/test/s3test"
)

func TestStepBackup(t *testing.T) {
	t.Parallel()
	store := instanceapi.Store{Volume: &instanceapi.VolumeStore{Dir: "/pgop/backups/shop"}}
	asks := func(id, instance, life string) instanceapi.Config {
		return instanceapi.Config{Backups: &instanceapi.Backups{Store: store}, TakeBackup: &instanceapi.TakeBackup{ID: id, Instance: instance, Life: life}}
	}
	elsewhere := asks("b1", "shop-1", "l1")
	elsewhere.Backups = &instanceapi.Backups{Store: instanceapi.Store{Volume: &instanceapi.VolumeStore{Dir: "/pgop/backups/other"}}}
	for name, c := range map[string]struct {
		config        instanceapi.Config
		running, last string
		want          backupStep
	}{
		"nothing is asked":                     {},
		"it begins":                            {config: asks("b1", "shop-1", "l1"), want: backupStep{begin: true}},
		"another follows":                      {config: asks("b2", "shop-1", "l1"), last: "b1", want: backupStep{begin: true}},
		"what has ended does not begin again":  {config: asks("b1", "shop-1", "l1"), last: "b1"},
		"what runs goes on":                    {config: asks("b1", "shop-1", "l1"), running: "b1", last: "b1"},
		"it is another instance's":             {config: asks("b1", "shop-2", "l1")},
		"D-01: it was asked of another life":   {config: asks("b1", "shop-1", "l0")},
		"nobody asks any more":                 {config: instanceapi.Config{}, running: "b1", last: "b1", want: backupStep{cancel: errNotAsked}},
		"D-02: one at a time":                  {config: asks("b2", "shop-1", "l1"), running: "b1", last: "b1", want: backupStep{cancel: errNotAsked}},
		"the store is another":                 {config: elsewhere, running: "b1", last: "b1", want: backupStep{cancel: errOtherStore}},
		"it begins to say that it has nowhere": {config: instanceapi.Config{TakeBackup: &instanceapi.TakeBackup{ID: "b1", Instance: "shop-1", Life: "l1"}}, want: backupStep{begin: true}},
	} {
		in := instanceapi.Store{}
		if c.running != "" {
			in = store
		}
		if got := stepBackup(c.config, "shop-1", "l1", c.running, c.last, in); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// ask asks a pod for a backup, as the operator does, and returns its id.
func (p *testPod) ask(kind backup.Kind, parent string) string {
	p.world.Helper()
	id := backup.NewID(time.Now(), kind, fmt.Sprintf("t%d", time.Now().UnixNano()%100000))
	life := p.State(context.Background()).Life
	p.world.apply(func() {
		p.world.config.TakeBackup = &instanceapi.TakeBackup{ID: id, Name: "nightly", Parent: parent, Instance: p.options.Instance, Life: life}
	})
	return id
}

// take lets a pod take a backup, and returns when it has ended.
func (p *testPod) take(kind backup.Kind, parent string) instanceapi.BackupState {
	p.world.Helper()
	id := p.ask(kind, parent)
	state := p.waitFor("has ended its backup", func(s instanceapi.State) bool {
		return s.Backup != nil && s.Backup.ID == id && (s.Backup.Complete != nil || s.Backup.Failed != "")
	})
	p.world.apply(func() { p.world.config.TakeBackup = nil })
	return *state.Backup
}

// takeWell is take of a backup that must become complete.
func (p *testPod) takeWell(kind backup.Kind, parent string) instanceapi.BackupInfo {
	p.world.Helper()
	state := p.take(kind, parent)
	if state.Failed != "" {
		p.world.Fatalf("the backup has failed: %s", state.Failed)
	}
	return *state.Complete
}

// awaitCatalog waits until the pod's catalog is as wanted.
func (p *testPod) awaitCatalog(what string, is func(instanceapi.Catalog) bool) instanceapi.Catalog {
	p.world.Helper()
	var last instanceapi.Catalog
	p.world.eventually(what, func() bool {
		catalog, _ := p.catalog.last()
		if catalog == nil {
			return false
		}
		last = *catalog
		return is(last)
	}, func() string {
		_, problem := p.catalog.last()
		return fmt.Sprintf("%+v %s", last, problem)
	})
	return last
}

// D-16: the first backup of a database into which nobody writes. The catalog shows
// it, and from when on it can be restored.
func TestD16FirstBackupOfAnIdleDatabase(t *testing.T) {
	t.Parallel()
	w, p := alone(t)
	store := w.inBucket(s3test.Start(t), "shop")
	w.backUp(store)
	info := p.takeWell(backup.Full, "")
	if info.Name != "nightly" || info.Instance != "shop-1" || info.Size == 0 || info.StoredSize >= info.Size || info.FirstWAL == "" || info.Timeline != 1 {
		t.Errorf("it says %+v", info)
	}
	catalog := p.awaitCatalog("the backup in the catalog", func(c instanceapi.Catalog) bool { return len(c.Backups) == 1 })
	if got := catalog.Backups[0]; got.ID != info.ID || got.Unusable != "" || catalog.First != info.StoppedAt || catalog.Last.Before(catalog.First) {
		t.Errorf("the catalog says %+v, and the backup %+v", catalog, info)
	}
	if s := p.State(t.Context()); s.CatalogVersion != catalog.Version || s.CatalogError != "" {
		t.Errorf("the state says %q %q", s.CatalogVersion, s.CatalogError)
	}
	left, err := os.ReadDir(filepath.Join(p.volume.dir(), "backup.tmp"))
	if err == nil {
		t.Errorf("left behind: %v", left)
	}
}

// A replica's backup is complete only once the archive has its last segment, which
// the primary has to end.
func TestBackupOfAReplica(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	store := w.inBucket(s3test.Start(t), "shop")
	w.apply(func() {
		w.config.Members = []string{"shop-1", "shop-2"}
		w.config.Backups = &instanceapi.Backups{Store: store}
	})
	primary := w.start("shop-1", "127.0.61.1")
	primary.waitFor("ready", isReady)
	replica := w.start("shop-2", "127.0.61.2")
	replica.waitFor("streams", isStreaming)
	must(t, primary.sql.Exec(t.Context(), "CREATE TABLE public.t AS SELECT 42 AS i"))
	info := replica.takeWell(backup.Full, "")
	if info.Instance != "shop-2" {
		t.Errorf("it says %+v", info)
	}
	r := primary.repository(store)
	record, err := r.Record(t.Context(), info.ID)
	must(t, err)
	must(t, r.CheckWAL(t.Context(), record))
	primary.awaitCatalog("the backup in the primary's catalog", func(c instanceapi.Catalog) bool { return len(c.Backups) == 1 })
	if catalog, _ := replica.catalog.last(); catalog != nil {
		t.Error("the replica reads the catalog, too")
	}
}

// A replica of an idle primary is backed up right after it was cloned, and again at
// once: it awaits no segment that it got with its clone, and begins after the backup
// before has ended.
func TestD16BackupsOfAnIdleReplica(t *testing.T) {
	t.Parallel()
	w := newWorldFor(t, 17)
	w.conf["summarize_wal"] = "on"
	w.apply(func() {
		w.config.Members = []string{"shop-1", "shop-2"}
		w.config.Backups = &instanceapi.Backups{Store: w.onVolume("shop")}
	})
	w.start("shop-1", "127.0.63.1").waitFor("ready", isReady)
	replica := w.start("shop-2", "127.0.63.2")
	replica.waitFor("streams", isStreaming)
	full := replica.takeWell(backup.Full, "")
	second := replica.takeWell(backup.Incremental, full.ID)
	if third := replica.takeWell(backup.Incremental, second.ID); third.Parent != second.ID {
		t.Errorf("the third is %+v", third)
	}
}

// serverBacksUp says whether a server is in backup mode.
func (p *testPod) serverBacksUp() string {
	return p.query("SELECT string_agg(phase, ' ') FROM pg_stat_progress_basebackup")
}

// D-01: a backup that is given up, or whose server dies, ends as failed with the
// cause; no server stays in backup mode, nothing stays in the store, and the next
// one is free to run.
func TestD01BackupThatIsCutShortFailsWithTheCause(t *testing.T) {
	t.Parallel()
	w, p := alone(t)
	store := w.onVolume("shop")
	w.apply(func() { w.config.Backups = &instanceapi.Backups{Store: store, MaxRate: 512 << 10} })
	id := p.ask(backup.Full, "")
	running := func(s instanceapi.State) bool { return s.Backup != nil && s.Backup.ID == id && s.Backup.Done > 0 }
	p.waitFor("is under way", running)
	w.apply(func() { w.config.TakeBackup = nil })
	p.waitFor("has failed", func(s instanceapi.State) bool { return strings.Contains(s.Backup.Failed, errNotAsked.Error()) })
	w.eventually("no server in backup mode", func() bool { return p.serverBacksUp() == "" }, p.serverBacksUp)
	r := p.repository(store)
	catalog, err := r.ReadCatalog(t.Context())
	if err != nil || len(catalog.Records)+len(catalog.Incomplete) > 0 {
		t.Errorf("the store has %v %v (%v)", catalog.Records, catalog.Incomplete, err)
	}

	id = p.ask(backup.Full, "")
	p.waitFor("is under way", running)
	must(t, p.server.signal(syscall.SIGKILL))
	p.waitFor("has failed", func(s instanceapi.State) bool { return strings.Contains(s.Backup.Failed, errServerGone.Error()) })
	p.waitFor("serves again", isReady)
	w.apply(func() { w.config.Backups = &instanceapi.Backups{Store: store} })
	p.takeWell(backup.Full, "")
}

// D-01: an agent that has restarted does not begin a backup again that was asked of
// its former life.
func TestD01BackupIsVoidForAnotherLife(t *testing.T) {
	t.Parallel()
	w, p := alone(t)
	w.apply(func() { w.config.Backups = &instanceapi.Backups{Store: w.onVolume("shop"), MaxRate: 512 << 10} })
	id := p.ask(backup.Full, "")
	before := p.waitFor("is under way", func(s instanceapi.State) bool { return s.Backup != nil && s.Backup.Done > 0 })
	p.stop()
	w.config.Backups.MaxRate = 0
	w.apply(func() {})
	p = w.start("shop-1", "127.0.0.1")
	after := p.waitFor("ready", isReady)
	if before.Life == after.Life || after.Life == "" {
		t.Errorf("its life is %q after %q", after.Life, before.Life)
	}
	if info := p.takeWell(backup.Full, ""); info.ID == id { // a loop that takes this one has passed over that one
		t.Error("the backup was begun again")
	}
	catalog := p.awaitCatalog("the backup in the catalog", func(c instanceapi.Catalog) bool { return len(c.Backups) > 0 })
	if len(catalog.Backups) != 1 {
		t.Errorf("the store has %+v", catalog.Backups)
	}
}

// A backup whose WAL can't be archived is not complete; it says which segment it
// waits for when it is given up.
func TestD18BackupWithoutItsWALIsNotComplete(t *testing.T) {
	t.Parallel()
	w, p := alone(t)
	w.backUp(w.onVolume("shop"))
	p.awaitArchived(p.repository(w.config.Backups.Store), p.endSegment())
	// Archiving fails for what has the name of a segment that is to come.
	next := p.query("SELECT pg_walfile_name(pg_current_wal_lsn() + 1)")
	parsed, err := backup.ParseWALName(next)
	must(t, err)
	key := p.repository(w.config.Backups.Store).Layout().WAL(parsed)
	blocked := filepath.Join(w.backups(), filepath.FromSlash(key))
	must(t, os.MkdirAll(blocked, 0o700))
	p.ask(backup.Full, "")
	p.waitFor("awaits its WAL", func(s instanceapi.State) bool { return s.Backup != nil && s.Backup.AwaitsWAL })
	p.waitFor("fails to archive", func(s instanceapi.State) bool { return s.Archive != nil && s.Archive.Failing != "" })
	if s := p.State(t.Context()); s.Backup.Complete != nil || s.Backup.Failed != "" {
		t.Errorf("the backup is %+v", s.Backup)
	}
	must(t, os.Remove(blocked))
	p.waitFor("is complete", func(s instanceapi.State) bool { return s.Backup.Complete != nil })
}

// An incremental backup goes on from its parent; one whose parent is not there says
// so.
func TestIncrementalBackup(t *testing.T) {
	t.Parallel()
	w := newWorldFor(t, 17)
	w.conf["summarize_wal"] = "on"
	w.apply(func() { w.config.Backups = &instanceapi.Backups{Store: w.onVolume("shop")} })
	p := w.start("shop-1", "127.0.0.1")
	p.waitFor("ready", isReady)
	full := p.takeWell(backup.Full, "")
	must(t, p.sql.Exec(t.Context(), "CREATE TABLE public.t AS SELECT 42 AS i"))
	second := p.takeWell(backup.Incremental, full.ID)
	if !second.Incremental || second.Parent != full.ID || second.Size >= full.Size {
		t.Errorf("the incremental one is %+v, and its parent %+v", second, full)
	}
	if state := p.take(backup.Incremental, "20200101T000000Z-full-none"); !strings.Contains(state.Failed, "20200101T000000Z-full-none") {
		t.Errorf("without a parent: %+v", state)
	}
}

// Retention is the primary's: what is kept no longer goes from the store with its
// WAL, and the newest stays.
func TestD18RetentionRemovesWhatIsKeptNoLonger(t *testing.T) {
	t.Parallel()
	w, p := alone(t)
	store := w.onVolume("shop")
	w.backUp(store)
	first := p.takeWell(backup.Full, "")
	second := p.takeWell(backup.Full, "")
	p.awaitCatalog("both backups", func(c instanceapi.Catalog) bool { return len(c.Backups) == 2 })
	w.apply(func() { w.config.Backups.Retention.Keep = 1 })
	catalog := p.awaitCatalog("the second backup only", func(c instanceapi.Catalog) bool { return len(c.Backups) == 1 })
	if got := catalog.Backups[0]; got.ID != second.ID || got.Unusable != "" {
		t.Errorf("%+v is kept, not %s", got, second.ID)
	}
	name, err := backup.ParseWALName(first.FirstWAL)
	must(t, err)
	r := p.repository(store)
	if _, err := r.Store().Stat(t.Context(), r.Layout().WAL(name)); !errors.Is(err, backup.ErrNotFound) {
		t.Errorf("WAL of the first backup: %v", err)
	}
	record, err := r.Record(t.Context(), second.ID)
	must(t, err)
	must(t, r.CheckBackup(t.Context(), []backup.Record{record}))
}

// D-01, D-18: a backup that a replica takes goes on while another becomes the primary, and
// is complete with the WAL of both timelines. Of the segment in which the old one was left
// there is none but the new one's.
func TestD18ABackupGoesOnAcrossAFailover(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	store := w.onVolume("shop")
	pods := w.three(instanceapi.HA{MaxLag: 1 << 30}, func(w *world) { w.config.Backups = &instanceapi.Backups{Store: store, MaxRate: 3 << 19} })
	must(t, pods["shop-1"].sql.Exec(t.Context(), "CREATE TABLE public.ledger (n int)"))
	p := pods["shop-3"]
	id := p.ask(backup.Full, "")
	p.waitFor("is under way", func(s instanceapi.State) bool { return s.Backup != nil && s.Backup.Done > 0 })
	pods["shop-1"].vanish()
	primary := w.awaitPrimary(pods, "shop-1")
	if primary == p {
		t.Skip("the replica that takes the backup was elected, and gives it up")
	}
	primary.write(1)
	w.eventually("row 1 on the replica", func() bool { return p.ledger() == "1" }, p.ledger)
	must(t, p.sql.Exec(t.Context(), "CHECKPOINT")) // writes pages with WAL of the new timeline
	state := p.waitFor("has ended its backup", func(s instanceapi.State) bool {
		return s.Backup != nil && s.Backup.ID == id && (s.Backup.Complete != nil || s.Backup.Failed != "")
	})
	if state.Backup.Failed != "" {
		t.Fatalf("the backup has failed: %s", state.Backup.Failed)
	}
	w.apply(func() { w.config.TakeBackup = nil })
	catalog := primary.awaitCatalog("the backup", func(c instanceapi.Catalog) bool { return len(c.Backups) == 1 })
	if got := catalog.Backups[0]; got.Unusable != "" || got.Timeline != 2 || catalog.Gap != "" {
		t.Errorf("the catalog says %+v", catalog)
	}
	primary.archiveAll(store)
	restored := w.restores(instanceapi.Restore{Store: store}).start("shop-1", "127.0.0.1")
	restored.waitFor("ready", isReady)
	if got := restored.ledger(); got != "1" {
		t.Errorf("it has %q", got)
	}
}
