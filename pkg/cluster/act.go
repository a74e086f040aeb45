package cluster

import (
	"context"
	"encoding/json"
	goerrors "errors"
	"fmt"
	"maps"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	postgresclient "github.com/pgop/postgres-operator/pkg/generated/clientset/versioned/typed/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/specs"
)

// errNamespaceGoes means that nothing can be made any more, since the namespace
// is being deleted. No namespace comes back from that.
var errNamespaceGoes = goerrors.New("the namespace is being deleted")

// actor carries out plans.
type actor struct {
	client   Kube
	clusters postgresclient.PgopV1Interface
	owner    types.UID
}

// act runs one action and says whether it did something. Whatever is already as
// wanted, or has changed since it was seen so that the next pass will see it,
// needs nothing and is no failure.
func (a actor) act(ctx context.Context, action Action) (bool, *Failure) {
	if backup, isBackup := action.Object.(*v1.PostgresBackup); isBackup {
		return a.actOnBackup(ctx, action, backup)
	}
	if restore, isRestore := action.Object.(*v1.PostgresRestore); isRestore {
		return a.reportRestore(ctx, action, restore)
	}
	var err error
	switch action.Verb {
	case Create:
		return a.create(ctx, action)
	case Update:
		err = updateObject(ctx, a.client, action.Object)
		if errors.IsConflict(err) || errors.IsNotFound(err) {
			return false, nil // changed meanwhile; its event wakes the next pass
		}
	case Delete:
		if missing, err := a.areMissing(ctx, action.Missing); err != nil {
			return false, refused(action, err)
		} else if !missing {
			return false, nil // the cache was behind; the object's event wakes the next pass
		}
		if err := a.trySuccessor(ctx, action.Successor); err != nil {
			return false, refused(action, err)
		}
		err = deleteObject(ctx, a.client, action.Object)
		if errors.IsConflict(err) || errors.IsNotFound(err) {
			return false, nil // already gone, or replaced by one that is not meant
		}
	case Clear:
		err = a.clear(ctx, action.Object, action.Annotation)
		if errors.IsInvalid(err) || errors.IsNotFound(err) {
			return false, nil // asked anew with another value, or taken back
		}
	}
	if err != nil {
		return false, refused(action, err)
	}
	return true, nil
}

// refused is the failure of an action that the API server does not carry out.
func refused(action Action, err error) *Failure {
	reason := v1.ReasonCreateFailed
	if _, isVolume := action.Object.(*corev1.PersistentVolumeClaim); isVolume && action.Verb == Update && action.Reason == "" {
		reason = v1.ReasonVolumeRefused
	}
	return &Failure{Action: action, Reason: reason, Err: err}
}

// create makes an object. If one of the name exists it is either ours, and the
// cache does not show it yet, or somebody else's, which is never touched.
func (a actor) create(ctx context.Context, action Action) (bool, *Failure) {
	err := createObject(ctx, a.client, action.Object)
	switch {
	case err == nil:
		return true, nil
	case errors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return false, &Failure{Action: action, Err: errNamespaceGoes}
	case !errors.IsAlreadyExists(err):
		return false, refused(action, err)
	}
	live, err := getObject(ctx, a.client, action.Object)
	switch {
	case errors.IsNotFound(err):
		return false, nil // gone meanwhile; the next pass makes it
	case err != nil:
		return false, refused(action, err)
	case !a.isOurs(live):
		return false, &Failure{Action: action, Reason: v1.ReasonNameConflict, Err: conflict(live)}
	}
	relabelled := a.relabel(live, action.Object)
	if relabelled == nil {
		return false, nil
	}
	_, failure := a.act(ctx, Action{Verb: Update, Object: relabelled})
	return false, failure
}

