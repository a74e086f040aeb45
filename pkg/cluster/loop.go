package cluster

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	postgresclient "github.com/pgop/postgres-operator/pkg/generated/clientset/versioned/typed/postgres/v1"
	postgreslisters "github.com/pgop/postgres-operator/pkg/generated/listers/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
)

const (
	// passTimeout bounds a pass, whatever the API server does.
	passTimeout = 30 * time.Second
	// failureRecheck is how often agents are asked while an action fails again and
	// again, and something else is under way that they alone tell of.
	failureRecheck = 5 * time.Second
	// staleRecheck lets a cache that was behind catch up.
	staleRecheck = 100 * time.Millisecond
)

// Queue is where a loop says when it wants to be woken next.
type Queue interface {
	Forget(key cache.ObjectName)
	AddRateLimited(key cache.ObjectName)
	AddAfter(key cache.ObjectName, after time.Duration)
}

// Deps are what the loops of all clusters share.
type Deps struct {
	Kube          Kube
	Postgres      postgresclient.PgopV1Interface
	Clusters      postgreslisters.PostgresClusterLister
	Listers       Listers
	Events        events.EventRecorder
	Queue         Queue
	OperatorImage string
	// LeafLifetime is for how long new certificates are valid; 0: 90 days.
	LeafLifetime time.Duration
	Log          *logrus.Entry
	Now          func() time.Time
	// Passed is told of each pass; may be nil.
	Passed func(took time.Duration, failed bool)
}

// Loop looks after one PostgresCluster in one life of it: another of the same
// name has another UID and another Loop.
type Loop struct {
	Deps
	key  cache.ObjectName
	uid  types.UID
	wake chan struct{}
	// drained is closed, once, when no further pass is to be made.
	drained chan struct{}
	drain   sync.Once
	agents  *agents
	log     *logrus.Entry
	// lease is what was last seen of the cluster's Lease, switchover of what the
	// primary is asked for, stop of a cluster that stops, rotation of the authorities,
	// trust of those that clients know, backup of what an agent says of the one that it
	// was asked for, homeless the claims for whose pods no node is found, unlisted the
	// backups that the catalog does not show, and ends the containers of whose end
	// people were told.
	lease, switchover, stop, rotation, trust, backup sighting
	homeless, unlisted                               sightings
	ends                                             containerEnds
	// theirs is what was last read of the Secrets of spec.tls.
	theirs theirSecretsMemory
	// catalog is the last that was read of the store; nil: none.
	catalog *instanceapi.Catalog
	// boundTo are the nodes on which alone a claim's volume can be used, by the
	// claim's UID, of those that were asked for.
	boundTo map[types.UID][]string
	// told are the failures of the last pass, so that each is told once.
	told map[string]bool
	// namespaceGoes is set once the API server has said so. Everything here is
	// then on its way out, as its owner wants, and every further write would be
	// in vain.
	namespaceGoes bool
	// lost is the last status, as text, of which the API server did not keep all,
	// since its CRD is not this operator's. The same is not written again.
	lost string
}

// NewLoop makes the loop of a cluster; Run runs it.
func NewLoop(deps Deps, key cache.ObjectName, uid types.UID) *Loop {
	return &Loop{
		Deps:    deps,
		key:     key,
		uid:     uid,
		wake:    make(chan struct{}, 1),
		drained: make(chan struct{}),
		agents:  &agents{},
		log:     deps.Log.WithFields(logrus.Fields{"namespace": key.Namespace, "cluster": key.Name}),
		boundTo: map[types.UID][]string{}, homeless: sightings{}, unlisted: sightings{}, ends: containerEnds{},
		told: map[string]bool{},
	}
}

// UID is that of the PostgresCluster that the loop looks after.
func (l *Loop) UID() types.UID { return l.uid }

// Wake asks for a pass soon. It carries no data, since every pass re-reads
// everything, so calls made before the pass starts collapse into one.
func (l *Loop) Wake() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Drain makes Run return once the pass under way, if there is one, has ended.
func (l *Loop) Drain() { l.drain.Do(func() { close(l.drained) }) }

