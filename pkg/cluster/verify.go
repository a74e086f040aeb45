package cluster

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/backup"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/specs"
)

// A backup is proved in these steps, so that an operator that ends in between goes on
// where it was:
//
//	it is due           nextVerification is past. The pod is made.
//	there is a pod      it is named in the status, and nextVerification moves on.
//	the pod has ended   the result is written to the status.
//	the status has it   the pod goes, and the event is made.
//
// A pod that is in the status and nowhere else was deleted by somebody, and has proved
// nothing.

const (
	// longestProof is for how long a backup may be proved.
	longestProof = 24 * time.Hour
	// longestStart is how long the pod that does so may take to start.
	longestStart = time.Hour
)

// verification is what the status is to say of proofs.
type verification struct {
	// Next is when the next is due.
	Next *metav1.Time
	// Running is the backup that is being proved; empty: none is.
	Running string
	// Told is the UID of the last pod whose result is told.
	Told   types.UID
	Proved *v1.VerifiedBackup
	Failed *v1.UnverifiedBackup
}

// into writes it to the status. What was proved stays told when nothing is to be proved
// any more.
func (v *verification) into(s *v1.BackupsStatus) {
	if v == nil {
		s.NextVerification, s.Verifying, s.NotVerified = nil, "", nil
		return
	}
	s.NextVerification, s.Verifying, s.Verifier, s.LastVerified, s.NotVerified = v.Next, v.Running, v.Told, v.Proved, v.Failed
}

// whyNotProved says that the last proof has failed; empty: it has not.
func (v *verification) whyNotProved() string {
	if v == nil || v.Failed == nil {
		return ""
	}
	text := fmt.Sprintf("backup %s was to be proved and is not, at %s: %s", v.Failed.Backup, v.Failed.At.UTC().Format(time.RFC3339), v.Failed.Message)
	if v.Proved == nil {
		return text + "; none was proved before"
	}
	return text + v.lastProved()
}

// lastProved names the last backup that was proved; empty: nothing is to be proved, or
// nothing was yet.
func (v *verification) lastProved() string {
	if v == nil || v.Proved == nil {
		return ""
	}
	return fmt.Sprintf("; the last that was proved is %s, at %s, with all that was committed until %s",
		v.Proved.Backup, v.Proved.At.UTC().Format(time.RFC3339), v.Proved.Until.UTC().Format(time.RFC3339))
}

// verificationBefore is what the status says.
func (o Observation) verificationBefore() verification {
	before := o.Cluster.Status.Backup
	if before == nil {
		return verification{}
	}
	s := before.DeepCopy()
	return verification{Next: s.NextVerification, Running: s.Verifying, Told: s.Verifier, Proved: s.LastVerified, Failed: s.NotVerified}
}

// planVerification has the newest backup proved when that is due. What was missed is
// made up once.
func planVerification(o Observation, p *Plan) {
	asked := o.askedVerification()
	if asked == nil {
		if o.Verifier != nil {
			p.delete(o.Verifier, "", "")
		}
		return
	}
	v := o.verificationBefore()
	p.Verification = &v
	s, err := backup.ParseSchedule(asked.Cron, asked.TimeZone)
	switch {
	case err != nil: // SpecAccepted says so
		v.Next = nil
	case v.Next == nil || !s.Next(v.Next.Add(-time.Second)).Equal(v.Next.Time):
		// It is new, or comes at other times than before.
		v.Next = stamp(s.Next(o.Now))
	}
	switch pod := o.Verifier; {
	case pod != nil && v.Told != pod.UID && (p.Stop || p.Rollback != nil || o.provesWhatIsGone(pod)):
		// It gives way, and is made up afterwards.
		v.Running = ""
		if err == nil && v.Next.After(o.Now) {
			v.Next = stamp(lastBefore(s, o.Now, v.Next.Time))
		}
		p.delete(pod, "", "")
	case pod != nil:
		if err == nil && !v.Next.After(o.Now) {
			v.Next = stamp(s.Next(o.Now))
		}
		followVerification(o, p, pod)
	case v.Running != "":
		v.fails(v.Running, o.Now, "its pod was deleted before it had ended")
	case err == nil && !v.Next.After(o.Now):
		beginVerification(o, p)
	}
}

// provesWhatIsGone says whether retention, or somebody, has removed the backup from the
// store while it was being proved. There is a newer one.
func (o Observation) provesWhatIsGone(pod *corev1.Pod) bool {
	id, _ := specs.Proves(pod)
	return o.Catalog != nil && len(o.Catalog.Backups) > 0 && o.inCatalog(id) == nil
}

// askedVerification is when backups are to be proved; nil: never.
func (o Observation) askedVerification() *v1.VerifySpec {
	if o.Cluster.Spec.Backup == nil {
		return nil
	}
	return o.Cluster.Spec.Backup.Verify
}

// lastBefore is a time of the schedule that is past, so that it is due; next if there
// is none in the last days.
func lastBefore(s backup.Schedule, now, next time.Time) time.Time {
	for _, back := range []time.Duration{time.Hour, 24 * time.Hour, 8 * 24 * time.Hour, 32 * 24 * time.Hour, 367 * 24 * time.Hour} {
		if due := s.Next(now.Add(-back)); !due.After(now) {
			return due
		}
	}
	return next
}

