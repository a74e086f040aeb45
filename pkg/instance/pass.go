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
	if a.job != nil && isClosed(a.job.done) {
		a.finish()
	}
	target := a.elect()
	a.tendBackup(ctx)
	a.catalog.tend()
	if a.job != nil {
		a.reconsider()
		return
	}
	a.noticeExit()
	a.noticeReady()
	a.noticeRecovery()
	a.noticeNews()
	switch {
	case !a.prepared && a.leaving:
		a.left = true
	case a.prepared:
		a.carryOut(ctx, target, decide(a.situation(target)))
	case a.mayTry():
		a.start(ctx, "prepare", a.prepare)
	}
}

func (a *Agent) mayTry() bool { return !time.Now().Before(a.retry) }

func (a *Agent) situation(target election.Target) situation {
	return situation{
		Me: a.options.Instance, Config: a.view.knownConfig(), Lease: a.view.knownLease(),
		APIAway: time.Since(a.started) > apiPatience, Target: target,
		Data: a.data, WAL: a.wal, Identity: a.identity, SystemID: a.systemID, DataPath: a.volume.data(), OtherData: a.other, Memory: a.memory,
		GaveUp: a.gaveUp.on(a.view.knownConfig().Config.Bootstrap),
	}
}

// carryOut starts the job that the decision needs, if it is not done already.
func (a *Agent) carryOut(ctx context.Context, target election.Target, d decision) {
	now := a.runningAs()
	switch {
	case now.Role == instanceapi.RolePrimary && (now.Open || now.Reigning) && d.Move != moveReign:
		// Only the holder is writable, whatever it is to become.
		a.start(ctx, "retire", a.retire)
		return
	case a.leaving:
		a.leave(ctx, now)
		return
	case a.mustSeal() && a.mayTry() && a.data == dataComplete && d.Move != moveReign:
		term := a.sealing
		a.start(ctx, "seal", func(ctx context.Context) error { return a.seal(ctx, term) })
		return
	}
	if now.Role == instanceapi.RoleNone {
		a.sayIdle(d)
	}
	if !a.mayTry() && d.Move != moveReign {
		return
	}
	switch d.Move {
	case moveInitdb:
		config := a.view.knownConfig().Config
		a.start(ctx, "initdb", func(ctx context.Context) error { return a.initdb(ctx, config) })
	case moveRestore:
		config := a.view.knownConfig().Config
		a.start(ctx, "restore", func(ctx context.Context) error { return a.restore(ctx, config) })
	case moveCopy:
		config := a.view.knownConfig().Config
		a.start(ctx, "copy", func(ctx context.Context) error { return a.copyCluster(ctx, config) })
	case moveClone:
		a.start(ctx, "clone", func(ctx context.Context) error { return a.clone(ctx, d.Upstream) })
	case moveReclone:
		a.hideData()
		a.start(ctx, "give up data", func(ctx context.Context) error { return a.cloneAgain(ctx, d.Why) })
	case moveReign:
		a.reignOn(ctx, now, target)
	case moveFollow:
		a.followOn(ctx, now, d.Upstream)
	default:
		a.lookAfter(ctx, now)
	}
}

func (a *Agent) reignOn(ctx context.Context, now running, target election.Target) {
	// Where commits wait for standbys, clients come in when the core says so.
	open := a.electionSettings().Mode == election.Async
	switch {
	case a.resign != nil:
		return // the Lease is released in a moment
	case now.Role == instanceapi.RoleReplica:
		a.start(ctx, "promote", func(ctx context.Context) error { return a.promote(ctx, open) })
		return
	}
	if why := a.whyGiveWay(now); why != "" {
		a.start(ctx, "give way", func(ctx context.Context) error { return a.giveWay(ctx, why) })
		return
	}
	if !a.mayTry() {
		return
	}
	switch {
	case now.Role == instanceapi.RoleNone:
		a.start(ctx, "serve", func(ctx context.Context) error { return a.startPrimary(ctx, open) })
	case !now.Reigning:
		a.start(ctx, "reign", func(ctx context.Context) error { return a.reignOver(ctx, open) })
	case !now.Open && target.Open:
		a.start(ctx, "open", a.open)
	default:
		if !now.Open {
			a.status.enter(instanceapi.PhaseStarting, "closed to clients until the standbys that a commit needs have caught up")
		}
		if to := a.wantedSwitchover(now); to != "" {
			a.start(ctx, "switchover", func(ctx context.Context) error { return a.switchover(ctx, to) })
			return
		}
		a.lookAfter(ctx, now)
	}
}

