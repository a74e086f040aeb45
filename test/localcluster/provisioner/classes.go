package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	applystorage "k8s.io/client-go/applyconfigurations/storage/v1"
	clientstorage "k8s.io/client-go/kubernetes/typed/storage/v1"
)

const (
	// growableClass is the cluster's default.
	growableClass = "local"
	// fixedClass is for tests of what happens where volumes can't grow.
	fixedClass = "local-fixed"
)

// defaultClassAnnotation marks the class of claims that name none.
const defaultClassAnnotation = "storageclass.kubernetes.io/is-default-class"

func classes() []*applystorage.StorageClassApplyConfiguration {
	return []*applystorage.StorageClassApplyConfiguration{
		class(growableClass).
			WithAllowVolumeExpansion(true).
			WithAnnotations(map[string]string{defaultClassAnnotation: "true"}),
		class(fixedClass).
			WithAllowVolumeExpansion(false),
	}
}

func class(name string) *applystorage.StorageClassApplyConfiguration {
	return applystorage.StorageClass(name).
		WithProvisioner(provisionerName).
		WithReclaimPolicy(corev1.PersistentVolumeReclaimDelete).
		WithVolumeBindingMode(storagev1.VolumeBindingWaitForFirstConsumer)
}

// applyClasses creates the StorageClasses, or brings them to what they should be.
func applyClasses(ctx context.Context, client clientstorage.StorageClassesGetter) error {
	for _, class := range classes() {
		_, err := client.StorageClasses().Apply(ctx, class, metav1.ApplyOptions{FieldManager: "local-provisioner", Force: true})
		if err != nil {
			return fmt.Errorf("apply storage class %s: %w", *class.Name, err)
		}
	}
	return nil
}
