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
	}
}

// shownData is what the election core knows of the data. It is kept apart,
// since the data is a job's while one runs.
type shownData struct {
	data   election.Data
	cut    uint64
	founds bool
	last   uint64
	memory reignMemory
}

// show shows the core the data as it is now.
func (a *Agent) show() {
	a.shown = shownData{cut: a.cut, last: a.memory.Record.Term, memory: a.memory}
	want := a.situation(election.Target{}).wantedSystem()
	if a.data != dataComplete || want != "" && want != a.systemID {
		return
	}
	a.shown.data = election.Data{ID: a.identity.ID, SystemID: a.systemID, Timeline: a.position.Timeline, End: a.position.End}
	a.shown.founds, _ = a.situation(election.Target{}).founds()
}

// elect lets the election core take a step, and ends the server at once if this
// instance reigns no more.
func (a *Agent) elect() election.Target {
	if a.job == nil {
		a.show()
		a.elector.state.Sealed = max(a.elector.state.Sealed, a.sealed)
	}
	now, config, lease := a.runningAs(), a.view.knownConfig().Config, a.view.knownLease()
	in := election.Input{
		Lease: a.elector.lease(a.shown.memory), Data: a.shown.data, Cut: a.shown.cut,
		Founds: a.shown.founds && lease.Known, LastTerm: a.shown.last,
	}
	if forced := config.ForcePromote; forced != nil {
		in.Forced = forced.Instance == a.options.Instance && forced.Term == lease.Record.Term && !lease.Record.IsEmpty()
	}
	if now.Role == instanceapi.RolePrimary && now.Reigning {
		if seen := a.replication.primary(); seen != nil {
			in.Primary = seen
			a.askAbsent(seen.Standbys)
		}
	} else if a.job == nil {
		a.giveUpResigning()
		in.Resign, in.Halt = a.resign, a.halt
	}
	in.Rest = config.Stop || a.halt != nil
	if a.givesInToForce(now) {
		a.elector.forgetReign()
		in.Data = election.Data{} // it takes nothing back
	}
	out := a.elector.step(a.electionSettings(), in)
	a.replication.ask(out.Sync)
	a.sealing = max(a.sealing, out.Seal)
	a.status.update(func(s *instanceapi.State) { s.Election, s.Stopping = out.Blocked, config.Stop })
	if out.Target.Role == election.Leading {
		a.lead(out.Target.Term)
		return out.Target
	}
	if a.elector.state.Reigns() {
		return out.Target // it is on its way out
	}
	a.resign, a.downSince, a.upSince = nil, time.Time{}, time.Time{}
	switch {
	case !a.mayLead():
	case a.job == nil && now.Role == instanceapi.RoleNone:
		a.abdicate() // nothing runs
	default:
		a.fence(out.Target.Why)
		if a.job != nil {
			a.job.cancel(errFenced)
		}
	}
	return out.Target
}

// givesInToForce says whether people promote another instance while the server of
// this one, which holds the Lease, can't start. As long as its agent renews the
// Lease, or takes it back, they would wait for ever.
func (a *Agent) givesInToForce(now running) bool {
	forced, lease := a.view.knownConfig().Config.ForcePromote, a.view.knownLease()
	if forced == nil || forced.Instance == a.options.Instance || forced.Term != lease.Record.Term || lease.Holder.Instance != a.options.Instance {
		a.gaveIn = false
		return false
	}
	if a.job == nil && now.Role == instanceapi.RoleNone && a.failures > 0 {
		a.gaveIn = true
	}
	return a.gaveIn
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
	case a.sealing > a.cut && a.mayTry() && a.data == dataComplete && d.Move != moveReign:
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

// hideData lets the core know that the data is about to be replaced.
func (a *Agent) hideData() { a.shown.data = election.Data{} }

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

// giveUpResigning goes on as the primary when the Lease can't be written.
func (a *Agent) giveUpResigning() {
	const longest = 5 * time.Second
	if a.resign != nil && time.Since(a.resignAt) > longest {
		a.log.Warn("the Lease could not be released; going on as the primary")
		a.resign = nil
	}
}

// wantedSwitchover is who shall take over as a user asks; empty: nobody.
func (a *Agent) wantedSwitchover(now running) string {
	asked, lease := a.view.knownConfig().Config.Switchover, a.view.knownLease()
	say := func(text string) { a.status.update(func(s *instanceapi.State) { s.Request = text }) }
	switch {
	case asked == nil || asked.From != a.options.Instance || asked.Term != lease.Record.Term:
		say("")
		return ""
	case a.refused != nil && *a.refused == *asked || !now.Open:
		return ""
	}
	to, why := a.successor(asked.To)
	if to == "" {
		say(why)
		return ""
	}
	a.refused = asked // it is tried once
	say("")
	return to
}

func (a *Agent) successor(want string) (name, why string) {
	seen := a.replication.primary()
	if seen == nil {
		return "", "the primary does not know its standbys yet"
	}
	return successor(want, a.view.knownLease().Record, seen.Standbys)
}

// leave ends this instance in order: a primary hands over first, if it can and
// the cluster goes on.
func (a *Agent) leave(ctx context.Context, now running) {
	switch {
	case a.resign != nil && time.Since(a.resignAt) < leaseTimeout*2:
		return // the Lease is being released
	case a.halt != nil && a.elector.state.Reigns() && time.Since(a.haltedAt) < leaseTimeout*2:
		return // the record is being written
	case a.halted:
	case a.view.knownConfig().Config.Stop && now.Role == instanceapi.RolePrimary && now.Reigning && a.mayLead():
		a.halted = true
		a.start(ctx, "halt", a.haltServer)
		return
	case now.Open && a.mayLead() && !a.handedOver:
		a.handedOver = true
		if to, why := a.successor(""); to != "" {
			a.start(ctx, "switchover", func(ctx context.Context) error { return a.switchover(ctx, to) })
			return
		} else {
			a.log.WithField("why", why).Warn("stopping without handing over")
		}
	}
	a.left = true
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
	case "initdb":
		if bootstrapChanged(a.job.config.Config, a.view.knownConfig().Config) {
			a.job.cancel(errReconsidered)
		}
	case "clone":
		if now := a.view.knownLease(); now.Record.HolderDataID != a.job.lease.Record.HolderDataID || now.Record.HolderAddress != a.job.lease.Record.HolderAddress {
			a.job.cancel(errReconsidered)
		}
	case "tend", "configure", "look for the primary's past", "renew credentials":
		if a.sealing > a.cut {
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
		case "prepare", "initdb", "clone", "rejoin", "give up data", "seal", "retire", "promote", "restart":
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
	a.rejected[a.inForce] = err.Error()
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
		s.Term, s.LastHolder = m.Record.Term, election.ParseHolder(m.Holder).Instance
	})
}
