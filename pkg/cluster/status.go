package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/postgres"
	"github.com/pgop/postgres-operator/pkg/specs"
)

// Status says what is there after a pass: what was observed, what was planned,
// and which of that failed. It is pure, and the one source of every condition
// and of the phase.
func Status(o Observation, p Plan, failures []Failure) v1.PostgresClusterStatus {
	o.refused = p.SpecError != ""
	s := *o.Cluster.Status.DeepCopy()
	s.ObservedGeneration = o.Cluster.Generation
	s.Primary = o.lastPrimary()
	s.Instances = countInstances(o, p)
	s.Selector = labels.FormatLabels(specs.SelectorOf(o.Cluster))
	s.Members = memberStatuses(o, p)
	s.ReadyInstances = 0
	for _, m := range s.Members {
		if m.Ready {
			s.ReadyInstances++
		}
	}
	if id, _ := o.systemID(); id != "" {
		s.SystemID = id
	}
	s.VolumeSize, s.WALVolumeSize = ptr.To(largestRequest(o, false)), largestWALRequest(o)
	s.Volumes = volumeStatuses(o, failures)
	s.Roles, s.Databases = roleStatuses(o, p), databaseStatuses(o, p)
	if primary, found := o.primary(); found && primary.State != nil && primary.State.ServerVersion != "" {
		s.Version = primary.State.ServerVersion
		s.Timeline = int64(primary.State.Timeline)
	}
	s.Backup = backupsStatus(o, p, failures)
	s.Certificates = certificateStatuses(o, p, failures)
	for _, c := range append(conditions(o, p, failures), certificatesValid(o, p, s.Certificates)) {
		c.ObservedGeneration = o.Cluster.Generation
		c.LastTransitionTime = metav1.NewTime(o.Now)
		meta.SetStatusCondition(&s.Conditions, c)
	}
	s.Phase = phase(s)
	return s
}

// countInstances counts those of which there is something; of a cluster that is
// stopped only those that still run.
func countInstances(o Observation, p Plan) int32 {
	n := 0
	for _, i := range o.Instances {
		if i.Pod != nil || !p.Stop {
			n++
		}
	}
	return int32(n)
}

// memberStatuses has a row for each instance that is there or shall be.
func memberStatuses(o Observation, p Plan) []v1.MemberStatus {
	rows := []v1.MemberStatus{}
	for _, i := range everyInstance(o, p) {
		row := v1.MemberStatus{Name: i.Name, Role: string(roleOf(o, i)), Ready: i.isReady()}
		if i.Pod != nil {
			row.Node = i.Pod.Spec.NodeName
			row.Image = imageOf(i)
		}
		if i.State != nil {
			row.Timeline = int64(i.State.Timeline)
			row.ConfigHash = i.State.ConfigHash
			row.Agent = i.State.AgentVersion
		}
		switch {
		case p.Stop && i.Pod == nil:
			row.Message = "it is stopped, and its volume is kept"
		case !row.Ready:
			row.Message = limit(troubleOf(i, o.Now).Message)
		}
		rows = append(rows, row)
	}
	return rows
}

func everyInstance(o Observation, p Plan) []Instance {
	all := slices.Clone(o.Instances)
	for _, name := range p.Members {
		if !slices.ContainsFunc(all, func(i Instance) bool { return i.Name == name }) {
			number, _ := specs.InstanceNumber(o.Cluster.Name, name)
			all = append(all, Instance{Name: name, Number: number})
		}
	}
	slices.SortFunc(all, func(a, b Instance) int { return a.Number - b.Number })
	return all
}

func imageOf(i Instance) string {
	for _, c := range i.Pod.Spec.Containers {
		if c.Name == specs.PostgresContainer {
			return c.Image
		}
	}
	return ""
}