// areMissing asks the API server whether none of the objects is there.
func (a actor) areMissing(ctx context.Context, objects []object) (bool, error) {
	for _, o := range objects {
		if _, err := getObject(ctx, a.client, o); err == nil {
			return false, nil
		} else if !errors.IsNotFound(err) {
			return false, fmt.Errorf("see whether %s %s is gone: %w", kindOf(o), o.GetName(), err)
		}
	}
	return true, nil
}

// trySuccessor asks the API server whether it would have the object, and
// returns why it finds it invalid. Any other refusal may end when the object
// that it replaces is gone: that one has the name, and a share of the quota.
func (a actor) trySuccessor(ctx context.Context, successor object) error {
	if successor == nil {
		return nil
	}
	c, err := bind(a.client, successor)
	if err != nil {
		return err
	}
	if err := c.try(ctx); errors.IsInvalid(err) {
		return fmt.Errorf("it stays, since what would take its place is refused: %w", err)
	}
	return nil
}

// clear takes an annotation from the cluster, if its value is the one seen.
func (a actor) clear(ctx context.Context, cluster object, annotation string) error {
	// A pointer of RFC 6901.
	path := "/metadata/annotations/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(annotation)
	patch, err := json.Marshal([]map[string]string{
		{"op": "test", "path": path, "value": cluster.GetAnnotations()[annotation]},
		{"op": "remove", "path": path},
	})
	if err != nil {
		return fmt.Errorf("marshal the patch that clears %s: %w", annotation, err)
	}
	_, err = a.clusters.PostgresClusters(cluster.GetNamespace()).Patch(ctx, cluster.GetName(), types.JSONPatchType, patch, metav1.PatchOptions{})
	return err
}

// relabel returns live with the labels of want, or nil if it has them. Caches
// hold only what bears our labels, so that an object that somebody took them
// from looks as if it were missing.
func (a actor) relabel(live, want object) object {
	labels := maps.Clone(live.GetLabels())
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, want.GetLabels())
	if maps.Equal(labels, live.GetLabels()) {
		return nil
	}
	relabelled := live.DeepCopyObject().(object)
	relabelled.SetLabels(labels)
	return relabelled
}

func (a actor) isOurs(live object) bool {
	if owner := metav1.GetControllerOf(live); owner != nil {
		return owner.UID == a.owner
	}
	// A volume that is retained has no owner; observe finds it by its label. One
	// that was made for this very cluster is ours even without.
	_, isVolume := live.(*corev1.PersistentVolumeClaim)
	return isVolume && (isLabelledOurs(live) || live.GetAnnotations()[specs.CreatedForAnnotation] == string(a.owner))
}

func conflict(live object) error {
	if live.GetDeletionTimestamp() != nil {
		return fmt.Errorf("%s %s of an earlier cluster is still being deleted; waiting until it is gone", kindOf(live), live.GetName())
	}
	return fmt.Errorf("%s %s exists and does not belong to this cluster, so it is left alone; delete or rename it, or give the cluster another name", kindOf(live), live.GetName())
}

// typedClient is what the clients of all kinds have in common.
type typedClient[T object] interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (T, error)
	Create(ctx context.Context, o T, opts metav1.CreateOptions) (T, error)
	Update(ctx context.Context, o T, opts metav1.UpdateOptions) (T, error)
	Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error
}

// calls are the calls of one kind, for an object of that kind.
type calls struct {
	get    func(context.Context) (object, error)
	create func(context.Context) error
	// try is create without an effect.
	try    func(context.Context) error
	update func(context.Context) error
	delete func(context.Context) error
}

