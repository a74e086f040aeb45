package cluster

import (
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/specs"
)

// sighting is what a loop last saw of something, and since when by the monotonic
// clock. A time that is stored somewhere is by a wall clock, which may jump, and
// is often another machine's: nothing waits for it alone (C-24).
type sighting struct {
	what  string
	since time.Time
	// before is for how long it was said to have been so when it was first seen.
	before time.Duration
}

// longestBefore is the most that is believed of what was before the first sight.
// It is more than any wait.
const longestBefore = 2 * time.Hour

// lasts says for how long something has been as it is. Began is since when, as
// far as somebody has stored that, and tells of the time before this loop saw it.
func (s *sighting) lasts(what string, began, now time.Time) time.Duration {
	if s.what != what || s.since.IsZero() {
		*s = sighting{what: what, since: now}
		if !began.IsZero() {
			s.before = min(max(now.Sub(began), 0), longestBefore)
		}
	}
	return s.before + now.Sub(s.since)
}

// unchangedFor says for how long the Lease has been as it is.
func (s *sighting) unchangedFor(lease *coordinationv1.Lease, now time.Time) time.Duration {
	if lease == nil {
		*s = sighting{}
		return 0
	}
	return s.lasts(lease.ResourceVersion, time.Time{}, now)
}

// lookAtTheClock notes for how long what the operator waits for has been so.
func (l *Loop) lookAtTheClock(o *Observation) {
	o.LeaseUnchanged = l.lease.unchangedFor(o.Lease, o.Now)
	asked, since := specs.SwitchoverAsked(o.ConfigMap), specs.Authorities(nil, o.Secrets[specs.OperatorSecret(o.Cluster.Name)]).Since
	trusted := specs.ClientsTrustSince(o.Secrets[specs.AppSecret(o.Cluster.Name)])
	o.TrustWaited = l.trust.lasts(trusted.String(), trusted, o.Now)
	var told instanceapi.Switchover
	if s := o.told().Switchover; s != nil {
		told = *s
	}
	stopping := o.stoppingSince()
	if o.StopWaited = 0; !stopping.IsZero() {
		o.StopWaited = l.stop.lasts(stopping.String(), stopping, o.Now)
	}
	o.SwitchoverWaited = l.switchover.lasts(fmt.Sprint(told, asked), asked, o.Now)
	o.RotationWaited = l.rotation.lasts(since.String(), since, o.Now)
	o.BackupWaited = l.backup.lasts(o.backupSilence(), time.Time{}, o.Now)
}

// sightings are those of objects, by their UID.
type sightings map[types.UID]time.Time

// last says for how long an object has been so, and forgets one that is so no more.
func (s sightings) last(uid types.UID, is bool, now time.Time) time.Duration {
	if !is {
		delete(s, uid)
		return 0
	}
	if s[uid].IsZero() {
		s[uid] = now
	}
	return now.Sub(s[uid])
}
