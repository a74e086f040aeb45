package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	coordinationlisters "k8s.io/client-go/listers/coordination/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"
	policylisters "k8s.io/client-go/listers/policy/v1"
	rbaclisters "k8s.io/client-go/listers/rbac/v1"
	"k8s.io/client-go/tools/cache"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	postgreslisters "github.com/pgop/postgres-operator/pkg/generated/listers/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/specs"
)

// agentTimeout bounds one question to an agent, so that a frozen pod delays a
// pass by no more.
const agentTimeout = time.Second

// Listers read the caches of everything that belongs to clusters.
type Listers struct {
	Pods            corelisters.PodLister
	Volumes         corelisters.PersistentVolumeClaimLister
	Services        corelisters.ServiceLister
	Secrets         corelisters.SecretLister
	ConfigMaps      corelisters.ConfigMapLister
	ServiceAccounts corelisters.ServiceAccountLister
	Roles           rbaclisters.RoleLister
	RoleBindings    rbaclisters.RoleBindingLister
	Leases          coordinationlisters.LeaseLister
	EndpointSlices  discoverylisters.EndpointSliceLister
	Budgets         policylisters.PodDisruptionBudgetLister
	// Clusters are all that there are: one may be a copy of another.
	Clusters postgreslisters.PostgresClusterLister
	// Backups are those of all clusters.
	Backups *Backups
	// Restores are those of all clusters.
	Restores *Restores
	// Nodes is nil where the operator may not look at nodes.
	Nodes corelisters.NodeLister
	// Reigns is told by whoever watches the Leases; may be nil.
	Reigns *Reigns
}

// asker asks the agent of a pod, whose host name its certificate must bear, by the
// certificate in the operator's own Secret.
type asker interface {
	fetch(ctx context.Context, own *corev1.Secret, pod *corev1.Pod, host string) (instanceapi.State, error)
	catalog(ctx context.Context, own *corev1.Secret, pod *corev1.Pod, host string) (instanceapi.Catalog, error)
}

// observe gathers what the caches hold of the cluster and asks every agent.
func observe(ctx context.Context, l Listers, agents asker, c *v1.PostgresCluster, operatorImage string, now time.Time) (Observation, error) {
	o := Observation{
		Now:           now,
		Cluster:       v1.WithDefaults(c),
		OperatorImage: operatorImage,
		Services:      map[string]*corev1.Service{},
		Secrets:       map[string]*corev1.Secret{},
	}
	var err error
	own := ownedBy{c: c, err: &err}
	o.ServiceAccount = get(own, l.ServiceAccounts.ServiceAccounts(c.Namespace).Get, specs.ServiceAccount(c.Name))
	o.Role = get(own, l.Roles.Roles(c.Namespace).Get, specs.ServiceAccount(c.Name))
	o.RoleBinding = get(own, l.RoleBindings.RoleBindings(c.Namespace).Get, specs.ServiceAccount(c.Name))
	o.ConfigMap = get(own, l.ConfigMaps.ConfigMaps(c.Namespace).Get, specs.ConfigMap(c.Name))
	o.Lease = get(own, l.Leases.Leases(c.Namespace).Get, specs.Lease(c.Name))
	o.EndpointSlice = get(own, l.EndpointSlices.EndpointSlices(c.Namespace).Get, specs.EndpointSlice(c.Name))
	o.DisruptionBudget = get(own, l.Budgets.PodDisruptionBudgets(c.Namespace).Get, specs.PDB(c.Name))
	o.Verifier = get(own, l.Pods.Pods(c.Namespace).Get, specs.VerifyPodName(c.Name))
	for _, s := range list(own, l.Services.Services(c.Namespace).List) {
		o.Services[s.Name] = s
	}
	for _, s := range list(own, l.Secrets.Secrets(c.Namespace).List) {
		o.Secrets[s.Name] = s
	}
	pods := list(own, l.Pods.Pods(c.Namespace).List)
	volumes := list(own, l.Volumes.PersistentVolumeClaims(c.Namespace).List)
	if err != nil {
		return Observation{}, err
	}
	if err := observeBackups(l.Backups, &o); err != nil {
		return Observation{}, err
	}
	if err := observeClone(l, &o); err != nil {
		return Observation{}, err
	}
	if o.Restores, err = l.Restores.Of(cache.MetaObjectToName(c)); err != nil {
		return Observation{}, err
	}
	o.Instances = instancesOf(c, pods, volumes)
	o.Ended = l.Reigns.lastOf(cache.MetaObjectToName(c))
	if o.Nodes, err = nodesOf(l, o.Instances); err != nil {
		return Observation{}, err
	}
	askAgents(ctx, agents, o)
	o.setSparesApart()
	return o, nil
}

