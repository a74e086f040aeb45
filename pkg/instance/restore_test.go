package instance

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pgop/postgres-operator/pkg/backup"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/postgres"
	"github.com/pgop/postgres-operator/test/s3test"
)

// source is a cluster of one with backups on a volume.
func source(t *testing.T) (*world, *testPod, instanceapi.Store) {
	t.Helper()
	return sourceIn(newWorld(t))
}

func sourceIn(w *world) (*world, *testPod, instanceapi.Store) {
	w.Helper()
	store := w.onVolume("shop")
	w.backUp(store)
	p := w.start("shop-1", "127.0.0.1")
	p.waitFor("ready", isReady)
	must(w.T, p.sql.Exec(context.Background(), "CREATE TABLE public.ledger (n int, at timestamptz DEFAULT clock_timestamp())"))
	return w, p, store
}

// write adds a row to the ledger, in a transaction of its own, and returns when.
func (p *testPod) write(n int) time.Time {
	p.world.Helper()
	must(p.world.T, p.sql.Exec(context.Background(), fmt.Sprintf("INSERT INTO public.ledger (n) VALUES (%d)", n)))
	var at time.Time
	must(p.world.T, p.sql.Row(context.Background(), "SELECT clock_timestamp()", &at))
	return at
}

// ledger are the rows that are there.
func (p *testPod) ledger() string {
	return p.query("SELECT coalesce(string_agg(n::text, ' ' ORDER BY n), '') FROM public.ledger")
}

// archiveAll returns when everything that was written is in the archive.
func (p *testPod) archiveAll(store instanceapi.Store) {
	p.world.Helper()
	p.awaitArchived(p.repository(store), p.endSegment())
}

// restores is another world, whose cluster is made of a backup in the store of from.
func (from *world) restores(restore instanceapi.Restore) *world {
	from.Helper()
	w := newWorldOf(from.T, from.bin, from.major)
	w.kube.secrets = maps.Clone(from.kube.secrets)
	w.mounts = []string{from.backups()}
	w.setPassword("another")
	w.apply(func() { w.config.Bootstrap.Restore = &restore })
	return w
}

// files are those below a directory, with their sizes.
func files(t *testing.T, dir string) []string {
	t.Helper()
	var found []string
	must(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		found = append(found, fmt.Sprint(path, " ", info.Size(), " ", info.ModTime()))
		return err
	}))
	return found
}

// D-11: with the source gone, a cluster is restored from the store alone. It has
// this cluster's logins, is followed and replaced like any other, archives into its
// own place and writes nothing into the old one.
func TestD11RestoreWithNothingLeftButTheStore(t *testing.T) {
	t.Parallel()
	first, p, store := source(t)
	info := p.takeWell(backup.Full, "")
	p.write(1)
	p.archiveAll(store)
	p.stop()
	before := files(t, first.backups())

	w := first.restores(instanceapi.Restore{Store: store, ID: info.ID})
	w.apply(func() {
		w.config.Members = []string{"shop-1", "shop-2"}
		w.config.Backups = &instanceapi.Backups{Store: w.onVolume("shop")}
	})
	restored := w.start("shop-1", "127.0.62.1")
	replica := w.start("shop-2", "127.0.62.2")
	state := restored.waitFor("ready", isReady)
	if state.Timeline != 2 || state.SystemID != p.systemID || state.Restored == 0 || state.Restored != state.RestoreTotal {
		t.Errorf("it says %+v", state)
	}
	if got := restored.ledger(); got != "1" {
		t.Errorf("it has %q", got)
	}
	if got := restored.query("SELECT rolpassword FROM pg_authid WHERE rolname = 'app'"); got == p.query("SELECT rolpassword FROM pg_authid WHERE rolname = 'app'") {
		t.Error("the login is the source's")
	}
	if got := restored.query("SELECT current_setting('restore_command') || current_setting('recovery_target_timeline') || current_setting('archive_mode')"); got != "latestalways" {
		t.Errorf("its server has %q", got)
	}
	replica.waitFor("streams", isStreaming)
	restored.write(2)
	second := restored.takeWell(backup.Full, "")
	restored.awaitArchived(restored.repository(w.config.Backups.Store), "00000002.history")
	if second.Timeline != 2 {
		t.Errorf("its own backup is %+v", second)
	}
	w.awaitMembers(1)
	restored.vanish()
	replica.waitFor("leads", func(s instanceapi.State) bool { return s.Role == instanceapi.RolePrimary && isReady(s) })
	if got := replica.ledger(); got != "1 2" {
		t.Errorf("after the failover there is %q", got)
	}
	if after := files(t, first.backups()); !slices.Equal(before, after) {
		t.Errorf("the old archive had %v and has %v", before, after)
	}
}

