package cluster

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	postgresfake "github.com/pgop/postgres-operator/pkg/generated/clientset/versioned/fake"
	"github.com/pgop/postgres-operator/pkg/pki"
	"github.com/pgop/postgres-operator/pkg/specs"
)

func kubeOf(client *fake.Clientset) Kube {
	return Kube{Core: client.CoreV1(), RBAC: client.RbacV1(), Coordination: client.CoordinationV1(), Discovery: client.DiscoveryV1(), Policy: client.PolicyV1()}
}

// everyObject is one of each kind that plans are made of.
func everyObject(c *v1.PostgresCluster) []object {
	c = v1.WithDefaults(c)
	services := specs.Services(c)
	configMap, err := specs.NewConfigMap(c, specs.Configuration{Members: []string{"shop-1"}})
	if err != nil {
		panic(err)
	}
	return []object{
		specs.Pod(c, "shop-1", testImage), specs.Volume(c, "shop-1"), services[0], specs.NewCASecret(c, pki.Pair{}), configMap,
		specs.InstanceServiceAccount(c), specs.InstanceRole(c), specs.InstanceRoleBinding(c), specs.NewLease(c),
		specs.RWEndpointSlice(c, services[0]), specs.DisruptionBudget(c, 3),
	}
}

func TestEveryKindCanBeMadeChangedAndDeleted(t *testing.T) {
	ctx := context.Background()
	a := actor{client: kubeOf(fake.NewClientset()), owner: "cluster-1"}
	for _, o := range everyObject(newWorld(1).cluster) {
		if _, failure := a.act(ctx, Action{Verb: Create, Object: o}); failure != nil {
			t.Fatalf("%v: %v", failure.Action, failure.Err)
		}
		changed := o.DeepCopyObject().(object)
		changed.SetLabels(map[string]string{"changed": "yes"})
		if _, failure := a.act(ctx, Action{Verb: Update, Object: changed}); failure != nil {
			t.Fatalf("%v: %v", failure.Action, failure.Err)
		}
		live, err := getObject(ctx, a.client, o)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(changed.GetLabels(), live.GetLabels()); diff != "" {
			t.Errorf("%s: %s", kindOf(o), diff)
		}
		if _, failure := a.act(ctx, Action{Verb: Delete, Object: changed}); failure != nil {
			t.Fatalf("%v: %v", failure.Action, failure.Err)
		}
		if _, err := getObject(ctx, a.client, o); !apierrors.IsNotFound(err) {
			t.Errorf("%s: still there: %v", kindOf(o), err)
		}
	}
}

func TestARequestIsClearedWithItsValue(t *testing.T) {
	ctx := context.Background()
	c := newWorld(1).cluster
	c.Annotations = map[string]string{v1.RestartAnnotation: "now", "mine": "yes"}
	clusters := postgresfake.NewSimpleClientset(c).PgopV1()
	a := actor{clusters: clusters}
	if _, failure := a.act(ctx, Action{Verb: Clear, Object: c, Annotation: v1.RestartAnnotation}); failure != nil {
		t.Fatalf("%v: %v", failure.Action, failure.Err)
	}
	live, err := clusters.PostgresClusters("db").Get(ctx, "shop", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"mine": "yes"}, live.Annotations); diff != "" {
		t.Error(diff)
	}
}

// B-06: what is gone already is as wanted.
func TestWhatIsGoneNeedsNoDeletion(t *testing.T) {
	a := actor{client: kubeOf(fake.NewClientset()), owner: "cluster-1"}
	for _, o := range everyObject(newWorld(1).cluster) {
		for _, verb := range []Verb{Delete, Update} {
			if _, failure := a.act(context.Background(), Action{Verb: verb, Object: o}); failure != nil {
				t.Errorf("%v: %v", failure.Action, failure.Err)
			}
		}
	}
}

// B-22: a delete carries the UID that was seen, so that the API server spares
// what has taken its name meanwhile, and a volume that has changed.
func TestDeletesCarryTheUIDThatWasSeen(t *testing.T) {
	client := fake.NewClientset()
	a := actor{client: kubeOf(client), owner: "cluster-1"}
	for _, o := range everyObject(newWorld(1).cluster) {
		o.SetUID(types.UID("seen-" + o.GetName()))
		o.SetResourceVersion("7")
		if _, failure := a.act(context.Background(), Action{Verb: Delete, Object: o}); failure != nil {
			t.Fatal(failure.Err)
		}
		actions := client.Actions()
		last := actions[len(actions)-1].(clienttesting.DeleteAction)
		want := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: ptr.To(o.GetUID())}}
		if kindOf(o) == "PersistentVolumeClaim" {
			want.Preconditions.ResourceVersion = ptr.To("7")
		}
		if diff := cmp.Diff(want, last.GetDeleteOptions()); diff != "" {
			t.Errorf("%s: %s", kindOf(o), diff)
		}
	}
}