func (a *Agent) followOn(ctx context.Context, now running, up upstream) {
	switch {
	case now.Role == instanceapi.RoleNone && a.remedy.isNeeded():
		a.startCure(ctx, up)
	case now.Role == instanceapi.RoleNone && a.cantStart && !up.isZero():
		a.start(ctx, "look for the primary's past", func(ctx context.Context) error { return a.diagnoseStopped(ctx, up) })
	case now.Role == instanceapi.RoleNone:
		a.start(ctx, "follow", func(ctx context.Context) error { return a.follow(ctx, up) })
	case now.Role == instanceapi.RolePrimary:
		a.start(ctx, "retire", a.retire)
	case now.Upstream != up:
		a.start(ctx, "follow another", func(ctx context.Context) error { return a.followAnother(ctx, up) })
	case a.remedy.isNeeded():
		a.startCure(ctx, up)
	case a.needsRejoin(now):
		a.start(ctx, "look for the primary's past", func(ctx context.Context) error { return a.diagnose(ctx, up) })
	default:
		a.lookAfter(ctx, now)
	}
}

func (a *Agent) startCure(ctx context.Context, up upstream) {
	cure := a.remedy
	a.remedy = remedy{}
	a.hideData()
	a.start(ctx, "rejoin", func(ctx context.Context) error { return a.cure(ctx, up, cure) })
}

// lookAfter does what a server needs that runs as it should.
func (a *Agent) lookAfter(ctx context.Context, now running) {
	switch {
	case now.Role == instanceapi.RoleNone || a.server == nil:
	case a.view.knownConfig().Version != a.applied && (now.Role != instanceapi.RolePrimary || now.Open):
		a.start(ctx, "configure", a.configure)
	case a.server.isReady() && a.whyRestart(now) != "":
		why := a.whyRestart(now)
		a.start(ctx, "restart", func(ctx context.Context) error { return a.restart(ctx, why) })
	case a.hasOldCredentials():
		a.start(ctx, "renew credentials", a.renewCredentials)
	case a.server.isReady() && a.needsTending(now):
		a.start(ctx, "tend", a.tend)
	}
}

// reconsider cancels a job that takes long once something else is to be done.
func (a *Agent) reconsider() {
	switch a.job.name {
	case "initdb", "restore", "copy":
		if bootstrapChanged(a.job.config.Config, a.view.knownConfig().Config) {
			a.job.cancel(errReconsidered)
		}
	case "clone":
		if now := a.view.knownLease(); now.Record.HolderDataID != a.job.lease.Record.HolderDataID || now.Record.HolderAddress != a.job.lease.Record.HolderAddress {
			a.job.cancel(errReconsidered)
		}
	case "tend", "configure", "look for the primary's past", "renew credentials":
		if a.mustSeal() {
			a.job.cancel(errReconsidered)
		}
	case "seal":
		if !a.sealCounts() {
			a.job.cancel(errReconsidered)
		}
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

// finish takes note of how the job has ended.
func (a *Agent) finish() {
	j := a.job
	a.job = nil
	switch {
	case j.err == nil:
		switch j.name {
		case "prepare", "initdb", "restore", "copy", "clone", "rejoin", "give up data", "seal", "retire", "promote", "restart":
			a.tryAgainNow()
		}
	case errors.Is(j.err, errReconsidered):
		a.log.WithField("job", j.name).Info("began anew, since what it goes by has changed")
		a.tryAgainNow()
	case errors.Is(j.err, errFenced) || errors.Is(j.err, context.Canceled):
		// What comes next is another matter.
	case j.name == "switchover":
		a.status.update(func(s *instanceapi.State) { s.Request = j.err.Error() })
		a.sayFailed(j)
	default:
		a.noteFinal(j)
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
