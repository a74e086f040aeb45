package instance

import (
	"errors"
	"time"

	"github.com/pgop/postgres-operator/pkg/election"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/postgres"
)

// newsState is what was last noticed.
type newsState struct {
	// newsConfig and newsLease are what was last noticed.
	newsConfig int
	newsLease  election.Record
	newsHolder election.Holder
}

// noticeExit takes note of a server that has ended by itself. It is started
// again at once, and with back-off if it keeps ending.
func (a *Agent) noticeExit() {
	s := a.server
	if s == nil || !s.hasExited() {
		return
	}
	err := s.exitError()
	if a.fenced.Load() {
		a.noticeFenced()
		return
	}
	if !s.isReady() && !s.wasKilled() {
		a.blameConfiguration(err)
	}
	a.cantStart = !s.isReady() && a.runningAs().Role == instanceapi.RoleReplica
	a.server = nil
	a.runs(running{})
	a.status.enter(instanceapi.PhaseFailed, err.Error())
	const stable = time.Minute
	if time.Since(s.launched) > stable {
		a.tryAgainNow()
	}
	if a.failures == 0 && s.isReady() {
		a.failures = 1 // at once, the first time
		return
	}
	a.postpone()
}

// blameConfiguration takes note that the server did not start. What is in force may
// be why, unless one has started with it before: the next start is with the last
// with which one has. If that does not start either, the reason is another, and
// every configuration gets its chance again, also once that reason is gone.
func (a *Agent) blameConfiguration(err error) {
	good, unknown := a.config.kept(goodDir)
	if unknown == nil && a.inForce == good {
		a.blameless = true
		clear(a.rejected)
		return
	}
	a.rejected[a.inForce] = postgres.NameHBALines(a.inForce.HBA, err.Error())
}

// noticeFenced takes note of a server that was killed before it wrote; one that
// wrote is retired.
func (a *Agent) noticeFenced() {
	if a.runningAs().Role == instanceapi.RolePrimary {
		return
	}
	a.killMu.Lock()
	a.fenced.Store(false)
	a.killMu.Unlock()
	a.server = nil
	a.runs(running{})
}

// noticeReady takes note of a server that has begun to accept connections of
// clients.
func (a *Agent) noticeReady() {
	s := a.server
	if s == nil || !s.isReady() || s.noticed || a.runningAs().role() == instanceapi.RoleNone {
		return
	}
	s.noticed = true
	if a.blameless {
		a.blameless = false
		clear(a.rejected)
	}
	a.status.enter(instanceapi.PhaseRunning, "")
	a.tended = time.Time{}
	a.observer.forget()
	if a.untriedMaps {
		a.untriedMaps, a.applied = false, untried
	}
	// What it started with is good, whatever comes later.
	if err := errors.Join(a.config.keep(a.inForce, acceptedDir), a.config.keep(a.inForce, goodDir)); err != nil {
		a.log.WithError(err).Error("remembering the configuration failed")
	}
}

// noticeNews lets failed moves be tried again at once when the configuration
// or the reign has changed.
func (a *Agent) noticeNews() {
	config, lease := a.view.knownConfig().Version, a.view.knownLease()
	if config != a.newsConfig || !lease.Record.Equal(a.newsLease) || lease.Holder != a.newsHolder {
		a.newsConfig, a.newsLease, a.newsHolder = config, lease.Record, lease.Holder
		a.tryAgainNow()
	}
}

// remember keeps the last record of the Lease on the volume. It never goes
// back to an older term.
func (a *Agent) remember() error {
	lease := a.view.knownLease()
	seen := reignMemory{Holder: lease.Holder.String(), Record: lease.Record}
	if lease.Record.IsEmpty() || lease.Record.Term < a.memory.Record.Term ||
		seen.Holder == a.memory.Holder && seen.Record.Equal(a.memory.Record) {
		return nil
	}
	if err := a.volume.writeReign(seen); err != nil {
		return err
	}
	a.knowReign(seen)
	return nil
}

func (a *Agent) knowReign(m reignMemory) {
	a.memory = m
	a.status.update(func(s *instanceapi.State) {
		s.Term, s.LastHolder, s.LastReign = m.Record.Term, election.ParseHolder(m.Holder).Instance, m.Record
	})
}