// Run makes one pass for each wake-up until ctx ends, which cuts the pass under
// way short, or the loop is drained. When the next pass is due, and how long to
// back off after an error, it tells the queue; after an error 0 is no time.
func (l *Loop) Run(ctx context.Context) {
	defer l.agents.closeAll()
	for l.awaitWake(ctx) {
		began := l.Now()
		recheck, err := l.guardedPass(ctx)
		if ctx.Err() != nil {
			return
		}
		if l.Passed != nil {
			l.Passed(l.Now().Sub(began), err != nil)
		}
		l.requeue(recheck, err)
	}
}

// awaitWake returns true when a pass is due, and false when no more is to be
// made, even if one is due as well.
func (l *Loop) awaitWake(ctx context.Context) bool {
	select {
	case <-ctx.Done():
	case <-l.drained:
	case <-l.wake:
	}
	select {
	case <-l.drained:
		return false
	default:
		return ctx.Err() == nil
	}
}

// guardedPass is a pass whose panic is an error of this cluster alone: one
// cluster must not take the others down with it.
func (l *Loop) guardedPass(ctx context.Context) (recheck time.Duration, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("look after cluster %s: panic: %v", l.key, r)
			l.log.WithError(err).Errorf("a pass has panicked; trying again later\n%s", debug.Stack())
		}
	}()
	return l.pass(ctx)
}

func (l *Loop) requeue(recheck time.Duration, err error) {
	if err != nil {
		l.Queue.AddRateLimited(l.key)
		if recheck > 0 {
			l.Queue.AddAfter(l.key, recheck) // whichever of the two is earlier
		}
		return
	}
	l.Queue.Forget(l.key)
	l.Queue.AddAfter(l.key, recheck)
}

// pass observes, analyses, acts and reports. Its error only asks for back-off:
// what went wrong has been logged and is in the status.
func (l *Loop) pass(stopped context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(stopped, passTimeout)
	defer cancel()

	c, err := l.Clusters.PostgresClusters(l.key.Namespace).Get(l.key.Name)
	if apierrors.IsNotFound(err) || err == nil && (c.UID != l.uid || c.DeletionTimestamp != nil) {
		return idleRecheck, nil // on its way out; the controller stops this loop
	}
	if err != nil {
		return 0, fmt.Errorf("read cluster %s: %w", l.key, err)
	}
	if l.namespaceGoes {
		return idleRecheck, nil
	}
	o, err := observe(ctx, l.Listers, l.agents, c, l.OperatorImage, l.Now())
	if err != nil {
		l.log.WithError(err).Warn("can't observe the cluster")
		return 0, err
	}
	o.LeafLifetime = l.LeafLifetime
	l.catalog = readCatalog(ctx, l.agents, l.Listers.Backups, l.catalog, &o)
	l.lookAtTheirSecrets(ctx, &o)
	l.unlisted.noteUnlisted(&o)
	l.lookAtTheClock(&o)
	l.lookForLostNodes(ctx, &o)
	l.tellOfEnds(o)
	plan := Analyse(o)
	failures := l.carryOut(ctx, c, plan)
	if err := stopped.Err(); err != nil {
		return 0, err // what was cut short is no failure, and nobody waits for a report
	}
	if slices.ContainsFunc(failures, func(f Failure) bool { return errors.Is(f.Err, errNamespaceGoes) }) {
		l.namespaceGoes = true
		l.log.Info("the namespace is being deleted; leaving the cluster alone")
		return idleRecheck, nil
	}
	l.tell(failures)
	switch err := l.report(ctx, c, o, Status(o, plan, failures)); {
	case apierrors.IsConflict(err):
		return staleRecheck, nil // the cache was behind; the next pass reads what is new
	case stopped.Err() != nil:
		return 0, err
	case err != nil:
		l.log.WithError(err).Warn("can't write the status")
		return 0, err
	}
	if len(failures) > 0 {
		return recheckDespite(plan), failuresError(failures)
	}
	return plan.RecheckAfter, nil
}

// recheckDespite is when to look again at the latest while actions fail, however far
// they have backed off; 0: not before.
func recheckDespite(p Plan) time.Duration {
	if p.waitsForAgents() {
		return failureRecheck
	}
	return 0
}

