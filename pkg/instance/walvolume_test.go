package instance

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// withWAL is a new data volume with a WAL volume.
func withWAL(t *testing.T) volume {
	t.Helper()
	v := newVolume(t)
	v.walMount = t.TempDir()
	return v
}

// make makes data as initdb and pg_basebackup do, up to the end or not.
func (v volume) make(t *testing.T, finished bool) (wal string) {
	t.Helper()
	wal = v.mustBegin(t, byClone)
	v.fill(t)
	v.link(t, wal)
	if finished {
		_, err := v.finish(identity{Origin: byClone})
		must(t, err)
	}
	return wal
}

func (v volume) link(t *testing.T, wal string) {
	t.Helper()
	must(t, os.Mkdir(wal, 0o700))
	must(t, os.WriteFile(filepath.Join(wal, "000000010000000000000001"), []byte("wal"), 0o600))
	must(t, os.Symlink(wal, v.pgWAL()))
}

// onWALVolume are the names in the directory of the major version.
func (v volume) onWALVolume(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir(v.walDir())
	must(t, err)
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

func TestWALGoesWithItsData(t *testing.T) {
	v := withWAL(t)
	first := v.make(t, false)
	if got := v.onWALVolume(t); len(got) != 2 {
		t.Errorf("an unfinished clone has on the WAL volume: %v", got)
	}
	second := v.make(t, true)
	if got := v.onWALVolume(t); first == second || len(got) != 1 || got[0] != filepath.Base(second) {
		t.Errorf("after a clone that began anew the WAL volume has %v", got)
	}
	if got := v.kind(t); got != dataComplete {
		t.Errorf("the data is %s", got)
	}
	now := time.Now()
	_, err := v.giveUp(now)
	must(t, err)
	third := v.make(t, true)
	if !exists(second) || !exists(third) {
		t.Error("the data that was given up has lost its WAL")
	}
	_, err = v.giveUp(now.Add(time.Minute))
	must(t, err)
	if got := v.onWALVolume(t); len(got) != 1 || got[0] != filepath.Base(third) {
		t.Errorf("one former data directory is kept, and the WAL volume has %v", got)
	}
}

// A crash at any point of a clone leaves nothing that stays for ever, and never
// takes WAL that is in use.
func TestCrashesBetweenStepsWithWALVolume(t *testing.T) {
	v := withWAL(t)
	v.mustBegin(t, byClone) // before the directory
	wal := v.mustBegin(t, byClone)
	must(t, os.Mkdir(wal, 0o700)) // before the link
	wal = v.make(t, true)
	must(t, os.WriteFile(wal+unfinishedSuffix, nil, 0o600)) // between data id and mark
	must(t, v.sweepWAL())
	if !exists(wal) || v.kind(t) != dataComplete {
		t.Error("WAL in use is swept away")
	}
	_, err := v.giveUp(time.Now())
	must(t, err)
	must(t, v.sweepWAL())
	if !exists(wal) {
		t.Error("WAL of former data is swept away")
	}
	stray := filepath.Join(v.walDir(), walPrefix+"0000000000000000")
	must(t, os.Mkdir(stray, 0o700))
	now := v.make(t, true)
	if got := v.onWALVolume(t); len(got) != 4 || !exists(stray) || !exists(now) { // wal has its mark
		t.Errorf("the WAL volume has %v", got)
	}
}

func TestDataWhoseWALIsElsewhere(t *testing.T) {
	v := withWAL(t)
	wal := v.make(t, true)
	aside := wal + "-aside"
	must(t, os.Rename(wal, filepath.Join(t.TempDir(), "wal")))
	check := func(what string, v volume, want walKind) {
		t.Helper()
		if kind := v.kind(t); kind != dataWithoutWAL {
			t.Errorf("%s: the data is %s", what, kind)
		}
		if got, err := v.lookAtWAL(); got != want || err != nil {
			t.Errorf("%s: the WAL is %s, %v", what, got, err)
		}
	}
	check("an empty WAL volume", v, walMissing)
	must(t, os.WriteFile(aside+unfinishedSuffix, nil, 0o600))
	must(t, os.Mkdir(aside, 0o700))
	check("a WAL volume with what was never finished", v, walMissing)
	must(t, os.Remove(aside+unfinishedSuffix))
	check("a WAL volume of other data", v, walForeign)
	v.walMount = ""
	check("no WAL volume", v, walUnmounted)
}

func TestNoDatabaseBesideOtherWAL(t *testing.T) {
	v := withWAL(t)
	wal := v.make(t, true)
	if other, err := v.otherData(); err != nil || other != "" {
		t.Errorf("the instance's own WAL counts as other: %q, %v", other, err)
	}
	must(t, os.RemoveAll(v.dir()))
	if other, err := v.otherData(); err != nil || other != wal {
		t.Errorf("other data: %q, %v", other, err)
	}
}

// pgWALOf is what the server would find in pg_wal.
func (v volume) pgWALOf(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(v.pgWAL(), "000000010000000000000001"))
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// A move of pg_wal that ends anywhere leaves the WAL whole, in one of two places,
// and is done the next time.
func TestMoveOfWALInterrupted(t *testing.T) {
	inside := func(t *testing.T) volume {
		v := newVolume(t)
		v.mustBegin(t, byInitdb)
		v.fill(t)
		must(t, os.MkdirAll(filepath.Join(v.pgWAL(), "archive_status"), 0o700))
		must(t, os.WriteFile(filepath.Join(v.pgWAL(), "000000010000000000000001"), []byte("wal"), 0o600))
		_, err := v.finish(identity{Origin: byInitdb})
		must(t, err)
		v.walMount = t.TempDir()
		return v
	}
	for why, interrupt := range map[string]func(t *testing.T, v volume){
		"not at all": func(*testing.T, volume) {},
		"while WAL is copied": func(t *testing.T, v volume) {
			wal, err := v.newWAL()
			must(t, err)
			must(t, os.Mkdir(wal, 0o700))
			must(t, os.WriteFile(filepath.Join(wal, "000000010000000000000001"), []byte("w"), 0o600))
		},
		"when pg_wal is aside": func(t *testing.T, v volume) {
			wal, err := v.newWAL()
			must(t, err)
			must(t, copyTree(t.Context(), v.pgWAL(), wal))
			must(t, os.Rename(v.pgWAL(), v.walAside()))
		},
		"when the link is in its place": func(t *testing.T, v volume) {
			wal, err := v.newWAL()
			must(t, err)
			must(t, copyTree(t.Context(), v.pgWAL(), wal))
			must(t, os.Rename(v.pgWAL(), v.walAside()))
			must(t, os.Symlink(wal, v.pgWAL()))
		},
	} {
		t.Run(why, func(t *testing.T) {
			v := inside(t)
			before, err := v.readIdentity()
			must(t, err)
			interrupt(t, v)
			must(t, v.settleWAL())
			if got := v.pgWALOf(t); got != "wal" || v.kind(t) != dataComplete {
				t.Fatalf("after the interruption pg_wal has %q, and the data is %s", got, v.kind(t))
			}
			if v.needsWALMoved() {
				must(t, v.moveWAL(t.Context()))
			}
			if kind, err := v.lookAtWAL(); kind != walLinked || err != nil || v.pgWALOf(t) != "wal" {
				t.Errorf("the WAL is %s, %v, and has %q", kind, err, v.pgWALOf(t))
			}
			if got := v.onWALVolume(t); len(got) != 1 || exists(v.walAside()) || !exists(filepath.Join(v.pgWAL(), "archive_status")) {
				t.Errorf("the WAL volume has %v; aside: %v", got, exists(v.walAside()))
			}
			if now, err := v.readIdentity(); now != before || err != nil {
				t.Errorf("the data is %v instead of %v", now, before)
			}
		})
	}
}

// WAL that does not fit is not moved, and the data stays as it was.
func TestWALThatDoesNotFit(t *testing.T) {
	v := newVolume(t)
	v.mustBegin(t, byInitdb)
	v.fill(t)
	must(t, os.Mkdir(v.pgWAL(), 0o700))
	_, free, err := volumeSize(v.mount)
	must(t, err)
	segment, err := os.Create(filepath.Join(v.pgWAL(), "000000010000000000000001"))
	must(t, err)
	must(t, segment.Truncate(int64(free)))
	must(t, segment.Close())
	_, err = v.finish(identity{Origin: byInitdb})
	must(t, err)
	v.walMount = t.TempDir()
	if err := v.moveWAL(t.Context()); err == nil || !strings.Contains(err.Error(), "raise spec.storage.wal.size") {
		t.Errorf("moving says %v", err)
	}
	if v.kind(t) != dataComplete || !v.needsWALMoved() {
		t.Errorf("the data is %s", v.kind(t))
	}
}