const walPage = 8 << 10

// D-07, D-09: each kind of target, with the backup chosen where it can be.
func TestD07D09RestoreToEachKindOfTarget(t *testing.T) {
	t.Parallel()
	first, p, store := source(t)
	old := p.takeWell(backup.Full, "")
	p.write(1)
	at := p.write(2)
	name := "before migration"
	must(t, p.sql.Exec(t.Context(), "SELECT pg_create_restore_point('"+name+"')"))
	lsn := p.query("SELECT pg_current_wal_insert_lsn()")
	var xid string
	must(t, p.sql.Row(t.Context(), "WITH i AS (INSERT INTO public.ledger (n) VALUES (3)) SELECT pg_current_xact_id()::text", &xid))
	p.write(4)
	newer := p.takeWell(backup.Full, "")
	p.write(5)
	p.archiveAll(store)
	for what, c := range map[string]struct {
		id     string
		target instanceapi.RestoreTarget
		want   string
	}{
		"a time with an offset":             {"", instanceapi.RestoreTarget{Time: at.In(time.FixedZone("", 7200)).Format("2006-01-02 15:04:05.999999-07")}, "1 2"},
		"a position":                        {"", instanceapi.RestoreTarget{LSN: lsn}, "1 2"},
		"a transaction":                     {old.ID, instanceapi.RestoreTarget{XID: xid}, "1 2 3"},
		"a restore point":                   {old.ID, instanceapi.RestoreTarget{Name: name}, "1 2"},
		"the end of a backup":               {newer.ID, instanceapi.RestoreTarget{Immediate: true}, "1 2 3 4"},
		"the end, from the older backup on": {old.ID, instanceapi.RestoreTarget{}, "1 2 3 4 5"},
	} {
		t.Run(what, func(t *testing.T) {
			w := first.restores(instanceapi.Restore{Store: store, ID: c.id, Target: c.target})
			restored := w.start("shop-1", "127.0.0.1")
			restored.waitFor("ready", isReady)
			if got := restored.ledger(); got != c.want {
				t.Errorf("it has %q, want %q", got, c.want)
			}
			restored.stop()
			if what != "a position" {
				return
			}
			// Where recovery ended is told later, too.
			restored = w.start("shop-1", "127.0.0.1")
			to := restored.waitFor("ready again", isReady).Recovered
			end, err := postgres.ParseLSN(lsn)
			must(t, err)
			// The record at the position is the last one.
			if to == nil || to.LSN <= end || to.LSN > end+walPage || to.LastCommit.IsZero() || to.LastCommit.After(at) {
				t.Errorf("it tells %+v, and was to recover to %s, with what was committed by %s", to, lsn, at)
			}
			restored.stop()
		})
	}
}

// D-07, D-16: the backup of a replica at rest ends where the archive does. Restored to
// its end it needs nothing after that.
func TestD07D16ReplicaAtRestIsRestoredToTheEndOfItsBackup(t *testing.T) {
	t.Parallel()
	first := newWorld(t)
	store := first.onVolume("shop")
	first.apply(func() {
		first.config.Members = []string{"shop-1", "shop-2"}
		first.config.Backups = &instanceapi.Backups{Store: store}
	})
	primary := first.start("shop-1", "127.0.75.1")
	primary.waitFor("ready", isReady)
	replica := first.start("shop-2", "127.0.75.2")
	replica.waitFor("streams", isStreaming)
	must(t, primary.sql.Exec(t.Context(), "CREATE TABLE public.ledger AS SELECT 1 AS n"))
	must(t, primary.sql.Exec(t.Context(), "SELECT pg_switch_wal()"))
	const replayed = "SELECT pg_last_wal_replay_lsn()::text"
	end := primary.query("SELECT pg_current_wal_lsn()::text")
	first.eventually("everything on the replica", func() bool { return replica.query(replayed) == end }, func() string { return replica.query(replayed) })
	info := replica.takeWell(backup.Full, "")
	primary.stop()
	replica.stop()

	w := first.restores(instanceapi.Restore{Store: store, ID: info.ID, Target: instanceapi.RestoreTarget{Immediate: true}})
	restored := w.start("shop-1", "127.0.76.1")
	restored.waitFor("ready", isReady)
	if got := restored.ledger(); got != "1" {
		t.Errorf("it has %q", got)
	}
}