// carryOut runs the plan's actions, each stage at once, and returns those that
// failed, in the plan's order.
func (l *Loop) carryOut(ctx context.Context, c *v1.PostgresCluster, plan Plan) []Failure {
	a := actor{client: l.Kube, clusters: l.Postgres, owner: l.uid}
	outcomes := make([]*Failure, len(plan.Actions))
	did := make([]bool, len(plan.Actions))
	for _, stage := range stagesOf(plan.Actions) {
		failed := failuresIn(outcomes)
		var all sync.WaitGroup
		for _, n := range stage {
			if !mustWait(plan.Actions[n], failed) {
				all.Go(func() { did[n], outcomes[n] = a.act(ctx, plan.Actions[n]) })
			}
		}
		all.Wait()
	}
	for n, action := range plan.Actions {
		if did[n] && action.Reason != "" {
			l.log.WithField("reason", action.Reason).Info(action.Note)
			// The object is named as related: events that differ in their note
			// alone would be counted as one.
			l.Events.Eventf(c, action.Object, kindOfEvent(action.Reason), action.Reason, string(action.Verb), "%s", noteOf(action.Note))
		}
	}
	return failuresIn(outcomes)
}

// kindOfEvent is Warning for what somebody asked for and did not get, and for a
// copy that was lost.
func kindOfEvent(reason string) string {
	switch reason {
	case v1.ReasonRequestRefused, v1.ReasonSwitchoverFailed, v1.ReasonNodeLost, v1.ReasonBackupFailed, v1.ReasonBackupNotProved, v1.ReasonRestoreFailed:
		return corev1.EventTypeWarning
	}
	return corev1.EventTypeNormal
}

func failuresIn(outcomes []*Failure) []Failure {
	var failures []Failure
	for _, outcome := range outcomes {
		if outcome != nil {
			failures = append(failures, *outcome)
		}
	}
	return failures
}

// tell logs each failure when it is new, and not each time it comes again.
func (l *Loop) tell(failures []Failure) {
	told := map[string]bool{}
	for _, f := range failures {
		text := fmt.Sprintf("%s: %v", f.Action, f.Err)
		if !l.told[text] {
			l.log.WithFields(logrus.Fields{"action": f.Action.String(), "reason": f.Reason}).WithError(f.Err).Warn("an action failed; trying again")
		}
		told[text] = true
	}
	l.told = told
}

// report writes the status if it changed, and makes an event of each condition
// that turned, and of a takeover.
func (l *Loop) report(ctx context.Context, c *v1.PostgresCluster, o Observation, status v1.PostgresClusterStatus) error {
	if equality.Semantic.DeepEqual(c.Status, status) {
		return nil
	}
	text := textOf(status)
	if text == l.lost {
		return nil
	}
	updated := c.DeepCopy()
	updated.Status = status
	written, err := l.Postgres.PostgresClusters(c.Namespace).UpdateStatus(ctx, updated, metav1.UpdateOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil // deleted meanwhile
	case err != nil:
		return fmt.Errorf("write status of cluster %s: %w", l.key, err)
	}
	l.compareSchemas(c, text, textOf(written.Status))
	if reason, note := takeover(o); reason != "" {
		l.log.WithField("reason", reason).Info(note)
		l.Events.Eventf(c, nil, corev1.EventTypeNormal, reason, "ObserveTakeover", "%s", noteOf(note))
	}
	l.announce(c, c.Status.Conditions, status.Conditions)
	l.announceEntries(c, c.Status, status)
	l.announceCertificates(c, c.Status, status)
	return nil
}

// compareSchemas tells, once, which fields of the status the API server does
// not keep.
func (l *Loop) compareSchemas(c *v1.PostgresCluster, sent, kept string) {
	if sent == kept {
		l.lost = ""
		return
	}
	if l.lost == "" {
		note := fmt.Sprintf("the API server does not know %s: its CustomResourceDefinition is older than this operator. Clusters are looked after; apply the CRD of this version, or let the operator install it (--create-crd)",
			strings.Join(missingFields(sent, kept), ", "))
		l.log.Warn(note)
		l.Events.Eventf(c, nil, corev1.EventTypeWarning, v1.ReasonSchemaOutdated, "WriteStatus", "%s", note)
	}
	l.lost = sent
}

