//go:build e2e

package framework

import (
	"context"
	"fmt"
	"sync/atomic"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	pgopinformers "github.com/pgop/postgres-operator/pkg/generated/informers/externalversions"
)

// kind is a kind of objects that clusters are made of.
type kind struct {
	schema.GroupVersionResource
	informer cache.SharedIndexInformer
}

// listKinds lists the clusters first, then whatever operators make of them. A
// kind that operators begin to make belongs here.
func (k *Kubelet) listKinds() {
	core := k.factory.Core().V1()
	pgop := pgopinformers.NewSharedInformerFactoryWithOptions(k.f.Postgres, 0, pgopinformers.WithNamespace(k.f.Namespace)).Pgop().V1()
	k.clusters = pgop.PostgresClusters().Informer()
	k.kinds = []kind{
		{v1.SchemeGroupVersion.WithResource("postgresclusters"), k.clusters},
		{v1.SchemeGroupVersion.WithResource("postgresbackups"), pgop.PostgresBackups().Informer()},
		{v1.SchemeGroupVersion.WithResource("postgresrestores"), pgop.PostgresRestores().Informer()},
		{corev1.SchemeGroupVersion.WithResource("pods"), core.Pods().Informer()},
		{corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims"), core.PersistentVolumeClaims().Informer()},
		{corev1.SchemeGroupVersion.WithResource("services"), core.Services().Informer()},
		{corev1.SchemeGroupVersion.WithResource("secrets"), core.Secrets().Informer()},
		{corev1.SchemeGroupVersion.WithResource("configmaps"), core.ConfigMaps().Informer()},
		{corev1.SchemeGroupVersion.WithResource("serviceaccounts"), core.ServiceAccounts().Informer()},
		{rbacv1.SchemeGroupVersion.WithResource("roles"), k.factory.Rbac().V1().Roles().Informer()},
		{rbacv1.SchemeGroupVersion.WithResource("rolebindings"), k.factory.Rbac().V1().RoleBindings().Informer()},
		{coordinationv1.SchemeGroupVersion.WithResource("leases"), k.factory.Coordination().V1().Leases().Informer()},
		{discoveryv1.SchemeGroupVersion.WithResource("endpointslices"), k.factory.Discovery().V1().EndpointSlices().Informer()},
		{policyv1.SchemeGroupVersion.WithResource("poddisruptionbudgets"), k.factory.Policy().V1().PodDisruptionBudgets().Informer()},
	}
}

// collector is the garbage collector's state.
type collector struct{ away atomic.Bool }

// CollectGarbage switches the garbage collector on, as it is at first, or off.
func (k *Kubelet) CollectGarbage(on bool) {
	k.collector.away.Store(!on)
	k.poke()
}

// collect deletes what is owned by a PostgresCluster that is no more, by UID.
// Like the real collector it asks the API server before it believes its cache.
func (k *Kubelet) collect(ctx context.Context) {
	if k.collector.away.Load() {
		return
	}
	gone := map[types.UID]bool{}
	for _, kind := range k.kinds {
		for _, each := range kind.informer.GetStore().List() {
			object := each.(metav1.Object)
			owner := metav1.GetControllerOf(object)
			if owner == nil || owner.Kind != v1.ClusterKind || object.GetDeletionTimestamp() != nil {
				continue
			}
			if _, known := gone[owner.UID]; !known {
				gone[owner.UID] = k.isGone(ctx, owner)
			}
			if gone[owner.UID] {
				k.report(ctx, k.remove(ctx, kind, object))
			}
		}
	}
}

func (k *Kubelet) isGone(ctx context.Context, owner *metav1.OwnerReference) bool {
	if cached, found, _ := k.clusters.GetStore().GetByKey(k.f.Namespace + "/" + owner.Name); found && cached.(metav1.Object).GetUID() == owner.UID {
		return false
	}
	live, err := k.f.Postgres.PgopV1().PostgresClusters(k.f.Namespace).Get(ctx, owner.Name, metav1.GetOptions{})
	return apierrors.IsNotFound(err) || err == nil && live.UID != owner.UID
}

func (k *Kubelet) remove(ctx context.Context, kind kind, object metav1.Object) error {
	uid := object.GetUID()
	err := k.f.Dynamic.Resource(kind.GroupVersionResource).Namespace(object.GetNamespace()).
		Delete(ctx, object.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	if err != nil {
		return fmt.Errorf("collect %s %s: %w", kind.Resource, object.GetName(), err)
	}
	return nil
}
