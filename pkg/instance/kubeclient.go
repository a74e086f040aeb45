package instance

import (
	"context"
	"fmt"
	"sync"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// kubeClient is Kubernetes over the API server: a client for each of the three
// API groups, with a scheme of just these three objects, and no cache but the
// objects themselves. An object that another cluster of the name owns is as if
// it were not there: when a cluster is deleted and created again at once, the
// agents of the earlier one still run, and must not reign over the new one.
type kubeClient struct {
	namespace, cluster      string
	uid                     types.UID
	core, leases, discovery *rest.RESTClient
	parameters              runtime.ParameterCodec
}

var _ Kubernetes = (*kubeClient)(nil)

// NewKubernetes returns the Kubernetes of the agents of one cluster, which uid
// tells from others of its name.
func NewKubernetes(config *rest.Config, namespace, cluster string, uid types.UID) (Kubernetes, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, coordinationv1.AddToScheme, discoveryv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("make the Kubernetes client: %w", err)
		}
	}
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("make the Kubernetes client: %w", err)
	}
	client := &kubeClient{namespace: namespace, cluster: cluster, uid: uid, parameters: runtime.NewParameterCodec(scheme)}
	for _, group := range []struct {
		version schema.GroupVersion
		path    string
		into    **rest.RESTClient
	}{
		{corev1.SchemeGroupVersion, "/api", &client.core},
		{coordinationv1.SchemeGroupVersion, "/apis", &client.leases},
		{discoveryv1.SchemeGroupVersion, "/apis", &client.discovery},
	} {
		config := rest.CopyConfig(config)
		config.GroupVersion, config.APIPath = &group.version, group.path
		config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
		if *group.into, err = rest.RESTClientForConfigAndClient(config, httpClient); err != nil {
			return nil, fmt.Errorf("make the Kubernetes client: %w", err)
		}
	}
	return client, nil
}

// Names of the three objects, as pkg/specs gives them.
func (k *kubeClient) configMap() string { return k.cluster + "-config" }
func (k *kubeClient) lease() string     { return k.cluster }
func (k *kubeClient) slice() string     { return k.cluster + "-rw" }

func (k *kubeClient) Watch(ctx context.Context, w Watcher) {
	var group sync.WaitGroup
	defer group.Wait()
	group.Go(func() {
		followObject(ctx, k.core, "configmaps", k.namespace, k.configMap(), &corev1.ConfigMap{}, ownedBy(k.uid, w.SawConfigMap))
	})
	group.Go(func() {
		followObject(ctx, k.leases, "leases", k.namespace, k.lease(), &coordinationv1.Lease{}, ownedBy(k.uid, w.SawLease))
	})
	group.Go(func() {
		followObject(ctx, k.discovery, "endpointslices", k.namespace, k.slice(), &discoveryv1.EndpointSlice{}, ownedBy(k.uid, w.SawSlice))
	})
}

func (k *kubeClient) WatchSecret(ctx context.Context, name string, own bool, saw func(*corev1.Secret)) {
	if own {
		saw = ownedBy(k.uid, saw)
	}
	followObject(ctx, k.core, "secrets", k.namespace, name, &corev1.Secret{}, saw)
}

func (k *kubeClient) Lease(ctx context.Context) (*coordinationv1.Lease, error) {
	lease := &coordinationv1.Lease{}
	if err := k.leases.Get().Namespace(k.namespace).Resource("leases").Name(k.lease()).Do(ctx).Into(lease); err != nil {
		return nil, err
	}
	if !isOwnedBy(k.uid, lease) {
		return nil, apierrors.NewNotFound(coordinationv1.Resource("leases"), k.lease())
	}
	return lease, nil
}

func (k *kubeClient) UpdateLease(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	updated := &coordinationv1.Lease{}
	return updated, k.leases.Put().Namespace(k.namespace).Resource("leases").Name(k.lease()).
		VersionedParams(&metav1.UpdateOptions{}, k.parameters).Body(lease).Do(ctx).Into(updated)
}

func (k *kubeClient) UpdateSlice(ctx context.Context, slice *discoveryv1.EndpointSlice) (*discoveryv1.EndpointSlice, error) {
	updated := &discoveryv1.EndpointSlice{}
	return updated, k.discovery.Put().Namespace(k.namespace).Resource("endpointslices").Name(k.slice()).
		VersionedParams(&metav1.UpdateOptions{}, k.parameters).Body(slice).Do(ctx).Into(updated)
}

func (k *kubeClient) Secret(ctx context.Context, name string) (map[string][]byte, error) {
	secret, err := k.readSecret(ctx, name)
	return secret.Data, err
}

func (k *kubeClient) OwnSecret(ctx context.Context, name string) (map[string][]byte, error) {
	secret, err := k.readSecret(ctx, name)
	if err == nil && !isOwnedBy(k.uid, secret) {
		return nil, apierrors.NewNotFound(corev1.Resource("secrets"), name)
	}
	return secret.Data, err
}

func (k *kubeClient) readSecret(ctx context.Context, name string) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	return secret, k.core.Get().Namespace(k.namespace).Resource("secrets").Name(name).Do(ctx).Into(secret)
}

// ownedBy hands on to saw what belongs to the cluster, and nil for anything else.
func ownedBy[T interface {
	comparable
	metav1.Object
}](uid types.UID, saw func(T)) func(T) {
	return func(object T) {
		var none T
		if object != none && !isOwnedBy(uid, object) {
			object = none
		}
		saw(object)
	}
}

func isOwnedBy(uid types.UID, object metav1.Object) bool {
	owner := metav1.GetControllerOf(object)
	return owner != nil && owner.UID == uid
}

// followObject lists and watches one object by its name, again and again after
// errors, until ctx ends.
func followObject[T runtime.Object](ctx context.Context, client cache.Getter, resource, namespace, name string, kind T, saw func(T)) {
	source := cache.NewListWatchFromClient(client, resource, namespace, fields.OneTermEqualSelector(metav1.ObjectNameField, name))
	reflector := cache.NewReflectorWithOptions(source, kind, single[T]{saw: saw}, cache.ReflectorOptions{Name: resource})

	reflector.RunWithContext(ctx)
}

// single is a cache.ReflectorStore of one object, which it hands on.
type single[T runtime.Object] struct{ saw func(T) }

func (s single[T]) Add(object any) error    { s.saw(object.(T)); return nil }
func (s single[T]) Update(object any) error { s.saw(object.(T)); return nil }
func (s single[T]) Delete(any) error        { var none T; s.saw(none); return nil }
func (s single[T]) Resync() error           { return nil }

func (s single[T]) Replace(objects []any, _ string) error {
	var newest T
	if len(objects) > 0 {
		newest = objects[0].(T)
	}
	s.saw(newest)
	return nil
}
