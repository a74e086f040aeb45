package cluster

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pgop/postgres-operator/pkg/specs"
)

// B-26: the claim of the instance's name is somebody else's. A pod made all the
// same would mount it.
func TestB26PodWaitsForWhatItMounts(t *testing.T) {
	meta := func(name, instance string) metav1.ObjectMeta {
		m := metav1.ObjectMeta{Name: name, Labels: map[string]string{}}
		if instance != "" {
			m.Labels[specs.InstanceLabel] = instance
		}
		return m
	}
	ofCluster := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: name, Labels: map[string]string{specs.ClusterLabel: "shop"}}
	}
	create := Action{Verb: Create, Object: &corev1.Pod{ObjectMeta: meta("shop-1", "shop-1")}}
	for name, c := range map[string]struct {
		action Action
		failed object
		want   bool
	}{
		"its volume failed":                {create, &corev1.PersistentVolumeClaim{ObjectMeta: meta("shop-1", "shop-1")}, true},
		"its certificate failed":           {create, &corev1.Secret{ObjectMeta: meta("shop-1-tls", "shop-1")}, true},
		"a login that all share failed":    {create, &corev1.Secret{ObjectMeta: meta("shop-app", "")}, true},
		"a role's login failed":            {create, &corev1.Secret{ObjectMeta: ofCluster("shop-role-app")}, false},
		"another instance's volume failed": {create, &corev1.PersistentVolumeClaim{ObjectMeta: meta("shop-2", "shop-2")}, false},
		"a Service failed":                 {create, &corev1.Service{ObjectMeta: meta("shop-rw", "")}, false},
		"a pod is deleted": {Action{Verb: Delete, Object: create.Object},
			&corev1.PersistentVolumeClaim{ObjectMeta: meta("shop-1", "shop-1")}, false},
	} {
		t.Run(name, func(t *testing.T) {
			failed := []Failure{{Action: Action{Verb: Create, Object: c.failed}, Err: errors.New("taken")}}
			if got := mustWait(c.action, failed); got != c.want {
				t.Errorf("mustWait = %v, want %v", got, c.want)
			}
			// a volume that can't grow is there all the same.
			failed[0].Action.Verb = Update
			if mustWait(c.action, failed) {
				t.Error("it waits for what is there")
			}
		})
	}
}