// D-09: a target before the end of every backup is refused, and the message says
// from when on there is one.
func TestD09TargetBeforeTheBackupIsRefused(t *testing.T) {
	t.Parallel()
	first, p, store := source(t)
	info := p.takeWell(backup.Full, "")
	target := instanceapi.RestoreTarget{Time: info.StoppedAt.Add(-time.Hour).Format(time.RFC3339)}
	for _, id := range []string{"", info.ID} {
		w := first.restores(instanceapi.Restore{Store: store, ID: id, Target: target})
		w.start("shop-1", "127.0.0.1").waitFor("refuses", failsWith(info.ID, info.StoppedAt.UTC().Format(time.RFC3339)))
	}
}

// D-08: a target that the archive does not reach ends the restore once, with the
// time that can be reached; nothing opens elsewhere. Another target is restored to.
func TestD08TargetAfterTheEndOfTheArchive(t *testing.T) {
	t.Parallel()
	first, p, store := source(t)
	p.takeWell(backup.Full, "")
	before := time.Now()
	at := p.write(1)
	p.archiveAll(store)
	w := first.restores(instanceapi.Restore{Store: store, Target: instanceapi.RestoreTarget{Time: at.Add(time.Hour).Format(time.RFC3339)}})
	restored := w.start("shop-1", "127.0.0.1")
	state := restored.waitFor("fails", failsForGood("the archive ends before target"))
	_, said, _ := strings.Cut(state.RestoreFailed, "the last transaction that can be reached is of ")
	said, _, _ = strings.Cut(said, ";")
	if last, err := time.Parse(time.RFC3339Nano, said); err != nil || last.Before(before) || last.After(at) {
		t.Errorf("the last transaction was between %v and %v, and it says: %s", before, at, state.RestoreFailed)
	}
	const calm = 3 * time.Second // longer than the first tries are apart
	time.Sleep(calm)
	if again := restored.State(t.Context()); again.Since != state.Since || again.HasData {
		t.Errorf("it tries again: %+v after %+v", again, state)
	}
	if left := files(t, restored.volume.dir()); slices.ContainsFunc(left, func(path string) bool { return strings.Contains(path, "pg_control") }) {
		t.Error("what was restored is still there")
	}
	w.apply(func() { w.config.Bootstrap.Restore.Target = instanceapi.RestoreTarget{} })
	restored.waitFor("ready", isReady)
	if got := restored.ledger(); got != "1" {
		t.Errorf("it has %q", got)
	}
}

// failsForGood is failsWith, of a restore that the operator is told can't come about.
func failsForGood(words ...string) func(instanceapi.State) bool {
	fails := failsWith(words...)
	return func(s instanceapi.State) bool { return fails(s) && s.RestoreFailed != "" }
}

// D-10: another major version is refused, with both, before anything is read.
func TestD10OtherMajorVersionIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	store := w.onVolume("old")
	opened, prefix, err := newStore(w.kube, []string{w.backups()}, store)
	must(t, err)
	must(t, backup.NewRepository(opened, prefix, backup.Owner{SystemID: "7000000000000000001", Major: 12, Cluster: "test/old"}).Claim(t.Context()))
	w.apply(func() { w.config.Bootstrap.Restore = &instanceapi.Restore{Store: store} })
	p := w.start("shop-1", "127.0.0.1")
	p.waitFor("refuses", failsWith("PostgreSQL 12", fmt.Sprintf("PostgreSQL %d", w.major), "spec.postgres.version to 12"))
}

