package main

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestWantsGrowth(t *testing.T) {
	for name, c := range map[string]struct {
		request, volume string
		want            bool
	}{
		"same size":                        {"1Gi", "1Gi", false},
		"request grew":                     {"2Gi", "1Gi", true},
		"small claim has a minimal volume": {"100Mi", "300Mi", false},
		"request withdrawn":                {"1Gi", "2Gi", false},
	} {
		if got := wantsGrowth(claim(c.request, c.volume), pv(c.volume)); got != c.want {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

func TestIsOutdated(t *testing.T) {
	resizing := claim("2Gi", "2Gi")
	resizing.Status = startedStatus(resizing.Status, resource.MustParse("2Gi"), metav1.Now())
	for name, c := range map[string]struct {
		claim *corev1.PersistentVolumeClaim
		want  bool
	}{
		"as bound":                    {claim("2Gi", "2Gi"), false},
		"capacity behind the volume":  {claim("2Gi", "1Gi"), true},
		"only conditions left behind": {resizing, true},
	} {
		if got := isOutdated(c.claim, pv("2Gi")); got != c.want {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

func TestFinishedStatusEndsAllTraces(t *testing.T) {
	other := corev1.PersistentVolumeClaimCondition{Type: "Other", Status: corev1.ConditionTrue}
	status := claim("2Gi", "1Gi").Status
	status.Conditions = []corev1.PersistentVolumeClaimCondition{other}
	status = startedStatus(status, resource.MustParse("2Gi"), metav1.Now())
	status = failedStatus(status, "no space", metav1.Now())

	got := finishedStatus(status, resource.MustParse("2Gi"))
	want := corev1.PersistentVolumeClaimStatus{
		Phase:              corev1.ClaimBound,
		Capacity:           corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")},
		AllocatedResources: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")},
		Conditions:         []corev1.PersistentVolumeClaimCondition{other},
	}
	if !equality.Semantic.DeepEqual(got, want) {
		t.Fatalf("got %v, want %v", got, want)
	}
}

// Otherwise each failure would wake the next try at once.
func TestRepeatedFailureChangesNothing(t *testing.T) {
	try := func(status corev1.PersistentVolumeClaimStatus, now time.Time) corev1.PersistentVolumeClaimStatus {
		status = startedStatus(status, resource.MustParse("2Gi"), metav1.NewTime(now))
		return failedStatus(status, "no space", metav1.NewTime(now))
	}
	first := try(claim("2Gi", "1Gi").Status, time.Unix(100, 0))
	second := try(first, time.Unix(200, 0))
	if !equality.Semantic.DeepEqual(first, second) {
		t.Fatalf("first %v, second %v", first, second)
	}
}

func pv(capacity string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pvc-1"},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(capacity)},
		},
	}
}
