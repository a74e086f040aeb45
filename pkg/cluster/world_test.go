package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coordinationlisters "k8s.io/client-go/listers/coordination/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"
	policylisters "k8s.io/client-go/listers/policy/v1"
	rbaclisters "k8s.io/client-go/listers/rbac/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/election"
	postgreslisters "github.com/pgop/postgres-operator/pkg/generated/listers/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/specs"
)

const testImage = "docker.io/pgop/postgres-operator:1.0"

// world is a model of Kubernetes and of the agents, in memory: as much of both
// as the operator can tell apart. Nothing happens in it by itself: a test lets
// the operator, Kubernetes and the agents take their turns.
type world struct {
	now     time.Time
	cluster *v1.PostgresCluster
	// objects are what the API server holds, cached what the operator's
	// informers have seen of it; both by kind and name.
	objects, cached map[string]map[string]object
	// data is what volumes hold, by the UID of the claim.
	data map[types.UID]*volumeData
	// states are the agents' answers, by the UID of the pod.
	states map[types.UID]instanceapi.State
	// servers are those that run, by the UID of the pod.
	servers map[types.UID]*server
	// mounted are the certificates that pods use, by the UID of the pod.
	mounted map[types.UID]*corev1.Secret
	// verified are verdicts that are known, since they take long.
	verified *sync.Map

	// full is set while no pod finds a node; cut are instances whose agents the
	// operator can't reach.
	full bool
	cut  map[string]bool
	// nodes are those that instances run on; nil while nobody may look.
	nodes map[string]*corev1.Node
	// lost are nodes that are gone, by the UID of the claim whose volume went with
	// them.
	lost map[types.UID]string
	// elections lets agents elect another primary when the one that reigns does
	// not answer, without being told to.
	elections bool
	// unchanged is for how long the operator has seen the Lease stay as it is, and
	// ended the reign before, as a Loop would know.
	unchanged time.Duration
	// silent is for how long an agent has said nothing of the backup that it takes.
	silent time.Duration
	ended  EndedReign
	// late are instances to which the kubelet brings nothing new.
	late map[string]bool

	// passwords are those that the primary's server has, by role.
	passwords map[string]string
	// logins are those that it lets in, with their passwords, by role; nil: the role
	// alone, with that of passwords.
	logins map[string]map[string]string

	// restarts are the instances whose server was restarted as asked, in order, and
	// outgrown counts standbys that had less than their primary.
	restarts []string
	outgrown int

	// bucket is the store of backups, and catalogRead what the operator has read of it.
	bucket      backupStore
	catalogRead *instanceapi.Catalog
	// unlisted are backups that the catalog does not show, as a Loop knows them.
	unlisted sightings

	// leafLifetime is for how long new certificates are valid; 0: as long as usual.
	leafLifetime time.Duration
	// theirs are people's own Secrets, by name, and theirsUnknown why nobody can read
	// them.
	theirs        map[string]*corev1.Secret
	theirsUnknown error

	// others are objects of other clusters, which nobody here changes.
	others []object

	serial       int
	statusWrites int
}

// volumeData is a database as a volume holds it.
type volumeData struct {
	// recovered is where the recovery ended by which it was made of a backup.
	recovered                    *instanceapi.Recovered
	systemID, dataID, lastHolder string
	term                         uint64
	// demand is the max_connections that its control file has, and good the
	// configuration that a server on it has last started with.
	demand int
	good   serverConfig
	// wal is the UID of the claim of the WAL volume that its WAL is on; empty: the
	// data volume has it.
	wal types.UID
}

// serverConfig is as much of a configuration as matters for restarts.
type serverConfig struct {
	hash        string
	connections int
	library     string
}

// server is a server as it was started. A standby may have more connections than
// its configuration says.
type server struct {
	serverConfig
	// refused is the configuration that it did not start with.
	refused string
}

// noLibrary is one with which no server starts.
const noLibrary = "nope"

var allKinds = []string{"ConfigMap", "EndpointSlice", "Lease", "PersistentVolumeClaim", "Pod", "PodDisruptionBudget", "PostgresBackup", "PostgresRestore", "Role", "RoleBinding", "Secret", "Service", "ServiceAccount"}

// pure marks a test without goroutines that takes long: with -short, as under the
// race detector, which has nothing to find there, it is left out.
func pure(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("there are no goroutines")
	}
}