func conditions(o Observation, p Plan, failures []Failure) []metav1.Condition {
	blocked, blockedFound := firstTrouble(o, p, failures)
	switch {
	case p.Rollback != nil && !(p.Rollback.isMaking() && o.isLed()) && p.Rollback.phase != v1.RestorePending:
		return conditionsWithout(o, p, failures, v1.ReasonRestoring, describeRollback(o, p))
	case p.Stop:
		return stoppedConditions(o, p, failures)
	}
	return []metav1.Condition{
		specAccepted(p),
		primaryAvailable(o, p, blocked, blockedFound),
		replicating(o, p),
		failoverReady(o, p),
		upToDate(o, p, failures),
		databasesReady(o, p),
		archivingWAL(o),
		backedUp(o, p),
		ready(o, p, blocked, blockedFound),
		progressing(o, p, blocked, blockedFound),
	}
}

func specAccepted(p Plan) metav1.Condition {
	if p.SpecError != "" && len(p.Members) == 0 {
		return no(v1.ConditionSpecAccepted, v1.ReasonInvalid, p.SpecError)
	}
	if p.SpecError != "" {
		return no(v1.ConditionSpecAccepted, v1.ReasonInvalid, p.SpecError+"; until it is corrected, the configuration before it stays in force")
	}
	return yes(v1.ConditionSpecAccepted, v1.ReasonAccepted, "")
}

func primaryAvailable(o Observation, p Plan, blocked trouble, found bool) metav1.Condition {
	const kind = v1.ConditionPrimaryAvailable
	name := o.primaryName()
	id, _ := o.systemID()
	primary, exists := o.primary()
	switch {
	case o.primaryServes() && primary.State != nil && primary.State.ConnectionsTaken:
		return yes(kind, v1.ReasonConnectionsTaken, name+" takes writes, and gives no connection to another client, since "+allConnectionsTaken)
	case o.primaryServes():
		return yes(kind, v1.ReasonPrimaryServes, name+" takes writes")
	case name == "" && id == "" && found:
		return no(kind, blocked.Reason, blocked.Message)
	case name == "" && id == "":
		return no(kind, v1.ReasonBootstrapping, describeAll(o, p))
	case name == "" && o.hasReigned():
		return no(kind, v1.ReasonElecting, describeAll(o, p))
	case name == "":
		return no(kind, v1.ReasonPrimaryNotReady, describeAll(o, p))
	case exists && primary.State != nil && primary.State.DataID != "" && !primary.State.HasData && primary.State.Message != "":
		return no(kind, v1.ReasonDataLost, limit(name+": "+primary.State.Message)) // it has data, and not all that belongs to it
	case exists && primary.State != nil && primary.State.Inspected && !primary.State.HasData:
		return no(kind, v1.ReasonDataLost, describeLoss(o, name))
	case exists:
		t := troubleOf(primary, o.Now)
		if t.Reason == "" && hasNeverServed(o) {
			return no(kind, v1.ReasonBootstrapping, describeAll(o, p))
		}
		return no(kind, orElse(t.Reason, v1.ReasonPrimaryNotReady), limit(name+": "+t.Message))
	}
	return no(kind, v1.ReasonPrimaryNotReady, describeAll(o, p))
}

// allConnectionsTaken says why a server refuses clients, and the way out.
const allConnectionsTaken = "all are taken: close some, use a pooler, or raise spec.postgres.parameters[max_connections]"

// hasNeverServed says whether the cluster is still on its way to its first
// primary.
func hasNeverServed(o Observation) bool {
	c := meta.FindStatusCondition(o.Cluster.Status.Conditions, v1.ConditionPrimaryAvailable)
	return c == nil || c.Reason == v1.ReasonBootstrapping
}

func othersWithData(o Observation, primary string) []string {
	names := []string{}
	for _, i := range o.Instances {
		if i.Name != primary && i.State != nil && i.State.HasData {
			names = append(names, i.Name)
		}
	}
	if len(names) == 0 {
		return []string{"none has data"}
	}
	return names
}

