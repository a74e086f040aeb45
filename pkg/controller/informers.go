package controller

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	coordinationlisters "k8s.io/client-go/listers/coordination/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"
	policylisters "k8s.io/client-go/listers/policy/v1"
	rbaclisters "k8s.io/client-go/listers/rbac/v1"
	"k8s.io/client-go/tools/cache"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/cluster"
	"github.com/pgop/postgres-operator/pkg/election"
	"github.com/pgop/postgres-operator/pkg/generated/clientset/versioned"
	postgreslisters "github.com/pgop/postgres-operator/pkg/generated/listers/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/specs"
)

// resync is a safety net only: whatever matters wakes by an event.
const resync = 10 * time.Minute

// sources are the caches of clusters and of everything that belongs to them.
type sources struct {
	informers []cache.SharedIndexInformer
	clusters  postgreslisters.PostgresClusterLister
	listers   cluster.Listers
}

// newSources sets up the informers of one namespace, or of all if it is empty.
// Every event enqueues the name of a cluster and nothing else. Of children,
// only what the operator made is cached, and without what nobody here reads.
func newSources(kube cluster.Kube, postgres versioned.Interface, namespace string, withNodes bool, enqueue func(cache.ObjectName)) (*sources, error) {
	var (
		clusters  = newInformer[*v1.PostgresCluster, *v1.PostgresClusterList](postgres.PgopV1().PostgresClusters(namespace), "")
		backups   = newInformer[*v1.PostgresBackup, *v1.PostgresBackupList](postgres.PgopV1().PostgresBackups(namespace), "")
		restores  = newInformer[*v1.PostgresRestore, *v1.PostgresRestoreList](postgres.PgopV1().PostgresRestores(namespace), "")
		ours      = labels.Set{specs.ManagedByLabel: specs.ManagedBy}.String()
		pods      = newInformer[*corev1.Pod, *corev1.PodList](kube.Core.Pods(namespace), ours)
		volumes   = newInformer[*corev1.PersistentVolumeClaim, *corev1.PersistentVolumeClaimList](kube.Core.PersistentVolumeClaims(namespace), ours)
		services  = newInformer[*corev1.Service, *corev1.ServiceList](kube.Core.Services(namespace), ours)
		secrets   = newInformer[*corev1.Secret, *corev1.SecretList](kube.Core.Secrets(namespace), ours)
		configs   = newInformer[*corev1.ConfigMap, *corev1.ConfigMapList](kube.Core.ConfigMaps(namespace), ours)
		accounts  = newInformer[*corev1.ServiceAccount, *corev1.ServiceAccountList](kube.Core.ServiceAccounts(namespace), ours)
		roles     = newInformer[*rbacv1.Role, *rbacv1.RoleList](kube.RBAC.Roles(namespace), ours)
		bindings  = newInformer[*rbacv1.RoleBinding, *rbacv1.RoleBindingList](kube.RBAC.RoleBindings(namespace), ours)
		leases    = newInformer[*coordinationv1.Lease, *coordinationv1.LeaseList](kube.Coordination.Leases(namespace), ours)
		budgets   = newInformer[*policyv1.PodDisruptionBudget, *policyv1.PodDisruptionBudgetList](kube.Policy.PodDisruptionBudgets(namespace), ours)
		endpoints = newInformer[*discoveryv1.EndpointSlice, *discoveryv1.EndpointSliceList](kube.Discovery.EndpointSlices(namespace), ours)
	)
	s := &sources{
		clusters: postgreslisters.NewPostgresClusterLister(clusters.GetIndexer()),
		listers: cluster.Listers{
			Pods:            corelisters.NewPodLister(pods.GetIndexer()),
			Volumes:         corelisters.NewPersistentVolumeClaimLister(volumes.GetIndexer()),
			Services:        corelisters.NewServiceLister(services.GetIndexer()),
			Secrets:         corelisters.NewSecretLister(secrets.GetIndexer()),
			ConfigMaps:      corelisters.NewConfigMapLister(configs.GetIndexer()),
			ServiceAccounts: corelisters.NewServiceAccountLister(accounts.GetIndexer()),
			Roles:           rbaclisters.NewRoleLister(roles.GetIndexer()),
			RoleBindings:    rbaclisters.NewRoleBindingLister(bindings.GetIndexer()),
			Leases:          coordinationlisters.NewLeaseLister(leases.GetIndexer()),
			EndpointSlices:  discoverylisters.NewEndpointSliceLister(endpoints.GetIndexer()),
			Budgets:         policylisters.NewPodDisruptionBudgetLister(budgets.GetIndexer()),
			Clusters:        postgreslisters.NewPostgresClusterLister(clusters.GetIndexer()),
			Backups:         cluster.NewBackups(backups.GetIndexer()),
			Restores:        cluster.NewRestores(restores.GetIndexer()),
			Reigns:          cluster.NewReigns(),
		},
	}
	if err := s.add(clusters, handlerOf(enqueue, clusterKey, always)); err != nil {
		return nil, err
	}
	if err := backups.AddIndexers(cluster.BackupIndexers()); err != nil {
		return nil, err
	}
	if err := s.add(backups, handlerOf(enqueue, backupKey, anyChange)); err != nil {
		return nil, err
	}
	if err := restores.AddIndexers(cluster.RestoreIndexers()); err != nil {
		return nil, err
	}
	if err := s.add(restores, handlerOf(enqueue, restoreKey, anyChange)); err != nil {
		return nil, err
	}
	if err := s.add(leases, handlerOf(enqueue, childKey, reignChanged)); err != nil {
		return nil, err
	}
	if err := leases.SetTransform(rememberReigns(s.listers.Reigns)); err != nil {
		return nil, err
	}
	if withNodes {
		if err := s.addNodes(kube, enqueue); err != nil {
			return nil, err
		}
	}
	for _, informer := range []cache.SharedIndexInformer{pods, volumes, services, secrets, configs, accounts, roles, bindings, endpoints, budgets} {
		if err := s.add(informer, handlerOf(enqueue, childKey, anyChange)); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// addNodes watches the nodes: a cluster with an instance on one wakes when it
// comes, goes, or is cordoned. Of a node nothing else is kept.
func (s *sources) addNodes(kube cluster.Kube, enqueue func(cache.ObjectName)) error {
	nodes := newInformer[*corev1.Node, *corev1.NodeList](kube.Core.Nodes(), "")
	if err := nodes.SetTransform(onlyWhatMatters); err != nil {
		return err
	}
	if _, err := nodes.AddEventHandler(nodeHandler(s.listers.Pods, enqueue)); err != nil {
		return err
	}
	s.informers = append(s.informers, nodes)
	s.listers.Nodes = corelisters.NewNodeLister(nodes.GetIndexer())
	return nil
}

// nodeHandler enqueues the clusters that have a pod on a node that comes, goes,
// or is cordoned.
func nodeHandler(pods corelisters.PodLister, enqueue func(cache.ObjectName)) cache.ResourceEventHandler {
	wake := func(object any) {
		if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
			object = gone.Obj
		}
		node, ok := object.(*corev1.Node)
		if !ok {
			return
		}
		all, _ := pods.List(labels.Everything()) // a cache can't fail
		for _, pod := range all {
			if key, ok := childKey(pod); ok && pod.Spec.NodeName == node.Name {
				enqueue(key)
			}
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    wake,
		DeleteFunc: wake,
		UpdateFunc: func(before, after any) {
			b, okB := before.(*corev1.Node)
			a, okA := after.(*corev1.Node)
			if okA && okB && a.Spec.Unschedulable != b.Spec.Unschedulable {
				wake(after)
			}
		},
	}
}

// onlyWhatMatters is what the cache keeps of a node.
func onlyWhatMatters(object any) (any, error) {
	node, ok := object.(*corev1.Node)
	if !ok {
		return object, nil
	}
	kept := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: node.Name, UID: node.UID, ResourceVersion: node.ResourceVersion},
		Spec:       corev1.NodeSpec{Unschedulable: node.Spec.Unschedulable},
	}
	if host, found := node.Labels[corev1.LabelHostname]; found {
		kept.Labels = map[string]string{corev1.LabelHostname: host} // volumes are bound to it
	}
	return kept, nil
}

