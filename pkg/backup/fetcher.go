package backup

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/pgop/postgres-operator/pkg/postgres"
)

// Fetcher gives a recovering server the WAL that it asks for, and fetches what
// comes after it beforehand.
type Fetcher struct {
	repository  *Repository
	dir         string
	segmentSize uint64
	ahead       int
	life        context.Context
	end         context.CancelFunc

	mu      sync.Mutex
	flights map[string]*fetch
	begun   int
	group   sync.WaitGroup
}

// fetch is a file on its way into the fetcher's directory, or there.
type fetch struct {
	path   string
	cancel context.CancelFunc
	// done is closed when err is valid.
	done chan struct{}
	err  error
	// dropped: nobody wants it any more.
	dropped bool
}

// NewFetcher makes a fetcher that keeps up to ahead segments, of segmentSize
// bytes each, in a directory of its own. That must be on the volume of pg_wal;
// what is in it is deleted. Close ends the fetcher.
func NewFetcher(repository *Repository, dir string, segmentSize uint64, ahead int) (*Fetcher, error) {
	if err := os.RemoveAll(dir); err != nil {
		return nil, fmt.Errorf("prepare to fetch WAL: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("prepare to fetch WAL: %w", err)
	}
	life, end := context.WithCancel(context.Background())
	return &Fetcher{repository: repository, dir: dir, segmentSize: segmentSize, ahead: ahead, life: life, end: end, flights: map[string]*fetch{}}, nil
}

// Close ends what is on its way, and deletes the directory.
func (f *Fetcher) Close() error {
	f.end()
	f.group.Wait()
	return os.RemoveAll(f.dir)
}

// Fetch writes an archived file to path, like Repository.FetchWAL, but replaces
// what is there, as a server expects.
func (f *Fetcher) Fetch(ctx context.Context, name, path string) error {
	parsed, err := ParseWALName(name)
	if err != nil {
		return err
	}
	flight := f.join(name)
	select {
	case <-ctx.Done():
		return fmt.Errorf("fetch %s: %w", name, context.Cause(ctx))
	case <-flight.done:
	}
	f.forget(name, flight)
	if flight.err != nil {
		return flight.err
	}
	if err := os.Rename(flight.path, path); err != nil {
		return fmt.Errorf("fetch %s: %w", name, err)
	}
	// Only now: at the end of the archive a server asks again and again for what
	// is not there, and what comes after that isn't there either.
	if parsed.Kind == Segment {
		f.prefetch(name)
	}
	return nil
}

// join returns the file's flight, and begins it if there is none.
func (f *Fetcher) join(name string) *fetch {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.joinLocked(name)
}

func (f *Fetcher) joinLocked(name string) *fetch {
	if flight := f.flights[name]; flight != nil {
		return flight
	}
	f.begun++
	ctx, cancel := context.WithCancel(f.life)
	// A flight that was given up may still be writing the same file.
	path := filepath.Join(f.dir, fmt.Sprintf("%s-%d", name, f.begun))
	flight := &fetch{path: path, cancel: cancel, done: make(chan struct{})}
	f.flights[name] = flight
	f.group.Go(func() {
		flight.err = f.repository.FetchWAL(ctx, name, path)
		cancel()
		f.arrive(name, flight)
	})
	return flight
}

// arrive ends a flight. What failed is tried again when it is asked for again.
func (f *Fetcher) arrive(name string, flight *fetch) {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(flight.done)
	if flight.err != nil && f.flights[name] == flight {
		delete(f.flights, name)
	}
	if flight.err == nil && flight.dropped {
		_ = os.Remove(flight.path) // Close tries again
	}
}

func (f *Fetcher) forget(name string, flight *fetch) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.flights[name] == flight {
		delete(f.flights, name)
	}
}

// prefetch begins to fetch what comes after a segment, and gives up whatever
// else was fetched: recovery has gone another way, such as to a new timeline.
func (f *Fetcher) prefetch(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.life.Err() != nil {
		return
	}
	wanted := following(name, f.segmentSize, f.ahead)
	for other, flight := range f.flights {
		if !slices.Contains(wanted, other) {
			f.giveUp(other, flight)
		}
	}
	for _, next := range wanted {
		f.joinLocked(next)
	}
}

func (f *Fetcher) giveUp(name string, flight *fetch) {
	flight.cancel()
	flight.dropped = true
	delete(f.flights, name)
	if isClosed(flight.done) {
		_ = os.Remove(flight.path) // Close tries again
	}
}

// following are the names of the segments after one, on the same timeline.
func following(name string, segmentSize uint64, count int) []string {
	file, ok := postgres.ParseWALFile(name, segmentSize)
	if !ok {
		return nil
	}
	var names []string
	for range count {
		file.Start += postgres.LSN(segmentSize)
		names = append(names, file.Name(segmentSize))
	}
	return names
}
