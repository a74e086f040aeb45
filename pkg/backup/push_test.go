package backup_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/pgop/postgres-operator/pkg/backup"
	"github.com/pgop/postgres-operator/pkg/postgres"
)

func TestWhatIsArchivedIsFetched(t *testing.T) {
	a := newArchive(t)
	names := []string{segments[0], "00000002.history", "000000010000000000000002.partial"}
	dir, content := pgWAL(t, names...)
	for _, name := range names {
		must(t, a.PushWAL(context.Background(), filepath.Join(dir, name)))
		target := filepath.Join(t.TempDir(), "fetched")
		must(t, a.FetchWAL(context.Background(), name, target))
		sameFile(t, target, content[name])
	}
	err := a.FetchWAL(context.Background(), segments[1], filepath.Join(t.TempDir(), "x"))
	wants(t, "what was never archived", err, backup.ErrNotFound, segments[1])
}

// What is in the store can be read without this program.
func TestObjectsAreReadByZstd(t *testing.T) {
	zstd, err := exec.LookPath("zstd")
	if err != nil {
		t.Skip("the program zstd is not installed")
	}
	a := newArchive(t)
	dir, content := pgWAL(t, segments[0])
	must(t, a.PushWAL(context.Background(), filepath.Join(dir, segments[0])))
	got, err := exec.Command(zstd, "-dc", a.object(segments[0])).Output()
	if err != nil || string(got) != string(content[segments[0]]) {
		t.Errorf("zstd gives %d bytes, %v", len(got), err)
	}
}

func TestTheSameContentAgainIsASuccess(t *testing.T) {
	a := newArchive(t)
	dir, _ := pgWAL(t, segments[0])
	for range 2 {
		must(t, a.PushWAL(context.Background(), filepath.Join(dir, segments[0])))
	}
	if got := a.store.count("create " + segments[0]); got != 1 {
		t.Errorf("it was sent %d times", got)
	}
}

func TestOtherContentIsRefused(t *testing.T) {
	a := newArchive(t)
	for _, name := range []string{segments[0], "00000002.history"} {
		dir, first := pgWAL(t, name)
		must(t, a.PushWAL(context.Background(), filepath.Join(dir, name)))
		other, _ := pgWAL(t, name)
		wants(t, name, a.PushWAL(context.Background(), filepath.Join(other, name)), backup.ErrOtherContent, name)
		target := filepath.Join(t.TempDir(), "fetched")
		must(t, a.FetchWAL(context.Background(), name, target))
		sameFile(t, target, first[name])
	}
}