// MayWatchNodes asks the API server whether the operator may look at nodes.
func MayWatchNodes(ctx context.Context, kube cluster.Kube) (bool, error) {
	_, err := kube.Core.Nodes().List(ctx, metav1.ListOptions{Limit: 1})
	switch {
	case apierrors.IsForbidden(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("look at nodes: %w", err)
	}
	return true, nil
}

// rememberReigns tells r of each state of a Lease, before the cache has it: who
// sees a new reign in the cache finds there how the one before ended.
func rememberReigns(r *cluster.Reigns) cache.TransformFunc {
	return func(object any) (any, error) {
		if lease, ok := object.(*coordinationv1.Lease); ok {
			r.Saw(lease)
		}
		return stripManagedFields(object)
	}
}

// listWatcher is what the clients of all kinds have in common.
type listWatcher[L runtime.Object] interface {
	List(ctx context.Context, opts metav1.ListOptions) (L, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
}

// newInformer caches what client lists with the label selector. T is the type
// of its items.
func newInformer[T, L runtime.Object](client listWatcher[L], selector string) cache.SharedIndexInformer {
	var example T
	return cache.NewSharedIndexInformer(
		&cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				o.LabelSelector = selector
				return client.List(ctx, o)
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				o.LabelSelector = selector
				return client.Watch(ctx, o)
			},
		},
		example, resync, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
}

func (s *sources) add(informer cache.SharedIndexInformer, handler cache.ResourceEventHandler) error {
	if err := informer.SetTransform(stripManagedFields); err != nil {
		return err
	}
	if _, err := informer.AddEventHandler(handler); err != nil {
		return err
	}
	s.informers = append(s.informers, informer)
	return nil
}

// start fills the caches and keeps them up to date until ctx ends.
func (s *sources) start(ctx context.Context) {
	for _, informer := range s.informers {
		go informer.RunWithContext(ctx)
	}
}

// awaitSync returns when every cache is filled, or with an error if ctx ends.
func (s *sources) awaitSync(ctx context.Context) error {
	for _, informer := range s.informers {
		if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			return fmt.Errorf("fill caches: %w", context.Cause(ctx))
		}
	}
	return nil
}

