package cluster

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/election"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/postgres"
)

// electionPatience is how long an election may take, from the moment that the
// Lease may be taken, before people are told that it is stuck.
const electionPatience = 20 * time.Second

// failoverReady says who can take over from the primary; or, once the primary is
// gone, whether somebody does, and if not, who is missing and what a person can
// do. The agents decide by rules of their own; this only reads their record.
func failoverReady(o Observation, p Plan) metav1.Condition {
	const kind = v1.ConditionFailoverReady
	record, _ := o.record()
	able, missing := voters(o, record)
	enough := len(able) > 0 && len(able) >= record.Votes
	switch {
	case o.leaseIsLost() && whyNotTaken(o, p) != "":
		return no(kind, v1.ReasonFailoverBlocked, limit(whyNotTaken(o, p)))
	case record.IsEmpty() || len(p.Members) == 0:
		return no(kind, v1.ReasonBootstrapping, "there has been no primary yet")
	case len(p.Members) == 1:
		return yes(kind, v1.ReasonSingleInstance, "one instance was asked for, so none takes over: when it fails, it comes back on its volume")
	case o.isReigned() && enough:
		return yes(kind, v1.ReasonCanFailOver, strings.Join(able, ", ")+" can take over")
	case o.isReigned():
		return no(kind, v1.ReasonNoCandidates, fmt.Sprintf("nobody could take over from %s: %s", o.primaryName(), describeVotes(o, p, record, able, missing)))
	case enough && !isOverdue(o):
		return yes(kind, v1.ReasonElecting, fmt.Sprintf("%s is gone; %s can take over", o.lastPrimary(), strings.Join(able, ", ")))
	}
	return no(kind, v1.ReasonFailoverBlocked, limit(fmt.Sprintf("%s is gone, and nobody takes over: %s. %s", o.lastPrimary(), describeVotes(o, p, record, able, missing), wayOut(o))))
}

// isReigned says whether an instance holds the Lease, and renews it or at least
// serves.
func (o Observation) isReigned() bool {
	return o.primaryName() != "" && !o.leaseExpired() || o.primaryServes()
}

// isOverdue says whether an election takes longer than it should. Once it was
// said, it holds until somebody reigns, so that a new operator, which has not
// seen for how long the Lease is free, does not take it back.
func isOverdue(o Observation) bool {
	was := meta.FindStatusCondition(o.Cluster.Status.Conditions, v1.ConditionFailoverReady)
	if was != nil && was.Reason == v1.ReasonFailoverBlocked {
		return true
	}
	patience := electionPatience
	if o.primaryName() != "" { // it was not released, so it had to expire first
		patience += o.Cluster.Spec.Failover.LeaseDuration.Duration
	}
	return o.LeaseUnchanged >= patience
}

// voters are the members of the record that can vote, with the data that the
// record speaks of, and those that can't.
func voters(o Observation, record election.Record) (able, missing []string) {
	for _, m := range record.Members {
		if canVote(find(o, m.Instance), m.DataID) {
			able = append(able, m.Instance)
		} else {
			missing = append(missing, m.Instance)
		}
	}
	return able, missing
}

// canVote says whether the instance runs a replica on that very data. Of one
// whose agent does not answer the operator, the kubelet says.
func canVote(i Instance, dataID string) bool {
	switch {
	case i.Pod == nil || i.podIsLeaving() || i.Pod.Status.Phase != corev1.PodRunning && !serverRuns(i.Pod):
		return false
	case i.State == nil:
		return i.isReady()
	}
	return i.State.DataID == dataID && i.State.Role == instanceapi.RoleReplica
}

