package cluster

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/specs"
)

// What keeps an instance from serving is told in words: C-19, its container was
// killed for want of memory; C-09, its volume is full.
func TestTroubleOfAnInstance(t *testing.T) {
	now := time.Now()
	oom := &corev1.ContainerStateTerminated{Reason: "OOMKilled", ExitCode: 137}
	pod := func(state corev1.ContainerState, last *corev1.ContainerStateTerminated) *corev1.Pod {
		return &corev1.Pod{Spec: corev1.PodSpec{NodeName: "node"}, Status: corev1.PodStatus{Phase: corev1.PodRunning,
			ContainerStatuses: []corev1.ContainerStatus{{Name: specs.PostgresContainer, State: state, LastTerminationState: corev1.ContainerState{Terminated: last}}}}}
	}
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(now)}}
	says := func(phase instanceapi.Phase, message string, free uint64) *instanceapi.State {
		return &instanceapi.State{Phase: phase, Message: message, VolumeSize: 1 << 30, VolumeFree: free}
	}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "shop-2"}}
	cases := []struct {
		why  string
		i    Instance
		want trouble
	}{
		{"C-19: it was killed", Instance{Pod: pod(corev1.ContainerState{Terminated: oom}, nil)},
			trouble{"", "its containers are starting; the one before has ended: OOMKilled, exit code 137: it took more memory than spec.resources.limits allow"}},
		{"C-19: it starts again", Instance{Pod: pod(running, oom)},
			trouble{"", "its containers are starting; the one before has ended: OOMKilled, exit code 137: it took more memory than spec.resources.limits allow"}},
		{"it has ended by itself", Instance{Pod: pod(running, &corev1.ContainerStateTerminated{Reason: "Completed"})},
			trouble{"", "its containers are starting; the one before has ended: Completed, exit code 0"}},
		{"it starts for the first time", Instance{Pod: pod(running, nil)}, trouble{"", "its containers are starting"}},
		{"C-19: it was killed some time ago, and answers", Instance{Pod: pod(running, oom), State: says(instanceapi.PhaseStarting, "", 1<<29)}, trouble{"", "starting"}},
		{"C-09: a replica whose server runs has no room for WAL", Instance{Pod: pod(running, nil), Volume: claim, State: says(instanceapi.PhaseRunning, "", 1<<10)},
			trouble{v1.ReasonDiskFull, "volume shop-2 is full: raise spec.storage.size"}},
		{"C-09: the server has something to say", Instance{Pod: pod(running, nil), Volume: claim, State: says(instanceapi.PhaseRunning, "it waits", 1<<10)},
			trouble{v1.ReasonDiskFull, "volume shop-2 is full: raise spec.storage.size; it waits"}},
		{"a replica that does not stream", Instance{Pod: pod(running, nil), State: says(instanceapi.PhaseRunning, "", 1<<29)}, trouble{"", "its server runs and is not ready yet"}},
	}
	for _, c := range cases {
		if got := troubleOf(c.i, now); got != c.want {
			t.Errorf("%s: %+v", c.why, got)
		}
	}
}
