package cluster

import (
	"encoding/json"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/specs"
)

func isVerifier(pod *corev1.Pod) bool { return pod.Labels[specs.VerifiesLabel] != "" }

// stepVerifier is a step of the pod that proves a backup.
func (w *world) stepVerifier(pod *corev1.Pod) {
	name := pod.Name
	switch {
	case pod.DeletionTimestamp != nil:
		delete(w.objects["Pod"], name)
	case pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded:
	case pod.Spec.NodeName == "" && w.full:
		w.unschedulable(name, "0/3 nodes are available: 3 Insufficient cpu.")
	case pod.Spec.NodeName == "":
		change(w, name, func(p *corev1.Pod) { p.Spec.NodeName, p.Status.Conditions = "node-1", nil })
	case pod.Status.Phase == corev1.PodPending:
		w.verifierIs(name, corev1.PodRunning, corev1.ContainerState{Running: &corev1.ContainerStateRunning{}})
	case w.bucket.proof != nil:
		text, err := json.Marshal(w.bucket.proof)
		if err != nil {
			panic(err)
		}
		w.endVerifier(name, 0, string(text))
	}
}

func (w *world) endVerifier(name string, code int32, message string) {
	reason, phase := "Completed", corev1.PodSucceeded
	if code != 0 {
		reason, phase = "OOMKilled", corev1.PodFailed
	}
	w.verifierIs(name, phase, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: code, Reason: reason, Message: message, FinishedAt: metav1.NewTime(w.now),
	}})
}

func (w *world) verifierIs(name string, phase corev1.PodPhase, state corev1.ContainerState) {
	change(w, name, func(p *corev1.Pod) {
		p.Status.Phase = phase
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: specs.VerifyContainer, State: state}}
	})
}

// weekly is when backups are proved.
var weekly = v1.VerifySpec{Cron: "0 5 * * 0"}

// withProofs is a settled cluster with a backup that is proved every week.
func (w *world) withProofs() {
	w.backedUp()
	w.edit(func(s *v1.PostgresClusterSpec) { v := weekly; s.Backup.Verify = &v })
	w.settle()
}

// proving is one whose backup is being proved.
func proving(w *world) {
	w.withProofs()
	w.now = time.Date(2026, 11, 29, 5, 0, 1, 0, time.UTC)
	for range 4 {
		w.catchUp(allKinds...)
		w.pass()
		w.kubernetes()
	}
	w.catchUp(allKinds...)
}

// ended is one in which that has just come of it.
func ended(w *world, proof instanceapi.Proof) {
	proving(w)
	w.bucket.proof = &proof
	w.kubernetes()
	w.catchUp(allKinds...)
}

// provedOnce is one whose backup was proved.
func provedOnce(w *world) {
	w.bucket.proof = &instanceapi.Proof{Until: time.Date(2026, 11, 29, 4, 59, 58, 0, time.UTC)}
	proving(w)
	w.settle()
}