func newWorld(instances int32) *world {
	w := &world{
		now: time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC),
		cluster: &v1.PostgresCluster{
			ObjectMeta: metav1.ObjectMeta{Namespace: "db", Name: "shop", UID: "cluster-1", Generation: 1},
			Spec: v1.PostgresClusterSpec{
				Instances: ptr.To(instances),
				Postgres:  v1.PostgresSpec{Version: 17},
				Storage:   v1.StorageSpec{Size: resource.MustParse("1Gi")},
			},
		},
		objects: map[string]map[string]object{},
		data:    map[types.UID]*volumeData{},
		states:  map[types.UID]instanceapi.State{},
		servers: map[types.UID]*server{},
		mounted: map[types.UID]*corev1.Secret{}, verified: &sync.Map{},
		cut:  map[string]bool{},
		late: map[string]bool{},
		lost: map[types.UID]string{}, unlisted: sightings{}, passwords: map[string]string{}, logins: map[string]map[string]string{},
	}
	for _, kind := range allKinds {
		w.objects[kind] = map[string]object{}
	}
	w.catchUp(allKinds...)
	return w
}

// settledWorlds are those in which a cluster of a size has come up, by the size.
// Nobody changes them.
var settledWorlds sync.Map

// settledWorld is one in which a cluster of that size has come up.
func settledWorld(instances int32) *world {
	if w, known := settledWorlds.Load(instances); known {
		return w.(*world).clone()
	}
	w := newWorld(instances)
	if _, settled := w.settle(); !settled {
		panic("the cluster did not come up")
	}
	settledWorlds.Store(instances, w)
	return w.clone()
}

// clone is a settled world like w that shares nothing with it that is changed.
func (w *world) clone() *world {
	c := *w
	c.cluster = w.cluster.DeepCopy()
	c.objects = map[string]map[string]object{}
	for kind, objects := range w.objects {
		c.objects[kind] = map[string]object{}
		for name, o := range objects {
			c.objects[kind][name] = o.DeepCopyObject().(object)
		}
	}
	c.data, c.servers, c.states, c.mounted = copies(w.data), copies(w.servers), maps.Clone(w.states), maps.Clone(w.mounted)
	c.cut, c.late, c.lost, c.passwords, c.logins = maps.Clone(w.cut), maps.Clone(w.late), maps.Clone(w.lost), maps.Clone(w.passwords), maps.Clone(w.logins)
	c.theirs = maps.Clone(w.theirs)
	c.unlisted = maps.Clone(w.unlisted)
	c.cached = nil
	c.catchUp(allKinds...)
	return &c
}

// copies is a map to copies of what m maps to.
func copies[K comparable, V any](m map[K]*V) map[K]*V {
	c := map[K]*V{}
	for key, value := range m {
		of := *value
		c[key] = &of
	}
	return c
}

// catchUp lets the caches of these kinds see what the API server holds. The
// informers see only what bears the operator's label.
func (w *world) catchUp(kinds ...string) {
	cached := maps.Clone(w.cached)
	if cached == nil {
		cached = map[string]map[string]object{}
	}
	for _, kind := range kinds {
		cached[kind] = map[string]object{}
		for name, o := range w.objects[kind] {
			if o.GetLabels()[specs.ManagedByLabel] == specs.ManagedBy || kind == v1.BackupKind || kind == "PostgresRestore" {
				cached[kind][name] = o
			}
		}
	}
	w.cached = cached
}

func (w *world) listers() Listers {
	of := func(kind string) cache.Indexer {
		indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
		for _, o := range slices.Concat(slices.Collect(maps.Values(w.cached[kind])), w.others) {
			if kindOf(o) != kind {
				continue
			}
			if err := indexer.Add(o); err != nil {
				panic(err)
			}
		}
		return indexer
	}
	return Listers{
		Pods:            corelisters.NewPodLister(of("Pod")),
		Volumes:         corelisters.NewPersistentVolumeClaimLister(of("PersistentVolumeClaim")),
		Services:        corelisters.NewServiceLister(of("Service")),
		Secrets:         corelisters.NewSecretLister(of("Secret")),
		ConfigMaps:      corelisters.NewConfigMapLister(of("ConfigMap")),
		ServiceAccounts: corelisters.NewServiceAccountLister(of("ServiceAccount")),
		Roles:           rbaclisters.NewRoleLister(of("Role")),
		RoleBindings:    rbaclisters.NewRoleBindingLister(of("RoleBinding")),
		Leases:          coordinationlisters.NewLeaseLister(of("Lease")),
		EndpointSlices:  discoverylisters.NewEndpointSliceLister(of("EndpointSlice")),
		Budgets:         policylisters.NewPodDisruptionBudgetLister(of("PodDisruptionBudget")),
		Clusters:        postgreslisters.NewPostgresClusterLister(of(v1.ClusterKind)),
		Backups:         w.backups(),
		Restores:        w.restores(),
	}
}

// fetch is how the operator asks an agent.
func (w *world) fetch(_ context.Context, own *corev1.Secret, pod *corev1.Pod, host string) (instanceapi.State, error) {
	if w.cut[pod.Name] {
		return instanceapi.State{}, errors.New("no answer")
	}
	state, found := w.states[pod.UID]
	if !found {
		return instanceapi.State{}, errors.New("connection refused")
	}
	return state, w.shakeHands(own, w.mounted[pod.UID], host)
}

