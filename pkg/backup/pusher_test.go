package backup_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/pgop/postgres-operator/pkg/backup"
)

func newPusher(a *archive, dir string, parallel int) *backup.Pusher {
	p := backup.NewPusher(a.Repository, dir, parallel)
	a.Cleanup(p.Close)
	return p
}

func TestReadySegmentsAreArchivedAhead(t *testing.T) {
	a := newArchive(t)
	dir, _ := pgWAL(t, segments...)
	p := newPusher(a, dir, 3)
	must(t, p.Push(context.Background(), segments[0]))
	for _, name := range segments {
		eventually(t, name, func() bool { return a.has(name) })
	}
	sent := a.store.count("create")
	for _, name := range segments {
		must(t, p.Push(context.Background(), name))
	}
	if got := a.store.count("create"); got != sent {
		t.Errorf("%d more were sent when the server asked", got-sent)
	}
}

func TestNoMoreAreOnTheirWayThanMayBe(t *testing.T) {
	a := newArchive(t)
	dir, _ := pgWAL(t, segments...)
	const parallel = 3
	var mu sync.Mutex
	now, most := 0, 0
	together := make(chan struct{})
	var release sync.Once
	a.store.before = func(ctx context.Context, call, key string) {
		if call != "create" || filepath.Base(key) == "owner.json" {
			return
		}
		mu.Lock()
		now++
		most = max(most, now)
		if now == parallel {
			// One more would come meanwhile, if it might.
			release.Do(func() { time.AfterFunc(200*time.Millisecond, func() { close(together) }) })
		}
		mu.Unlock()
		select {
		case <-together:
		case <-time.After(20 * time.Second): // the test fails below
		}
		mu.Lock()
		now--
		mu.Unlock()
	}
	p := newPusher(a, dir, parallel)
	for _, name := range segments {
		must(t, p.Push(context.Background(), name))
	}
	if most != parallel {
		t.Errorf("%d were on their way at once, not %d", most, parallel)
	}
}

func TestD13AFailureIsTriedAgainWhenTheServerAsks(t *testing.T) {
	a := newArchive(t)
	dir, _ := pgWAL(t, segments...)
	refused := errors.New("AccessDenied: the login is wrong")
	a.store.fail = func(call, _ string) error { return map[string]error{"create": refused}[call] }
	p := newPusher(a, dir, 2)
	wants(t, "with the wrong login", p.Push(context.Background(), segments[0]), refused)
	p.Close()
	if tried := a.store.count("create"); tried > 3 {
		t.Errorf("it was tried %d times unasked", tried)
	}
	p = newPusher(a, dir, 2)
	wants(t, "with the wrong login again", p.Push(context.Background(), segments[0]), refused)
	a.store.set(func() { a.store.fail = nil })
	must(t, p.Push(context.Background(), segments[0]))
}

// The server uses the files of old segments again, and a rewound server may
// have another segment of the same name.
func TestAFileThatBecameAnotherIsNotTakenForArchived(t *testing.T) {
	a := newArchive(t)
	dir, _ := pgWAL(t, segments[:2]...)
	p := newPusher(a, dir, 2)
	must(t, p.Push(context.Background(), segments[0]))
	eventually(t, segments[1], func() bool { return a.has(segments[1]) })
	must(t, os.Remove(filepath.Join(dir, segments[1])))
	writeWAL(t, dir, segments[1])
	wants(t, "another file", p.Push(context.Background(), segments[1]), backup.ErrOtherContent)
}

func TestACallThatEndsLeavesTheFileOnItsWay(t *testing.T) {
	a := newArchive(t)
	dir, _ := pgWAL(t, segments[0])
	must(t, a.Claim(context.Background()))
	slow := make(chan struct{})
	a.store.before = func(_ context.Context, call, _ string) {
		if call == "create" {
			<-slow
		}
	}
	p := newPusher(a, dir, 1)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- p.Push(ctx, segments[0]) }()
	eventually(t, "the upload", func() bool { return a.store.count("create "+segments[0]) == 1 })
	cancel()
	wants(t, "the call that was ended", <-ended, context.Canceled)
	close(slow)
	must(t, p.Push(context.Background(), segments[0]))
	if got := a.store.count("create " + segments[0]); got != 1 {
		t.Errorf("it was sent %d times", got)
	}
}

func TestCloseEndsWhatIsOnItsWay(t *testing.T) {
	a := newArchive(t)
	dir, _ := pgWAL(t, segments[0])
	must(t, a.Claim(context.Background()))
	a.store.before = func(ctx context.Context, call, _ string) {
		if call == "create" {
			<-ctx.Done()
		}
	}
	p := newPusher(a, dir, 1)
	ended := make(chan error)
	go func() { ended <- p.Push(context.Background(), segments[0]) }()
	eventually(t, "the upload", func() bool { return a.store.count("create "+segments[0]) == 1 })
	p.Close()
	wants(t, "closed", <-ended, context.Canceled)
}
