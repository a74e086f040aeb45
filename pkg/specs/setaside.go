package specs

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
)

// Marks on the claims of a cluster that is rolled back. Nobody uses such a volume, be
// it this cluster or a later one of the name.
const (
	// SetAsideAnnotation is there while the restore is under way: <PostgresRestore>/<the
	// instance that is made>. If it fails, the volume is used again.
	SetAsideAnnotation = v1.GroupName + "/set-aside-for"
	// KeptAnnotation is there once the restore has come about: <PostgresRestore>.
	KeptAnnotation = v1.GroupName + "/kept-from-before"
)

// SetVolumeAside returns live with the mark of a restore under way.
func SetVolumeAside(live *corev1.PersistentVolumeClaim, restore, instance string) *corev1.PersistentVolumeClaim {
	marked := live.DeepCopy()
	metav1.SetMetaDataAnnotation(&marked.ObjectMeta, SetAsideAnnotation, restore+"/"+instance)
	return marked
}

// SetAsideFor is the restore under way for which a volume was set aside, and the
// instance that it makes; false if it was not.
func SetAsideFor(claim *corev1.PersistentVolumeClaim) (restore, instance string, is bool) {
	return strings.Cut(claim.Annotations[SetAsideAnnotation], "/")
}

// PutVolumeBack returns live without the mark: the restore has not come about.
func PutVolumeBack(live *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
	back := live.DeepCopy()
	delete(back.Annotations, SetAsideAnnotation)
	return back
}

// KeepVolume returns live with the mark that a restore has taken its place for good.
func KeepVolume(live *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
	restore, _, _ := SetAsideFor(live)
	kept := PutVolumeBack(live)
	metav1.SetMetaDataAnnotation(&kept.ObjectMeta, KeptAnnotation, restore)
	return kept
}

// SetAsideBy is the restore, under way or over, for which a volume was set aside.
func SetAsideBy(claim *corev1.PersistentVolumeClaim) string {
	restore, _, underWay := SetAsideFor(claim)
	if underWay {
		return restore
	}
	return claim.Annotations[KeptAnnotation]
}

// IsSetAside says whether a volume holds the data from before a restore.
func IsSetAside(claim *corev1.PersistentVolumeClaim) bool {
	return SetAsideBy(claim) != ""
}