// readTheirs is how the operator reads people's own Secrets.
func (w *world) readTheirs(_ context.Context, name string) (*corev1.Secret, error) {
	switch found := w.theirs[name]; {
	case w.theirsUnknown != nil:
		return nil, w.theirsUnknown
	case found == nil:
		return nil, apierrors.NewNotFound(corev1.Resource("secrets"), name)
	default:
		return found, nil
	}
}

func (w *world) observe() Observation {
	o, err := observe(context.Background(), w.listers(), w, w.cluster, testImage, w.now)
	if err != nil {
		panic(err)
	}
	w.readCatalog(&o)
	o.LeafLifetime = w.leafLifetime
	o.Theirs = readTheirSecrets(context.Background(), w.readTheirs, o.Cluster.Spec.TLS)
	w.unlisted.noteUnlisted(&o)
	new(Loop).lookAtTheClock(&o) // as an operator that has just begun
	o.BackupWaited = w.silent
	o.Nodes, o.LeaseUnchanged, o.Ended = w.nodes, w.unchanged, w.ended
	for n := range o.Instances {
		if i := &o.Instances[n]; i.Volume != nil && i.Pod != nil && !i.isScheduled() {
			i.LostNode = w.lost[i.Volume.UID]
		}
	}
	return o
}

// pass is one of the operator's, on caches as they are.
func (w *world) pass() (Observation, Plan, v1.PostgresClusterStatus) {
	o := w.observe()
	p := Analyse(o)
	var failures []Failure
	for _, action := range p.Actions {
		if mustWait(action, failures) {
			continue
		}
		if err := w.apply(action); err != nil {
			failures = append(failures, Failure{Action: action, Reason: v1.ReasonNameConflict, Err: err})
		}
	}
	status := Status(o, p, failures)
	if !equality.Semantic.DeepEqual(w.cluster.Status, status) {
		w.cluster = w.cluster.DeepCopy()
		w.cluster.Status = status
		w.statusWrites++
	}
	return o, p, status
}

// apply does what an API server does with an action of act.go.
func (w *world) apply(a Action) error {
	kind, name := kindOf(a.Object), a.Object.GetName()
	live := w.objects[kind][name]
	switch a.Verb {
	case Clear:
		w.cluster = w.cluster.DeepCopy()
		delete(w.cluster.Annotations, a.Annotation)
	case Create:
		if live == nil {
			w.store(w.born(a.Object))
			return nil
		}
		if kind == v1.BackupKind {
			return nil
		}
		own := actor{owner: w.cluster.UID}
		if !own.isOurs(live) {
			return conflict(live)
		}
		if relabelled := own.relabel(live, a.Object); relabelled != nil {
			w.store(relabelled)
		}
	case Update, Report:
		if live != nil && live.GetResourceVersion() == a.Object.GetResourceVersion() {
			w.store(a.Object.DeepCopyObject().(object))
		}
	case Delete:
		if slices.ContainsFunc(a.Missing, func(o object) bool { return w.objects[kindOf(o)][o.GetName()] != nil }) {
			return nil
		}
		if live != nil && live.GetUID() == a.Object.GetUID() && (kind != "PersistentVolumeClaim" || live.GetResourceVersion() == a.Object.GetResourceVersion()) {
			w.remove(kind, name)
		}
	}
	return nil
}

// born is a new object as the API server keeps it.
func (w *world) born(o object) object {
	o = o.DeepCopyObject().(object)
	w.serial++
	o.SetUID(types.UID(fmt.Sprintf("%s-%d", strings.ToLower(kindOf(o)), w.serial)))
	o.SetCreationTimestamp(metav1.NewTime(w.now))
	switch o := o.(type) {
	case *corev1.Service:
		o.Spec.SessionAffinity = corev1.ServiceAffinityNone
		o.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol}
	case *corev1.PersistentVolumeClaim:
		if o.Spec.StorageClassName == nil {
			o.Spec.StorageClassName = ptr.To("standard")
		}
		o.Status.Phase = corev1.ClaimPending
	case *corev1.Pod:
		// A webhook has its way with every pod (F-05).
		o.Annotations["webhook.example.com/seen"] = "true"
		o.Spec.Containers[0].Image = "mirror.example.com/" + o.Spec.Containers[0].Image
		o.Spec.Containers = append(o.Spec.Containers, corev1.Container{Name: "mesh"})
		o.Status.Phase = corev1.PodPending
	}
	return o
}

// store writes o as a new version.
func (w *world) store(o object) {
	w.serial++
	o.SetResourceVersion(fmt.Sprint(w.serial))
	w.objects[kindOf(o)][o.GetName()] = o
}

// change edits a stored object, if it is there.
func change[T object](w *world, name string, edit func(T)) {
	var none T
	kind := kindOf(none)
	if live, found := w.objects[kind][name]; found {
		o := live.DeepCopyObject().(T)
		edit(o)
		w.store(o)
	}
}

