package controller

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/pgop/postgres-operator/pkg/cluster"
	"github.com/pgop/postgres-operator/pkg/election"
	"github.com/pgop/postgres-operator/pkg/generated/clientset/versioned"
	postgresinformers "github.com/pgop/postgres-operator/pkg/generated/informers/externalversions"
	postgreslisters "github.com/pgop/postgres-operator/pkg/generated/listers/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/specs"
)

// resync is a safety net only: whatever matters wakes by an event.
const resync = 10 * time.Minute

// sources are the caches of clusters and of everything that belongs to them.
type sources struct {
	kube     informers.SharedInformerFactory
	postgres postgresinformers.SharedInformerFactory

	clusters postgreslisters.PostgresClusterLister
	listers  cluster.Listers
}

// newSources sets up the informers of one namespace, or of all if it is empty.
// Every event enqueues the name of a cluster and nothing else. Of children,
// only what the operator made is cached, and without what nobody here reads.
func newSources(kube kubernetes.Interface, postgres versioned.Interface, namespace string, enqueue func(cache.ObjectName)) (*sources, error) {
	s := &sources{
		kube: informers.NewSharedInformerFactoryWithOptions(kube, resync,
			informers.WithNamespace(namespace),
			informers.WithTransform(stripManagedFields),
			informers.WithTweakListOptions(func(o *metav1.ListOptions) {
				o.LabelSelector = labels.Set{specs.ManagedByLabel: specs.ManagedBy}.String()
			})),
		postgres: postgresinformers.NewSharedInformerFactoryWithOptions(postgres, resync,
			postgresinformers.WithNamespace(namespace),
			postgresinformers.WithTransform(stripManagedFields)),
	}
	clusters := s.postgres.Pgop().V1().PostgresClusters()
	s.clusters = clusters.Lister()
	s.listers = cluster.Listers{
		Pods:            s.kube.Core().V1().Pods().Lister(),
		Volumes:         s.kube.Core().V1().PersistentVolumeClaims().Lister(),
		Services:        s.kube.Core().V1().Services().Lister(),
		Secrets:         s.kube.Core().V1().Secrets().Lister(),
		ConfigMaps:      s.kube.Core().V1().ConfigMaps().Lister(),
		ServiceAccounts: s.kube.Core().V1().ServiceAccounts().Lister(),
		Roles:           s.kube.Rbac().V1().Roles().Lister(),
		RoleBindings:    s.kube.Rbac().V1().RoleBindings().Lister(),
		Leases:          s.kube.Coordination().V1().Leases().Lister(),
		EndpointSlices:  s.kube.Discovery().V1().EndpointSlices().Lister(),
	}
	if _, err := clusters.Informer().AddEventHandler(handlerOf(enqueue, clusterKey, anyChange)); err != nil {
		return nil, err
	}
	for _, child := range []struct {
		informer cache.SharedIndexInformer
		matters  func(before, after any) bool
	}{
		{s.kube.Core().V1().Pods().Informer(), anyChange},
		{s.kube.Core().V1().PersistentVolumeClaims().Informer(), anyChange},
		{s.kube.Core().V1().Services().Informer(), anyChange},
		{s.kube.Core().V1().Secrets().Informer(), anyChange},
		{s.kube.Core().V1().ConfigMaps().Informer(), anyChange},
		{s.kube.Core().V1().ServiceAccounts().Informer(), anyChange},
		{s.kube.Rbac().V1().Roles().Informer(), anyChange},
		{s.kube.Rbac().V1().RoleBindings().Informer(), anyChange},
		{s.kube.Coordination().V1().Leases().Informer(), reignChanged},
		{s.kube.Discovery().V1().EndpointSlices().Informer(), anyChange},
	} {
		if _, err := child.informer.AddEventHandler(handlerOf(enqueue, childKey, child.matters)); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// handlerOf enqueues the cluster of each object whose change matters.
func handlerOf(enqueue func(cache.ObjectName), keyOf func(metav1.Object) (cache.ObjectName, bool), matters func(before, after any) bool) cache.ResourceEventHandler {
	notify := func(object any) {
		if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
			object = gone.Obj
		}
		if o, ok := object.(metav1.Object); ok {
			if key, ok := keyOf(o); ok {
				enqueue(key)
			}
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    notify,
		DeleteFunc: notify,
		UpdateFunc: func(before, after any) {
			if matters(before, after) {
				notify(after)
			}
		},
	}
}

func clusterKey(o metav1.Object) (cache.ObjectName, bool) {
	return cache.MetaObjectToName(o), true
}

// childKey goes by the label, which retained volumes have, too.
func childKey(o metav1.Object) (cache.ObjectName, bool) {
	name := o.GetLabels()[specs.ClusterLabel]
	return cache.NewObjectName(o.GetNamespace(), name), name != ""
}

func anyChange(before, after any) bool {
	b, okB := before.(metav1.Object)
	a, okA := after.(metav1.Object)
	return !okA || !okB || a.GetResourceVersion() != b.GetResourceVersion()
}

// reignChanged leaves out renewals, of which there is one every two seconds.
func reignChanged(before, after any) bool {
	b, okB := before.(*coordinationv1.Lease)
	a, okA := after.(*coordinationv1.Lease)
	if !okA || !okB {
		return true
	}
	return holderOf(a) != holderOf(b) ||
		a.Annotations[election.RecordAnnotation] != b.Annotations[election.RecordAnnotation] ||
		a.DeletionTimestamp != b.DeletionTimestamp
}

func holderOf(l *coordinationv1.Lease) string {
	if l.Spec.HolderIdentity == nil {
		return ""
	}
	return *l.Spec.HolderIdentity
}

// stripManagedFields drops what makes up half of an object and is read by
// nobody here.
func stripManagedFields(object any) (any, error) {
	if o, ok := object.(metav1.Object); ok {
		o.SetManagedFields(nil)
	}
	return object, nil
}
