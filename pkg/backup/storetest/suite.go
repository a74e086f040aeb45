// Package storetest is what every store must pass.
package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"

	"github.com/pgop/postgres-operator/pkg/backup"
)

// Run tests a store that is empty.
func Run(t *testing.T, store backup.Store) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, backup.Store)
	}{
		{"what was written is read", readsWhatWasWritten},
		{"an object is never overwritten", neverOverwrites},
		{"what is missing is not found", saysNotFound},
		{"an object that fails to be written is not there", leavesNothingBehind},
		{"of many writers one wins", oneOfManyWins},
		{"lists by prefix", listsByPrefix},
		{"deletes what is there, and what is not", deletes},
		{"ends with its context", endsWithItsContext},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, store) })
	}
}

func readsWhatWasWritten(t *testing.T, store backup.Store) {
	ctx := context.Background()
	// Around the sizes at which stores begin another part, too.
	for _, size := range []int{0, 1, 1 << 20, 16<<20 + 1, 40 << 20} {
		key := fmt.Sprintf("read/%d", size)
		content := random(size)
		// OneByteReader's kin: a store must not rely on full reads.
		if err := store.Create(ctx, key, iotest.HalfReader(bytes.NewReader(content))); err != nil {
			t.Fatal(err)
		}
		if got := read(t, store, key, 0); !bytes.Equal(got, content) {
			t.Errorf("%s: read %d other bytes", key, len(got))
		}
		if from := size / 3; size > 0 {
			if got := read(t, store, key, int64(from)); !bytes.Equal(got, content[from:]) {
				t.Errorf("%s from %d: read %d other bytes", key, from, len(got))
			}
		}
		if object, err := store.Stat(ctx, key); err != nil || object.Key != key || object.Size != int64(size) || object.Modified.IsZero() {
			t.Errorf("%s: %+v, %v", key, object, err)
		}
	}
}

func neverOverwrites(t *testing.T, store backup.Store) {
	create(t, store, "over/small", "first")
	for _, size := range []int{6, 20 << 20} {
		if err := store.Create(context.Background(), "over/small", bytes.NewReader(random(size))); !errors.Is(err, backup.ErrExists) {
			t.Errorf("with %d bytes: %v", size, err)
		}
	}
	if got := read(t, store, "over/small", 0); string(got) != "first" {
		t.Errorf("it was overwritten, with %d bytes", len(got))
	}
}

func saysNotFound(t *testing.T, store backup.Store) {
	if _, err := store.Open(context.Background(), "missing/at/all", 0); !errors.Is(err, backup.ErrNotFound) {
		t.Errorf("open: %v", err)
	}
	if _, err := store.Stat(context.Background(), "missing/at/all"); !errors.Is(err, backup.ErrNotFound) {
		t.Errorf("stat: %v", err)
	}
}

var errSource = errors.New("the source broke")

func leavesNothingBehind(t *testing.T, store backup.Store) {
	for _, size := range []int{100, 20 << 20} {
		key := fmt.Sprintf("broken/%d", size)
		source := io.MultiReader(bytes.NewReader(random(size)), iotest.ErrReader(errSource))
		if err := store.Create(context.Background(), key, source); !errors.Is(err, errSource) {
			t.Errorf("%s: %v", key, err)
		}
	}
	if got := list(t, store, "broken/"); len(got) != 0 {
		t.Errorf("left %v", got)
	}
}

func oneOfManyWins(t *testing.T, store backup.Store) {
	var wins atomic.Int32
	var winner atomic.Value
	var group sync.WaitGroup
	for n := range 8 {
		group.Go(func() {
			content := fmt.Sprint("writer ", n)
			err := store.Create(context.Background(), "race/one", strings.NewReader(content))
			switch {
			case err == nil:
				wins.Add(1)
				winner.Store(content)
			case !errors.Is(err, backup.ErrExists):
				t.Error(err)
			}
		})
	}
	group.Wait()
	if wins.Load() != 1 {
		t.Fatalf("%d writers won", wins.Load())
	}
	if got := read(t, store, "race/one", 0); string(got) != winner.Load() {
		t.Errorf("%s is there, and %s won", got, winner.Load())
	}
}

func listsByPrefix(t *testing.T, store backup.Store) {
	for _, key := range []string{"list/a/1", "list/a/2", "list/ab/3", "list/b"} {
		create(t, store, key, key)
	}
	for prefix, want := range map[string][]string{
		"list/a/":   {"list/a/1", "list/a/2"},
		"list/a":    {"list/a/1", "list/a/2", "list/ab/3"},
		"list/a/1":  {"list/a/1"},
		"list/":     {"list/a/1", "list/a/2", "list/ab/3", "list/b"},
		"list/none": nil,
		"list/no/":  nil,
	} {
		if got := list(t, store, prefix); !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", prefix, got, want)
		}
	}
	enough := errors.New("enough")
	if err := store.List(context.Background(), "list/", func(backup.Object) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("stopped: %v", err)
	}
}

func deletes(t *testing.T, store backup.Store) {
	create(t, store, "delete/a/1", "x")
	create(t, store, "delete/a/2", "x")
	for _, key := range []string{"delete/a/1", "delete/a/1", "delete/never"} {
		if err := store.Delete(context.Background(), key); err != nil {
			t.Error(err)
		}
	}
	if got := list(t, store, "delete/"); !slices.Equal(got, []string{"delete/a/2"}) {
		t.Errorf("left %v", got)
	}
	if err := store.Delete(context.Background(), "delete/a/2"); err != nil {
		t.Error(err)
	}
	create(t, store, "delete/a/1", "again")
}

func endsWithItsContext(t *testing.T, store backup.Store) {
	ctx, cancel := context.WithCancel(context.Background())
	content := &endless{after: 8 << 20, call: cancel}
	if err := store.Create(ctx, "endless/object", content); err == nil {
		t.Fatal("it was written to its end")
	}
	if got := list(t, store, "endless/"); len(got) != 0 {
		t.Errorf("left %v", got)
	}
}

// endless never ends by itself.
type endless struct {
	after int
	call  func()
	read  int
}

func (e *endless) Read(p []byte) (int, error) {
	if e.read += len(p); e.read > e.after {
		e.call()
	}
	return len(p), nil
}

func random(size int) []byte {
	source := rand.NewChaCha8([32]byte{byte(size)})
	content := make([]byte, size)
	_, _ = source.Read(content) // it never fails
	return content
}

func create(t *testing.T, store backup.Store, key, content string) {
	t.Helper()
	if err := store.Create(context.Background(), key, strings.NewReader(content)); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, store backup.Store, key string, from int64) []byte {
	t.Helper()
	body, err := store.Open(context.Background(), key, from)
	if err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(body)
	if err := errors.Join(err, body.Close()); err != nil {
		t.Fatal(err)
	}
	return content
}

func list(t *testing.T, store backup.Store, prefix string) []string {
	t.Helper()
	var keys []string
	if err := store.List(context.Background(), prefix, func(o backup.Object) error {
		keys = append(keys, o.Key)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	slices.Sort(keys)
	return keys
}
