//go:build e2e

package framework

import (
	"context"
	"fmt"
	"io"
	"log"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	pgopinformers "github.com/pgop/postgres-operator/pkg/generated/informers/externalversions"
)

var quiet = log.New(io.Discard, "", 0)

// kind is a kind of objects that clusters are made of.
type kind struct {
	resource string
	informer cache.SharedIndexInformer
	client   rest.Interface
}

func (k *Kubelet) listKinds() {
	core, kube := k.factory.Core().V1(), k.f.Kube
	k.clusters = pgopinformers.NewSharedInformerFactoryWithOptions(k.f.Postgres, 0, pgopinformers.WithNamespace(k.f.Namespace)).
		Pgop().V1().PostgresClusters().Informer()
	k.kinds = []kind{
		{"postgresclusters", k.clusters, k.f.Postgres.PgopV1().RESTClient()},
		{"pods", core.Pods().Informer(), kube.CoreV1().RESTClient()},
		{"persistentvolumeclaims", core.PersistentVolumeClaims().Informer(), kube.CoreV1().RESTClient()},
		{"services", core.Services().Informer(), kube.CoreV1().RESTClient()},
		{"secrets", core.Secrets().Informer(), kube.CoreV1().RESTClient()},
		{"configmaps", core.ConfigMaps().Informer(), kube.CoreV1().RESTClient()},
		{"serviceaccounts", core.ServiceAccounts().Informer(), kube.CoreV1().RESTClient()},
		{"roles", k.factory.Rbac().V1().Roles().Informer(), kube.RbacV1().RESTClient()},
		{"rolebindings", k.factory.Rbac().V1().RoleBindings().Informer(), kube.RbacV1().RESTClient()},
		{"leases", k.factory.Coordination().V1().Leases().Informer(), kube.CoordinationV1().RESTClient()},
		{"endpointslices", k.factory.Discovery().V1().EndpointSlices().Informer(), kube.DiscoveryV1().RESTClient()},
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
	err := kind.client.Delete().Namespace(object.GetNamespace()).Resource(kind.resource).Name(object.GetName()).
		Body(&metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("collect %s %s: %w", kind.resource, object.GetName(), err)
	}
	return nil
}
