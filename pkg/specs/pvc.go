package specs

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
)

// Volume is the claim of an instance's data volume. It is owned by the cluster
// only where the user wants volumes to go with it.
func Volume(c *v1.PostgresCluster, instance string) *corev1.PersistentVolumeClaim {
	return claim(c, instance, instance, askedOfData(c))
}

// WALVolume is the claim of an instance's WAL volume; nil if the spec asks for
// none.
func WALVolume(c *v1.PostgresCluster, instance string) *corev1.PersistentVolumeClaim {
	if c.Spec.Storage.WAL == nil {
		return nil
	}
	return claim(c, instance, WALVolumeName(instance), askedOfWAL(c))
}

// asked is what the spec says of a volume.
type asked struct {
	size  resource.Quantity
	class string
}

func askedOfData(c *v1.PostgresCluster) asked {
	return asked{size: c.Spec.Storage.Size, class: c.Spec.Storage.Class}
}

func askedOfWAL(c *v1.PostgresCluster) asked {
	return asked{size: c.Spec.Storage.WAL.Size, class: c.Spec.Storage.WAL.Class}
}

// askedOf is what the spec says of a claim; false if it asks for none of the kind.
func askedOf(claim *corev1.PersistentVolumeClaim, c *v1.PostgresCluster) (asked, bool) {
	_, isWAL := InstanceOfWALVolume(claim.Name)
	switch {
	case !isWAL:
		return askedOfData(c), true
	case c.Spec.Storage.WAL != nil:
		return askedOfWAL(c), true
	}
	return asked{}, false
}

// AskedSize is the size that the spec asks of a claim; 0 if it asks for none of
// the kind.
func AskedSize(claim *corev1.PersistentVolumeClaim, c *v1.PostgresCluster) resource.Quantity {
	want, _ := askedOf(claim, c)
	return want.size
}

func claim(c *v1.PostgresCluster, instance, name string, want asked) *corev1.PersistentVolumeClaim {
	made := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name:            name,
			Namespace:       c.Namespace,
			Labels:          instanceLabels(c, instance),
			Annotations:     map[string]string{CreatedForAnnotation: string(c.UID)},
			OwnerReferences: volumeOwners(c),
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: want.size},
			},
		},
	}
	if want.class != "" {
		made.Spec.StorageClassName = ptr.To(want.class)
		made.Annotations[ClassAnnotation] = want.class // since the API server names the default
	}
	return made
}

func volumeOwners(c *v1.PostgresCluster) []metav1.OwnerReference {
	if c.Spec.Storage.Retain != v1.DeleteVolumes {
		return nil
	}
	return []metav1.OwnerReference{OwnerOf(c)}
}

// RepairVolume returns live with its labels and with the owner that
// spec.storage.retain asks for, or nil if it has both. With adopt, a volume of an
// earlier cluster becomes one of this cluster.
func RepairVolume(live *corev1.PersistentVolumeClaim, c *v1.PostgresCluster, adopt bool) *corev1.PersistentVolumeClaim {
	repaired := live.DeepCopy()
	changed := false
	if adopt && IsAdopted(live, c) {
		metav1.SetMetaDataAnnotation(&repaired.ObjectMeta, CreatedForAnnotation, string(c.UID))
		delete(repaired.Annotations, LostNodeAnnotation) // it was of no use to another
		changed = true
	}
	if owned := RepairVolumeOwner(live, c); owned != nil {
		repaired.OwnerReferences = owned.OwnerReferences
		changed = true
	}
	if labels := instanceLabels(c, instanceOf(live)); !hasLabels(live.Labels, labels) {
		repaired.Labels = withLabels(live.Labels, labels)
		changed = true
	}
	if !changed {
		return nil
	}
	return repaired
}

// instanceOf is the instance that a claim was made for.
func instanceOf(claim *corev1.PersistentVolumeClaim) string {
	if instance, isWAL := InstanceOfWALVolume(claim.Name); isWAL {
		return instance
	}
	return claim.Name
}