// D-17: a backup that is not complete yet is restored once it is.
func TestD17RestoreOfABackupThatIsBeingTaken(t *testing.T) {
	t.Parallel()
	first, p, store := source(t)
	first.apply(func() { first.config.Backups.MaxRate = 3 << 20 })
	id := p.ask(backup.Full, "")
	p.waitFor("is under way", func(s instanceapi.State) bool { return s.Backup != nil && s.Backup.Done > 0 })
	w := first.restores(instanceapi.Restore{Store: store, ID: id})
	restored := w.start("shop-1", "127.0.0.1")
	restored.waitFor("refuses", failsWith(id))
	p.waitFor("is complete", func(s instanceapi.State) bool { return s.Backup.Complete != nil })
	restored.waitFor("ready", isReady)
}

// object is the file of an object that is named so.
func (w *world) object(name string) string {
	w.Helper()
	var found []string
	for _, line := range files(w.T, w.backups()) {
		if path, _, _ := strings.Cut(line, " "); strings.Contains(path, name) && !strings.HasSuffix(path, ".backup.zst") {
			found = append(found, path)
		}
	}
	if len(found) != 1 {
		w.Fatalf("%s: %v", name, found)
	}
	return found[0]
}

// damaged is an object with a part of it inverted: a single byte may make no difference
// to what is decompressed, since a match in zeros may be at any distance.
func damaged(object []byte) []byte {
	damaged := slices.Clone(object)
	for i := len(damaged) / 3; i < len(damaged)/2; i++ {
		damaged[i] ^= 0xff
	}
	return damaged
}

// D-18: what is missing or damaged in the store is named, and nothing of the restore
// stays. What is missing is found before anything is written, and restored once it
// is back.
func TestD18MissingAndDamagedObjectsAreNamed(t *testing.T) {
	t.Parallel()
	first, p, store := source(t)
	info := p.takeWell(backup.Full, "")
	p.write(1)
	p.archiveAll(store)
	second := p.endSegment()
	p.awaitArchived(p.repository(store), second)
	p.archiveAll(store)

	for what, name := range map[string]string{"a part": "part-00001", "the WAL that it needs": info.LastWAL, "WAL after it": second} {
		t.Run(what+" is missing", func(t *testing.T) {
			path := first.object(name + ".")
			must(t, os.Rename(path, path+".aside"))
			w := first.restores(instanceapi.Restore{Store: store})
			restored := w.start("shop-1", "127.0.0.1")
			restored.waitFor("refuses", failsForGood(name))
			if exists(restored.volume.data()) || exists(restored.volume.marker()) {
				t.Error("the restore has begun")
			}
			must(t, os.Rename(path+".aside", path))
			restored.waitFor("ready", isReady)
			restored.stop()
		})
	}
	for what, name := range map[string]string{"a part": "part-00001", "WAL": second} {
		t.Run(what+" is damaged", func(t *testing.T) {
			path := first.object(name + ".")
			content, err := os.ReadFile(path)
			must(t, err)
			must(t, os.WriteFile(path, damaged(content), 0o600))
			w := first.restores(instanceapi.Restore{Store: store})
			restored := w.start("shop-1", "127.0.0.1")
			restored.waitFor("refuses", failsForGood(name, "damaged"))
			if exists(restored.volume.data()) {
				t.Error("what was restored is still there")
			}
			restored.stop()
			must(t, os.WriteFile(path, content, 0o600))
		})
	}
}

// A restore that is cut short begins anew. The source had more of what recovery
// needs than this cluster is given, no role of the owner's name, and WAL in the data
// directory.
func TestRestoreBeginsAnewAndNeedsNoMoreThanItIsGiven(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.conf["max_connections"], w.conf["max_prepared_transactions"] = "60", "7"
	first, p, store := sourceIn(w)
	p.takeWell(backup.Full, "")
	p.write(1)
	// Replayed only by a server that may have prepared transactions.
	must(t, p.sql.Exec(t.Context(), "BEGIN; INSERT INTO public.ledger VALUES (2); PREPARE TRANSACTION 'x'"))
	must(t, p.sql.Exec(t.Context(), "COMMIT PREPARED 'x'"))
	p.archiveAll(store)
	w = first.restores(instanceapi.Restore{Store: store})
	w.withWAL = true
	w.apply(func() { w.config.Bootstrap.Owner = "newcomer" })
	w.setPassword("another")
	restored := w.start("shop-1", "127.0.0.1")
	restored.waitFor("restores", func(s instanceapi.State) bool { return s.Restored > 0 })
	restored.stop()
	restored = w.start("shop-1", "127.0.0.1")
	restored.waitFor("ready", isReady)
	if got := restored.ledger(); got != "1 2" {
		t.Errorf("it has %q", got)
	}
	if got := restored.query("SELECT rolcanlogin AND rolpassword IS NOT NULL FROM pg_authid WHERE rolname = 'newcomer'"); got != "true" {
		t.Errorf("the owner that the backup doesn't have: %s", got)
	}
	if got := restored.query("SELECT current_setting('max_connections') || ' ' || current_setting('max_prepared_transactions')"); got != "20 0" {
		t.Errorf("its server has %s", got)
	}
	if target, err := walLink(restored.volume.data()); err != nil || filepath.Dir(target) != restored.volume.walDir() {
		t.Errorf("its WAL is in %q (%v)", target, err)
	}
}

