package backup_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pgop/postgres-operator/pkg/backup"
	"github.com/pgop/postgres-operator/pkg/backup/file"
	"github.com/pgop/postgres-operator/test/s3test"
)

func TestD16TheFirstBackupOfAnIdleDatabase(t *testing.T) {
	s := newShop(t, 15, map[string]string{"checkpoint_timeout": "15min"})
	record := s.take(s.options(s.primary))
	if record.Kind != backup.Full || record.Size < 1<<20 || record.StoredSize == 0 || record.StoredSize > record.Size ||
		record.StopLSN() <= record.StartLSN() || record.Timeline() != 1 || record.SegmentSize != 16<<20 ||
		record.StoppedAt.Before(record.StartedAt) || record.Version != s.installation.Version.Text {
		t.Errorf("record: %+v", record)
	}
	must(t, s.repository.CheckWAL(context.Background(), record))
	read, err := s.repository.Record(context.Background(), record.ID)
	if err != nil || read.Checksum == "" || read.StopLSN() != record.StopLSN() {
		t.Errorf("read %+v, %v", read, err)
	}
	server := s.restored(record, backup.TargetSpec{Immediate: true})
	s.startPromoted(server)
	if got := server.SystemID(); got != record.SystemID {
		t.Errorf("system identifier: %s", got)
	}
}

func TestD07RestoreToAPointInTime(t *testing.T) {
	s := newShop(t, 15, nil)
	s.write(3)
	record := s.take(s.options(s.primary))
	type point struct {
		what   string
		target backup.TargetSpec
		rows   string
	}
	var points []point
	for n := range 3 {
		rows := s.write(4)
		at := s.primary.Text("clock_timestamp()")
		parsed, err := backup.ParseTime(at)
		must(t, err)
		points = append(points,
			point{"the server's own form", backup.TargetSpec{Time: at}, rows},
			point{"Z", backup.TargetSpec{Time: parsed.Format(time.RFC3339Nano)}, rows},
			point{"+02:00", backup.TargetSpec{Time: parsed.In(time.FixedZone("", 7200)).Format(time.RFC3339Nano)}, rows},
			point{"an LSN", backup.TargetSpec{LSN: s.primary.Text("pg_current_wal_insert_lsn()")}, rows})
		name := fmt.Sprintf("it's point %d", n)
		s.primary.Exec("SELECT pg_create_restore_point('" + strings.ReplaceAll(name, "'", "''") + "')")
		points = append(points, point{"a name", backup.TargetSpec{Name: name}, rows})
	}
	all := s.write(2)
	s.switchWAL()
	points = append(points[:2], append(points[5:9], points[len(points)-1], point{"the end", backup.TargetSpec{}, all})...)
	for _, p := range points {
		server := s.restored(record, p.target)
		s.startPromoted(server)
		if got := rows(server); got != p.rows {
			t.Errorf("%s %+v: rows %s, want %s", p.what, p.target, got, p.rows)
		}
		server.Stop()
	}
}

// A target after the end of the archive fails once, and the log tells the last
// time that can be reached.
func TestD08ATargetAfterTheEndOfTheArchive(t *testing.T) {
	s := newShop(t, 15, nil)
	record := s.take(s.options(s.primary))
	before := time.Now()
	s.write(3)
	after := time.Now()
	s.switchWAL()
	server := s.restored(record, backup.TargetSpec{Time: after.Add(time.Hour).Format(time.RFC3339)})
	server.Launch()
	server.AwaitEnd()
	end := backup.ParseRecoveryEnd(server.Log())
	if !end.Missed || end.LastCommit.Before(before) || end.LastCommit.After(after) {
		t.Errorf("got %+v, want a commit from %s to %s\n%s", end, before, after, server.Log())
	}
}