// GrowVolume returns live with a request of at least what the spec asks for, or
// nil if it has it. A request is never lowered, and never raised before there is
// a volume to grow.
func GrowVolume(live *corev1.PersistentVolumeClaim, c *v1.PostgresCluster) *corev1.PersistentVolumeClaim {
	if !IsProvisioned(live) || !NeedsGrowth(live, c) {
		return nil
	}
	grown := live.DeepCopy()
	grown.Spec.Resources.Requests[corev1.ResourceStorage] = AskedSize(live, c)
	return grown
}

// RepairVolumeOwner returns live with the owner that spec.storage.retain asks for,
// or nil if it has it.
func RepairVolumeOwner(live *corev1.PersistentVolumeClaim, c *v1.PostgresCluster) *corev1.PersistentVolumeClaim {
	if metav1.IsControlledBy(live, c) == (c.Spec.Storage.Retain == v1.DeleteVolumes) {
		return nil
	}
	repaired := live.DeepCopy()
	repaired.OwnerReferences = slices.DeleteFunc(repaired.OwnerReferences, func(r metav1.OwnerReference) bool {
		return r.Kind == v1.ClusterKind
	})
	repaired.OwnerReferences = append(repaired.OwnerReferences, volumeOwners(c)...)
	return repaired
}

// GiveUpVolume returns live with the mark that it went with that node, and that
// the cluster for which it was made goes on without it.
func GiveUpVolume(live *corev1.PersistentVolumeClaim, node string) *corev1.PersistentVolumeClaim {
	marked := live.DeepCopy()
	metav1.SetMetaDataAnnotation(&marked.ObjectMeta, LostNodeAnnotation, node)
	return marked
}

// LostNode is the node with which the volume went, if c goes on without it; else
// empty. What was so for an earlier cluster of the name need not be any more.
func LostNode(claim *corev1.PersistentVolumeClaim, c *v1.PostgresCluster) string {
	if IsAdopted(claim, c) {
		return ""
	}
	return claim.Annotations[LostNodeAnnotation]
}

// NeedsGrowth says whether the claim asks for less than the spec does.
func NeedsGrowth(claim *corev1.PersistentVolumeClaim, c *v1.PostgresCluster) bool {
	return claim.Spec.Resources.Requests.Storage().Cmp(AskedSize(claim, c)) < 0
}

// IsProvisioned says whether there is, or was, a volume behind the claim.
func IsProvisioned(claim *corev1.PersistentVolumeClaim) bool {
	return claim.Spec.VolumeName != "" || claim.Status.Phase == corev1.ClaimBound || claim.Status.Phase == corev1.ClaimLost
}

// HasStorageClass says whether the claim is of the class that the spec asks for,
// if it asks for any.
func HasStorageClass(claim *corev1.PersistentVolumeClaim, c *v1.PostgresCluster) bool {
	want, isAsked := askedOf(claim, c)
	switch {
	case !isAsked:
		return true
	case want.class != "":
		return ptr.Deref(claim.Spec.StorageClassName, "") == want.class
	}
	return claim.Annotations[ClassAnnotation] == ""
}

// IsOutdated says whether the claim is of another class or size than the spec
// asks for, which no claim without a volume can change, or not asked for at all.
func IsOutdated(claim *corev1.PersistentVolumeClaim, c *v1.PostgresCluster) bool {
	want, isAsked := askedOf(claim, c)
	return !isAsked || !HasStorageClass(claim, c) || claim.Spec.Resources.Requests.Storage().Cmp(want.size) != 0
}

// IsAdopted says whether the claim was made for an earlier cluster of the name.
func IsAdopted(claim *corev1.PersistentVolumeClaim, c *v1.PostgresCluster) bool {
	return claim.Annotations[CreatedForAnnotation] != string(c.UID)
}
