package instance

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pgop/postgres-operator/pkg/backup"
	"github.com/pgop/postgres-operator/pkg/backup/file"
	"github.com/pgop/postgres-operator/pkg/instance/walcall"
)

// D-14: a store that is away while a server recovers is not the end of the archive:
// the server waits, and gets the segment once the store is back.
func TestD14RecoveryWaitsForAStoreThatIsAway(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	mount, wal := filepath.Join(dir, "mount"), filepath.Join(dir, "pg_wal")
	must(t, errors.Join(os.Mkdir(mount, 0o700), os.Mkdir(wal, 0o700)))
	r := backup.NewRepository(file.New(mount), "shop", backup.Owner{SystemID: "7000000000000000001", Major: 17, Cluster: "test/shop"})
	const segment, next, size = "000000010000000000000001", "000000010000000000000002", 1 << 20
	path := filepath.Join(wal, segment)
	must(t, os.WriteFile(path, make([]byte, size), 0o600))
	must(t, r.PushWAL(t.Context(), path))
	must(t, os.Remove(path))

	fetcher, err := backup.NewFetcher(r, filepath.Join(dir, "fetched"), size, 2)
	must(t, err)
	t.Cleanup(func() { must(t, fetcher.Close()) })
	s := &walSource{fetcher: fetcher}
	must(t, os.Rename(mount, mount+".away"))
	exit := make(chan int)
	go func() {
		code, _ := s.fetch(context.Background(), segment, path)
		exit <- code
	}()
	for deadline := time.Now().Add(30 * time.Second); !strings.HasPrefix(s.words(), "waiting for the archive"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it says %q", s.words())
		}
	}
	select {
	case code := <-exit:
		t.Fatalf("the server was told %d", code)
	default:
	}
	must(t, os.Rename(mount+".away", mount))
	if code := <-exit; code != walcall.Done || !exists(path) {
		t.Errorf("the server was told %d, and has the segment: %v", code, exists(path))
	}
	if code, _ := s.fetch(t.Context(), next, filepath.Join(wal, next)); code != walcall.Failed {
		t.Errorf("at the end of the archive the server was told %d", code)
	}
	if !strings.Contains(s.words(), segment) {
		t.Errorf("it says %q", s.words())
	}
}