// describeLoss says that the primary has no data any more, and what to do.
func describeLoss(o Observation, primary string) string {
	lost := fmt.Sprintf("the volume of the primary, %s, holds no data any more", primary)
	isEmpty := func(i Instance) bool { return i.State != nil && i.State.Inspected && !i.State.HasData }
	if !slices.ContainsFunc(o.Instances, func(i Instance) bool { return !isEmpty(i) }) {
		return lost + ", and no instance has any; nothing is initialised anew under this name. " +
			"Give the volume back, or restore a backup, here with a PostgresRestore or as a new cluster"
	}
	return fmt.Sprintf("%s; nothing is initialised anew under this name. Whether another instance can take over (%s), the condition FailoverReady says",
		lost, strings.Join(othersWithData(o, primary), ", "))
}

func replicating(o Observation, p Plan) metav1.Condition {
	const kind = v1.ConditionReplicating
	if len(p.Members) == 0 {
		return no(kind, v1.ReasonReplicasNotStream, describeAll(o, p))
	}
	if len(p.Members) == 1 {
		return yes(kind, v1.ReasonNoReplicas, "one instance was asked for, so there is nothing to replicate")
	}
	var missing []string
	for _, name := range p.Members {
		if i := find(o, name); name != o.primaryName() && !(i.isReady() && o.primaryServes()) {
			missing = append(missing, name)
		}
	}
	if len(missing) == 0 {
		return yes(kind, v1.ReasonAllReplicasStream, "")
	}
	text := joined("not streaming: "+strings.Join(missing, ", "), o.keptWAL(missing))
	if have, need := acknowledging(o); have < need && o.primaryServes() {
		return o.short(kind, have, need, text)
	}
	return no(kind, v1.ReasonReplicasNotStream, text)
}

// keptWAL says how much WAL the primary keeps for replicas that are away, before
// it fills the disk; empty while that is little.
func (o Observation) keptWAL(missing []string) string {
	primary, _ := o.primary()
	if primary.State == nil {
		return ""
	}
	var kept []string
	for _, name := range missing {
		i := slices.IndexFunc(primary.State.Slots, func(s instanceapi.Slot) bool { return s.Name == postgres.SlotName(name) })
		if i >= 0 && primary.State.Slots[i].KeptBytes >= keptWALWorthTelling {
			kept = append(kept, fmt.Sprintf("more than %s for %s", coarse(primary.State.Slots[i].KeptBytes), name))
		}
	}
	if len(kept) == 0 {
		return ""
	}
	return fmt.Sprintf("%s keeps WAL, up to max_slot_wal_keep_size for each: %s", primary.Name, strings.Join(kept, ", "))
}

// keptWALWorthTelling is from how many bytes on kept WAL is told: below, a replica
// just restarts.
const keptWALWorthTelling = 64 << 20

// acknowledging is how many replicas stream and may acknowledge commits, and how
// many commits need: none in mode async, or as long as the primary does not say.
func acknowledging(o Observation) (have, need int) {
	primary, found := o.primary()
	if o.Cluster.Spec.Replication.Mode != v1.ReplicationSync || !found || primary.State == nil {
		return 0, 0
	}
	for _, s := range primary.State.Standbys {
		if s.Sync && s.State == "streaming" {
			have++
		}
	}
	return have, int(*o.Cluster.Spec.Replication.Need)
}

// short says what fewer replicas than commits need mean.
func (o Observation) short(kind string, have, need int, missing string) metav1.Condition {
	if o.Cluster.Spec.Replication.Durability == v1.DurabilityPreferred {
		return no(kind, v1.ReasonReplicasNotStream, fmt.Sprintf("%s; commits don't wait for them, as durability preferred asks (%d of %d acknowledge)", missing, have, need))
	}
	return no(kind, v1.ReasonCommitsWait, fmt.Sprintf("%s; commits wait: of the acknowledgements that each needs (%d), there are %d now. They go on by themselves when replicas are back; to let them go on at once, with less safety, set spec.replication.durability to preferred",
		missing, need, have))
}

