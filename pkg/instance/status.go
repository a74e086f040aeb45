package instance

import (
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/pgop/postgres-operator/pkg/instanceapi"
)

// status is what the agent says of itself; what the server says comes from the
// observer.
type status struct {
	log *logrus.Entry

	mu    sync.Mutex
	state instanceapi.State
}

// enter says what the agent is doing, and in words why or what for. A change
// is logged once, however often it is said.
func (s *status) enter(phase instanceapi.Phase, message string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state.Phase == phase && s.state.Message == message {
		return
	}
	if s.state.Phase != phase {
		s.state.Since = time.Now()
	}
	s.state.Phase, s.state.Message = phase, message
	entry := s.log.WithField("phase", phase)
	if message != "" {
		entry = entry.WithField("message", message)
	}
	if phase == instanceapi.PhaseFailed {
		entry.Error("phase changed")
		return
	}
	entry.Info("phase changed")
}

// update changes other parts of the state.
func (s *status) update(change func(*instanceapi.State)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.state)
}

// snapshot is a copy. Slices in it are never changed, only replaced.
func (s *status) snapshot() instanceapi.State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

// configError says why the newest configuration is not in force; empty: it is.
func (s *status) configError(message string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state.ConfigError == message {
		return
	}
	s.state.ConfigError = message
	if message != "" {
		s.log.WithField("message", message).Error("the newest configuration is held back")
	} else {
		s.log.Info("the newest configuration is in force")
	}
}
