package cluster

import (
	"errors"
	"time"

	"github.com/pgop/postgres-operator/pkg/specs"
)

const (
	// busyRecheck is how often agents are asked while something is under way
	// that no watch tells of.
	busyRecheck = time.Second
	// idleRecheck is how often agents are asked in a settled cluster. It costs
	// the API server nothing.
	idleRecheck = 30 * time.Second
)

// Analyse decides the next actions. It reads no clock, does no I/O but for
// the random numbers in new keys and passwords, and never modifies o.
func Analyse(o Observation) Plan {
	p := Plan{RecheckAfter: idleRecheck}
	if err := errors.Join(specs.CheckConfiguration(o.Cluster), checkWALVolumes(o), checkSchedules(o.Cluster), checkRotations(o.Cluster), checkSource(o)); err != nil {
		p.SpecError, o.refused = err.Error(), true
	}
	if p.SpecError != "" && o.ConfigMap == nil && o.Cluster.Status.SystemID == "" {
		p.Paused = o.Cluster.Spec.Paused
		// There is no earlier configuration with which anything could be made.
		p.wait("nothing is made before the spec is corrected; see the condition SpecAccepted")
		planBackups(o, &p)
		if p.Paused {
			p.hold()
		}
		if o.SourceRefused != "" {
			p.RecheckAfter = busyRecheck // what it is about may change without an edit
		}
		return p
	}
	p.ConfigHash = wantedConfigHash(o)
	for _, rule := range rules {
		rule(o, &p)
	}
	forInstances := running
	switch {
	case p.Rollback.reverts():
		forInstances = nil // rollBack does it all
	case p.Stop:
		forInstances = stopping
	}
	for _, rule := range forInstances {
		rule(o, &p)
	}
	if o.Cluster.Spec.Paused {
		p.hold()
	}
	if len(p.Actions) > 0 || !isSettled(o, p) {
		p.RecheckAfter = busyRecheck
	}
	p.RecheckAfter = min(p.RecheckAfter, backupRecheck(o, p), rotationRecheck(o, p), renewalRecheck(o, p))
	return p
}

// rules run in order. Every rule speaks in every pass, so that what one waits
// for never starves another.
var rules = []func(Observation, *Plan){
	chooseRollback,
	chooseMembers,
	awaitDeletions,
	ensureAccess,
	planRotations,
	ensureSecrets,
	ensureCloneSecret,
	passRequestsOn,
	planChange,
	planBackups,
	planVerification,
	ensureConfiguration,
	rollBack,
	ensureServices,
	ensureDisruptionBudget,
}

// running come after rules in a cluster that shall run.
var running = []func(Observation, *Plan){
	giveUpLostInstances,
	removeInstances,
	replaceBrokenPods,
	restartInstances,
	ensureVolumes,
	ensurePods,
	markPods,
}

// stopping come after rules in a cluster that shall not run, or does not.
var stopping = []func(Observation, *Plan){
	stopInstances,
	ensureVolumes,
	markPods,
}

// isSettled says whether the cluster is as asked, as far as it was seen.
func isSettled(o Observation, p Plan) bool {
	if p.Stop {
		return len(p.Waits) == 0 && !o.hasPods()
	}
	if len(p.Waits) > 0 || !o.primaryServes() || len(o.Instances) != len(p.Members) || len(dueForRestart(o, &p)) > 0 {
		return false
	}
	if firstWithoutConfiguration(o, &p) != "" || o.isApplyingDeclared(p) || p.SpecError == "" && o.isLowering() {
		return false
	}
	for _, i := range o.Instances {
		if !i.isReady() || i.State == nil {
			return false
		}
	}
	return true
}
