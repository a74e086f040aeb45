//go:build e2e

package framework

import (
	"context"
	"fmt"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// namespacedKinds are all kinds that can be listed in a namespace.
var namespacedKinds = sync.OnceValues(func() (map[schema.GroupVersionResource]string, error) {
	clients, err := connect()
	if err != nil {
		return nil, err
	}
	lists, err := clients.Discovery.ServerPreferredNamespacedResources()
	if err != nil {
		return nil, fmt.Errorf("ask for the kinds of objects: %w", err)
	}
	kinds := map[schema.GroupVersionResource]string{}
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, r := range list.APIResources {
			if slices.Contains(r.Verbs, "list") {
				kinds[version.WithResource(r.Name)] = r.Kind
			}
		}
	}
	return kinds, nil
})

// Objects are all objects of the namespace but events, as Kind/name. Endpoints,
// which mirror slices, are left out, too.
func (f *Framework) Objects(ctx context.Context) (map[string]metav1.PartialObjectMetadata, error) {
	return f.objects(ctx, "Event", "Endpoints")
}

// AllObjects are all objects of the namespace, events too.
func (f *Framework) AllObjects(ctx context.Context) (map[string]metav1.PartialObjectMetadata, error) {
	return f.objects(ctx)
}

func (f *Framework) objects(ctx context.Context, but ...string) (map[string]metav1.PartialObjectMetadata, error) {
	kinds, err := namespacedKinds()
	if err != nil {
		return nil, err
	}
	objects := map[string]metav1.PartialObjectMetadata{}
	for resource, kind := range kinds {
		if slices.Contains(but, kind) {
			continue
		}
		list, err := f.Metadata.Resource(resource).Namespace(f.Namespace).List(ctx, metav1.ListOptions{})
		if apierrors.IsNotFound(err) {
			continue // a kind that has gone since
		}
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", resource, err)
		}
		for _, object := range list.Items {
			objects[kind+"/"+object.Name] = object
		}
	}
	return objects, nil
}