func TestD09ATargetInsideTheBackupIsReachedFromTheOneBefore(t *testing.T) {
	at := func(clock string) time.Time {
		parsed, err := time.Parse(time.RFC3339, "2026-11-28T"+clock+":00Z")
		must(t, err)
		return parsed
	}
	record := func(id, stopped string, stop backup.Position) backup.Record {
		return backup.Record{ID: id, Kind: backup.Full, StoppedAt: at(stopped), WAL: []backup.WALRange{{Timeline: 1, Start: stop - 100, End: stop}}}
	}
	b1, b2 := record("B1", "10:05", 1000), record("B2", "11:05", 2000)
	orphan := record("B3", "12:05", 3000)
	orphan.Kind, orphan.Parent = backup.Incremental, "B0"
	for _, c := range []struct {
		target backup.TargetSpec
		want   string
		err    string
	}{
		{backup.TargetSpec{Time: "2026-11-28T11:03:00Z"}, "B1", ""},
		{backup.TargetSpec{Time: "2026-11-28T11:05:00Z"}, "B2", ""},
		{backup.TargetSpec{Time: "2026-11-28T13:05:00+02:00"}, "B2", ""},
		{backup.TargetSpec{Time: "2026-11-28T12:30:00Z"}, "B2", ""},
		{backup.TargetSpec{Time: "2026-11-28T10:04:00Z"}, "", "B1, which can be restored from 2026-11-28T10:05:00Z"},
		{backup.TargetSpec{LSN: "0/7CF"}, "B1", ""},
		{backup.TargetSpec{LSN: "0/7D0"}, "B2", ""},
		{backup.TargetSpec{LSN: "0/10"}, "", "WAL position 0/3E8"},
		{backup.TargetSpec{Immediate: true}, "B2", ""},
		{backup.TargetSpec{}, "B2", ""},
		{backup.TargetSpec{Name: "before"}, "", "name one"},
		{backup.TargetSpec{XID: "747"}, "", "name one"},
	} {
		target, err := backup.ParseTarget(c.target)
		must(t, err)
		got, err := backup.Choose(backup.Catalog{Records: []backup.Record{b2, orphan, b1}}, target)
		if c.err == "" && (err != nil || got.ID != c.want) || c.err != "" && (!errors.Is(err, backup.ErrNoBackup) || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%+v: %s, %v; want %s%s", c.target, got.ID, err, c.want, c.err)
		}
		if c.want != "" {
			must(t, backup.CheckTarget(got, target))
		}
	}
	target, err := backup.ParseTarget(backup.TargetSpec{Time: "2026-11-28T11:03:00Z"})
	must(t, err)
	wants(t, "B2 chosen by the user", backup.CheckTarget(b2, target), backup.ErrNoBackup, "B2", "2026-11-28T11:05:00Z")
	if _, err := backup.Choose(backup.Catalog{}, target); !errors.Is(err, backup.ErrNoBackup) {
		t.Errorf("without backups: %v", err)
	}
}

func TestD10AnotherMajorVersionIsRefused(t *testing.T) {
	r := backup.Record{ID: "b", Major: 15}
	if err := backup.CheckMajor(r, 16); err == nil || !strings.Contains(err.Error(), "15") || !strings.Contains(err.Error(), "16") {
		t.Error(err)
	}
	must(t, backup.CheckMajor(r, 15))
}

// All that is left is the store.
func TestD11TheSourceIsGone(t *testing.T) {
	s := newShop(t, 15, nil)
	record := s.take(s.options(s.primary))
	want := s.write(5)
	s.switchWAL()
	s.primary.Kill()
	must(t, os.RemoveAll(s.primary.Data))
	owner, err := backup.ReadOwner(context.Background(), s.store, "shop")
	must(t, err)
	s.repository = backup.NewRepository(s.store, "shop", owner)
	server := s.restored(record, backup.TargetSpec{})
	s.startPromoted(server)
	if got := rows(server); got != want {
		t.Errorf("rows %s, want %s", got, want)
	}
	_, err = backup.ReadOwner(context.Background(), s.store, "elsewhere")
	wants(t, "another prefix", err, backup.ErrNotFound)
}