// remove deletes an object: pods take their time to stop, claims stay as long
// as a pod uses them.
func (w *world) remove(kind, name string) {
	live := w.objects[kind][name]
	if live == nil {
		return
	}
	if kind != "Pod" && kind != "PersistentVolumeClaim" {
		delete(w.objects[kind], name)
		return
	}
	if live.GetDeletionTimestamp() == nil {
		leaving := live.DeepCopyObject().(object)
		leaving.SetDeletionTimestamp(ptr.To(metav1.NewTime(w.now)))
		w.store(leaving)
	}
}

func (w *world) pod(name string) *corev1.Pod {
	pod, _ := w.objects["Pod"][name].(*corev1.Pod)
	return pod
}

func (w *world) volume(name string) *corev1.PersistentVolumeClaim {
	volume, _ := w.objects["PersistentVolumeClaim"][name].(*corev1.PersistentVolumeClaim)
	return volume
}

func (w *world) lease() *coordinationv1.Lease {
	lease, _ := w.objects["Lease"]["shop"].(*coordinationv1.Lease)
	return lease
}

// kubernetes lets the scheduler, the kubelets and the controllers take a step
// with every pod and claim.
func (w *world) kubernetes() {
	for _, name := range slices.Sorted(maps.Keys(w.objects["Pod"])) {
		w.stepPod(name)
	}
	for _, name := range slices.Sorted(maps.Keys(w.objects["PersistentVolumeClaim"])) {
		volume := w.volume(name)
		switch {
		case volume.DeletionTimestamp != nil && !w.isMounted(name):
			delete(w.objects["PersistentVolumeClaim"], name)
			delete(w.data, volume.UID)
		case volume.Status.Phase == corev1.ClaimBound && volume.Status.Capacity.Storage().Cmp(*volume.Spec.Resources.Requests.Storage()) < 0:
			change(w, name, func(v *corev1.PersistentVolumeClaim) {
				v.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: *v.Spec.Resources.Requests.Storage()}
			})
		}
	}
}

// volumesOf are the claims that a pod uses, by name; nil where there is none.
func (w *world) volumesOf(pod *corev1.Pod) map[string]*corev1.PersistentVolumeClaim {
	claims := map[string]*corev1.PersistentVolumeClaim{}
	for _, v := range pod.Spec.Volumes {
		if v.PersistentVolumeClaim != nil {
			claims[v.PersistentVolumeClaim.ClaimName] = w.volume(v.PersistentVolumeClaim.ClaimName)
		}
	}
	return claims
}

// unusable is one of the claims that a pod uses and that is missing or leaving;
// empty: none.
func (w *world) unusable(pod *corev1.Pod) string {
	claims := w.volumesOf(pod)
	for _, name := range slices.Sorted(maps.Keys(claims)) {
		if claim := claims[name]; claim == nil || claim.DeletionTimestamp != nil {
			return name
		}
	}
	return ""
}

func (w *world) isMounted(claim string) bool {
	for name := range w.objects["Pod"] {
		if pod := w.pod(name); pod.Spec.NodeName != "" && specs.UsesVolume(pod, claim) {
			return true
		}
	}
	return false
}

func (w *world) stepPod(name string) {
	pod := w.pod(name)
	switch {
	case isVerifier(pod):
		w.stepVerifier(pod)
	case pod.DeletionTimestamp != nil:
		delete(w.objects["Pod"], name)
		delete(w.states, pod.UID)
		delete(w.servers, pod.UID)
		delete(w.mounted, pod.UID)
	case pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded:
	case pod.Spec.NodeName == "" && w.unusable(pod) != "":
		w.unschedulable(name, fmt.Sprintf("persistentvolumeclaim %q not found", w.unusable(pod)))
	case pod.Spec.NodeName == "" && w.lost[w.volume(name).UID] != "":
		w.unschedulable(name, "0/3 nodes are available: 3 node(s) didn't match PersistentVolume's node affinity.")
	case pod.Spec.NodeName == "" && w.full:
		w.unschedulable(name, "0/3 nodes are available: 3 Insufficient cpu.")
	case pod.Spec.NodeName == "":
		change(w, name, func(p *corev1.Pod) {
			p.Spec.NodeName = "node-" + name[len(name)-1:]
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}}
		})
		for claim := range w.volumesOf(pod) {
			change(w, claim, func(v *corev1.PersistentVolumeClaim) {
				v.Status.Phase = corev1.ClaimBound
				v.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: *v.Spec.Resources.Requests.Storage()}
			})
		}
	case pod.Status.Phase == corev1.PodPending:
		if w.unusable(pod) == "" && isUsable(w.tlsSecret(name)) {
			w.mounted[pod.UID] = w.tlsSecret(name)
			change(w, name, func(p *corev1.Pod) {
				p.Status.Phase = corev1.PodRunning
				p.Status.PodIP = "10.0.0." + name[len(name)-1:]
				p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: specs.PostgresContainer, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
			})
		}
	default:
		if secret := w.tlsSecret(name); !w.late[name] && isUsable(secret) {
			w.mounted[pod.UID] = secret
		}
		w.probe(name, w.states[pod.UID].Ready)
	}
}

