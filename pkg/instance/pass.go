package instance

import (
	"context"
	"errors"
	"time"

	"github.com/pgop/postgres-operator/pkg/election"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
)

// errReconsidered is the cause for which a job is cancelled when what it does
// is no longer what should be done.
var errReconsidered = errors.New("something else is to be done now")

// pass looks at everything once and starts at most one job.
func (a *Agent) pass(ctx context.Context) {
	if a.job != nil {
		if !isClosed(a.job.done) {
			a.reconsider()
			return
		}
		a.finish()
	}
	a.noticeExit()
	a.noticeReady()
	a.noticeNews()
	if !a.prepared {
		if a.mayTry() {
			a.start(ctx, "prepare", a.prepare)
		}
		return
	}
	a.carryOut(ctx, decide(a.situation()))
}

func (a *Agent) mayTry() bool { return !time.Now().Before(a.retry) }

func (a *Agent) situation() situation {
	return situation{
		Me: a.options.Instance, Config: a.view.knownConfig(), Lease: a.view.knownLease(),
		APIAway: time.Since(a.started) > apiPatience, Reigns: a.reign.holds(),
		Data: a.data, Identity: a.identity, SystemID: a.systemID, DataPath: a.volume.data(), OtherData: a.other, Memory: a.memory,
	}
}

// carryOut starts the job that the decision needs, if it is not done already.
func (a *Agent) carryOut(ctx context.Context, d decision) {
	now := a.runningAs()
	// Only the holder is writable: a primary that has lost the Lease stops,
	// whatever it is to become.
	if now.Role == instanceapi.RolePrimary && now.Open && d.Move != moveReign {
		a.start(ctx, "step down", a.stepDown)
		return
	}
	if now.Role == instanceapi.RoleNone {
		a.sayIdle(d)
	}
	if !a.mayTry() {
		return
	}
	switch d.Move {
	case moveInitdb:
		config := a.view.knownConfig().Config
		a.start(ctx, "initdb", func(ctx context.Context) error { return a.initdb(ctx, config) })
	case moveClone:
		a.start(ctx, "clone", func(ctx context.Context) error { return a.clone(ctx, d.Upstream) })
	case moveReign:
		a.reignOn(ctx, now)
	case moveFollow:
		a.followOn(ctx, now, d.Upstream)
	default:
		a.lookAfter(ctx, now)
	}
}

// sayIdle says what an instance without a server waits for or suffers from.
func (a *Agent) sayIdle(d decision) {
	switch d.Move {
	case moveWait:
		a.status.enter(instanceapi.PhaseWaiting, d.Why)
	case moveRefuse:
		a.status.enter(instanceapi.PhaseFailed, d.Why)
	}
}

func (a *Agent) reignOn(ctx context.Context, now running) {
	switch {
	case now.Role == instanceapi.RoleReplica:
		a.start(ctx, "stop replica", a.stepDown)
	case !now.Open || !a.reign.holds():
		a.start(ctx, "serve", a.serve)
	default:
		a.lookAfter(ctx, now)
	}
}

func (a *Agent) followOn(ctx context.Context, now running, up upstream) {
	switch {
	case now.Role == instanceapi.RoleNone:
		a.start(ctx, "follow", func(ctx context.Context) error { return a.follow(ctx, up) })
	case now.Role == instanceapi.RolePrimary:
		a.start(ctx, "step down", a.stepDown)
	case now.Upstream != up:
		a.start(ctx, "follow another", func(ctx context.Context) error { return a.followAnother(ctx, up) })
	default:
		a.lookAfter(ctx, now)
	}
}

// lookAfter does what a server needs that runs as it should.
func (a *Agent) lookAfter(ctx context.Context, now running) {
	switch {
	case now.Role == instanceapi.RoleNone || a.server == nil:
	case a.view.knownConfig().Version != a.applied:
		a.start(ctx, "configure", a.configure)
	case a.hasOldCredentials():
		a.start(ctx, "renew credentials", a.renewCredentials)
	case a.server.isReady() && a.needsTending(now):
		a.start(ctx, "tend", a.tend)
	}
}

// reconsider cancels a job that takes long once something else is to be done.
func (a *Agent) reconsider() {
	switch a.job.name {
	case "initdb":
		if bootstrapChanged(a.job.config.Config, a.view.knownConfig().Config) {
			a.job.cancel(errReconsidered)
		}
	case "clone":
		if !a.job.lease.Record.Equal(a.view.knownLease().Record) {
			a.job.cancel(errReconsidered)
		}
	}
}

// finish takes note of how the job has ended.
func (a *Agent) finish() {
	j := a.job
	a.job = nil
	switch {
	case j.err == nil:
		if j.name == "initdb" || j.name == "clone" || j.name == "prepare" {
			a.tryAgainNow()
		}
	case errors.Is(j.err, errReconsidered):
		a.log.WithField("job", j.name).Info("began anew, since what it goes by has changed")
		a.tryAgainNow()
	case errors.Is(j.err, context.Canceled):
		// The agent stops.
	default:
		a.postpone()
		a.sayFailed(j)
	}
}

// sayFailed reports a job that failed. A clone that finds no primary yet is
// nothing that people have to look at.
func (a *Agent) sayFailed(j *job) {
	const patience = 6
	if j.name == "clone" && a.failures <= patience {
		a.status.enter(instanceapi.PhaseCloning, j.err.Error())
		return
	}
	if a.runningAs().Role != instanceapi.RoleNone {
		a.log.WithField("job", j.name).WithError(j.err).Error("a job failed")
		return
	}
	a.status.enter(instanceapi.PhaseFailed, j.err.Error())
}

// noticeExit takes note of a server that has ended by itself. It is started
// again at once, and with back-off if it keeps ending.
func (a *Agent) noticeExit() {
	s := a.server
	if s == nil || !s.hasExited() {
		return
	}
	err := s.exitError()
	if !s.isReady() && !s.wasKilled() {
		// What is in force may be why: the next start is with what was before.
		a.rejected[a.inForce] = err.Error()
	}
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

// noticeReady takes note of a server that has begun to accept connections of
// clients.
func (a *Agent) noticeReady() {
	s := a.server
	if s == nil || !s.isReady() || s.noticed || a.runningAs().role() == instanceapi.RoleNone {
		return
	}
	s.noticed = true
	a.status.enter(instanceapi.PhaseRunning, "")
	a.tended = time.Time{}
	a.observer.forget()
	// What it started with is good, whatever comes later.
	if err := errors.Join(a.config.keep(a.inForce, acceptedDir), a.config.keep(a.inForce, goodDir)); err != nil {
		a.log.WithError(err).Error("remembering the configuration failed")
	}
}

// noticeNews lets failed moves be tried again at once when the configuration
// or the reign has changed.
func (a *Agent) noticeNews() {
	config, lease := a.view.knownConfig().Version, a.view.knownLease().Record
	if config != a.newsConfig || !lease.Equal(a.newsLease) {
		a.newsConfig, a.newsLease = config, lease
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
		s.Term, s.LastHolder = m.Record.Term, election.ParseHolder(m.Holder).Instance
	})
}
