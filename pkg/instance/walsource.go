package instance

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/pgop/postgres-operator/pkg/backup"
	"github.com/pgop/postgres-operator/pkg/instance/walcall"
)

// walSource gives a recovering server the WAL that it asks for.
type walSource struct {
	fetcher *backup.Fetcher

	mu sync.Mutex
	// last is what it got last, and problem why it waits.
	last, problem string
	// broken is what it must not get.
	broken error
}

// fetch answers for a file, which goes to path. A store that is away must not be
// taken for the end of the archive: the server waits.
func (s *walSource) fetch(ctx context.Context, name, path string) (exit int, words string) {
	const again = 2 * time.Second
	for {
		err := s.fetcher.Fetch(ctx, name, path)
		switch {
		case err == nil:
			s.note(name, "")
			return walcall.Done, ""
		case errors.Is(err, backup.ErrNotFound):
			return walcall.Failed, ""
		case errors.Is(err, backup.ErrDamaged):
			s.mu.Lock()
			defer s.mu.Unlock()
			s.broken = err
			return walcall.Abort, err.Error()
		}
		s.note("", err.Error())
		if pause(ctx, again) != nil {
			return walcall.Abort, err.Error()
		}
	}
}

func (s *walSource) note(last, problem string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if last != "" {
		s.last = last
	}
	s.problem = problem
}

// damaged is what is wrong with what was asked for; nil: nothing.
func (s *walSource) damaged() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.broken
}

// words say how far the server is, for people.
func (s *walSource) words() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.problem != "":
		return "waiting for the archive: " + s.problem
	case s.last != "":
		return fmt.Sprintf("replaying WAL of the archive, %s", s.last)
	}
	return "replaying WAL of the archive"
}
