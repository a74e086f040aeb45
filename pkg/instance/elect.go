package instance

import (
	"slices"
	"time"

	"github.com/pgop/postgres-operator/pkg/election"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
)

// shownData is what the election core knows of the data. It is kept apart,
// since the data is a job's while one runs.
type shownData struct {
	data   election.Data
	cut    uint64
	founds bool
	memory reignMemory
}

// show shows the core the data as it is now.
func (a *Agent) show() {
	a.shown = shownData{cut: a.cut, memory: a.memory}
	want := a.situation(election.Target{}).wantedSystem()
	if a.data != dataComplete || want != "" && want != a.systemID {
		return
	}
	a.shown.data = election.Data{ID: a.identity.ID, SystemID: a.systemID, Timeline: a.position.Timeline, End: a.position.End}
	a.shown.founds = a.situation(election.Target{}).founds()
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
		Founds: a.shown.founds && lease.Known, Memory: a.shown.memory.Record, Instances: instancesToHear(config),
	}
	if forced := config.ForcePromote; forced != nil {
		in.Forced = forced.Instance == a.options.Instance && forced.Term == lease.Record.Term
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

// instancesToHear are those whose volumes may remember a reign, should the Lease tell
// of none.
func instancesToHear(c instanceapi.Config) []string {
	return slices.DeleteFunc(slices.Clone(c.Members), func(name string) bool { return slices.Contains(c.Blank, name) })
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

// hideData lets the core know that the data is about to be replaced.
func (a *Agent) hideData() { a.shown.data = election.Data{} }
