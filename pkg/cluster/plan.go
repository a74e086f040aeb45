package cluster

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/specs"
)

// Plan is what a pass decided.
type Plan struct {
	// Actions run in stages, see stagesOf. One that fails does not stop the
	// others: they are independent, or the API server refuses what comes too
	// early.
	Actions []Action
	// Members are the names of the instances that the cluster shall have,
	// sorted by number.
	Members []string
	// Stop is true when none of them shall run. Their volumes stay.
	Stop bool
	// Held are the actions, as texts, that are not carried out while the cluster is
	// paused; Paused says that it is.
	Held   []string
	Paused bool
	// Switchover, Reclone and ForcePromote are what the agents are asked for, and
	// SwitchoverAsked is since when the first.
	Switchover      *instanceapi.Switchover
	SwitchoverAsked time.Time
	Reclone         *instanceapi.Reclone
	ForcePromote    *instanceapi.ForcePromote
	// ConfigHash is that of the configuration which the spec asks for; empty if the
	// spec is refused.
	ConfigHash string
	// Restart is the instance whose server is asked to restart in its place.
	Restart *instanceapi.Restart
	// TakeBackup is the base backup that an agent is asked for, and Schedules when the
	// next ones are due, in the order of the spec.
	TakeBackup *instanceapi.TakeBackup
	Schedules  []plannedSchedule
	// Rotations are the passwords that are exchanged.
	Rotations rotations
	// Verification is what the status is to say of the proof of a backup; nil: none is
	// asked for.
	Verification *verification
	// Rollback is the restore in place that is under way; nil: none is.
	Rollback *rollback
	// Serving is what servers show, and by whom they are verified.
	Serving serving
	// Change is how far a change has come that takes restarts.
	Change changeProgress
	// SwitchoverFailed is true when the primary has not handed over as asked.
	SwitchoverFailed bool
	// SpecError is what in the spec is refused, for people; empty if nothing.
	SpecError string
	// Waits are what can't go on for now, one sentence each, for people.
	Waits []string
	// RecheckAfter is when to look again if nothing wakes us before.
	RecheckAfter time.Duration
}

// object is any API object.
type object interface {
	metav1.Object
	runtime.Object
}

// Verb is what an Action does with its object.
type Verb string

const (
	// Create makes an object; one of the same name that is not ours stays.
	Create Verb = "create"
	// Update replaces an object, if it still has the version that was seen.
	Update Verb = "update"
	// Delete removes an object, if it still has the UID that was seen.
	Delete Verb = "delete"
	// Clear takes an annotation from the PostgresCluster, if it still has the
	// value that was seen: a request of the user's has been carried out.
	Clear Verb = "clear"
	// Report writes the status of a PostgresBackup or PostgresRestore, if it still has
	// the version that was seen.
	Report Verb = "report"
)

// Action is one call of the API server.
type Action struct {
	Verb   Verb
	Object object
	// Successor is what takes the object's place after Delete; if the API server
	// would not have it, the object stays.
	Successor object
	// Missing are the objects whose absence is why Delete is planned. A cache may only
	// be behind: if one is there, nothing is deleted.
	Missing []object
	// Annotation is what Clear takes away.
	Annotation string
	// Owed is true for what ends a thing begun that must not stay half done, also while
	// the cluster is paused.
	Owed bool
	// Reason and Note make an event when the action has succeeded; none when
	// Reason is empty.
	Reason, Note string
}

// String names the action in logs and failures.
func (a Action) String() string {
	text := fmt.Sprintf("%s %s %s", a.Verb, kindOf(a.Object), a.Object.GetName())
	if a.Annotation != "" {
		text += " " + a.Annotation
	}
	return text
}

// stagesOf sorts actions, by their index, into stages that run one after the
// other, while the actions of a stage run at once: a pod is refused without its
// ServiceAccount, a RoleBinding without its Role, and a pod is put off by the
// scheduler without its volume.
func stagesOf(actions []Action) [][]int {
	stages := make([][]int, 3)
	for n, action := range actions {
		stage := 1
		switch action.Object.(type) {
		case *corev1.ServiceAccount, *rbacv1.Role:
			stage = 0
		case *corev1.Pod:
			stage = 2
		}
		stages[stage] = append(stages[stage], n)
	}
	return stages
}

// Failure is an action that failed.
type Failure struct {
	Action Action
	// Reason is one of the API's reasons.
	Reason string
	Err    error
}

// mustWait says whether an action would do harm after what failed before it in
// the same pass: a pod must not be made while a volume, Secret or other object
// that it names is missing, or is somebody else's.
func mustWait(action Action, failed []Failure) bool {
	pod, isPod := action.Object.(*corev1.Pod)
	if !isPod || action.Verb != Create {
		return false
	}
	return slices.ContainsFunc(failed, func(f Failure) bool {
		if f.Action.Verb != Create {
			return false // it is there, if not as it should be
		}
		if cluster, name := f.Action.Object.GetLabels()[specs.ClusterLabel], f.Action.Object.GetName(); specs.IsRoleSecret(cluster, name) || name == specs.AppSecret(cluster) {
			return false // no pod names it
		}
		switch f.Action.Object.(type) {
		case *corev1.PersistentVolumeClaim, *corev1.Secret, *corev1.ConfigMap, *corev1.ServiceAccount:
			instance, ofInstance := f.Action.Object.GetLabels()[specs.InstanceLabel]
			return !ofInstance || instance == pod.Name
		}
		return false
	})
}

func (p *Plan) create(o object, reason, note string) {
	p.Actions = append(p.Actions, Action{Verb: Create, Object: o, Reason: reason, Note: note})
}

func (p *Plan) update(o object) {
	p.Actions = append(p.Actions, Action{Verb: Update, Object: o})
}

// delete plans a deletion, unless it is under way.
func (p *Plan) delete(o object, reason, note string) {
	if o.GetDeletionTimestamp() != nil {
		return
	}
	p.Actions = append(p.Actions, Action{Verb: Delete, Object: o, Reason: reason, Note: note})
}

// waitsForAgents says whether something is under way of which only the agents tell
// how far it is: no watch wakes the next pass then.
func (p *Plan) waitsForAgents() bool {
	switch p.Change.State {
	case Distributing, Awaiting, RestartingReplica, LoweringPrimary, HandingOver, RestartingPrimary:
		return true
	}
	return p.Switchover != nil || p.Reclone != nil || p.ForcePromote != nil || p.TakeBackup != nil || p.Rollback != nil
}

// deletesPods says whether a rule before has decided to.
func (p *Plan) deletesPods() bool {
	return slices.ContainsFunc(p.Actions, func(a Action) bool {
		_, isPod := a.Object.(*corev1.Pod)
		return isPod && a.Verb == Delete
	})
}

// hold lets nothing be done but to report what becomes of backups, and what is owed.
func (p *Plan) hold() {
	p.Paused = true
	var reports []Action
	for _, action := range p.Actions {
		if action.Verb == Report || action.Owed {
			reports = append(reports, action)
		} else {
			p.Held = append(p.Held, action.String())
		}
	}
	p.Actions = reports
}

func (p *Plan) wait(format string, args ...any) {
	p.Waits = append(p.Waits, fmt.Sprintf(format, args...))
}