// describeVotes says what an election lacks, with the words of those who could
// take part in it.
func describeVotes(o Observation, p Plan, record election.Record, able, missing []string) string {
	var texts []string
	switch {
	case len(record.Members) == 0:
		texts = append(texts, o.whyNoMembers())
	case len(missing) > 0:
		texts = append(texts, fmt.Sprintf("it takes %d of the votes of %s, and %s %s missing", max(1, record.Votes),
			strings.Join(membersOf(record), ", "), strings.Join(missing, ", "), isOrAre(missing)))
	default:
		texts = append(texts, fmt.Sprintf("%s can vote, and don't agree yet", strings.Join(able, ", ")))
	}
	for _, name := range p.Members {
		i := find(o, name)
		switch {
		case name == o.primaryName():
		case i.State != nil && i.State.Election != "":
			texts = append(texts, name+": "+i.State.Election)
		case slices.Contains(able, name):
		case !i.isReady():
			texts = append(texts, name+": "+orElse(troubleOf(i, o.Now).Message, "it does not serve"))
		default:
			texts = append(texts, name+": it streams, and the primary does not count it among those that can take over"+lagOf(o, name))
		}
	}
	return strings.Join(texts, "; ")
}

// whyNoMembers says what a replica needs to be one that can take over.
func (o Observation) whyNoMembers() string {
	if o.Cluster.Spec.Replication.Mode == v1.ReplicationSync {
		return "no replica is known to have all that was committed"
	}
	return fmt.Sprintf("the primary has counted no replica that is at most %s of WAL behind (spec.failover.maxLag)", o.Cluster.Spec.Failover.MaxLag)
}

func membersOf(record election.Record) []string {
	var names []string
	for _, m := range record.Members {
		names = append(names, m.Instance)
	}
	return names
}

func isOrAre(names []string) string {
	if len(names) == 1 {
		return "is"
	}
	return "are"
}

// lagOf says how far behind the primary a replica is, in steps so coarse that a
// status is not written for each.
func lagOf(o Observation, name string) string {
	primary, _ := o.primary()
	if primary.State == nil {
		return ""
	}
	for _, s := range primary.State.Standbys {
		if s.Name == name && s.LagBytes >= 1<<20 {
			return " (more than " + coarse(s.LagBytes) + " behind)"
		}
	}
	return ""
}

// coarse is the largest power of two that is not more than that many bytes, of
// which there is at least 1 Mi.
func coarse(bytes int64) string {
	for exponent := 40; exponent > 20; exponent -= 10 {
		if unit := int64(1) << exponent; bytes >= unit {
			return fmt.Sprintf("%d %s", powerOfTwo(bytes/unit), map[int]string{40: "TiB", 30: "GiB"}[exponent])
		}
	}
	return fmt.Sprintf("%d MiB", powerOfTwo(bytes>>20))
}

func powerOfTwo(n int64) int64 {
	power := int64(1)
	for power<<1 <= n && power<<1 > 0 {
		power <<= 1
	}
	return power
}

// wayOut says what brings a primary back: by itself, or by a person's decision.
func wayOut(o Observation) string {
	text := fmt.Sprintf("When %s or who is missing is back, this goes on by itself", o.lastPrimary())
	best, found := furthest(o)
	if !found {
		return text
	}
	return fmt.Sprintf("%s. To go on with %s, which has the newest data that answers, and lose what it lacks: kubectl annotate pg/%s %s=%s",
		text, best, o.Cluster.Name, v1.ForcePromoteAnnotation, best)
}

// furthest is the replica with the newest data of those that answer: of the
// newest timeline, the furthest in the WAL, the lowest number.
func furthest(o Observation) (string, bool) {
	end := func(i Instance) postgres.LSN {
		received, _ := postgres.ParseLSN(i.State.ReceivedLSN) // 0 for one that has none
		replayed, _ := postgres.ParseLSN(i.State.ReplayedLSN)
		return max(received, replayed)
	}
	var best *Instance
	for n := range o.Instances {
		i := &o.Instances[n]
		if i.State == nil || !i.State.HasData || i.Name == o.lastPrimary() {
			continue
		}
		if best == nil || i.State.Timeline > best.State.Timeline || i.State.Timeline == best.State.Timeline && end(*i) > end(*best) {
			best = i
		}
	}
	if best == nil {
		return "", false
	}
	return best.Name, true
}
