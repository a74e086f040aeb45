//go:build e2e

package framework

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// DeleteNamespace begins to delete the test's namespace. Nothing else goes
// before EmptyNamespace.
func (f *Framework) DeleteNamespace() {
	f.T.Helper()
	if err := f.Kube.CoreV1().Namespaces().Delete(f.ctx(), f.Namespace, metav1.DeleteOptions{}); err != nil {
		f.T.Fatal(err)
	}
}

// EmptyNamespace does what the namespace controller would: all that is in a
// namespace goes, then the namespace.
func (f *Framework) EmptyNamespace() {
	f.T.Helper()
	if err := f.emptyNamespace(f.ctx()); err != nil {
		f.T.Fatal(err)
	}
}

func (f *Framework) emptyNamespace(ctx context.Context) error {
	namespaces := f.Kube.CoreV1().Namespaces()
	if err := namespaces.Delete(ctx, f.Namespace, metav1.DeleteOptions{}); err != nil && !apierrors.IsConflict(err) {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}
	var errs []error
	for _, kind := range f.Kubelet.kinds {
		errs = append(errs, f.emptyKind(ctx, kind))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	namespace, err := namespaces.Get(ctx, f.Namespace, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	namespace.Spec.Finalizers = []corev1.FinalizerName{}
	_, err = namespaces.Finalize(ctx, namespace, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func (f *Framework) emptyKind(ctx context.Context, kind kind) error {
	client := f.Dynamic.Resource(kind.GroupVersionResource).Namespace(f.Namespace)
	list, err := client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list %s: %w", kind.Resource, err)
	}
	for _, o := range list.Items {
		if len(o.GetFinalizers()) > 0 {
			_, err := client.Patch(ctx, o.GetName(), types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
			if err != nil && !apierrors.IsNotFound(err) {
				return fmt.Errorf("release %s %s: %w", kind.Resource, o.GetName(), err)
			}
		}
		err := client.Delete(ctx, o.GetName(), metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete %s %s: %w", kind.Resource, o.GetName(), err)
		}
	}
	return nil
}