// upToDate compares what runs with what is asked. What runs no more once it was so is
// the business of Ready.
func upToDate(o Observation, p Plan, failures []Failure) metav1.Condition {
	const kind = v1.ConditionUpToDate
	if p.SpecError != "" {
		return no(kind, v1.ReasonInvalid, "the spec is not accepted")
	}
	held := map[string][]string{} // by what the server says
	var behind, rolling, system, keeping []string
	for _, i := range o.Instances {
		if i.Pod == nil {
			continue
		}
		switch waiting := i.pendingParameters(); {
		case len(waiting) > 0:
			rolling = append(rolling, fmt.Sprintf("%s (%s)", i.Name, strings.Join(waiting, ", ")))
		case whyRestart(o, i) != "":
			rolling = append(rolling, i.Name)
		}
		if i.podIsLeaving() || i.State == nil || i.State.Phase != instanceapi.PhaseRunning {
			continue
		}
		switch {
		case i.State.ConfigError != "":
			held[i.State.ConfigError] = append(held[i.State.ConfigError], i.Name)
		case i.isBehind(p.ConfigHash):
			behind = append(behind, i.Name)
		case len(o.keeping(i)) > 0:
			keeping = append(keeping, fmt.Sprintf("%s (%s)", i.Name, strings.Join(o.keeping(i), ", ")))
		case len(i.State.PendingSystem) > 0:
			system = append(system, fmt.Sprintf("%s (%s)", i.Name, strings.Join(i.State.PendingSystem, ", ")))
		}
	}
	switch {
	case len(held) > 0:
		return no(kind, v1.ReasonConfigurationRefused, limit("the server refuses the configuration and runs on with the one before; correct spec.postgres: "+describeHeld(held)))
	case len(rolling) > 0:
		return no(kind, v1.ReasonRestarting, limit(describeChange(o, p.Change)+"; still to come: "+strings.Join(rolling, ", ")))
	case len(keeping) > 0:
		return no(kind, v1.ReasonConfigurationNotYet, "replicas keep what they have until they have replayed that their primary has less: "+strings.Join(keeping, ", "))
	case len(system) > 0:
		return no(kind, v1.ReasonRestartNeeded, fmt.Sprintf("what ALTER SYSTEM has set takes effect at a restart, for which you ask with kubectl annotate pg/%s --overwrite %s=$(date +%%s): %s",
			o.Cluster.Name, v1.RestartAnnotation, strings.Join(system, ", ")))
	}
	if c, found := volumesDiffer(o, failures); found {
		return c
	}
	if len(behind) > 0 {
		return no(kind, v1.ReasonConfigurationNotYet, "the newest configuration is on its way to "+strings.Join(behind, ", "))
	}
	if unseen := unseen(o, p); len(unseen) > 0 && !wasUpToDate(o) {
		return no(kind, reasonOfUnseen(o), limit("not seen yet to run what the spec asks for: "+strings.Join(unseen, "; ")))
	}
	return yes(kind, v1.ReasonUpToDate, largerThanAsked(o))
}

// unseen are the instances that don't say that their server runs, each with what is
// known of it.
func unseen(o Observation, p Plan) []string {
	var texts []string
	for _, name := range p.Members {
		i := find(o, name)
		switch {
		case i.isReady() && i.State == nil:
			texts = append(texts, name+": its agent does not answer: "+i.Unreachable)
		case !i.runs() || i.podIsLeaving():
			texts = append(texts, name+": "+troubleOf(i, o.Now).Message)
		}
	}
	return texts
}

// wasUpToDate says whether every instance was seen to run what the last edit asks
// for. One that has failed since takes nothing back.
func wasUpToDate(o Observation) bool {
	was := meta.FindStatusCondition(o.Cluster.Status.Conditions, v1.ConditionUpToDate)
	return was != nil && was.Status == metav1.ConditionTrue && was.ObservedGeneration == o.Cluster.Generation
}

// reasonOfUnseen lets a restart be one until its last instance is back.
func reasonOfUnseen(o Observation) string {
	if reasonOf(o.Cluster.Status, v1.ConditionUpToDate) == v1.ReasonRestarting {
		return v1.ReasonRestarting
	}
	return v1.ReasonConfigurationNotYet
}

