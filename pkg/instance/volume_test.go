package instance

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/pgop/postgres-operator/pkg/postgres/pgrun"
)

func newVolume(t *testing.T) volume {
	t.Helper()
	return volume{mount: t.TempDir(), major: 17}
}

func (v volume) kind(t *testing.T) dataKind {
	t.Helper()
	kind, _, err := v.lookAtData()
	must(t, err)
	return kind
}

// mustBegin is begin; it returns the directory for the WAL.
func (v volume) mustBegin(t *testing.T, by origin) string {
	t.Helper()
	wal, err := v.begin(by)
	must(t, err)
	return wal
}

// fill makes data look like a data directory.
func (v volume) fill(t *testing.T) {
	t.Helper()
	must(t, os.MkdirAll(v.inside("global"), 0o700))
	must(t, os.WriteFile(v.inside("PG_VERSION"), []byte("17\n"), 0o600))
	must(t, os.WriteFile(v.inside("global/pg_control"), []byte("x"), 0o600))
}

func TestDataIsCompleteOnlyWhenFinished(t *testing.T) {
	v := newVolume(t)
	if got := v.kind(t); got != dataNone {
		t.Errorf("an empty volume is %s", got)
	}
	v.mustBegin(t, byInitdb)
	v.fill(t)
	if got := v.kind(t); got != dataUnfinished {
		t.Errorf("data being written is %s", got)
	}
	first, err := v.finish(identity{Origin: byInitdb})
	must(t, err)
	if got := v.kind(t); got != dataComplete {
		t.Errorf("finished data is %s", got)
	}
	if _, err := v.begin(byClone); err == nil {
		t.Fatal("complete data was about to be overwritten")
	}
	must(t, v.wipeUnfinished())
	if got := v.kind(t); got != dataComplete {
		t.Errorf("wiping the unfinished left complete data %s", got)
	}
	must(t, os.RemoveAll(v.data()))
	v.mustBegin(t, byClone)
	v.fill(t)
	second, err := v.finish(identity{Origin: byClone})
	must(t, err)
	if first.ID == second.ID || len(first.ID) != 8 {
		t.Errorf("data ids %s and %s", first.ID, second.ID)
	}
}

// A crash between two steps of begin and finish must leave nothing that looks
// complete and is not, or unfinished and is.
func TestCrashesBetweenSteps(t *testing.T) {
	v := newVolume(t)
	v.mustBegin(t, byInitdb)
	v.fill(t)
	_, err := v.finish(identity{Origin: byInitdb})
	must(t, err)
	must(t, os.WriteFile(v.marker(), nil, 0o600))
	if got := v.kind(t); got != dataComplete {
		t.Errorf("with the id written and the marker not yet removed: %s", got)
	}
	must(t, os.Remove(v.idFile()))
	if got := v.kind(t); got != dataUnfinished {
		t.Errorf("with the id removed and the marker there: %s", got)
	}
	must(t, os.Remove(v.marker()))
	if got := v.kind(t); got != dataForeign {
		t.Errorf("with neither: %s", got)
	}
}

func TestMovedAsideIsKept(t *testing.T) {
	v := newVolume(t)
	now := time.Date(2026, 11, 28, 1, 2, 3, 0, time.UTC)
	for _, want := range []string{"data.moved-20261128T010203Z", "data.moved-20261128T010203Z-2"} {
		v.fill(t)
		path, err := v.moveAside(now)
		must(t, err)
		if filepath.Base(path) != want || !exists(filepath.Join(path, "PG_VERSION")) {
			t.Errorf("moved to %s, want %s", path, want)
		}
	}
	if got := v.kind(t); got != dataNone {
		t.Errorf("the place is %s", got)
	}
	// Even so, the volume has been used.
	if other, err := v.otherData(); err != nil || other == "" {
		t.Errorf("other data: %q, %v", other, err)
	}
}

func TestOtherData(t *testing.T) {
	v := newVolume(t)
	v.fill(t)
	if other, err := v.otherData(); err != nil || other != "" {
		t.Errorf("the instance's own data counts as other: %q, %v", other, err)
	}
	old := volume{mount: v.mount, major: 16}
	old.fill(t)
	if other, err := v.otherData(); err != nil || other != old.data() {
		t.Errorf("other data: %q, %v, want %s", other, err, old.data())
	}
}

func TestLockLivesAsLongAsItsProcesses(t *testing.T) {
	v := newVolume(t)
	lock, err := v.tryLock()
	must(t, err)
	programs := &pgrun.Programs{Children: &pgrun.Children{}, Held: lock}
	child := programs.Command(context.Background(), "sleep", "60")
	must(t, programs.Children.Start(child))
	must(t, lock.Close()) // the agent dies
	if _, err := v.tryLock(); !errors.Is(err, errVolumeInUse) {
		t.Fatalf("the lock of a process that lives was taken: %v", err)
	}
	// Only whoever has the file open can find it.
	again, err := os.Open(v.lockFile())
	must(t, err)
	defer again.Close()
	pids, err := holders(again)
	must(t, err)
	if len(pids) != 1 || pids[0] != child.Process.Pid {
		t.Errorf("holders %v, want %d", pids, child.Process.Pid)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	must(t, killHolders(ctx, again))
	var exit *exec.ExitError
	if err := programs.Children.Wait(child); !errors.As(err, &exit) {
		t.Errorf("the process was not killed: %v", err)
	}
	freed, err := v.tryLock()
	must(t, err)
	must(t, freed.Close())
}

func TestWriteFileReplacesOrLeavesAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	must(t, writeFile(path, "a", 0o600))
	before, err := os.Stat(path)
	must(t, err)
	must(t, writeFile(path, "a", 0o600))
	same, err := os.Stat(path)
	must(t, err)
	must(t, writeFile(path, "b", 0o600))
	after, err := os.Stat(path)
	must(t, err)
	if !os.SameFile(before, same) || os.SameFile(before, after) {
		t.Error("a file is written that says so already, or is not replaced")
	}
}

func TestStartsThatFailedDoNotRuleOutTheOnlyConfiguration(t *testing.T) {
	dir := configDir{path: t.TempDir()}
	only := settings{Conf: "a", HBA: "b"}
	must(t, dir.keep(only, goodDir))
	a := &Agent{config: dir, configState: configState{rejected: map[settings]string{only: "no memory"}}}
	chosen, problem, err := a.chooseConfig(context.Background(), only, upstream{})
	if err != nil || chosen != only || problem != "" {
		t.Errorf("got %+v, %q, %v", chosen, problem, err)
	}
	newer := settings{Conf: "c", HBA: "d"}
	a.rejected[newer] = "no such library"
	chosen, problem, err = a.chooseConfig(context.Background(), newer, upstream{})
	if err != nil || chosen != only || problem != "no such library" {
		t.Errorf("got %+v, %q, %v", chosen, problem, err)
	}
}
