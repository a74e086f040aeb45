package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

// volumes makes and removes volumes for the library's controller.
type volumes struct{ store *disks }

var _ controller.Provisioner = (*volumes)(nil)

// Provision returns only when the volume is mounted and ready for use. Repeating
// it after any failure, or in another process, ends with the same volume.
func (v *volumes) Provision(ctx context.Context, options controller.ProvisionOptions) (*corev1.PersistentVolume, controller.ProvisioningState, error) {
	start := time.Now()
	if err := acceptClaim(options.PVC); err != nil {
		return nil, controller.ProvisioningFinished, fmt.Errorf("provision volume %s: %w", options.PVName, err)
	}
	size, err := v.store.create(ctx, options.PVName, volumeSize(options.PVC.Spec.Resources.Requests))
	if err != nil {
		return nil, controller.ProvisioningFinished, fmt.Errorf("provision volume %s: %w", options.PVName, err)
	}
	klog.FromContext(ctx).Info("Made volume", "volume", options.PVName, "claim", klog.KObj(options.PVC),
		"node", options.SelectedNodeName, "size", size, "took", time.Since(start).Round(time.Millisecond))
	return persistentVolume(options, v.store.mountPoint(options.PVName), size), controller.ProvisioningFinished, nil
}

// Delete does not wait for whoever still has the volume mounted: the space is
// freed when the last one lets go.
func (v *volumes) Delete(ctx context.Context, pv *corev1.PersistentVolume) error {
	if err := v.store.remove(ctx, pv.Name); err != nil {
		return fmt.Errorf("delete volume %s: %w", pv.Name, err)
	}
	klog.FromContext(ctx).Info("Deleted volume", "volume", pv.Name)
	return nil
}

// acceptClaim refuses what a disk of one node can't be.
func acceptClaim(claim *corev1.PersistentVolumeClaim) error {
	if claim.Spec.DataSource != nil || claim.Spec.DataSourceRef != nil {
		return fmt.Errorf("volumes from a data source are not supported")
	}
	for _, mode := range claim.Spec.AccessModes {
		if mode != corev1.ReadWriteOnce && mode != corev1.ReadWriteOncePod {
			return fmt.Errorf("access mode %s is not supported by a disk of one node", mode)
		}
	}
	return nil
}

const (
	mebibyte = 1 << 20
	// smallestVolume is mkfs.xfs's limit.
	smallestVolume = 300 * mebibyte
)

// volumeSize returns the number of bytes of a volume that satisfies a request,
// in whole mebibytes.
func volumeSize(request corev1.ResourceList) int64 {
	bytes := request.Storage().Value()
	whole := (bytes + mebibyte - 1) / mebibyte * mebibyte
	return max(whole, smallestVolume)
}

// persistentVolume describes the volume that is mounted at path to Kubernetes.
func persistentVolume(options controller.ProvisionOptions, path string, size int64) *corev1.PersistentVolume {
	filesystem := corev1.PersistentVolumeFilesystem
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: options.PVName},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: quantity(size)},
			AccessModes:                   options.PVC.Spec.AccessModes,
			PersistentVolumeReclaimPolicy: *options.StorageClass.ReclaimPolicy,
			VolumeMode:                    &filesystem,
			PersistentVolumeSource:        corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: path}},
			NodeAffinity:                  onlyOn(options.SelectedNodeName),
		},
	}
}

// onlyOn relies on nodes being registered under their hostname label, as the
// local cluster's are.
func onlyOn(node string) *corev1.VolumeNodeAffinity {
	return &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{
				Key:      corev1.LabelHostname,
				Operator: corev1.NodeSelectorOpIn,
				Values:   []string{node},
			}},
		}},
	}}
}

func quantity(size int64) resource.Quantity { return *resource.NewQuantity(size, resource.BinarySI) }