// beginVerification makes the pod that proves the newest backup, unless something
// under way would only disturb it or be disturbed.
func beginVerification(o Observation, p *Plan) {
	if o.Cluster.Spec.Paused || p.Stop || p.Rollback != nil || p.SpecError != "" || !o.primaryServes() || o.Catalog == nil {
		return
	}
	info := o.newestInCatalog()
	if info == nil {
		return
	}
	name := cmp.Or(info.Name, info.ID)
	for _, b := range o.Backups {
		if idOf(b) == info.ID {
			name = b.Name
		}
	}
	p.create(specs.VerifyPod(o.Cluster, info.ID, name, o.OperatorImage), "", "")
}

// followVerification looks what has become of the pod.
func followVerification(o Observation, p *Plan, pod *corev1.Pod) {
	v := p.Verification
	_, name := specs.Proves(pod)
	told := v.Told == pod.UID
	switch {
	case told && v.Failed == nil && v.Proved != nil:
		p.delete(pod, v1.ReasonBackupProved, fmt.Sprintf("backup %s is proved: it was restored with all that was committed until %s, and every table and index was read",
			v.Proved.Backup, v.Proved.Until.UTC().Format(time.RFC3339)))
		return
	case told && v.Failed != nil:
		p.delete(pod, v1.ReasonBackupNotProved, fmt.Sprintf("backup %s is not proved: %s", v.Failed.Backup, v.Failed.Message))
		return
	case told: // somebody edited the status
		p.delete(pod, "", "")
		return
	case pod.DeletionTimestamp != nil:
		v.Running = name // and if it goes without a result, that is told
		return
	}
	v.Told = pod.UID
	at := notBefore(endOfVerifier(pod), pod.CreationTimestamp.Time)
	switch proof, ended := proofOf(pod); {
	case ended && proof.Failed == "":
		v.Running, v.Failed = "", nil
		v.Proved = &v1.VerifiedBackup{Backup: name, At: *stamp(at), Until: *stamp(proof.Until)}
	case ended:
		v.fails(name, at, proof.Failed)
	case !hasStarted(pod) && o.Now.Sub(pod.CreationTimestamp.Time) >= longestStart:
		text := "its pod has not started within an hour"
		if t, found := podTrouble(pod); found {
			text += ": " + t.Message
		}
		v.fails(name, o.Now, text)
	case o.Now.Sub(pod.CreationTimestamp.Time) >= longestProof:
		v.fails(name, o.Now, "it has not ended within 24 hours")
	default:
		v.Running, v.Told = name, o.verificationBefore().Told
	}
}

// fails notes a proof that has failed.
func (v *verification) fails(name string, at time.Time, why string) {
	v.Running = ""
	v.Failed = &v1.UnverifiedBackup{Backup: name, At: *stamp(at), Message: limit(why)}
}

// proofOf is what the pod says of the backup once it has ended.
func proofOf(pod *corev1.Pod) (proof instanceapi.Proof, ended bool) {
	podEnded := pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded
	end := terminatedVerifier(pod) // what a webhook has put beside it may run on
	switch {
	case !podEnded && end == nil:
		return instanceapi.Proof{}, false
	case podEnded && pod.Status.Reason != "": // such as one that was evicted
		return instanceapi.Proof{Failed: "its pod ended: " + endOf(pod)}, true
	case end == nil:
		return instanceapi.Proof{Failed: "its pod ended: " + endOf(pod) + whyInitFailed(pod)}, true
	case end.ExitCode == 0 && json.Unmarshal([]byte(end.Message), &proof) == nil && (proof.Failed != "" || !proof.Until.IsZero()):
		return proof, true
	}
	text := fmt.Sprintf("its container ended without a result: %s, exit code %d", cmp.Or(end.Reason, "Error"), end.ExitCode)
	if end.Message != "" {
		text += ": " + strings.TrimSpace(end.Message)
	}
	return instanceapi.Proof{Failed: text}, true
}

// whyInitFailed is how the container has ended that brings the agent; empty: well.
func whyInitFailed(pod *corev1.Pod) string {
	for _, s := range pod.Status.InitContainerStatuses {
		if end := s.State.Terminated; end != nil && end.ExitCode != 0 {
			return strings.TrimSpace(fmt.Sprintf(": container %s: %s, exit code %d %s", s.Name, end.Reason, end.ExitCode, end.Message))
		}
	}
	return ""
}

func verifierStatus(pod *corev1.Pod) corev1.ContainerStatus {
	for _, s := range pod.Status.ContainerStatuses {
		if s.Name == specs.VerifyContainer {
			return s
		}
	}
	return corev1.ContainerStatus{}
}

// hasStarted says whether the container that proves runs, or has run.
func hasStarted(pod *corev1.Pod) bool {
	s := verifierStatus(pod)
	return s.State.Running != nil || s.State.Terminated != nil
}

func terminatedVerifier(pod *corev1.Pod) *corev1.ContainerStateTerminated {
	return verifierStatus(pod).State.Terminated
}

// endOfVerifier is when the container has ended; the zero time if nobody says.
func endOfVerifier(pod *corev1.Pod) time.Time {
	if end := terminatedVerifier(pod); end != nil {
		return end.FinishedAt.Time
	}
	return time.Time{}
}

func notBefore(t, least time.Time) time.Time {
	if t.Before(least) { // another clock
		return least
	}
	return t
}