func (w *world) unschedulable(name, message string) {
	if c := w.pod(name).Status.Conditions; len(c) > 0 && c[0].Message == message {
		return
	}
	change(w, name, func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: message}}
	})
}

func (w *world) probe(name string, ready bool) {
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	conditions := w.pod(name).Status.Conditions
	if len(conditions) == 2 && conditions[1].Status == status {
		return
	}
	change(w, name, func(p *corev1.Pod) {
		p.Status.Conditions = append(p.Status.Conditions[:1], corev1.PodCondition{Type: corev1.PodReady, Status: status})
	})
}

// agents lets every agent take a step.
func (w *world) agents() {
	for _, name := range slices.Sorted(maps.Keys(w.objects["Pod"])) {
		if pod := w.pod(name); pod.DeletionTimestamp == nil && pod.Status.Phase == corev1.PodRunning && !isVerifier(pod) {
			state := w.stepAgent(pod)
			w.stepBackups(pod, w.told(), &state)
			w.states[pod.UID] = state
		}
	}
}

// stepAgent is the part of an agent that the operator sees.
func (w *world) stepAgent(pod *corev1.Pod) instanceapi.State {
	s := instanceapi.State{Instance: pod.Name, Declared: &instanceapi.DeclaredState{}, Stopping: w.toldToStop(), PodUID: string(pod.UID), Inspected: true, Credentials: instanceapi.CredentialsHash(w.mounted[pod.UID].Data)}
	volume, lease := w.volume(pod.Name), w.lease()
	configMap, _ := w.objects["ConfigMap"]["shop-config"].(*corev1.ConfigMap)
	if volume == nil || lease == nil || configMap == nil {
		before := w.states[pod.UID] // what it does needs none of them
		before.Instance, before.PodUID, before.Credentials, before.Stopping = s.Instance, s.PodUID, s.Credentials, s.Stopping
		if before.Phase == "" {
			before.Phase, before.Message = instanceapi.PhaseWaiting, "the cluster's objects are not there yet"
		}
		return before
	}
	config, err := instanceapi.ParseConfig(configMap.Data[instanceapi.ConfigKey])
	if err != nil {
		panic(err)
	}
	record, holder := Observation{Lease: lease}.record()
	data := w.data[volume.UID]
	if data != nil && !w.hasWAL(pod, data) {
		if record.IsEmpty() || holder.Instance == pod.Name || !w.primaryAnswers(holder) || !specs.UsesVolume(pod, specs.WALVolumeName(pod.Name)) {
			s.DataID, s.SystemID, s.Phase, s.Message = data.dataID, data.systemID, instanceapi.PhaseFailed, "its WAL volume is empty"
			return s
		}
		data = nil
	}
	switch {
	case data != nil:
	case record.IsEmpty() && config.SystemID == "" && config.Bootstrap.Instance == pod.Name && config.Bootstrap.Restore != nil:
		if s.RestoreFailed = w.bucket.lacks; s.RestoreFailed != "" {
			s.Phase, s.Message = instanceapi.PhaseFailed, s.RestoreFailed
			return s
		}
		data = w.fill(volume, volumeData{systemID: w.cluster.Status.SystemID, lastHolder: pod.Name,
			recovered: &instanceapi.Recovered{LSN: 0x3000148, LastCommit: recoveredUntil}})
	case record.IsEmpty() && config.SystemID == "" && config.Bootstrap.Instance == pod.Name && config.Bootstrap.Clone != nil:
		secret, _ := w.objects["Secret"][config.Bootstrap.Clone.Secret].(*corev1.Secret)
		if secret == nil {
			s.Phase, s.Message = instanceapi.PhaseFailed, "there is no Secret for the copy"
			return s
		}
		data = w.fill(volume, volumeData{systemID: otherSystemID, lastHolder: pod.Name})
	case record.IsEmpty() && config.SystemID == "" && config.Bootstrap.Instance == pod.Name:
		if config.Bootstrap.Encoding == "" || w.cluster.Status.SystemID != "" {
			panic("asked for an empty database instead of one that exists")
		}
		w.serial++
		data = w.fill(volume, volumeData{systemID: fmt.Sprint(7432000000000000000 + w.serial), lastHolder: pod.Name})
	case !record.IsEmpty() && holder.Instance != pod.Name && w.primaryAnswers(holder) && slices.Contains(config.Members, pod.Name):
		data = w.fill(volume, volumeData{systemID: record.SystemID, lastHolder: holder.Instance, term: record.Term})
	default:
		s.Phase, s.Message = instanceapi.PhaseWaiting, "there is no data to clone"
		return s
	}
	if r := config.Reclone; r != nil && r.Instance == pod.Name && r.DataID == data.dataID && w.primaryAnswers(holder) && holder.Instance != pod.Name {
		data = w.fill(volume, *data)
	}
	s.HasData, s.DataID, s.SystemID, s.ServerVersion, s.Timeline, s.Recovered = true, data.dataID, data.systemID, "17.6", 1, data.recovered
	if !w.stepServer(pod, data, configOf(configMap), config.Restart, holder, &s) {
		s.Phase = instanceapi.PhaseStarting
		return s
	}
	me := election.Holder{Instance: pod.Name, PodUID: string(pod.UID)}
	forced := config.ForcePromote != nil && *config.ForcePromote == instanceapi.ForcePromote{Instance: pod.Name, Term: record.Term}
	if holder.Instance == pod.Name || record.IsEmpty() && data.lastHolder == pod.Name || forced && !w.primaryAnswers(holder) {
		if holder != me {
			w.crown(pod)
		}
		if to := w.successor(config.Switchover, me); to != nil {
			w.crown(to)
			s.Phase, s.Message = instanceapi.PhaseStarting, "as a replica"
			delete(w.servers, pod.UID)
			return s
		}
		w.serveInSlice(pod)
		s.Role, s.Ready, s.WrittenLSN = instanceapi.RolePrimary, true, endOfWAL
		s.Declared = apply(config.Declared)
		w.setPasswords(config, s.Declared)
		s.Standbys = w.countMembers(pod.Name, config.Members)
		return s
	}
	s.Role = instanceapi.RoleReplica
	s.Streaming = w.primaryAnswers(holder) && slices.Contains(config.Members, pod.Name)
	s.Ready = s.Streaming
	s.ReceivedLSN, s.ReplayedLSN = endOfWAL, endOfWAL
	if !s.Ready {
		s.Message = "waiting for the primary"
	}
	return s
}

