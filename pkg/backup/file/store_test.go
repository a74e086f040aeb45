package file_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

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