// With archive_mode = always two members may archive the same segment at the
// same moment: both ask before either has sent it.
// After a failover each standby has another end of the segment in which the
// timeline was left, and a former primary may have archived what nobody received.
func TestOtherContentOfATimelineThatWasLeftIsNoError(t *testing.T) {
	a := newArchive(t)
	names := append(slices.Clone(segments[1:4]), segments[2]+".partial")
	first, _ := pgWAL(t, names...)
	for _, name := range names {
		must(t, a.PushWAL(context.Background(), filepath.Join(first, name)))
	}
	other, _ := pgWAL(t, names...)
	// It was left within the third segment; the second is all of the past.
	must(t, os.WriteFile(filepath.Join(other, "00000002.history"), []byte("1\t0/380000\tno recovery target specified\n"), 0o600))
	wants(t, "before the switch", a.PushWAL(context.Background(), filepath.Join(other, segments[1])), backup.ErrOtherContent, segments[1])
	for _, name := range names[1:] {
		if err := a.PushWAL(context.Background(), filepath.Join(other, name)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	must(t, os.Remove(filepath.Join(other, "00000002.history")))
	wants(t, "without a switch", a.PushWAL(context.Background(), filepath.Join(other, segments[2])), backup.ErrOtherContent, segments[2])
}

func TestTwoMembersArchiveTheSameSegmentAtOnce(t *testing.T) {
	a := newArchive(t)
	dir, content := pgWAL(t, segments[0])
	other, _ := pgWAL(t)
	must(t, os.WriteFile(filepath.Join(other, segments[0]), content[segments[0]], 0o600))
	must(t, a.Claim(context.Background()))
	asked := make(chan struct{}, 2)
	both := make(chan struct{})
	a.store.set(func() {
		a.store.before = func(_ context.Context, call, _ string) {
			if call == "create" {
				asked <- struct{}{}
				<-both
			}
		}
	})
	errs := make(chan error)
	for _, from := range []string{dir, other} {
		go func() { errs <- a.PushWAL(context.Background(), filepath.Join(from, segments[0])) }()
	}
	<-asked
	<-asked
	close(both)
	must(t, errors.Join(<-errs, <-errs))
}

func TestD12AnotherSystemsArchiveIsRefused(t *testing.T) {
	a := newArchive(t)
	dir, _ := pgWAL(t, segments...)
	must(t, a.PushWAL(context.Background(), filepath.Join(dir, segments[0])))
	for what, owner := range map[string]backup.Owner{
		"the cluster, made again":          {SystemID: "7432000000000000002", Major: 17, Cluster: "default/shop"},
		"another, restored from a backup":  {SystemID: shop.SystemID, Major: 17, Cluster: "default/shop2"},
		"the same name, of another system": {SystemID: "7432000000000000002", Major: 18, Cluster: "default/shop"},
	} {
		other := backup.NewRepository(a.store, "shop", owner)
		err := other.PushWAL(context.Background(), filepath.Join(dir, segments[1]))
		var owned *backup.OwnerError
		if !errors.As(err, &owned) || owned.Found != shop || owned.Wanted != owner {
			t.Errorf("%s: %v", what, err)
		}
		// Its own archive elsewhere in the store is no matter.
		must(t, backup.NewRepository(a.store, what, owner).PushWAL(context.Background(), filepath.Join(dir, segments[1])))
	}
	// The one whose it is goes on, also after a restart, and all can be read.
	again := backup.NewRepository(a.store, "shop", shop)
	must(t, again.PushWAL(context.Background(), filepath.Join(dir, segments[1])))
	must(t, again.FetchWAL(context.Background(), segments[0], filepath.Join(t.TempDir(), "x")))
}

func TestTwoClaimTheSamePrefixAtOnce(t *testing.T) {
	a := newArchive(t)
	other := backup.NewRepository(a.store, "shop", backup.Owner{SystemID: "2", Major: 17, Cluster: "default/shop"})
	var once error
	a.store.before = func(ctx context.Context, call, _ string) {
		if call == "create" {
			a.store.set(func() { a.store.before = nil })
			once = other.Claim(ctx)
		}
	}
	var owned *backup.OwnerError
	if err := a.Claim(context.Background()); once != nil || !errors.As(err, &owned) || owned.Found.SystemID != "2" {
		t.Errorf("the first: %v, the second: %v", once, err)
	}
}

func TestSegmentsThatAreNotWholeAreRefused(t *testing.T) {
	a := newArchive(t)
	dir, _ := pgWAL(t, segments[0])
	for _, size := range []int64{0, 1000, segmentSize - 1, segmentSize * 3} {
		must(t, os.Truncate(filepath.Join(dir, segments[0]), size))
		if err := a.PushWAL(context.Background(), filepath.Join(dir, segments[0])); err == nil || a.has(segments[0]) {
			t.Errorf("of %d bytes: %v", size, err)
		}
	}
	if err := a.PushWAL(context.Background(), filepath.Join(dir, "postgresql.conf")); err == nil {
		t.Error("a file that is no WAL was archived")
	}
}

func TestDamagedObjectsAreNamed(t *testing.T) {
	damages := map[string]func(object []byte) []byte{
		"a bit that flipped in the data":  func(o []byte) []byte { o[len(o)/3] ^= 4; return o },
		"a bit that flipped in the seal":  func(o []byte) []byte { o[len(o)-480] ^= 4; return o },
		"cut off in the data":             func(o []byte) []byte { return o[:len(o)/2] },
		"cut off by a byte":               func(o []byte) []byte { return o[:len(o)-1] },
		"cut off by the seal":             func(o []byte) []byte { return o[:len(o)-512] },
		"empty":                           func(o []byte) []byte { return nil },
		"something else":                  func(o []byte) []byte { return []byte("<html>no such bucket</html>") },
		"longer than it was":              func(o []byte) []byte { return append(o, o...) },
		"the seal in front of other data": func(o []byte) []byte { return append(o[:len(o)-512:len(o)-512], o[len(o)-513:]...) },
	}
	for what, damage := range damages {
		t.Run(what, func(t *testing.T) {
			a := newArchive(t)
			dir, _ := pgWAL(t, segments[0])
			must(t, a.PushWAL(context.Background(), filepath.Join(dir, segments[0])))
			object, err := os.ReadFile(a.object(segments[0]))
			must(t, err)
			must(t, os.WriteFile(a.object(segments[0]), damage(object), 0o600))
			target := filepath.Join(t.TempDir(), "fetched")
			wants(t, what, a.FetchWAL(context.Background(), segments[0], target), backup.ErrDamaged, a.Layout().WALFolder()+"00000001/"+segments[0])
			if _, err := os.Stat(target); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("it left a file: %v", err)
			}
		})
	}
	t.Run("an object under another's name", func(t *testing.T) {
		a := newArchive(t)
		dir, _ := pgWAL(t, segments[0])
		must(t, a.PushWAL(context.Background(), filepath.Join(dir, segments[0])))
		must(t, os.Rename(a.object(segments[0]), a.object(segments[1])))
		err := a.FetchWAL(context.Background(), segments[1], filepath.Join(t.TempDir(), "x"))
		wants(t, "swapped", err, backup.ErrDamaged, segments[0], segments[1])
	})
}

func TestD14AStoreThatIsAwayIsNoEndOfTheArchive(t *testing.T) {
	a := newArchive(t)
	dir, _ := pgWAL(t, segments[0])
	must(t, a.PushWAL(context.Background(), filepath.Join(dir, segments[0])))
	away := errors.New("503 SlowDown: reduce your request rate")
	a.store.fail = func(string, string) error { return away }
	err := a.FetchWAL(context.Background(), segments[0], filepath.Join(t.TempDir(), "x"))
	if wants(t, "fetch", err, away, segments[0]); errors.Is(err, backup.ErrNotFound) {
		t.Errorf("it is taken for the end: %v", err)
	}
	wants(t, "push", a.PushWAL(context.Background(), filepath.Join(dir, segments[0])), away, segments[0])
}

// C-05: a history that only takes the number of a timeline is nothing to archive: the
// archive may have the real one, or get it.
func TestC05UnusedTimelinesAreNotArchived(t *testing.T) {
	const name = "00000002.history"
	a := newArchive(t)
	dir, _ := pgWAL(t, name)
	unused := filepath.Join(dir, name)
	must(t, os.WriteFile(unused, []byte(postgres.UnusedHistory), 0o600))
	must(t, a.PushWAL(context.Background(), unused))
	if a.has(name) {
		t.Error("it is archived")
	}
	other, _ := pgWAL(t, name)
	must(t, a.PushWAL(context.Background(), filepath.Join(other, name)))
	must(t, a.PushWAL(context.Background(), unused))
	if !a.has(name) {
		t.Error("the real one is not archived")
	}
}