func TestCreatingWhatExists(t *testing.T) {
	c := v1.WithDefaults(newWorld(1).cluster)
	another := c.DeepCopy()
	another.UID = "cluster-2"
	wanted := specs.Services(c)[0]
	leaving := specs.Services(another)[0]
	leaving.DeletionTimestamp, leaving.Finalizers = ptr.To(metav1.Now()), []string{"example.com/wait"}
	unlabelled := specs.Services(c)[0]
	unlabelled.Labels = map[string]string{"mine": "yes"}
	retained := specs.Volume(another, "shop-1")
	stranger := specs.Volume(another, "shop-1")
	stranger.Labels = nil
	cases := []struct {
		why          string
		live, wanted object
		// failure is what people read; empty: done.
		failure string
		labels  map[string]string
	}{
		{"ours, and the cache is behind", specs.Services(c)[0], wanted, "", wanted.Labels},
		{"ours, and somebody took its labels", unlabelled, wanted, "", map[string]string{
			"mine": "yes", specs.ClusterLabel: "shop", specs.ManagedByLabel: specs.ManagedBy,
			"app.kubernetes.io/name": "postgresql", "app.kubernetes.io/instance": "shop",
		}},
		{"of another life of the cluster", specs.Services(another)[0], wanted,
			"Service shop-rw exists and does not belong to this cluster, so it is left alone; delete or rename it, or give the cluster another name", wanted.Labels},
		{"of another life, and on its way out", leaving, wanted,
			"Service shop-rw of an earlier cluster is still being deleted; waiting until it is gone", wanted.Labels},
		{"nobody's", &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "db", Name: "shop-rw"}}, wanted,
			"Service shop-rw exists and does not belong to this cluster, so it is left alone; delete or rename it, or give the cluster another name", nil},
		{"a retained volume", retained, specs.Volume(c, "shop-1"), "", retained.Labels},
		{"somebody's volume", stranger, specs.Volume(c, "shop-1"),
			"PersistentVolumeClaim shop-1 exists and does not belong to this cluster, so it is left alone; delete or rename it, or give the cluster another name", nil},
	}
	for _, c := range cases {
		client := fake.NewClientset(c.live)
		a := actor{client: kubeOf(client), owner: "cluster-1"}
		_, failure := a.act(context.Background(), Action{Verb: Create, Object: c.wanted})
		got := ""
		if failure != nil {
			got = failure.Err.Error()
			if failure.Reason != v1.ReasonNameConflict {
				t.Errorf("%s: reason %s", c.why, failure.Reason)
			}
		}
		if diff := cmp.Diff(c.failure, got); diff != "" {
			t.Errorf("%s: %s", c.why, diff)
		}
		live, err := getObject(context.Background(), a.client, c.wanted)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.labels, live.GetLabels()); diff != "" {
			t.Errorf("%s: labels afterwards: %s", c.why, diff)
		}
		if live.GetUID() != c.live.GetUID() {
			t.Errorf("%s: it was replaced", c.why)
		}
	}
}

