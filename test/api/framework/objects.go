//go:build e2e

package framework

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

// Objects are the objects of the test's namespace that clusters are made of,
// clusters themselves left out, by resource and name: services/shop-rw.
func (f *Framework) Objects(ctx context.Context) (map[string]*unstructured.Unstructured, error) {
	all := map[string]*unstructured.Unstructured{}
	for _, kind := range f.Kubelet.kinds[1:] {
		list, err := f.Dynamic.Resource(kind.GroupVersionResource).Namespace(f.Namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", kind.Resource, err)
		}
		for _, o := range list.Items {
			all[kind.Resource+"/"+o.GetName()] = &o
		}
	}
	return all, nil
}

// MustObjects is Objects, or the test's end.
func (f *Framework) MustObjects() map[string]*unstructured.Unstructured {
	f.T.Helper()
	all, err := f.Objects(f.ctx())
	if err != nil {
		f.T.Fatal(err)
	}
	return all
}

// Versions are the resource versions of Objects.
func Versions(objects map[string]*unstructured.Unstructured) map[string]string {
	versions := map[string]string{}
	for key, o := range objects {
		versions[key] = o.GetResourceVersion()
	}
	return versions
}

// Keys are the sorted keys of a map.
func Keys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// AwaitOnly waits until nothing but the named objects is there.
func (f *Framework) AwaitOnly(keys ...string) {
	f.T.Helper()
	f.Await(fmt.Sprintf("of the namespace's objects only %q are left", keys), f.only(keys))
}

func (f *Framework) only(keys []string) func(context.Context) error {
	slices.Sort(keys)
	return func(ctx context.Context) error {
		objects, err := f.Objects(ctx)
		if err != nil {
			return err
		}
		return Want("what there is", strings.Join(Keys(objects), " "), strings.Join(keys, " "))
	}
}

// client is the client for an object of Objects, and its name.
func (f *Framework) client(key string) (dynamic.ResourceInterface, string) {
	f.T.Helper()
	resource, name, _ := strings.Cut(key, "/")
	for _, kind := range f.Kubelet.kinds {
		if kind.Resource == resource {
			return f.Dynamic.Resource(kind.GroupVersionResource).Namespace(f.Namespace), name
		}
	}
	f.T.Fatalf("there is no kind for %s", key)
	return nil, ""
}

// Object is one of Objects, or an error if it is not there.
func (f *Framework) Object(ctx context.Context, key string) (*unstructured.Unstructured, error) {
	client, name := f.client(key)
	return client.Get(ctx, name, metav1.GetOptions{})
}

// UID is an object's.
func (f *Framework) UID(key string) types.UID {
	f.T.Helper()
	o, err := f.Object(f.ctx(), key)
	if err != nil {
		f.T.Fatal(err)
	}
	return o.GetUID()
}

// Patch changes an object by a JSON merge patch.
func (f *Framework) Patch(key, patch string) {
	f.T.Helper()
	client, name := f.client(key)
	if _, err := client.Patch(f.ctx(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		f.T.Fatalf("patch %s: %v", key, err)
	}
}

// Remove deletes an object, as kubectl does.
func (f *Framework) Remove(key string) {
	f.T.Helper()
	client, name := f.client(key)
	if err := client.Delete(f.ctx(), name, metav1.DeleteOptions{}); err != nil {
		f.T.Fatalf("delete %s: %v", key, err)
	}
}

// Put creates an object of the named kind in the test's namespace.
func (f *Framework) Put(resource string, o *unstructured.Unstructured) *unstructured.Unstructured {
	f.T.Helper()
	client, _ := f.client(resource + "/" + o.GetName())
	created, err := client.Create(f.ctx(), o, metav1.CreateOptions{})
	if err != nil {
		f.T.Fatalf("create %s %s: %v", resource, o.GetName(), err)
	}
	return created
}

// AwaitReplaced waits until an object is there with another UID than old.
func (f *Framework) AwaitReplaced(key string, old types.UID) {
	f.T.Helper()
	f.Await(key+" is there again", func(ctx context.Context) error {
		o, err := f.Object(ctx, key)
		switch {
		case apierrors.IsNotFound(err):
			return errors.New("it is not there")
		case err != nil:
			return err
		case o.GetUID() == old:
			return errors.New("it is the old one")
		}
		return nil
	})
}

// Only looks whether nothing but the named objects is there.
func (f *Framework) Only(keys ...string) func(context.Context) error { return f.only(keys) }
