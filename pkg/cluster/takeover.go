package cluster

import (
	"fmt"
	"slices"
	"time"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/specs"
)

// takeover is the event that another instance than status.primary reigns now;
// no reason if that is not so. Since the status is written before the event is
// made, it is told once, whoever the operator is.
func takeover(o Observation) (reason, note string) {
	before, now := o.Cluster.Status.Primary, o.primaryName()
	if before == "" || now == "" || before == now || o.isLeftBehind(before) {
		return "", ""
	}
	note = fmt.Sprintf("%s took over from %s", now, before)
	told := o.told()
	switch {
	case told.Switchover != nil && told.Switchover.From == before && o.outcomeOf(*told.Switchover) == handedOver:
		reason, note = v1.ReasonSwitchedOver, note+", as asked"
	case told.ForcePromote != nil && told.ForcePromote.Instance == now && o.termHasMovedFrom(told.ForcePromote.Term):
		reason, note = v1.ReasonFailedOver, fmt.Sprintf("%s, as %s asked", note, v1.ForcePromoteAnnotation)
	default:
		reason = v1.ReasonFailedOver
	}
	if without, known := o.timeWithoutPrimary(before); known {
		note += fmt.Sprintf(", after %s without a primary", without.Round(100*time.Millisecond))
	}
	return reason, note
}

// isLeftBehind says whether a restore has taken an instance's place, of which it tells
// itself.
func (o Observation) isLeftBehind(name string) bool {
	n := slices.IndexFunc(o.Spares, func(i Instance) bool { return i.Name == name })
	return n >= 0 && o.Spares[n].Volume != nil && specs.IsSetAside(o.Spares[n].Volume)
}

// timeWithoutPrimary is the time between the last renewal of the named
// instance's reign and the present one; false if this operator did not see it,
// or the two instances' clocks are too far apart to tell.
func (o Observation) timeWithoutPrimary(before string) (time.Duration, bool) {
	if o.Ended.Instance != before || o.Ended.Renewed.IsZero() || o.Lease.Spec.AcquireTime == nil {
		return 0, false
	}
	without := o.Lease.Spec.AcquireTime.Sub(o.Ended.Renewed)
	return without, without >= 0 && without < 24*time.Hour
}

func (o Observation) termHasMovedFrom(term uint64) bool {
	record, _ := o.record()
	return record.Term > term
}