// An incremental backup is restored with those that it goes on from.
func TestRestoreOfAnIncrementalBackup(t *testing.T) {
	t.Parallel()
	w := newWorldFor(t, 17)
	w.conf["summarize_wal"] = "on"
	first, p, store := sourceIn(w)
	full := p.takeWell(backup.Full, "")
	p.write(1)
	info := p.takeWell(backup.Incremental, full.ID)
	p.write(2)
	p.archiveAll(store)
	w = first.restores(instanceapi.Restore{Store: store, ID: info.ID})
	restored := w.start("shop-1", "127.0.0.1")
	restored.waitFor("ready", isReady)
	if got := restored.ledger(); got != "1 2" {
		t.Errorf("it has %q", got)
	}
}

// D-11: a cluster that is restored in the place of one that is gone goes on in its
// archive: from the former backup on, it can be restored along both timelines.
func TestD11RestoreUnderTheSameNameGoesOnInTheSameArchive(t *testing.T) {
	t.Parallel()
	first := newWorld(t)
	server := s3test.Start(t)
	store := first.inBucket(server, "shop")
	first.backUp(store)
	p := first.start("shop-1", "127.0.0.1")
	p.waitFor("ready", isReady)
	must(t, p.sql.Exec(t.Context(), "CREATE TABLE public.ledger (n int)"))
	info := p.takeWell(backup.Full, "")
	p.write(1)
	p.archiveAll(store)
	p.vanish()
	w := first.restores(instanceapi.Restore{Store: store})
	w.backUp(store)
	restored := w.start("shop-1", "127.0.0.1")
	restored.waitFor("ready", isReady)
	restored.write(2)
	restored.archiveAll(store)
	catalog := restored.awaitCatalog("the former backup", func(c instanceapi.Catalog) bool { return len(c.Backups) == 1 })
	if catalog.Backups[0].ID != info.ID || catalog.Gap != "" {
		t.Errorf("the catalog says %+v", catalog)
	}
	restored.vanish()
	// From the former backup along both timelines.
	w = first.restores(instanceapi.Restore{Store: store})
	again := w.start("shop-1", "127.0.0.1")
	again.waitFor("ready", isReady)
	if got := again.ledger(); got != "1 2" {
		t.Errorf("it has %q", got)
	}
}

