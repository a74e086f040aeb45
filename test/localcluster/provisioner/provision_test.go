package main

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

func TestVolumeSize(t *testing.T) {
	for request, want := range map[string]int64{
		"1":              300 << 20,
		"300Mi":          300 << 20,
		"314572801":      301 << 20,
		"1Gi":            1 << 30,
		"1G":             954 << 20,
		"1073741823500m": 1 << 30,
		"10995116277760": 10 << 40,
	} {
		got := volumeSize(corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(request)})
		if got != want {
			t.Errorf("%s: got %d, want %d", request, got, want)
		}
	}
}

func TestPersistentVolume(t *testing.T) {
	reclaim := corev1.PersistentVolumeReclaimDelete
	filesystem := corev1.PersistentVolumeFilesystem
	got := persistentVolume(controller.ProvisionOptions{
		StorageClass:     &storagev1.StorageClass{ReclaimPolicy: &reclaim},
		PVName:           "pvc-1",
		PVC:              claim("100Mi", "", corev1.ReadWriteOnce),
		SelectedNodeName: "node-2",
	}, "/volumes/pvc-1", smallestVolume)
	want := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pvc-1"},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("300Mi")},
			AccessModes:                   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			VolumeMode:                    &filesystem,
			PersistentVolumeSource:        corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: "/volumes/pvc-1"}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{
					MatchExpressions: []corev1.NodeSelectorRequirement{{
						Key: "kubernetes.io/hostname", Operator: corev1.NodeSelectorOpIn, Values: []string{"node-2"},
					}},
				}},
			}},
		},
	}
	if !equality.Semantic.DeepEqual(got, want) {
		t.Fatalf("got %v, want %v", got, want)
	}
}

func TestAcceptClaim(t *testing.T) {
	for mode, accepted := range map[corev1.PersistentVolumeAccessMode]bool{
		corev1.ReadWriteOnce:    true,
		corev1.ReadWriteOncePod: true,
		corev1.ReadWriteMany:    false,
		corev1.ReadOnlyMany:     false,
	} {
		if err := acceptClaim(claim("1Gi", "", mode)); (err == nil) != accepted {
			t.Errorf("%s: %v", mode, err)
		}
	}
}

// claim asks for request and, according to its status, has capacity.
func claim(request, capacity string, modes ...corev1.PersistentVolumeAccessMode) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data", UID: "1"},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: modes,
			VolumeName:  "pvc-1",
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(request)},
			},
		},
	}
	if capacity != "" {
		c.Status.Phase = corev1.ClaimBound
		c.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(capacity)}
	}
	return c
}
