package backup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// Pusher archives the WAL of a server. The server asks for one file at a time,
// in order, and waits; meanwhile the pusher archives others that are ready, so
// that most are in the store when the server comes to ask for them.
//
// It holds nothing that must outlast it: a file that was archived without the
// server's having heard of it is archived again, which is a success.
type Pusher struct {
	repository *Repository
	dir        string
	parallel   int
	life       context.Context
	end        context.CancelFunc

	mu sync.Mutex
	// flights are the files that are being archived, and those that were and
	// that the server has not asked for yet.
	flights map[string]*flight
	running int
	// queue are files that were ready when it was last empty, in order.
	queue []string
	group sync.WaitGroup
}

// flight is one file on its way into the store.
type flight struct {
	// file tells the file from another that gets its name.
	file os.FileInfo
	// done is closed when err is valid.
	done chan struct{}
	err  error
}

const (
	// longestPush is how long one file may take; then it counts as failed.
	longestPush = 10 * time.Minute
	// mostFlights bounds what is archived ahead of the server.
	mostFlights = 512
	readySuffix = ".ready"
)

// NewPusher makes a pusher for the files of a pg_wal directory, that archives
// as many of them at once. Close ends it.
func NewPusher(repository *Repository, dir string, parallel int) *Pusher {
	life, end := context.WithCancel(context.Background())
	return &Pusher{repository: repository, dir: dir, parallel: max(parallel, 1), life: life, end: end, flights: map[string]*flight{}}
}

// Close gives up what is on its way, and returns when nothing is any more.
func (p *Pusher) Close() {
	p.end()
	p.group.Wait()
}

// Push returns when the store has the file, like Repository.PushWAL. A call
// that ends with ctx leaves the file on its way; the next one waits for it.
func (p *Pusher) Push(ctx context.Context, name string) error {
	if _, err := ParseWALName(name); err != nil {
		return err
	}
	file, err := os.Stat(filepath.Join(p.dir, name))
	if err != nil {
		return fmt.Errorf("archive %s: %w", name, err)
	}
	f := p.join(name, file)
	select {
	case <-ctx.Done():
		return fmt.Errorf("archive %s: %w", name, context.Cause(ctx))
	case <-f.done:
	}
	p.forget(name, f)
	return f.err
}

// join returns the file's flight, and begins it if there is none.
func (p *Pusher) join(name string, file os.FileInfo) *flight {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.flights[name]
	if f == nil || !isSame(f.file, file) {
		// It goes at once, however many are on their way: the server waits for it.
		f = p.begin(name, file)
	}
	p.goAhead()
	return f
}

func (p *Pusher) forget(name string, f *flight) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.flights[name] == f {
		delete(p.flights, name)
	}
}

// isSame says whether a file is still the one that it was: the server uses the
// files of old segments again, under other names.
func isSame(a, b os.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

func (p *Pusher) begin(name string, file os.FileInfo) *flight {
	f := &flight{file: file, done: make(chan struct{})}
	p.flights[name] = f
	p.running++
	p.group.Go(func() { p.fly(name, f) })
	return f
}

func (p *Pusher) fly(name string, f *flight) {
	ctx, cancel := context.WithTimeout(p.life, longestPush)
	defer cancel()
	f.err = p.repository.PushWAL(ctx, filepath.Join(p.dir, name))
	close(f.done)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running--
	if f.err != nil {
		// Nothing is tried again, or further ahead, until the server asks: a store
		// in trouble isn't pestered.
		if p.flights[name] == f {
			delete(p.flights, name)
		}
		return
	}
	p.goAhead()
}

// goAhead begins as many flights as may be on their way at once. An error ends
// it: the server's own request will meet it, too.
func (p *Pusher) goAhead() {
	for p.running < p.parallel && len(p.flights) < mostFlights && p.life.Err() == nil {
		name, err := p.next()
		if err != nil || name == "" {
			return
		}
		if file, err := os.Stat(filepath.Join(p.dir, name)); err == nil {
			p.begin(name, file)
		}
	}
}

// next is the first file that is ready and not yet on its way; empty: there is
// none.
func (p *Pusher) next() (string, error) {
	if len(p.queue) == 0 {
		if err := p.fillQueue(); err != nil {
			return "", err
		}
	}
	for len(p.queue) > 0 {
		name := p.queue[0]
		p.queue = p.queue[1:]
		if p.flights[name] == nil && p.isReady(name) {
			return name, nil
		}
	}
	return "", nil
}

func (p *Pusher) isReady(name string) bool {
	_, err := os.Stat(filepath.Join(p.dir, "archive_status", name+readySuffix))
	return err == nil
}

// fillQueue reads which files are ready. What has arrived and is no longer
// ready, the server has heard of, or has given up.
func (p *Pusher) fillQueue() error {
	entries, err := os.ReadDir(filepath.Join(p.dir, "archive_status"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	ready := map[string]bool{}
	for _, entry := range entries {
		name, isReady := strings.CutSuffix(entry.Name(), readySuffix)
		if _, err := ParseWALName(name); isReady && err == nil {
			ready[name] = true
			if p.flights[name] == nil {
				p.queue = append(p.queue, name)
			}
		}
	}
	slices.Sort(p.queue)
	for name, f := range p.flights {
		if !ready[name] && isClosed(f.done) {
			delete(p.flights, name)
		}
	}
	return nil
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
