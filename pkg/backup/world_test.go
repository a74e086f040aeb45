package backup_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pgop/postgres-operator/pkg/backup"
	"github.com/pgop/postgres-operator/pkg/backup/file"
)

const segmentSize = 1 << 20

var shop = backup.Owner{SystemID: "7432000000000000001", Major: 17, Cluster: "default/shop"}

// names of the first segments.
var segments = []string{
	"000000010000000000000001", "000000010000000000000002", "000000010000000000000003", "000000010000000000000004",
	"000000010000000000000005", "000000010000000000000006", "000000010000000000000007", "000000010000000000000008",
}

// watched is a store that counts what is asked of it, and fails as told.
type watched struct {
	backup.Store
	mu    sync.Mutex
	calls []string
	fail  func(call, key string) error
	// before runs before each call, outside of the lock.
	before func(ctx context.Context, call, key string)
}

func (w *watched) note(ctx context.Context, call, key string) error {
	w.mu.Lock()
	w.calls = append(w.calls, call+" "+filepath.Base(key))
	fail, before := w.fail, w.before
	w.mu.Unlock()
	if before != nil {
		before(ctx, call, key)
	}
	if fail != nil {
		return fail(call, key)
	}
	return nil
}

func (w *watched) set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
}

func (w *watched) count(call string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	count := 0
	for _, c := range w.calls {
		if strings.HasPrefix(c, call) {
			count++
		}
	}
	return count
}

func (w *watched) Create(ctx context.Context, key string, content io.Reader) error {
	if err := w.note(ctx, "create", key); err != nil {
		return err
	}
	return w.Store.Create(ctx, key, content)
}

func (w *watched) Open(ctx context.Context, key string, from int64) (io.ReadCloser, error) {
	if err := w.note(ctx, "open", key); err != nil {
		return nil, err
	}
	return w.Store.Open(ctx, key, from)
}

func (w *watched) Stat(ctx context.Context, key string) (backup.Object, error) {
	if err := w.note(ctx, "stat", key); err != nil {
		return backup.Object{}, err
	}
	return w.Store.Stat(ctx, key)
}

// archive is a repository in a directory.
type archive struct {
	*backup.Repository
	*testing.T
	store *watched
	dir   string
}

func newArchive(t *testing.T) *archive {
	t.Helper()
	dir := t.TempDir()
	store := &watched{Store: file.New(dir)}
	return &archive{Repository: backup.NewRepository(store, "shop", shop), T: t, store: store, dir: dir}
}

// has says whether the archive has a WAL file.
func (a *archive) has(name string) bool {
	_, err := os.Stat(a.object(name))
	return err == nil
}

// object is the file of an archived WAL file.
func (a *archive) object(name string) string {
	a.Helper()
	parsed, err := backup.ParseWALName(name)
	must(a.T, err)
	return filepath.Join(a.dir, a.Layout().WAL(parsed))
}

// pgWAL makes a directory with WAL files that are ready, and returns what is in
// them.
func pgWAL(t *testing.T, names ...string) (dir string, content map[string][]byte) {
	t.Helper()
	dir, content = t.TempDir(), map[string][]byte{}
	must(t, os.Mkdir(filepath.Join(dir, "archive_status"), 0o700))
	for _, name := range names {
		content[name] = writeWAL(t, dir, name)
	}
	return dir, content
}

// writeWAL writes a WAL file that is half random.
func writeWAL(t *testing.T, dir, name string) []byte {
	t.Helper()
	size := segmentSize
	if strings.HasSuffix(name, ".history") {
		size = 100
	}
	content := make([]byte, size)
	for i := range content[:size/2] {
		content[i] = byte(rand.Uint32())
	}
	must(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "archive_status", name+".ready"), nil, 0o600))
	return content
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wants says whether err is of that kind, and says each of the words.
func wants(t *testing.T, what string, err, kind error, words ...string) {
	t.Helper()
	if !errors.Is(err, kind) || slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(err.Error(), word) }) {
		t.Errorf("%s: got %v, want %v with %q", what, err, kind, words)
	}
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	const longest = 30 * time.Second
	for deadline := time.Now().Add(longest); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("timed out waiting for %s", what)
		}
	}
}

func sameFile(t *testing.T, path string, want []byte) {
	t.Helper()
	got, err := os.ReadFile(path)
	must(t, err)
	if !bytes.Equal(got, want) {
		t.Errorf("%s has %d bytes, not the %d wanted", path, len(got), len(want))
	}
}