// describeChange says how a change goes on that takes restarts, and what it waits
// for, in the words of whoever knows.
func describeChange(o Observation, c changeProgress) string {
	switch c.State {
	case LoweringPrimary:
		return fmt.Sprintf("the server of the primary, %s, restarts first, in its place, since its replicas can't have less than it", c.Instance)
	case RestartingPrimary:
		return fmt.Sprintf("the primary, %s, restarts in its place", c.Instance)
	}
	text := "instances restart one at a time, replicas first and the primary last, which hands over before"
	if c.Awaited == "" {
		return text
	}
	text += "; " + c.Why
	if i := find(o, c.Awaited); !i.isReady() {
		text += ": " + troubleOf(i, o.Now).Message
	}
	return text
}

func describeHeld(held map[string][]string) string {
	var texts []string
	for _, why := range slices.Sorted(maps.Keys(held)) {
		texts = append(texts, strings.Join(held[why], ", ")+": "+why)
	}
	return strings.Join(texts, "; ")
}

func ready(o Observation, p Plan, blocked trouble, found bool) metav1.Condition {
	const kind = v1.ConditionReady
	switch {
	case isSettledApart(o, p) && sidecarsTrouble(o) != "":
		return yes(kind, v1.ReasonSidecarFailed, limit(joined(sidecarsTrouble(o), describeGivenUp(o))))
	case isSettledApart(o, p):
		return yes(kind, v1.ReasonAllInstancesReady, describeGivenUp(o))
	case found:
		return no(kind, blocked.Reason, blocked.Message)
	case p.SpecError != "" && len(o.Instances) == 0:
		return no(kind, v1.ReasonInvalid, "nothing is made before the spec is corrected; see the condition SpecAccepted")
	}
	return no(kind, v1.ReasonInstancesNotReady, limit(joined(describeAll(o, p), describeGivenUp(o))))
}

// isSettledApart is isSettled, but an agent that the operator can't reach does
// not make a serving instance unready.
func isSettledApart(o Observation, p Plan) bool {
	if !o.primaryServes() || len(p.Members) == 0 {
		return false
	}
	for _, name := range p.Members {
		if !find(o, name).isReady() {
			return false
		}
	}
	return true
}

func progressing(o Observation, p Plan, blocked trouble, found bool) metav1.Condition {
	const kind = v1.ConditionProgressing
	switch {
	case p.Paused:
		return paused(p, blocked.Message)
	case found:
		return no(kind, v1.ReasonBlocked, blocked.Message)
	case p.SpecError != "" && len(o.Instances) == 0:
		return no(kind, v1.ReasonBlocked, "waiting for a corrected spec")
	case isSettled(o, p):
		return no(kind, v1.ReasonSettled, "")
	}
	return yes(kind, v1.ReasonReconciling, orElse(describeAll(o, p), orElse(describeDue(o, p), "the newest configuration is on its way")))
}

// describeDue names those that have to restart, if any.
func describeDue(o Observation, p Plan) string {
	due := dueForRestart(o, &p)
	if len(due) == 0 {
		return ""
	}
	return "restarting one at a time: " + strings.Join(due, ", ")
}

// firstTrouble is what most needs somebody's help: what the API server
// refused, then what can't go on, then the instance in trouble with the lowest
// number.
func firstTrouble(o Observation, p Plan, failures []Failure) (trouble, bool) {
	if len(failures) > 0 {
		return trouble{failures[0].Reason, limit(describeFailures(failures))}, true
	}
	for _, i := range everyInstance(o, p) {
		if i.isReady() {
			continue
		}
		if t := troubleOf(i, o.Now); t.Reason != "" {
			return trouble{t.Reason, limit(i.Name + ": " + t.Message)}, true
		}
	}
	if text := sidecarsTrouble(o); text != "" {
		return trouble{v1.ReasonSidecarFailed, limit(text)}, true
	}
	return trouble{}, false
}

// describeFailures tells of those that have the first one's reason, so that
// people can clear all of them away at once.
func describeFailures(failures []Failure) string {
	var texts []string
	for _, f := range failures {
		if f.Reason == failures[0].Reason {
			texts = append(texts, fmt.Sprintf("%s: %v", f.Action, f.Err))
		}
	}
	return strings.Join(texts, "; ")
}