// verifyCases are what a pass may find of proofs.
var verifyCases = []analyseCase{
	{why: "proofs are asked for: the status says when the next is due", change: func(w *world) {
		w.backedUp()
		w.edit(func(s *v1.PostgresClusterSpec) { v := weekly; s.Backup.Verify = &v })
	}},
	{why: "proofs at times that never come, past the schema", change: func(w *world) {
		w.backedUp()
		w.edit(func(s *v1.PostgresClusterSpec) { s.Backup.Verify = &v1.VerifySpec{Cron: "0 5 31 2 *"} })
	}},
	{why: "proofs in a time zone that there is not", change: func(w *world) {
		w.backedUp()
		w.edit(func(s *v1.PostgresClusterSpec) {
			s.Backup.Verify = &v1.VerifySpec{Cron: "0 5 * * 0", TimeZone: "Europe/Nowhere"}
		})
	}},
	{why: "a proof is due: the newest backup is restored in a pod of its own", change: func(w *world) {
		w.withProofs()
		w.now = time.Date(2026, 11, 29, 5, 0, 1, 0, time.UTC)
	}},
	{why: "four proofs were missed: they are made up once", change: func(w *world) {
		w.withProofs()
		w.now = time.Date(2026, 12, 24, 12, 0, 0, 0, time.UTC)
	}},
	{why: "a proof is due, and there is no backup that can be restored", change: func(w *world) {
		w.withProofs()
		w.bucket.backups[0].Unusable = "its parent is gone"
		w.agents()
		w.now = time.Date(2026, 11, 29, 5, 0, 1, 0, time.UTC)
	}},
	{why: "a proof is due in a paused cluster: it waits", change: func(w *world) {
		w.withProofs()
		w.edit(func(s *v1.PostgresClusterSpec) { s.Paused = true })
		w.now = time.Date(2026, 11, 29, 5, 0, 1, 0, time.UTC)
	}},
	{why: "a proof is due in a stopped cluster: it waits", change: func(w *world) {
		w.withProofs()
		w.scale(0)
		w.settle()
		w.now = time.Date(2026, 11, 29, 5, 0, 1, 0, time.UTC)
	}},
	{why: "a proof is under way: it is no instance", change: proving},
	{why: "a proof is under way when the cluster is to stop: it gives way", change: func(w *world) {
		proving(w)
		w.scale(0)
	}},
	{why: "a proof is under way when the cluster is rolled back: it gives way", change: func(w *world) {
		proving(w)
		w.undo("undo", "", v1.RestoreTarget{})
		w.catchUp(allKinds...)
		w.pass()
	}},
	{why: "a proof is under way when none is wanted any more", change: func(w *world) {
		proving(w)
		w.edit(func(s *v1.PostgresClusterSpec) { s.Backup.Verify = nil })
	}},
	{why: "a proof has succeeded: it is written down before the pod goes", change: func(w *world) {
		ended(w, instanceapi.Proof{Until: time.Date(2026, 11, 29, 4, 59, 58, 0, time.UTC)})
	}},
	{why: "a proof is written down: the pod goes", change: func(w *world) {
		ended(w, instanceapi.Proof{Until: time.Date(2026, 11, 29, 4, 59, 58, 0, time.UTC)})
		w.pass()
	}},
	{why: "a proof is written down when the cluster is to stop: it is not made again", change: func(w *world) {
		ended(w, instanceapi.Proof{Until: time.Date(2026, 11, 29, 4, 59, 58, 0, time.UTC)})
		w.pass()
		w.scale(0)
	}},
	{why: "a proof has failed in a paused cluster: it is written down", change: func(w *world) {
		ended(w, instanceapi.Proof{Failed: "it is damaged"})
		w.edit(func(s *v1.PostgresClusterSpec) { s.Paused = true })
	}},
	{why: "the backup that is being proved goes from the store, since there is a newer one: that is proved", change: func(w *world) {
		proving(w)
		w.order("second", v1.BackupFull)
		w.settle()
		w.bucket.backups = w.bucket.backups[1:]
		w.agents()
	}},
	{why: "a backup was proved", change: provedOnce},
	{why: "a proof has failed, in the words of whoever said it", change: func(w *world) {
		provedOnce(w)
		w.bucket.proof = &instanceapi.Proof{Failed: "read the restored databases: pg_amcheck: heap table \"app.public.t\", block 0, offset 1: xmin 1936287860 equals or exceeds next valid transaction ID 745"}
		w.now = time.Date(2026, 12, 6, 5, 0, 1, 0, time.UTC)
		w.settle()
	}},
	{why: "a failed proof is written down: the pod goes", change: func(w *world) {
		ended(w, instanceapi.Proof{Failed: "the archive lacks the WAL segment 000000010000000000000007"})
		w.pass()
	}},
	{why: "the proof after one that failed succeeds", change: func(w *world) {
		w.bucket.proof = &instanceapi.Proof{Failed: "the archive lacks the WAL segment 000000010000000000000007"}
		proving(w)
		w.settle()
		w.bucket.proof = &instanceapi.Proof{Until: time.Date(2026, 12, 6, 4, 59, 58, 0, time.UTC)}
		w.now = time.Date(2026, 12, 6, 5, 0, 1, 0, time.UTC)
		w.settle()
	}},
	{why: "the container that proves was killed for want of memory", change: func(w *world) {
		proving(w)
		w.endVerifier("shop-verify", 137, "")
	}},
	{why: "the pod that proves was evicted", change: func(w *world) {
		proving(w)
		change(w, "shop-verify", func(p *corev1.Pod) {
			p.Status.Phase, p.Status.Reason, p.Status.Message = corev1.PodFailed, "Evicted", "the node was low on memory"
		})
	}},
	{why: "the pod that proves was deleted by somebody", change: func(w *world) {
		proving(w)
		delete(w.objects["Pod"], "shop-verify")
	}},
	{why: "the pod that proves can't be scheduled, for less than an hour", change: func(w *world) {
		w.full = true
		proving(w)
		w.now = w.now.Add(59 * time.Minute)
	}},
	{why: "the pod that proves can't be scheduled for an hour", change: func(w *world) {
		w.full = true
		proving(w)
		w.now = w.now.Add(time.Hour)
	}},
	{why: "a proof takes more than a day", change: func(w *world) {
		proving(w)
		w.now = w.now.Add(24 * time.Hour)
	}},
}

// Each proof is told once, whatever pass sees what, and makes one event; nothing of it
// stays.
func TestEachProofIsToldOnce(t *testing.T) {
	pure(t)
	for why, proof := range map[string]instanceapi.Proof{
		v1.ReasonBackupProved:    {Until: time.Date(2026, 11, 29, 4, 59, 58, 0, time.UTC)},
		v1.ReasonBackupNotProved: {Failed: "it is damaged"},
	} {
		w := settledWorld(3)
		proving(w)
		w.bucket.proof = &proof
		told := 0
		for range 30 {
			w.catchUp(allKinds...)
			_, p, _ := w.pass()
			for _, a := range p.Actions {
				if a.Reason == why {
					told++
				}
			}
			w.kubernetes()
			w.agents()
			w.now = w.now.Add(time.Second)
		}
		if told != 1 || w.pod("shop-verify") != nil {
			t.Errorf("%s is told %d times, and the pod is %v", why, told, w.pod("shop-verify"))
		}
	}
}

// A proof that gave way to a stop is made up when the cluster runs again.
func TestProofThatGaveWayIsMadeUp(t *testing.T) {
	w := settledWorld(3)
	proving(w)
	w.scale(0)
	w.settle()
	if w.pod("shop-verify") != nil {
		t.Fatal("the pod is still there")
	}
	w.bucket.proof = &instanceapi.Proof{Until: w.now}
	w.scale(3)
	w.settle()
	w.settle()
	if s := w.cluster.Status.Backup; s.LastVerified == nil || s.NotVerified != nil {
		t.Errorf("the status says %+v", s)
	}
}