// apply is what a primary says of what is declared: what is called bad fails.
func apply(d instanceapi.Declared) *instanceapi.DeclaredState {
	s := &instanceapi.DeclaredState{Hash: d.Hash()}
	entry := func(name string) instanceapi.DeclaredEntry {
		e := instanceapi.DeclaredEntry{Name: name}
		if strings.HasPrefix(name, "bad") {
			e.Problem = `create it: ERROR: role "nowhere" does not exist`
		}
		return e
	}
	for _, r := range d.Roles {
		s.Roles = append(s.Roles, entry(r.Name))
	}
	for _, database := range d.Databases {
		s.Databases = append(s.Databases, entry(database.Name))
	}
	return s
}

// setPasswords gives the server the passwords of the operator's Secrets, the next ones
// where there are any, and tells of these.
func (w *world) setPasswords(config instanceapi.Config, s *instanceapi.DeclaredState) {
	for _, r := range config.WithOwner().Roles {
		e := &instanceapi.DeclaredEntry{Name: r.Name}
		if r.PasswordOnly {
			s.Owner = e
		} else {
			e = &s.Roles[slices.IndexFunc(s.Roles, func(e instanceapi.DeclaredEntry) bool { return e.Name == r.Name })]
		}
		secret, found := w.objects["Secret"][r.Secret].(*corev1.Secret)
		if !r.OwnSecret || !found || e.Problem != "" {
			continue
		}
		w.passwords[r.Name] = string(secret.Data[instanceapi.PasswordKey])
		if next := specs.NextPassword(secret); next != "" {
			w.passwords[r.Name], e.Next = next, instanceapi.PasswordMark(next)
		}
		w.logins[r.Name] = map[string]string{string(secret.Data[instanceapi.UsernameKey]): w.passwords[r.Name]}
		if user, password := string(secret.Data[instanceapi.OtherUsernameKey]), string(secret.Data[instanceapi.OtherPasswordKey]); user != "" {
			w.logins[r.Name][user], e.Next = password, instanceapi.LoginMark(user, password)
		}
	}
}

const endOfWAL = "0/5000000"

// recoveredUntil is when the last transaction was committed that restores recover.
var recoveredUntil = time.Date(2026, 3, 29, 1, 2, 3, 456789000, time.UTC)

// configOf is the configuration in a ConfigMap.
func configOf(configMap *corev1.ConfigMap) serverConfig {
	conf := configMap.Data[instanceapi.PostgresConfKey]
	c := serverConfig{hash: instanceapi.ConfigHash(conf, configMap.Data[instanceapi.HBAKey], configMap.Data[instanceapi.IdentKey]), connections: 100}
	for line := range strings.Lines(conf) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " = ")
		switch value = strings.Trim(value, "'"); name {
		case "max_connections":
			if n, err := strconv.Atoi(value); err == nil {
				c.connections = n
			}
		case "shared_preload_libraries":
			c.library = value
		}
	}
	return c
}

