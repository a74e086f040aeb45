package main

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
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

func TestSyncReportsFailureThenSuccess(t *testing.T) {
	c, v := claim("2Gi", "1Gi"), pv("1Gi")
	v.Annotations = map[string]string{"pv.kubernetes.io/provisioned-by": provisionerName}
	v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: c.Namespace, Name: c.Name, UID: c.UID}
	disk := &fakeDisk{err: errors.New("host is full")}
	client := fake.NewClientset(c, v)

	if err := syncOnce(t, client, disk); !errors.Is(err, disk.err) {
		t.Fatalf("got %v, want %v", err, disk.err)
	}
	status := claimStatus(t, client)
	if got := conditionMessage(status, corev1.PersistentVolumeClaimControllerResizeError); got != "host is full" {
		t.Errorf("condition says %q", got)
	}
	if got := status.Capacity.Storage().String(); got != "1Gi" {
		t.Errorf("capacity %s, want 1Gi", got)
	}

	disk.err = nil
	for range 2 { // first the volume, then what it changes about the claim
		if err := syncOnce(t, client, disk); err != nil {
			t.Fatal(err)
		}
	}
	want := finishedStatus(c.Status, resource.MustParse("2Gi"))
	if got := claimStatus(t, client); !equality.Semantic.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if disk.size != 2<<30 {
		t.Errorf("volume has %d bytes", disk.size)
	}
}

// fakeDisk fails while it has an error.
type fakeDisk struct {
	size int64
	err  error
}

func (d *fakeDisk) grow(_ context.Context, _ string, size int64) error {
	if d.err == nil {
		d.size = size
	}
	return d.err
}

// syncOnce works on what the API has now.
func syncOnce(t *testing.T, client *fake.Clientset, disk grower) error {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	factory := informers.NewSharedInformerFactory(client, 0)
	core := factory.Core().V1()
	r := newResizer(ctx, client, core.PersistentVolumeClaims(), core.PersistentVolumes(), disk)
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	return r.sync(ctx, "ns/data")
}

func claimStatus(t *testing.T, client *fake.Clientset) corev1.PersistentVolumeClaimStatus {
	t.Helper()
	c, err := client.CoreV1().PersistentVolumeClaims("ns").Get(t.Context(), "data", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return c.Status
}

func conditionMessage(status corev1.PersistentVolumeClaimStatus, kind corev1.PersistentVolumeClaimConditionType) string {
	for _, c := range status.Conditions {
		if c.Type == kind {
			return c.Message
		}
	}
	return ""
}

func pv(capacity string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pvc-1"},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(capacity)},
		},
	}
}