// describeAll says what is waited for: by the cluster, then by each instance
// that does not serve. It is never empty while the cluster is not settled.
func describeAll(o Observation, p Plan) string {
	texts := slices.Clone(p.Waits)
	id, _ := o.systemID()
	_, exists := o.primary()
	switch {
	case id == "":
	case o.primaryName() == "" && o.lastPrimary() != "":
		texts = append(texts, o.lastPrimary()+" leads no more, and no other instance has taken the lead yet")
	case o.primaryName() == "":
		texts = append(texts, "no instance has taken the lead yet")
	case !exists:
		texts = append(texts, o.primaryName()+" is the primary, and its pod and volume are gone")
	case find(o, o.primaryName()).isReady() && find(o, o.primaryName()).State == nil && o.leaseExpired():
		texts = append(texts, o.primaryName()+": it has not renewed the Lease in time")
	case find(o, o.primaryName()).isReady() && !o.primaryServes():
		texts = append(texts, o.primaryName()+": its server runs and takes no writes yet")
	}
	for _, i := range everyInstance(o, p) {
		switch {
		case len(p.Members) > 0 && !slices.Contains(p.Members, i.Name):
			if o.primaryServes() { // else it stays, and a wait says so
				texts = append(texts, i.Name+": it is not asked for and goes")
			}
		case !i.isReady():
			texts = append(texts, i.Name+": "+troubleOf(i, o.Now).Message)
		case i.State == nil:
			texts = append(texts, i.Name+": it serves, and its agent does not answer: "+i.Unreachable)
		}
	}
	return limit(strings.Join(texts, "; "))
}

// phase sums the conditions up.
func phase(s v1.PostgresClusterStatus) v1.Phase {
	is := func(kind string) bool { return meta.IsStatusConditionTrue(s.Conditions, kind) }
	inTrouble := reasonOf(s, v1.ConditionProgressing) == v1.ReasonBlocked ||
		reasonOf(s, v1.ConditionArchivingWAL) == v1.ReasonArchiveFailing || reasonOf(s, v1.ConditionArchivingWAL) == v1.ReasonArchiveFillsDisk
	switch {
	case !is(v1.ConditionSpecAccepted):
		return v1.PhaseInvalid
	case reasonOf(s, v1.ConditionProgressing) == v1.ReasonPaused:
		return v1.PhasePaused
	case reasonOf(s, v1.ConditionReady) == v1.ReasonRestoring:
		return v1.PhaseRestoring
	case reasonOf(s, v1.ConditionReady) == v1.ReasonStopped:
		return v1.PhaseStopped
	case reasonOf(s, v1.ConditionReady) == v1.ReasonStopping:
		return v1.PhaseStopping
	case is(v1.ConditionReady) && !is(v1.ConditionProgressing) && !inTrouble:
		return v1.PhaseHealthy
	case !is(v1.ConditionPrimaryAvailable) && s.SystemID == "":
		return v1.PhaseCreating
	case !is(v1.ConditionPrimaryAvailable):
		return v1.PhaseUnavailable
	case inTrouble:
		return v1.PhaseDegraded
	}
	return v1.PhaseProgressing
}

func reasonOf(s v1.PostgresClusterStatus, kind string) string {
	if c := meta.FindStatusCondition(s.Conditions, kind); c != nil {
		return c.Reason
	}
	return ""
}

func yes(kind, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: reason, Message: message}
}

func no(kind, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: message}
}

// joined puts two texts into one, either of which may be empty.
func joined(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "; " + b
}

func orElse(text, other string) string {
	if text == "" {
		return other
	}
	return text
}

// messageLimit keeps a status readable; the API's own limit is 32768 bytes.
const messageLimit = 2048

func limit(text string) string {
	if len(text) <= messageLimit {
		return text
	}
	return strings.ToValidUTF8(text[:messageLimit], "") + "…"
}