// stepServer starts or restarts the pod's server, if it has to, and says what waits
// for a restart. It returns whether the server runs.
func (w *world) stepServer(pod *corev1.Pod, data *volumeData, want serverConfig, asked *instanceapi.Restart, holder election.Holder, s *instanceapi.State) bool {
	isStandby := holder.Instance != "" && holder.Instance != pod.Name
	if w.servers[pod.UID] == nil {
		w.servers[pod.UID] = startServer(data, want, isStandby)
	}
	runs := w.servers[pod.UID]
	if primary := w.pod(holder.Instance); isStandby && primary != nil && w.servers[primary.UID] != nil && w.primaryAnswers(holder) {
		data.demand = w.servers[primary.UID].connections
	} else if !isStandby {
		data.demand = runs.connections
	}
	if runs.connections < data.demand {
		w.outgrown++
		delete(w.servers, pod.UID)
		return false
	}
	s.Phase, s.ConfigHash = instanceapi.PhaseRunning, want.hash
	if runs.refused == want.hash {
		s.ConfigHash, s.ConfigError = runs.hash, fmt.Sprintf("could not access file %q", want.library)
		return true
	}
	if isStandby && want.connections < data.demand {
		want.connections, s.Kept = data.demand, []string{"max_connections"}
	}
	if want.connections != runs.connections {
		s.PendingRestart = append(s.PendingRestart, "max_connections")
	}
	if want.connections > runs.connections {
		s.Raised = s.PendingRestart
	} else if want.connections < runs.connections {
		s.Lowered = s.PendingRestart
	}
	if want.library != runs.library {
		s.PendingRestart = append(s.PendingRestart, "shared_preload_libraries")
	}
	if len(s.PendingRestart) > 0 && asked != nil && *asked == (instanceapi.Restart{Instance: pod.Name, ConfigHash: want.hash}) {
		w.restarts = append(w.restarts, pod.Name)
		delete(w.servers, pod.UID)
		return false
	}
	return true
}

func startServer(data *volumeData, want serverConfig, isStandby bool) *server {
	s := &server{serverConfig: want}
	if want.library == noLibrary {
		s.serverConfig, s.refused = data.good, want.hash
		s.connections = max(s.connections, 100)
	} else {
		data.good = want
	}
	if isStandby {
		s.connections = max(s.connections, data.demand)
	}
	return s
}

// told is what the agents are told.
func (w *world) told() instanceapi.Config {
	configMap, _ := w.objects["ConfigMap"]["shop-config"].(*corev1.ConfigMap)
	return Observation{ConfigMap: configMap}.told()
}

// toldToStop says whether the agents know that the cluster is to stop.
func (w *world) toldToStop() bool { return w.told().Stop }

func (w *world) primaryAnswers(holder election.Holder) bool {
	pod := w.pod(holder.Instance)
	return pod != nil && string(pod.UID) == holder.PodUID && w.states[pod.UID].Role == instanceapi.RolePrimary
}

// restartsInPlace says whether the primary's server is away and its agent is not:
// that keeps the Lease.
func (w *world) restartsInPlace(holder election.Holder) bool {
	pod := w.pod(holder.Instance)
	return pod != nil && string(pod.UID) == holder.PodUID && pod.DeletionTimestamp == nil && w.states[pod.UID].Phase == instanceapi.PhaseStarting && w.servers[pod.UID] == nil
}

// fill puts new data on a volume.
func (w *world) fill(volume *corev1.PersistentVolumeClaim, data volumeData) *volumeData {
	w.serial++
	data.dataID, data.wal = fmt.Sprint("data-", w.serial), ""
	w.data[volume.UID] = &data
	w.hasWAL(w.pod(volume.Name), &data)
	return &data
}

// hasWAL says whether the pod finds the WAL of its data. A pod that has got a WAL
// volume since moves it there.
func (w *world) hasWAL(pod *corev1.Pod, data *volumeData) bool {
	name := specs.WALVolumeName(pod.Name)
	claim := w.volume(name)
	if claim == nil || !specs.UsesVolume(pod, name) {
		return data.wal == ""
	}
	if data.wal == "" {
		data.wal = claim.UID
	}
	return data.wal == claim.UID
}

// crown gives the Lease to a pod whose volume holds data.
func (w *world) crown(pod *corev1.Pod) {
	record, _ := Observation{Lease: w.lease()}.record()
	data := w.data[w.volume(pod.Name).UID]
	data.term, data.lastHolder = max(data.term, record.Term)+1, pod.Name
	now := metav1.NewMicroTime(w.now)
	change(w, "shop", func(l *coordinationv1.Lease) {
		l.Spec.HolderIdentity = ptr.To(election.Holder{Instance: pod.Name, PodUID: string(pod.UID)}.String())
		l.Spec.AcquireTime, l.Spec.RenewTime = &now, &now
		reign := election.Record{Term: data.term, SystemID: data.systemID, HolderDataID: data.dataID}
		metav1.SetMetaDataAnnotation(&l.ObjectMeta, election.RecordAnnotation, reign.String())
	})
	w.serveInSlice(pod)
}