func callsOf[T object](client typedClient[T], o T) calls {
	return calls{
		get: func(ctx context.Context) (object, error) {
			return client.Get(ctx, o.GetName(), metav1.GetOptions{})
		},
		create: func(ctx context.Context) error {
			_, err := client.Create(ctx, o, metav1.CreateOptions{})
			return err
		},
		try: func(ctx context.Context) error {
			_, err := client.Create(ctx, o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return err
		},
		update: func(ctx context.Context) error {
			_, err := client.Update(ctx, o, metav1.UpdateOptions{})
			return err
		},
		delete: func(ctx context.Context) error {
			return client.Delete(ctx, o.GetName(), metav1.DeleteOptions{Preconditions: preconditions(o)})
		},
	}
}

// preconditions let nothing go that is not what was seen: a volume not even
// when it has changed meanwhile, since something may be on it now.
func preconditions(o object) *metav1.Preconditions {
	seen := &metav1.Preconditions{UID: ptr.To(o.GetUID())}
	if _, isVolume := o.(*corev1.PersistentVolumeClaim); isVolume {
		seen.ResourceVersion = ptr.To(o.GetResourceVersion())
	}
	return seen
}

// bind finds the client for an object's kind.
func bind(client Kube, o object) (calls, error) {
	namespace := o.GetNamespace()
	switch o := o.(type) {
	case *corev1.Pod:
		return callsOf(client.Core.Pods(namespace), o), nil
	case *corev1.PersistentVolumeClaim:
		return callsOf(client.Core.PersistentVolumeClaims(namespace), o), nil
	case *corev1.Service:
		return callsOf(client.Core.Services(namespace), o), nil
	case *corev1.Secret:
		return callsOf(client.Core.Secrets(namespace), o), nil
	case *corev1.ConfigMap:
		return callsOf(client.Core.ConfigMaps(namespace), o), nil
	case *corev1.ServiceAccount:
		return callsOf(client.Core.ServiceAccounts(namespace), o), nil
	case *rbacv1.Role:
		return callsOf(client.RBAC.Roles(namespace), o), nil
	case *rbacv1.RoleBinding:
		return callsOf(client.RBAC.RoleBindings(namespace), o), nil
	case *coordinationv1.Lease:
		return callsOf(client.Coordination.Leases(namespace), o), nil
	case *discoveryv1.EndpointSlice:
		return callsOf(client.Discovery.EndpointSlices(namespace), o), nil
	case *policyv1.PodDisruptionBudget:
		return callsOf(client.Policy.PodDisruptionBudgets(namespace), o), nil
	}
	return calls{}, fmt.Errorf("no client for kind %s", kindOf(o))
}

func createObject(ctx context.Context, client Kube, o object) error {
	c, err := bind(client, o)
	if err != nil {
		return err
	}
	return c.create(ctx)
}

func getObject(ctx context.Context, client Kube, o object) (object, error) {
	c, err := bind(client, o)
	if err != nil {
		return nil, err
	}
	return c.get(ctx)
}

func updateObject(ctx context.Context, client Kube, o object) error {
	c, err := bind(client, o)
	if err != nil {
		return err
	}
	return c.update(ctx)
}

func deleteObject(ctx context.Context, client Kube, o object) error {
	c, err := bind(client, o)
	if err != nil {
		return err
	}
	return c.delete(ctx)
}

// kindOf names an object's kind for people; typed objects don't carry it.
func kindOf(o object) string {
	switch o.(type) {
	case *corev1.Pod:
		return "Pod"
	case *corev1.PersistentVolumeClaim:
		return "PersistentVolumeClaim"
	case *corev1.Service:
		return "Service"
	case *corev1.Secret:
		return "Secret"
	case *corev1.ConfigMap:
		return "ConfigMap"
	case *corev1.ServiceAccount:
		return "ServiceAccount"
	case *rbacv1.Role:
		return "Role"
	case *rbacv1.RoleBinding:
		return "RoleBinding"
	case *coordinationv1.Lease:
		return "Lease"
	case *discoveryv1.EndpointSlice:
		return "EndpointSlice"
	case *policyv1.PodDisruptionBudget:
		return "PodDisruptionBudget"
	case *v1.PostgresCluster:
		return "PostgresCluster"
	case *v1.PostgresBackup:
		return "PostgresBackup"
	case *v1.PostgresRestore:
		return "PostgresRestore"
	}
	return fmt.Sprintf("%T", o)
}