// A backup that ends early says why, leaves nothing in the store, and the server
// is out of backup mode.
func TestD01ABackupThatIsEndedLeavesNothing(t *testing.T) {
	s := newShop(t, 15, nil)
	s.write(1)
	s.primary.Exec("INSERT INTO ledger SELECT 0, repeat(md5(i::text), 60) FROM generate_series(1, 5000) i")
	for what, strike := range map[string]func(cancel context.CancelFunc){
		"its context ends":   func(cancel context.CancelFunc) { cancel() },
		"the server is shut": func(context.CancelFunc) { s.primary.Stop(); s.primary.Start() },
		"its connection is ended": func(context.CancelFunc) {
			s.primary.Exec("SELECT pg_terminate_backend(pid) FROM pg_stat_progress_basebackup")
		},
	} {
		ctx, cancel := context.WithCancel(context.Background())
		o := s.options(s.primary)
		o.MaxRate, o.PartSize = 2<<20, 1<<20
		var progress atomic.Value
		o.Progress = func(p backup.Progress) { progress.Store(p) }
		ended := make(chan error)
		go func() {
			_, err := s.repository.TakeBase(ctx, s.installation.Programs, o)
			ended <- err
		}()
		eventually(t, "a part in the store", func() bool {
			p, _ := progress.Load().(backup.Progress)
			return len(s.objects(o.ID)) > 0 && p.Done > 0 && p.Estimated > p.Done
		})
		strike(cancel)
		err := <-ended
		cancel()
		if err == nil || !strings.Contains(err.Error(), "pg_basebackup") {
			t.Errorf("%s: %v", what, err)
		}
		if left := s.objects(o.ID); len(left) > 0 {
			t.Errorf("%s: left %v", what, left)
		}
		eventually(t, what+": the server out of backup mode", func() bool {
			return s.primary.Text("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'walsender'") == "0"
		})
	}
	s.take(s.options(s.primary))
}

// A backup is complete only when the WAL it needs is in the archive.
func TestD18CompleteOnlyWithItsWAL(t *testing.T) {
	for _, from := range []string{"the primary", "a standby", "a standby that archives"} {
		t.Run(from, func(t *testing.T) {
			s := newShop(t, 15, nil)
			s.write(1)
			server := s.primary
			switch from {
			case "a standby":
				server = s.addStandby(nil)
			case "a standby that archives":
				server = s.addStandby(map[string]string{"archive_mode": "always"})
			}
			s.write(1)
			s.primary.Exec("CHECKPOINT")
			if server != s.primary {
				s.awaitReplay(server)
				server.Exec("CHECKPOINT")
			}
			// A store that is slow, and not one that fails: the server would try again
			// only after a minute.
			slow := make(chan struct{})
			s.store.set(func() {
				s.store.before = func(_ context.Context, call, key string) {
					if call == "create" && strings.Contains(key, "/wal/") {
						<-slow
					}
				}
			})
			o := s.options(server)
			var awaits atomic.Bool
			o.Progress = func(p backup.Progress) { awaits.Store(p.AwaitsWAL) }
			ctx, cancel := context.WithCancelCause(context.Background())
			type result struct {
				record backup.Record
				err    error
			}
			ended := make(chan result)
			go func() {
				record, err := s.repository.TakeBase(ctx, s.installation.Programs, o)
				ended <- result{record, err}
			}()
			eventually(t, "all data in the store", awaits.Load)
			select {
			case r := <-ended:
				t.Fatalf("it ended without its WAL: %+v, %v", r.record, r.err)
			case <-time.After(3 * time.Second): // no more than a chance to fail
			}
			if got := s.objects("backup.json"); len(got) > 0 {
				t.Errorf("it is complete without its WAL: %v", got)
			}
			close(slow)
			r := <-ended
			must(t, r.err)
			must(t, s.repository.CheckWAL(context.Background(), r.record))
			restored := s.restored(r.record, backup.TargetSpec{Immediate: true})
			s.startPromoted(restored)
			cancel(nil)
		})
	}
}

func TestD18ABackupWithoutItsWALFailsAndSaysWhich(t *testing.T) {
	s := newShop(t, 15, nil)
	standby := s.addStandby(nil)
	s.write(1)
	s.primary.Exec("CHECKPOINT")
	s.awaitReplay(standby)
	standby.Exec("CHECKPOINT")
	s.store.set(func() {
		s.store.fail = func(call, key string) error {
			if call == "create" && strings.Contains(key, "/wal/") {
				return errors.New("the store takes no WAL")
			}
			return nil
		}
	})
	o := s.options(standby)
	ctx, cancel := context.WithCancelCause(context.Background())
	o.Progress = func(p backup.Progress) {
		if p.AwaitsWAL {
			cancel(errors.New("the deadline has passed"))
		}
	}
	_, err := s.repository.TakeBase(ctx, s.installation.Programs, o)
	if err == nil || !strings.Contains(err.Error(), "the deadline has passed") || !strings.Contains(err.Error(), "WAL segment 000000010000000000000003") {
		t.Error(err)
	}
	if left := s.objects(o.ID); len(left) > 0 {
		t.Errorf("left %v", left)
	}
}