func (s *sources) hasSynced() bool {
	return !slices.ContainsFunc(s.informers, func(i cache.SharedIndexInformer) bool { return !i.HasSynced() })
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
				notify(before) // an object that lost its label was somebody's
				notify(after)
			}
		},
	}
}

func clusterKey(o metav1.Object) (cache.ObjectName, bool) {
	return cache.MetaObjectToName(o), true
}

// childKey goes by the label, which retained volumes have, too, or by that of a pod
// that proves a backup.
func childKey(o metav1.Object) (cache.ObjectName, bool) {
	name := cmp.Or(o.GetLabels()[specs.ClusterLabel], o.GetLabels()[specs.VerifiesLabel])
	return cache.NewObjectName(o.GetNamespace(), name), name != ""
}

// backupKey is the cluster that a backup is of, whether there is one or not.
func backupKey(o metav1.Object) (cache.ObjectName, bool) {
	b, ok := o.(*v1.PostgresBackup)
	if !ok {
		return cache.ObjectName{}, false
	}
	return cluster.BackupKey(b), true
}

// restoreKey is the cluster that is rolled back, whether there is one or not.
func restoreKey(o metav1.Object) (cache.ObjectName, bool) {
	r, ok := o.(*v1.PostgresRestore)
	if !ok {
		return cache.ObjectName{}, false
	}
	return cluster.RestoreKey(r), true
}

// always lets a resync wake every cluster.
func always(any, any) bool { return true }

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
		!a.DeletionTimestamp.Equal(b.DeletionTimestamp)
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
