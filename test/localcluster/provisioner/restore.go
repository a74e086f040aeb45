package main

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"
)

// restore mounts the volumes that Kubernetes knows, which is needed after a
// restart of the machine, and detaches all others below the same directory. It
// deletes nothing: an image that was never reported is used by the next try to
// provision it, and one that was retained is its owner's.
func restore(ctx context.Context, store *disks, lister listers.PersistentVolumeLister) error {
	pvs, err := lister.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("list volumes: %w", err)
	}
	known := volumeNames(pvs)
	attachKnown(ctx, store, known)
	return detachUnknown(ctx, store, known)
}

// volumeNames lists the volumes of this provisioner, in order.
func volumeNames(pvs []*corev1.PersistentVolume) []string {
	var names []string
	for _, pv := range pvs {
		if isOurs(pv) {
			names = append(names, pv.Name)
		}
	}
	slices.Sort(names)
	return names
}

func isOurs(pv *corev1.PersistentVolume) bool {
	return pv.Annotations["pv.kubernetes.io/provisioned-by"] == provisionerName
}

func attachKnown(ctx context.Context, store *disks, known []string) {
	for _, name := range known {
		if err := store.attach(ctx, name); err != nil {
			// The others are still of use. This one's pods will say what they miss.
			klog.FromContext(ctx).Error(err, "Cannot restore volume", "volume", name)
		}
	}
}

func detachUnknown(ctx context.Context, store *disks, known []string) error {
	present, err := store.present()
	if err != nil {
		return err
	}
	for _, name := range present {
		if slices.Contains(known, name) {
			continue
		}
		if err := store.detach(ctx, name); err != nil {
			return fmt.Errorf("detach unknown volume %s: %w", name, err)
		}
		klog.FromContext(ctx).Info("Detached unknown volume", "volume", name)
	}
	return nil
}