func TestTablespacesAreRefused(t *testing.T) {
	s := newShop(t, 15, nil)
	dir := t.TempDir()
	s.primary.Exec("CREATE TABLESPACE fast LOCATION '" + dir + "'")
	_, err := s.repository.TakeBase(context.Background(), s.installation.Programs, s.options(s.primary))
	if err == nil || !strings.Contains(err.Error(), "1 tablespaces") {
		t.Error(err)
	}
}

func TestAnotherServerIsRefused(t *testing.T) {
	s := newShop(t, 15, nil)
	other := s.installation.New(t, nil)
	other.Start()
	_, err := s.repository.TakeBase(context.Background(), s.installation.Programs, s.options(other))
	if err == nil || !strings.Contains(err.Error(), other.SystemID()) {
		t.Error(err)
	}
}

func TestAStoreThatFailsEndsTheBackup(t *testing.T) {
	s := newShop(t, 15, nil)
	full := errors.New("507 InsufficientStorage: the bucket is full")
	for _, object := range []string{"part-00001", "part-00003", "backup_manifest", "backup.json"} {
		s.store.set(func() {
			s.store.fail = func(call, key string) error {
				if call == "create" && strings.Contains(key, object) {
					return full
				}
				return nil
			}
		})
		o := s.options(s.primary)
		o.PartSize = 1 << 20
		_, err := s.repository.TakeBase(context.Background(), s.installation.Programs, o)
		wants(t, object, err, full, o.ID)
		if left := s.objects(o.ID); len(left) > 0 {
			t.Errorf("%s: left %v", object, left)
		}
	}
}

// The primary's volume is lost with its last WAL; the standby archived it.
func TestALostPrimaryLeavesNoHoleInTheArchive(t *testing.T) {
	s := newShop(t, 15, nil)
	standby := s.addStandby(map[string]string{"archive_mode": "always"})
	s.configure(s.primary, map[string]string{"archive_command": "/bin/false"})
	s.primary.Exec("SELECT pg_reload_conf()")
	record := s.take(s.options(standby))
	before := s.write(3)
	at := s.primary.Text("clock_timestamp()")
	s.primary.Exec("SELECT pg_switch_wal()")
	s.write(3)
	s.awaitReplay(standby)
	s.primary.Kill()
	must(t, os.RemoveAll(s.primary.Data))
	standby.Exec("SELECT pg_promote()")
	s.primary = standby
	all := s.write(2)
	s.switchWAL()
	for want, target := range map[string]backup.TargetSpec{before: {Time: at}, all: {}} {
		server := s.restored(record, target)
		s.startPromoted(server)
		if got := rows(server); got != want {
			t.Errorf("%+v: rows %s, want %s", target, got, want)
		}
		server.Stop()
	}
}

func TestRecoveryGetsWhatTheControlFileAsksFor(t *testing.T) {
	s := newShop(t, 15, map[string]string{"max_connections": "300", "max_locks_per_transaction": "128"})
	record := s.take(s.options(s.primary))
	server := s.restored(record, backup.TargetSpec{})
	s.startPromoted(server)
	if got := server.Text("current_setting('max_connections') || ' ' || current_setting('max_locks_per_transaction')"); got != "300 128" {
		t.Error(got)
	}
}

func TestIncrementalBackupsAreRestored(t *testing.T) {
	s := newShop(t, 17, map[string]string{"summarize_wal": "on"})
	s.write(3)
	o := s.options(s.primary)
	full := s.take(o)
	chain := []backup.Record{full}
	for range 2 {
		s.write(3)
		o := s.options(s.primary)
		o.Parent = &chain[len(chain)-1]
		chain = append(chain, s.take(o))
	}
	want := s.write(2)
	s.switchWAL()
	last := chain[2]
	if last.Kind != backup.Incremental || last.Parent != chain[1].ID || last.Size*2 > full.Size {
		t.Errorf("record %+v", last)
	}
	server := s.restored(last, backup.TargetSpec{})
	s.startPromoted(server)
	if got := rows(server); got != want {
		t.Errorf("rows %s, want %s", got, want)
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(server.Data), "data-work")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the work directory is left: %v", err)
	}
}

func TestAnIncrementalBackupNeedsPostgreSQL17(t *testing.T) {
	s := newShop(t, 15, nil)
	if s.installation.Version.Major >= 17 {
		t.Skip("needs an older PostgreSQL than 17 alone")
	}
	o := s.options(s.primary)
	o.Parent = &backup.Record{ID: "x"}
	_, err := s.repository.TakeBase(context.Background(), s.installation.Programs, o)
	if err == nil || !strings.Contains(err.Error(), "17") {
		t.Error(err)
	}
}