// announce makes an event of each condition whose answer or reason changed, but
// for those that begin as they should be.
func (l *Loop) announce(c *v1.PostgresCluster, before, after []metav1.Condition) {
	said := map[string]bool{}
	for _, now := range after {
		was := meta.FindStatusCondition(before, now.Type)
		if !isNews(was, now) || said[now.Reason+now.Message] {
			continue // no news, or said of another condition just now
		}
		said[now.Reason+now.Message] = true
		kind := corev1.EventTypeNormal
		if now.Status == metav1.ConditionFalse && isBad(now.Reason) || now.Reason == v1.ReasonConnectionsTaken {
			kind = corev1.EventTypeWarning
		}
		l.Events.Eventf(c, nil, kind, now.Reason, "Observe"+now.Type, "%s", noteOf(orElse(now.Message, newsOf(now))))
		l.log.WithFields(logrus.Fields{"condition": now.Type, "status": now.Status, "reason": now.Reason}).Info(now.Message)
	}
}

// noteOf cuts a text to what an event may hold.
func noteOf(text string) string {
	const most = 1000 // bytes; the API server takes 1024
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

func isNews(was *metav1.Condition, now metav1.Condition) bool {
	switch {
	case now.Type == v1.ConditionProgressing:
		return false // it only sums others up
	case now.Type == v1.ConditionCertificatesValid:
		// Each certificate that ends has an event of its own, and the way of one takes minutes.
		return turnsOn(v1.ReasonServerCertificateRefused, was, now) || now.Reason == v1.ReasonServerCertificateShown && (was == nil || was.Reason != now.Reason)
	case now.Type == v1.ConditionDatabasesReady:
		return turnsOn(v1.ReasonAgentOutdated, was, now) // else each entry tells for itself
	case now.Type == v1.ConditionReplicating:
		return turnsOn(v1.ReasonCommitsWait, was, now) // else it only sums others up
	case now.Type == v1.ConditionFailoverReady:
		return turnsOn(v1.ReasonFailoverBlocked, was, now) // else replicas come and go
	case now.Type == v1.ConditionArchivingWAL:
		return turnsOn(v1.ReasonArchiveFailing, was, now) || turnsOn(v1.ReasonArchiveFillsDisk, was, now)
	case now.Type == v1.ConditionBackedUp:
		// Each backup has an event of its own.
		return turnsOn(v1.ReasonCatalogUnreadable, was, now) || turnsOn(v1.ReasonArchiveGap, was, now)
	case now.Reason == v1.ReasonConfigurationNotYet || was != nil && was.Reason == v1.ReasonConfigurationNotYet && now.Status == metav1.ConditionTrue:
		return false // a reload takes a second
	case now.Type != v1.ConditionReady && (now.Reason == v1.ReasonStopping || now.Reason == v1.ReasonStopped):
		return false // the condition Ready has said it, or will
	case now.Type != v1.ConditionSpecAccepted && now.Reason == v1.ReasonInvalid:
		return false // the condition SpecAccepted has said it
	case was == nil:
		return now.Status == metav1.ConditionFalse && isBad(now.Reason)
	}
	return was.Status != now.Status || was.Reason != now.Reason
}

// turnsOn says whether a condition has got, or lost, that reason.
func turnsOn(reason string, was *metav1.Condition, now metav1.Condition) bool {
	return (was != nil && was.Reason == reason) != (now.Reason == reason)
}

func newsOf(c metav1.Condition) string {
	switch c.Type {
	case v1.ConditionReady:
		return "every instance serves"
	case v1.ConditionReplicating:
		return "every replica streams"
	case v1.ConditionUpToDate:
		return "every instance runs what the spec asks for"
	case v1.ConditionSpecAccepted:
		return "the spec is accepted"
	case v1.ConditionArchivingWAL:
		return "WAL goes into the archive"
	case v1.ConditionBackedUp:
		return "there is a backup that can be restored"
	}
	return c.Type + " is " + string(c.Status)
}

// isBad tells what needs a look from what is the way of things.
func isBad(reason string) bool {
	switch reason {
	case v1.ReasonBootstrapping, v1.ReasonInstancesNotReady, v1.ReasonVolumeGrowing, v1.ReasonVolumeClassKept, v1.ReasonRestarting, v1.ReasonRestartNeeded, v1.ReasonReplicasNotStream, v1.ReasonNoCandidates, v1.ReasonElecting, v1.ReasonStopping, v1.ReasonStopped, v1.ReasonBackupsOff, v1.ReasonNoBackupYet, v1.ReasonRestoring:
		return false
	}
	return true
}

func failuresError(failures []Failure) error {
	var errs []error
	for _, f := range failures {
		errs = append(errs, f.Err)
	}
	return errors.Join(errs...)
}
