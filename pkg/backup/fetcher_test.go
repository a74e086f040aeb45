package backup_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/pgop/postgres-operator/pkg/backup"
)

func archived(t *testing.T, names ...string) (*archive, map[string][]byte) {
	t.Helper()
	a := newArchive(t)
	dir, content := pgWAL(t, names...)
	for _, name := range names {
		must(t, a.PushWAL(context.Background(), filepath.Join(dir, name)))
	}
	return a, content
}

func newFetcher(a *archive, ahead int) (f *backup.Fetcher, dir string) {
	a.Helper()
	dir = filepath.Join(a.TempDir(), "fetched")
	f, err := backup.NewFetcher(a.Repository, dir, segmentSize, ahead)
	must(a.T, err)
	a.Cleanup(func() { must(a.T, f.Close()) })
	return f, dir
}

func TestSegmentsAreFetchedBeforehand(t *testing.T) {
	a, content := archived(t, segments...)
	const ahead = 3
	f, dir := newFetcher(a, ahead)
	target := filepath.Join(filepath.Dir(dir), "RECOVERYXLOG")
	for n, name := range segments {
		must(t, f.Fetch(context.Background(), name, target))
		sameFile(t, target, content[name])
		for _, next := range segments[n+1 : min(n+1+ahead, len(segments))] {
			eventually(t, next, func() bool { return a.store.count("open "+next) == 1 })
		}
	}
	for _, name := range segments {
		if got := a.store.count("open " + name); got != 1 {
			t.Errorf("%s was fetched %d times", name, got)
		}
	}
}

func TestTheEndOfTheArchiveIsToldFromAStoreThatIsAway(t *testing.T) {
	a, content := archived(t, segments[0])
	f, dir := newFetcher(a, 2)
	target := filepath.Join(filepath.Dir(dir), "RECOVERYXLOG")
	must(t, f.Fetch(context.Background(), segments[0], target))
	for range 3 {
		wants(t, "the end", f.Fetch(context.Background(), segments[1], target), backup.ErrNotFound)
	}
	if got := a.store.count("open " + segments[3]); got > 0 {
		t.Errorf("%d requests beyond the end", got)
	}
	sameFile(t, target, content[segments[0]])
	away := errors.New("connection refused")
	a.store.set(func() { a.store.fail = func(string, string) error { return away } })
	if err := f.Fetch(context.Background(), segments[1], target); !errors.Is(err, away) || errors.Is(err, backup.ErrNotFound) {
		t.Errorf("the store is away: %v", err)
	}
	// What failed beforehand fails nothing later.
	a.store.set(func() { a.store.fail = nil })
	must(t, f.Fetch(context.Background(), segments[0], target))
}

func TestWhatRecoveryLeftBehindIsRemoved(t *testing.T) {
	next := "000000020000000000000002"
	a, _ := archived(t, append([]string{"00000002.history", next}, segments[:4]...)...)
	f, dir := newFetcher(a, 2)
	target := filepath.Join(filepath.Dir(dir), "RECOVERYXLOG")
	must(t, f.Fetch(context.Background(), segments[0], target))
	must(t, f.Fetch(context.Background(), "00000002.history", target))
	must(t, f.Fetch(context.Background(), next, target))
	eventually(t, "an empty directory", func() bool {
		left, err := os.ReadDir(dir)
		return err == nil && len(left) == 0
	})
}

func TestADamagedSegmentIsNeverHandedOver(t *testing.T) {
	a, _ := archived(t, segments[:2]...)
	must(t, os.Truncate(a.object(segments[1]), 1000))
	f, dir := newFetcher(a, 2)
	target := filepath.Join(filepath.Dir(dir), "RECOVERYXLOG")
	must(t, f.Fetch(context.Background(), segments[0], target))
	wants(t, "cut off", f.Fetch(context.Background(), segments[1], target), backup.ErrDamaged, segments[1])
}
