package cluster

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pgop/postgres-operator/pkg/specs"
)

// C-19: a container that is back so soon that no pass has seen it waiting is told of
// all the same, and once.
func TestEachEndOfAContainerIsToldOnce(t *testing.T) {
	ended := func(n int, code int32) *corev1.ContainerStateTerminated {
		return &corev1.ContainerStateTerminated{ContainerID: fmt.Sprint(n), ExitCode: code, Reason: "OOMKilled"}
	}
	look := func(uid types.UID, now, last *corev1.ContainerStateTerminated) Instance {
		return Instance{Name: string(uid), Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}, Status: corev1.PodStatus{
			ContainerStatuses: []corev1.ContainerStatus{
				{Name: "sidecar", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ContainerID: fmt.Sprint(now, last), ExitCode: 1}}},
				{Name: specs.PostgresContainer, State: corev1.ContainerState{Terminated: now}, LastTerminationState: corev1.ContainerState{Terminated: last}},
			}}}}
	}
	leaving := look("a", ended(9, 137), nil)
	leaving.Pod.DeletionTimestamp = &metav1.Time{}
	e := containerEnds{}
	for _, c := range []struct {
		why  string
		seen []Instance
		want []string
	}{
		{"it runs", []Instance{look("a", nil, nil)}, nil},
		{"it was killed", []Instance{look("a", ended(1, 137), nil)}, []string{"a"}},
		{"it starts again", []Instance{look("a", nil, ended(1, 137))}, nil},
		{"it was killed again, and is back already", []Instance{look("a", nil, ended(2, 137))}, []string{"a"}},
		{"it has ended in order", []Instance{look("a", nil, ended(3, 0))}, nil},
		{"another, which was killed before", []Instance{look("a", nil, ended(3, 0)), look("b", nil, ended(1, 137))}, nil},
		{"no pod", []Instance{{Name: "a"}, look("b", nil, ended(1, 137))}, nil},
		{"a pod that stops", []Instance{leaving}, nil},
	} {
		var got []string
		for _, i := range e.news(c.seen) {
			got = append(got, i.Name)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: %s", c.why, diff)
		}
	}
	if len(e) != 0 {
		t.Errorf("it remembers pods that are gone: %v", e)
	}
}