func TestRefusalsOfTheAPIServer(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	pod := specs.Pod(v1.WithDefaults(newWorld(1).cluster), "shop-1", testImage)
	quota := apierrors.NewForbidden(pods, "shop-1", errors.New("exceeded quota"))
	cases := []struct {
		why     string
		verb    Verb
		refusal error
		want    error
	}{
		{"no room in a quota", Create, quota, quota},
		{"a server that is away", Create, apierrors.NewInternalError(errors.New("away")), apierrors.NewInternalError(errors.New("away"))},
		{"changed since it was seen", Update, apierrors.NewConflict(pods, "shop-1", errors.New("changed")), nil},
		{"replaced since it was seen", Delete, apierrors.NewConflict(pods, "shop-1", errors.New("UID in precondition")), nil},
		{"an update that is refused", Update, quota, quota},
		{"a deletion that is refused", Delete, quota, quota},
	}
	for _, c := range cases {
		client := fake.NewClientset()
		client.PrependReactor(string(c.verb), "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, c.refusal })
		_, failure := actor{client: kubeOf(client), owner: "cluster-1"}.act(context.Background(), Action{Verb: c.verb, Object: pod})
		switch {
		case (failure == nil) != (c.want == nil):
			t.Errorf("%s: got %+v, want %v", c.why, failure, c.want)
		case failure != nil:
			if diff := cmp.Diff([]string{v1.ReasonCreateFailed, c.want.Error()}, []string{failure.Reason, failure.Err.Error()}); diff != "" {
				t.Errorf("%s: %s", c.why, diff)
			}
		}
	}
}

// B-07: the loop is told that everything goes, and leaves it alone.
func TestNamespaceThatGoesIsNoFailureOfItsOwn(t *testing.T) {
	terminating := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "shop-1", errors.New("because it is being terminated"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	client := fake.NewClientset()
	client.PrependReactor("create", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, terminating })
	pod := specs.Pod(v1.WithDefaults(newWorld(1).cluster), "shop-1", testImage)
	_, failure := actor{client: kubeOf(client), owner: "cluster-1"}.act(context.Background(), Action{Verb: Create, Object: pod})
	if failure == nil || !errors.Is(failure.Err, errNamespaceGoes) {
		t.Errorf("got %+v", failure)
	}
}

// A pod that serves is not deleted for one that the API server would not have.
func TestAPodStaysWhenItsSuccessorIsInvalid(t *testing.T) {
	c := v1.WithDefaults(newWorld(1).cluster)
	old, next := specs.Pod(c, "shop-1", testImage), specs.Pod(c, "shop-1", testImage)
	for _, answer := range []struct {
		why  string
		err  error
		goes bool
	}{
		{"it is invalid", apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "shop-1", nil), false},
		{"the name is taken, by the pod itself", apierrors.NewAlreadyExists(schema.GroupResource{Resource: "pods"}, "shop-1"), true},
		{"the quota is full, of the pod itself perhaps", apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "shop-1", errors.New("exceeded quota")), true},
	} {
		client := fake.NewClientset(old.DeepCopy())
		client.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
			if dry := action.(clienttesting.CreateActionImpl).CreateOptions.DryRun; len(dry) != 1 || dry[0] != metav1.DryRunAll {
				t.Errorf("%s: it is made: %v", answer.why, dry)
			}
			return true, nil, answer.err
		})
		a := actor{client: kubeOf(client)}
		did, failure := a.act(context.Background(), Action{Verb: Delete, Object: old, Successor: next})
		_, err := client.CoreV1().Pods(old.Namespace).Get(context.Background(), old.Name, metav1.GetOptions{})
		if did != answer.goes || (failure == nil) != answer.goes || apierrors.IsNotFound(err) != answer.goes {
			t.Errorf("%s: deleted %v, failure %v, then %v", answer.why, did, failure, err)
		}
	}
}

// B-22: a cache of volumes that is behind shows none for a pod that has one. The pod
// stays.
func TestB22APodWhoseVolumeIsThereStays(t *testing.T) {
	c := v1.WithDefaults(newWorld(1).cluster)
	pod, volume := specs.Pod(c, "shop-1", testImage), specs.Volume(c, "shop-1")
	away := apierrors.NewInternalError(errors.New("away"))
	for _, truth := range []struct {
		why            string
		objects        []runtime.Object
		refusal        error
		deleted, fails bool
	}{
		{"it is there", []runtime.Object{pod, volume}, nil, false, false},
		{"it is gone", []runtime.Object{pod}, nil, true, false},
		{"nobody knows", []runtime.Object{pod}, away, false, true},
	} {
		client := fake.NewClientset(truth.objects...)
		client.PrependReactor("get", "persistentvolumeclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
			return truth.refusal != nil, nil, truth.refusal
		})
		a := actor{client: kubeOf(client)}
		did, failure := a.act(context.Background(), Action{Verb: Delete, Object: pod, Missing: []object{volume}})
		_, err := client.CoreV1().Pods(pod.Namespace).Get(context.Background(), pod.Name, metav1.GetOptions{})
		if did != truth.deleted || apierrors.IsNotFound(err) != truth.deleted || (failure != nil) != truth.fails {
			t.Errorf("%s: deleted %v, failure %v, then %v", truth.why, did, failure, err)
		}
	}
}
