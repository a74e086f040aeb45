package instance

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// fakeKubernetes keeps one cluster's three objects in memory.
type fakeKubernetes struct {
	mu        sync.Mutex
	version   int
	configMap *corev1.ConfigMap
	lease     *coordinationv1.Lease
	slice     *discoveryv1.EndpointSlice
	watchers  map[Watcher]bool
	// secrets are those of roles and of stores for backups.
	secrets        map[string]*corev1.Secret
	secretWatchers map[*secretWatcher]bool
	// down is what every request returns while the API is away.
	down error
	// leaseWrites counts updates of the Lease.
	leaseWrites int
	// skew is how far ahead the clocks are by which agents write.
	skew time.Duration
}

var _ Kubernetes = (*fakeKubernetes)(nil)

func (f *fakeKubernetes) Watch(ctx context.Context, w Watcher) {
	f.mu.Lock()
	if f.watchers == nil {
		f.watchers = map[Watcher]bool{}
	}
	f.watchers[w] = true
	w.SawConfigMap(f.configMap)
	w.SawLease(f.lease)
	w.SawSlice(f.slice)
	f.mu.Unlock()
	<-ctx.Done()
	f.mu.Lock()
	delete(f.watchers, w)
	f.mu.Unlock()
}

// set changes objects as the operator does.
func (f *fakeKubernetes) set(change func(f *fakeKubernetes)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
	// Watchers keep what they were shown, and read it at any time.
	f.configMap, f.lease, f.slice = f.configMap.DeepCopy(), f.lease.DeepCopy(), f.slice.DeepCopy()
	for _, object := range []metav1.Object{f.configMap, f.lease, f.slice} {
		f.stamp(object)
	}
	for w := range f.watchers {
		w.SawConfigMap(f.configMap)
		w.SawLease(f.lease)
		w.SawSlice(f.slice)
	}
}

// WatchSecret shows what lies in secrets.
func (f *fakeKubernetes) WatchSecret(ctx context.Context, name string, own bool, saw func(*corev1.Secret)) {
	watcher := &secretWatcher{name: name, own: own, saw: saw}
	f.mu.Lock()
	if f.secretWatchers == nil {
		f.secretWatchers = map[*secretWatcher]bool{}
	}
	f.secretWatchers[watcher] = true
	watcher.show(f.secrets[name])
	f.mu.Unlock()
	<-ctx.Done()
	f.mu.Lock()
	delete(f.secretWatchers, watcher)
	f.mu.Unlock()
}

type secretWatcher struct {
	name string
	own  bool
	saw  func(*corev1.Secret)
}

func (w *secretWatcher) show(secret *corev1.Secret) {
	if secret != nil && w.own && secret.Labels["own"] == "" {
		secret = nil
	}
	w.saw(secret)
}

// setSecret puts a Secret, or takes it away if there is no data. One that is own is
// the operator's.
func (f *fakeKubernetes) setSecret(name string, own bool, data map[string]string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.secrets == nil {
		f.secrets = map[string]*corev1.Secret{}
	}
	delete(f.secrets, name)
	if data != nil {
		secret := &corev1.Secret{Data: map[string][]byte{}}
		if own {
			secret.Labels = map[string]string{"own": "yes"}
		}
		for key, value := range data {
			secret.Data[key] = []byte(value)
		}
		f.secrets[name] = secret
	}
	for w := range f.secretWatchers {
		if w.name == name {
			w.show(f.secrets[name])
		}
	}
}

// watchedSecrets are the names of those that somebody watches.
func (f *fakeKubernetes) watchedSecrets() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var names []string
	for w := range f.secretWatchers {
		names = append(names, w.name)
	}
	slices.Sort(names)
	return names
}

func (f *fakeKubernetes) stamp(object metav1.Object) {
	f.version++
	object.SetResourceVersion(strconv.Itoa(f.version))
}

func (f *fakeKubernetes) Lease(context.Context) (*coordinationv1.Lease, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lease.DeepCopy(), f.down
}

func (f *fakeKubernetes) OwnSecret(ctx context.Context, name string) (map[string][]byte, error) {
	f.mu.Lock()
	theirs := f.secrets[name] != nil && f.secrets[name].Labels["own"] == ""
	f.mu.Unlock()
	if theirs {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, name)
	}
	return f.Secret(ctx, name)
}

func (f *fakeKubernetes) Secret(_ context.Context, name string) (map[string][]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if secret, found := f.secrets[name]; found {
		return secret.Data, f.down
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, name)
}

func (f *fakeKubernetes) UpdateLease(_ context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down != nil {
		return nil, f.down
	}
	if lease.ResourceVersion != f.lease.ResourceVersion {
		return nil, conflict("leases", lease.Name)
	}
	f.leaseWrites++
	f.lease = lease.DeepCopy()
	if renewed := f.lease.Spec.RenewTime; f.skew != 0 && renewed != nil {
		f.lease.Spec.RenewTime = &metav1.MicroTime{Time: renewed.Add(f.skew)}
	}
	f.stamp(f.lease)
	for w := range f.watchers {
		w.SawLease(f.lease)
	}
	return f.lease.DeepCopy(), nil
}

func (f *fakeKubernetes) UpdateSlice(_ context.Context, slice *discoveryv1.EndpointSlice) (*discoveryv1.EndpointSlice, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down != nil {
		return nil, f.down
	}
	if slice.ResourceVersion != f.slice.ResourceVersion {
		return nil, conflict("endpointslices", slice.Name)
	}
	f.slice = slice.DeepCopy()
	f.stamp(f.slice)
	for w := range f.watchers {
		w.SawSlice(f.slice)
	}
	return f.slice.DeepCopy(), nil
}

// now returns the objects as they are.
func (f *fakeKubernetes) now() (*coordinationv1.Lease, *discoveryv1.EndpointSlice) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lease.DeepCopy(), f.slice.DeepCopy()
}

func conflict(resource, name string) error {
	return apierrors.NewConflict(schema.GroupResource{Resource: resource}, name, nil)
}

func newFakeKubernetes() *fakeKubernetes {
	f := &fakeKubernetes{
		configMap: &corev1.ConfigMap{}, slice: &discoveryv1.EndpointSlice{},
		lease: &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "shop", Annotations: map[string]string{"kept": "yes"}}},
	}
	f.set(func(*fakeKubernetes) {})
	return f
}