// What is damaged is named before anything else is touched.
func TestDamagedBackupsAreNamed(t *testing.T) {
	server := s3test.Start(t)
	s := newShopIn(t, 15, server.Store(), nil)
	s.write(1)
	o := s.options(s.primary)
	o.PartSize = 4 << 20
	record := s.take(o)
	folder := filepath.Join(server.Objects(), s.repository.Layout().BackupFolder(record.ID))
	restore := func() (string, error) {
		data := filepath.Join(t.TempDir(), "data")
		return data, s.repository.RestoreBase(context.Background(), s.installation.Programs, []backup.Record{record}, s.restoreOptions(data))
	}
	part := filepath.Join(folder, "part-00002.tar.zst")
	whole, err := os.ReadFile(part)
	must(t, err)
	wal := filepath.Join(server.Objects(), s.repository.Layout().WALFolder(), "00000001", record.Segments()[0]+".zst")
	segment, err := os.ReadFile(wal)
	must(t, err)
	for _, c := range []struct {
		what   string
		strike func()
		want   error
		name   string
		early  bool
	}{
		{"a part is missing", func() { must(t, os.Remove(part)) }, backup.ErrNotFound, "part-00002", true},
		{"a part is cut off", func() { must(t, os.WriteFile(part, whole[:len(whole)-1], 0o600)) }, backup.ErrDamaged, "part-00002", true},
		{"a part has changed", func() {
			changed := append([]byte(nil), whole...)
			changed[len(changed)/2] ^= 1
			must(t, os.WriteFile(part, changed, 0o600))
		}, backup.ErrDamaged, "part-00002", false},
		{"a segment is missing", func() { must(t, os.Remove(wal)) }, backup.ErrNotFound, record.Segments()[0], true},
	} {
		c.strike()
		data, err := restore()
		wants(t, c.what, err, c.want, c.name, record.ID)
		if _, err := os.Stat(data); c.early && !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: it has begun to write: %v", c.what, err)
		}
		must(t, os.WriteFile(part, whole, 0o600))
		must(t, os.WriteFile(wal, segment, 0o600))
	}
	_, err = restore()
	must(t, err)
	text, err := os.ReadFile(filepath.Join(folder, "backup.json"))
	must(t, err)
	must(t, os.WriteFile(filepath.Join(folder, "backup.json"), []byte(strings.Replace(string(text), `"timeline": 1`, `"timeline": 2`, 1)), 0o600))
	_, err = s.repository.Record(context.Background(), record.ID)
	wants(t, "the record", err, backup.ErrDamaged, "backup.json", record.ID)
}

func TestOnlyAnEmptyDirectoryIsRestoredInto(t *testing.T) {
	s := newShop(t, 15, nil)
	record := s.take(s.options(s.primary))
	data := t.TempDir()
	must(t, os.WriteFile(filepath.Join(data, "precious"), []byte("x"), 0o600))
	err := s.repository.RestoreBase(context.Background(), s.installation.Programs, []backup.Record{record}, s.restoreOptions(data))
	if err == nil || !strings.Contains(err.Error(), "not empty") {
		t.Error(err)
	}
	sameFile(t, filepath.Join(data, "precious"), []byte("x"))
}

// forgetful writes objects, and its answers get lost: each request is sent again, and
// refused.
type forgetful struct{ backup.Store }

func (f forgetful) Create(ctx context.Context, key string, content io.Reader) error {
	if err := f.Store.Create(ctx, key, content); err != nil {
		return err
	}
	return backup.ErrExists
}

// D-01: what was written, and is refused when it is sent again, is what was asked for.
func TestD01AnswersThatAreLostFailNoBackup(t *testing.T) {
	s := newShopIn(t, 15, forgetful{file.New(t.TempDir())}, nil)
	record := s.take(s.options(s.primary))
	want := s.write(3)
	s.switchWAL()
	must(t, s.repository.CheckBackup(context.Background(), []backup.Record{record}))
	server := s.restored(record, backup.TargetSpec{})
	s.startPromoted(server)
	if got := rows(server); got != want {
		t.Errorf("rows %s, want %s", got, want)
	}
}