// instancesOf pairs pods with their volumes, by number. A volume for WAL counts as
// unasked where nobody uses it, now or in the pods to come.
func instancesOf(c *v1.PostgresCluster, pods []*corev1.Pod, volumes []*corev1.PersistentVolumeClaim) []Instance {
	byName := map[string]*Instance{}
	entry := func(name string) *Instance {
		number, ok := specs.InstanceNumber(c.Name, name)
		if !ok {
			return &Instance{} // labelled like one of ours, and not named so
		}
		if byName[name] == nil {
			byName[name] = &Instance{Name: name, Number: number}
		}
		return byName[name]
	}
	for _, pod := range pods {
		entry(pod.Name).Pod = pod
	}
	for _, volume := range volumes {
		instance, isWAL := specs.InstanceOfWALVolume(volume.Name)
		switch i := entry(instance); {
		case !isWAL:
			i.Volume = volume
		case c.Spec.Storage.WAL != nil || i.Pod != nil && specs.UsesVolume(i.Pod, volume.Name):
			i.WAL = volume
		default:
			i.Unasked = volume
		}
	}
	instances := make([]Instance, 0, len(byName))
	for _, i := range byName {
		instances = append(instances, *i)
	}
	slices.SortFunc(instances, func(a, b Instance) int { return cmp.Compare(a.Number, b.Number) })
	return instances
}

// nodesOf are the nodes that instances run on, as far as they exist; nil where
// nobody may look.
func nodesOf(l Listers, instances []Instance) (map[string]*corev1.Node, error) {
	if l.Nodes == nil {
		return nil, nil
	}
	nodes := map[string]*corev1.Node{}
	for _, i := range instances {
		if !i.isScheduled() {
			continue
		}
		node, err := l.Nodes.Get(i.Pod.Spec.NodeName)
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return nil, fmt.Errorf("look up the node of %s: %w", i.Name, err)
		default:
			nodes[node.Name] = node
		}
	}
	return nodes, nil
}

// setSparesApart moves spare volumes from Instances to Spares.
func (o *Observation) setSparesApart() {
	var used []Instance
	for _, i := range o.Instances {
		if o.isSpare(i) {
			o.Spares = append(o.Spares, i)
		} else {
			used = append(used, i)
		}
	}
	o.Instances = used
}

// askAgents fills in the State of every instance, asking all at once.
func askAgents(ctx context.Context, agents asker, o Observation) {
	own := o.Secrets[specs.OperatorSecret(o.Cluster.Name)]
	var all sync.WaitGroup
	for n := range o.Instances {
		i := &o.Instances[n]
		if !mayAnswer(i.Pod) {
			continue
		}
		if own == nil {
			i.Unreachable = "the operator has no certificate yet"
			continue
		}
		all.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, agentTimeout)
			defer cancel()
			host := specs.InstanceHost(o.Cluster.Name, o.Cluster.Namespace, i.Name)
			state, err := agents.fetch(ctx, own, i.Pod, host)
			switch {
			case err != nil:
				i.Unreachable = whyUnreachable(err)
			case state.PodUID != string(i.Pod.UID):
				i.Unreachable = "another pod answers at its address"
			default:
				i.State = &state
			}
		})
	}
	all.Wait()
}

// whyUnreachable says in fixed words why an agent did not answer. The error
// itself names the port of our side, which is another each time, so that each
// pass would write another status.
func whyUnreachable(err error) string {
	var timeout interface{ Timeout() bool }
	var network *net.OpError
	var request *url.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout():
		return "no answer in time"
	case errors.As(err, &network):
		return fmt.Sprintf("%s %v: %v", network.Op, network.Addr, network.Err)
	case errors.As(err, &request):
		return request.Err.Error()
	}
	return err.Error()
}

// mayAnswer says whether the pod's agent can be listening.
func mayAnswer(pod *corev1.Pod) bool {
	if pod == nil || pod.Status.PodIP == "" {
		return false
	}
	_, running := containerStart(pod)
	return running
}

// ownedBy filters what belongs to one cluster and keeps the first error.
type ownedBy struct {
	c   *v1.PostgresCluster
	err *error
}

// owns says whether o belongs to this very cluster, by UID. A volume without an
// owner belongs to whoever bears the cluster's name.
func (b ownedBy) owns(o object) bool {
	if owner := metav1.GetControllerOf(o); owner != nil {
		return owner.UID == b.c.UID
	}
	_, isVolume := o.(*corev1.PersistentVolumeClaim)
	return isVolume && isLabelledOurs(o)
}

func isLabelledOurs(o object) bool {
	return o.GetLabels()[specs.ManagedByLabel] == specs.ManagedBy && o.GetLabels()[specs.ClusterLabel] != ""
}

// get returns the named object if it belongs to the cluster, else nil.
func get[T interface {
	comparable
	object
}](b ownedBy, lister func(string) (T, error), name string) T {
	var none T
	found, err := lister(name)
	switch {
	case apierrors.IsNotFound(err):
		return none
	case err != nil:
		*b.err = cmp.Or(*b.err, err)
		return none
	case !b.owns(found):
		return none
	}
	return found
}

// list returns what belongs to the cluster.
func list[T object](b ownedBy, lister func(labels.Selector) ([]T, error)) []T {
	all, err := lister(labels.SelectorFromSet(specs.SelectorOf(b.c)))
	if err != nil {
		*b.err = cmp.Or(*b.err, err)
		return nil
	}
	return slices.DeleteFunc(all, func(o T) bool { return !b.owns(o) })
}