// With archive_mode = always a primary that is lost with its volume, and with what
// it had not archived yet, leaves no hole: its standbys have archived it. A cluster
// is restored to a time before and to one after the failover.
func TestRestoreAcrossAFailoverThatLostThePrimarysVolume(t *testing.T) {
	t.Parallel()
	first := newWorld(t)
	store := first.onVolume("shop")
	pods := first.three(instanceapi.HA{MaxLag: 1 << 30}, func(w *world) { w.config.Backups = &instanceapi.Backups{Store: store} })
	lost := pods["shop-1"]
	must(t, lost.sql.Exec(t.Context(), "CREATE TABLE public.ledger (n int)"))
	pods["shop-2"].takeWell(backup.Full, "")
	before := lost.write(1)
	lost.archiver.hold() // it archives nothing any more
	lost.write(2)
	lost.awaitArchived(lost.repository(store), lost.endSegment())
	lost.write(3)
	first.eventually("row 3 on the replicas", func() bool { return pods["shop-2"].ledger() == "1 2 3" && pods["shop-3"].ledger() == "1 2 3" }, lost.ledger)
	lost.vanish()
	must(t, os.RemoveAll(lost.options.Mount))
	primary := first.awaitPrimary(pods, "shop-1")
	other := pods["shop-2"]
	if primary == other {
		other = pods["shop-3"]
	}
	other.waitFor("streams", isStreaming)
	after := primary.write(4)
	primary.write(5)
	primary.archiveAll(store)
	for _, p := range []*testPod{primary, other} {
		// Whatever it received of the timeline that was left, it gets rid of.
		p.waitFor("archives well", func(s instanceapi.State) bool { return archivesWell(s) && s.Archive.Waiting == 0 })
	}
	first.apply(func() { first.config.TakeBackup = nil })
	catalog := primary.awaitCatalog("the backup", func(c instanceapi.Catalog) bool { return len(c.Backups) == 1 })
	if catalog.Gap != "" || catalog.Backups[0].Unusable != "" {
		t.Errorf("the catalog says %+v", catalog)
	}
	for what, c := range map[string]struct {
		target time.Time
		want   string
	}{"before": {before, "1"}, "after": {after, "1 2 3 4"}} {
		w := first.restores(instanceapi.Restore{Store: store, Target: instanceapi.RestoreTarget{Time: c.target.UTC().Format(time.RFC3339Nano)}})
		restored := w.start("shop-1", "127.0.0.1")
		restored.waitFor("ready", isReady)
		if got := restored.ledger(); got != c.want {
			t.Errorf("%s the failover there was %q, want %q", what, got, c.want)
		}
		restored.stop()
	}
}

// D-18: after a cluster was restored to an earlier time in its own archive, the backups
// that were taken meanwhile lie on the way that was left. One of them is restored along
// that way, if it is named. What leads to the present is chosen by itself, is what an
// incremental one goes on from, and is kept.
func TestD18BackupsOfATimelineThatWasLeft(t *testing.T) {
	t.Parallel()
	world := newWorldFor(t, 17)
	world.conf["summarize_wal"] = "on"
	first, p, store := sourceIn(world)
	old := p.takeWell(backup.Full, "")
	at := p.write(1)
	p.write(2)
	left := p.takeWell(backup.Full, "")
	p.write(3)
	p.archiveAll(store)
	p.stop()

	undo := first.restores(instanceapi.Restore{Store: store, Target: instanceapi.RestoreTarget{Time: at.UTC().Format(time.RFC3339Nano)}})
	undo.conf["summarize_wal"] = "on"
	undo.apply(func() {
		undo.config.Backups = &instanceapi.Backups{Store: store, Retention: instanceapi.Retention{Keep: 1}}
	})
	present := undo.start("shop-1", "127.0.0.1")
	present.waitFor("ready", isReady)
	present.write(4)
	lsn := present.query("SELECT pg_current_wal_insert_lsn()")
	present.archiveAll(store)
	catalog := present.awaitCatalog("both backups", func(c instanceapi.Catalog) bool { return len(c.Backups) == 2 })
	if !catalog.Backups[1].LeftBehind || catalog.Backups[0].LeftBehind || !catalog.First.Equal(old.StoppedAt) || catalog.Gap != "" {
		t.Errorf("the catalog says %+v", catalog)
	}

	for what, c := range map[string]struct {
		restore instanceapi.Restore
		want    string
	}{
		"none is named":                            {instanceapi.Restore{Store: store}, "1 4"},
		"the one that was left behind is":          {instanceapi.Restore{Store: store, ID: left.ID}, "1 2 3"},
		"to the end of the one that was left":      {instanceapi.Restore{Store: store, ID: left.ID, Target: instanceapi.RestoreTarget{Immediate: true}}, "1 2"},
		"a position after both, and none is named": {instanceapi.Restore{Store: store, Target: instanceapi.RestoreTarget{LSN: lsn}}, "1 4"},
	} {
		t.Run(what, func(t *testing.T) {
			restored := first.restores(c.restore).start("shop-1", "127.0.0.1")
			restored.waitFor("ready", isReady)
			if got := restored.ledger(); got != c.want {
				t.Errorf("it has %q, want %q", got, c.want)
			}
			restored.stop()
		})
	}
	if info := present.takeWell(backup.Incremental, old.ID); info.Timeline != 2 {
		t.Errorf("the incremental one is %+v", info)
	}
}