// serveInSlice lets the rw Service lead to a pod, as its agent does.
func (w *world) serveInSlice(pod *corev1.Pod) {
	live, exists := w.objects["EndpointSlice"]["shop-rw"].(*discoveryv1.EndpointSlice)
	if !exists || len(live.Endpoints) == 1 && live.Endpoints[0].TargetRef.UID == pod.UID {
		return
	}
	record, _ := Observation{Lease: w.lease()}.record()
	if term, err := strconv.ParseUint(live.Annotations[instanceapi.SliceTermAnnotation], 10, 64); err == nil && term > record.Term {
		return
	}
	serving := []discoveryv1.Endpoint{{Addresses: []string{pod.Status.PodIP}, TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: pod.Name, UID: pod.UID}}}
	change(w, "shop-rw", func(s *discoveryv1.EndpointSlice) {
		s.Endpoints = serving
		metav1.SetMetaDataAnnotation(&s.ObjectMeta, instanceapi.SliceTermAnnotation, fmt.Sprint(record.Term))
	})
}

// successor is the pod to which the primary hands over; nil if it keeps the Lease.
func (w *world) successor(s *instanceapi.Switchover, me election.Holder) *corev1.Pod {
	record, _ := Observation{Lease: w.lease()}.record()
	if s == nil || s.From != me.Instance || s.Term != record.Term {
		return nil
	}
	for _, m := range record.Members {
		if pod := w.pod(m.Instance); w.mayLead(m) && (s.To == "" || s.To == m.Instance) {
			return pod
		}
	}
	return nil
}

// elect lets the members of the record take over from a primary that does not
// answer.
func (w *world) elect() {
	lease := w.lease()
	if lease == nil {
		return
	}
	record, holder := Observation{Lease: lease}.record()
	if w.primaryAnswers(holder) || w.restartsInPlace(holder) || w.toldToStop() {
		return
	}
	for _, m := range record.Members {
		if w.mayLead(m) {
			w.crown(w.pod(m.Instance))
			return
		}
	}
}

// mayLead says whether a member's server runs on the data that the record names.
func (w *world) mayLead(m election.Member) bool {
	pod, volume := w.pod(m.Instance), w.volume(m.Instance)
	return pod != nil && volume != nil && w.data[volume.UID] != nil && w.data[volume.UID].dataID == m.DataID &&
		pod.DeletionTimestamp == nil && w.states[pod.UID].Role == instanceapi.RoleReplica
}

// countMembers writes into the record who streams, and returns them.
func (w *world) countMembers(primary string, names []string) []instanceapi.Standby {
	var standbys []instanceapi.Standby
	var members []election.Member
	for _, name := range names {
		if pod := w.pod(name); pod != nil && name != primary && w.states[pod.UID].Streaming {
			id := w.states[pod.UID].DataID
			standbys = append(standbys, instanceapi.Standby{Name: name, DataID: id, State: "streaming", Sync: true})
			members = append(members, election.Member{Instance: name, DataID: id})
		}
	}
	w.record(func(r *election.Record) { r.Members, r.Votes = members, min(1, len(members)) })
	return standbys
}

// record edits the record of the reign.
func (w *world) record(edit func(*election.Record)) {
	record, _ := Observation{Lease: w.lease()}.record()
	before := record.String()
	if edit(&record); record.String() != before {
		change(w, "shop", func(l *coordinationv1.Lease) {
			metav1.SetMetaDataAnnotation(&l.ObjectMeta, election.RecordAnnotation, record.String())
		})
	}
}

// settle lets everybody take turns until nothing happens any more, and returns
// the status; false if it does not come to that.
func (w *world) settle() (v1.PostgresClusterStatus, bool) {
	const rounds, quiet = 90, 3
	still := 0
	for range rounds {
		before := w.serial
		w.catchUp(allKinds...)
		_, p, status := w.pass()
		w.kubernetes()
		w.agents()
		if w.elections {
			w.elect()
		}
		w.now = w.now.Add(time.Second)
		if still++; len(p.Actions) > 0 || w.serial != before {
			still = 0
		}
		if still == quiet {
			return status, true
		}
	}
	return w.cluster.Status, false
}

// edit changes the spec, as a user does.
func (w *world) edit(change func(*v1.PostgresClusterSpec)) {
	w.cluster = w.cluster.DeepCopy()
	change(&w.cluster.Spec)
	w.cluster.Generation++
}
