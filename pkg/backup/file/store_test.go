package file_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pgop/postgres-operator/pkg/backup"
	"github.com/pgop/postgres-operator/pkg/backup/file"
	"github.com/pgop/postgres-operator/pkg/backup/storetest"
)

func TestStore(t *testing.T) { storetest.Run(t, file.New(t.TempDir())) }

func TestD14AVolumeThatIsNotThereIsNoEmptyStore(t *testing.T) {
	store := file.New(filepath.Join(t.TempDir(), "unmounted"))
	ctx := context.Background()
	_, statErr := store.Stat(ctx, "a")
	_, openErr := store.Open(ctx, "a", 0)
	for what, err := range map[string]error{
		"stat": statErr, "open": openErr,
		"list":   store.List(ctx, "", func(backup.Object) error { return nil }),
		"create": store.Create(ctx, "a", strings.NewReader("x")),
	} {
		if errors.Is(err, backup.ErrNotFound) || !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestNoKeyLeavesTheDirectory(t *testing.T) {
	store := file.New(t.TempDir())
	for _, key := range []string{"", "../a", "/a", "a/../../b", "a//b", "./a"} {
		if err := store.Create(context.Background(), key, strings.NewReader("x")); err == nil {
			t.Errorf("%q was written", key)
		}
	}
}

func TestDeletedObjectsLeaveNoDirectories(t *testing.T) {
	dir := t.TempDir()
	store := file.New(dir)
	if err := errors.Join(store.Create(context.Background(), "a/b/c", strings.NewReader("x")),
		store.Delete(context.Background(), "a/b/c")); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

// D-01: what a writer that was killed has left goes once it is old, and nothing else.
func TestD01SweepRemovesWhatWasLeftHalfWritten(t *testing.T) {
	dir, ctx := t.TempDir(), context.Background()
	store := file.New(dir)
	now := time.Now()
	leave := func(path string, at time.Time) string {
		path = filepath.Join(dir, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte("x"), 0o600), os.Chtimes(path, at, at)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	gone := leave("shop/base/b/.writing-1", now.Add(-time.Hour))
	kept := []string{leave("shop/base/c/.writing-2", now), leave("shop/wal/a", now.Add(-time.Hour)), leave("shopping/.writing-3", now.Add(-time.Hour))}
	if err := store.Sweep(ctx, "shop/", now.Add(-time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Dir(gone)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what was left is there: %v", err)
	}
	for _, path := range kept {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
	if err := store.Sweep(ctx, "nothing/here/", now); err != nil {
		t.Error(err)
	}
}
