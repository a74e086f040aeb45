//go:build e2e

package framework

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/specs"
)

// Script is how an instance misbehaves. The zero Script is none at all.
type Script struct {
	// Unschedulable is the scheduler's message about a pod that fits nowhere.
	Unschedulable string
	// Waiting is why the server's container does not start, such as
	// ErrImagePull.
	Waiting string
	// Failed ends the pod, with this reason.
	Failed string
	// Lingers keeps a deleted pod Terminating, as on a node that is gone.
	Lingers bool
	// Hangs lets the agent accept connections and never answer.
	Hangs bool
	// KeepsTheLead lets a primary that is asked to hand over do nothing.
	KeepsTheLead bool
	// TakesLong lets a backup that an agent takes not end.
	TakesLong bool
	// State changes what the agent says of itself.
	State func(*instanceapi.State)
}

// Kubelet stands in for what acts on a namespace's objects in a real cluster:
// it binds claims, runs pods and their agents, and collects garbage.
type Kubelet struct {
	f         *Framework
	factory   informers.SharedInformerFactory
	clusters  cache.SharedIndexInformer
	kinds     []kind
	wake      chan struct{}
	cancel    context.CancelFunc
	ended     chan struct{}
	collector collector

	mu      sync.Mutex
	scripts map[string]Script
	// volumes hold what agents left in them, by the UID of the claim.
	volumes map[types.UID]*volume
	// agents run in pods, by the UID of the pod.
	agents map[types.UID]*agent
	// stored are the backups that the store has, by cluster.
	stored       map[string][]instanceapi.BackupInfo
	catalogReads atomic.Int64
}

// NoSuchClass is a storage class of which nobody provisions volumes.
const NoSuchClass = "no-such-class"

// settle lets changes that come together be seen together.
const settle = 20 * time.Millisecond

// tick is how often a Kubelet looks although nothing has woken it.
const tick = 250 * time.Millisecond

func startKubelet(f *Framework) *Kubelet {
	ctx, cancel := context.WithCancel(context.Background())
	k := &Kubelet{
		f: f, wake: make(chan struct{}, 1), cancel: cancel, ended: make(chan struct{}),
		factory: informers.NewSharedInformerFactoryWithOptions(f.Kube, 0, informers.WithNamespace(f.Namespace)),
		scripts: map[string]Script{}, volumes: map[types.UID]*volume{}, agents: map[types.UID]*agent{},
		stored: map[string][]instanceapi.BackupInfo{},
	}
	k.listKinds()
	for _, kind := range k.kinds {
		handler := cache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { k.poke() }, UpdateFunc: func(any, any) { k.poke() }, DeleteFunc: func(any) { k.poke() },
		}
		if _, err := kind.informer.AddEventHandler(handler); err != nil {
			f.T.Fatal(err)
		}
		go kind.informer.RunWithContext(ctx)
	}
	for _, kind := range k.kinds {
		if !cache.WaitForCacheSync(ctx.Done(), kind.informer.HasSynced) {
			f.T.Fatalf("fill the kubelet's cache of %s", kind.Resource)
		}
	}
	go k.run(ctx)
	return k
}

func (k *Kubelet) run(ctx context.Context) {
	defer close(k.ended)
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		k.collect(ctx)
		k.lookAfterClaims(ctx)
		k.lookAfterPods(ctx)
		select {
		case <-ctx.Done():
			return
		case <-k.wake:
			time.Sleep(settle)
		case <-ticker.C:
		}
	}
}

func (k *Kubelet) stop() {
	k.cancel()
	<-k.ended
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, a := range k.agents {
		a.close()
	}
}

func (k *Kubelet) poke() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// Script sets how an instance misbehaves from now on, in every pod of it.
func (k *Kubelet) Script(instance string, s Script) {
	k.mu.Lock()
	k.scripts[instance] = s
	k.mu.Unlock()
	k.poke()
}

func (k *Kubelet) scriptOf(instance string) Script {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.scripts[instance]
}

// report notes what went wrong, unless somebody else was just faster or the
// test is over: the next look sees it.
func (k *Kubelet) report(ctx context.Context, err error) {
	if err == nil || ctx.Err() != nil || apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return
	}
	k.f.T.Logf("kubelet: %v", err)
}

// lookAfterClaims is the provisioner and the protector of claims in use.
func (k *Kubelet) lookAfterClaims(ctx context.Context) {
	claims, _ := k.factory.Core().V1().PersistentVolumeClaims().Lister().List(labels.Everything()) // a cache can't fail
	for _, claim := range claims {
		client := k.f.Kube.CoreV1().PersistentVolumeClaims(claim.Namespace)
		if claim.DeletionTimestamp != nil {
			if !k.isUsed(claim.Name) {
				k.report(ctx, dropFinalizer(claim, "kubernetes.io/pvc-protection", func(o *corev1.PersistentVolumeClaim) error {
					_, err := client.Update(ctx, o, metav1.UpdateOptions{})
					return err
				}))
			}
			continue
		}
		asked := claim.Spec.Resources.Requests[corev1.ResourceStorage]
		if ptr.Deref(claim.Spec.StorageClassName, "") == NoSuchClass {
			continue
		}
		if have := claim.Status.Capacity[corev1.ResourceStorage]; claim.Status.Phase == corev1.ClaimBound && have.Equal(asked) {
			continue
		}
		bound := claim.DeepCopy()
		bound.Status.Phase = corev1.ClaimBound
		bound.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: asked}
		_, err := client.UpdateStatus(ctx, bound, metav1.UpdateOptions{})
		k.report(ctx, err)
	}
}

func (k *Kubelet) isUsed(claim string) bool {
	pods, _ := k.factory.Core().V1().Pods().Lister().List(labels.Everything()) // a cache can't fail
	for _, pod := range pods {
		for _, v := range pod.Spec.Volumes {
			if pod.Spec.NodeName == "" {
				continue // as the controller that protects claims sees it
			}
			if v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim {
				return true
			}
		}
	}
	return false
}

func dropFinalizer[T interface {
	metav1.Object
	DeepCopy() T
}](o T, finalizer string, update func(T) error) error {
	var left []string
	for _, f := range o.GetFinalizers() {
		if f != finalizer {
			left = append(left, f)
		}
	}
	if len(left) == len(o.GetFinalizers()) {
		return nil
	}
	o = o.DeepCopy()
	o.SetFinalizers(left)
	return update(o)
}

func (k *Kubelet) lookAfterPods(ctx context.Context) {
	pods, _ := k.factory.Core().V1().Pods().Lister().List(labels.Everything()) // a cache can't fail
	alive := map[types.UID]bool{}
	for _, pod := range pods {
		alive[pod.UID] = true
		k.report(ctx, k.lookAfterPod(ctx, pod))
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for uid, a := range k.agents {
		if !alive[uid] {
			a.close()
			delete(k.agents, uid)
		}
	}
}

// lookAfterPod takes one pod a step further.
func (k *Kubelet) lookAfterPod(ctx context.Context, pod *corev1.Pod) error {
	client := k.f.Kube.CoreV1().Pods(pod.Namespace)
	script := k.scriptOf(pod.Name)
	owner := metav1.GetControllerOf(pod)
	switch {
	case owner == nil || owner.Kind != v1.ClusterKind:
		return nil // nothing to do with it
	case pod.DeletionTimestamp != nil && script.Lingers:
		return nil
	case pod.DeletionTimestamp != nil:
		k.stopAgent(pod)
		if ptr.Deref(pod.DeletionGracePeriodSeconds, 1) == 0 {
			return nil // only finalizers keep it
		}
		return client.Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0), Preconditions: &metav1.Preconditions{UID: &pod.UID}})
	case pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded:
		k.stopAgent(pod)
		return nil
	case script.Unschedulable != "" && pod.Spec.NodeName == "":
		return k.setStatus(ctx, pod, func(s *corev1.PodStatus) {
			setCondition(s, corev1.PodScheduled, corev1.ConditionFalse, "Unschedulable", script.Unschedulable)
		})
	case pod.Spec.NodeName == "":
		switch k.missing(pod) {
		case "":
		case "data", "wal":
			return k.setStatus(ctx, pod, func(s *corev1.PodStatus) {
				setCondition(s, corev1.PodScheduled, corev1.ConditionFalse, "Unschedulable", "the pod's volume is not provisioned")
			})
		default:
			return nil
		}
		return client.Bind(ctx, &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace, UID: pod.UID},
			Target:     corev1.ObjectReference{Kind: "Node", Name: "node-1"},
		}, metav1.CreateOptions{})
	case script.Failed != "":
		return k.setStatus(ctx, pod, func(s *corev1.PodStatus) {
			s.Phase, s.Reason = corev1.PodFailed, script.Failed
			s.Message = "as the test's script says"
			setCondition(s, corev1.PodReady, corev1.ConditionFalse, "PodFailed", "")
		})
	case script.Waiting != "":
		return k.setStatus(ctx, pod, func(s *corev1.PodStatus) {
			s.ContainerStatuses = []corev1.ContainerStatus{{Name: specs.PostgresContainer, State: corev1.ContainerState{
				Waiting: &corev1.ContainerStateWaiting{Reason: script.Waiting, Message: "as the test's script says"},
			}}}
		})
	}
	return k.runPod(ctx, pod)
}

// missing is a volume source that the pod waits for.
func (k *Kubelet) missing(pod *corev1.Pod) string {
	for _, v := range pod.Spec.Volumes {
		var err error
		switch {
		case v.PersistentVolumeClaim != nil:
			var claim *corev1.PersistentVolumeClaim
			claim, err = k.factory.Core().V1().PersistentVolumeClaims().Lister().PersistentVolumeClaims(pod.Namespace).Get(v.PersistentVolumeClaim.ClaimName)
			if err == nil && claim.Status.Phase != corev1.ClaimBound {
				return v.Name
			}
		case v.Secret != nil:
			_, err = k.factory.Core().V1().Secrets().Lister().Secrets(pod.Namespace).Get(v.Secret.SecretName)
		}
		if err != nil {
			return v.Name
		}
	}
	return ""
}

func (k *Kubelet) runPod(ctx context.Context, pod *corev1.Pod) error {
	a, err := k.agentOf(pod)
	if err != nil {
		return err
	}
	if a == nil {
		return nil // its claim is gone
	}
	a.act(ctx)
	state := a.state()
	return k.setStatus(ctx, pod, func(s *corev1.PodStatus) {
		s.Phase = corev1.PodRunning
		s.PodIP, s.PodIPs = a.ip, []corev1.PodIP{{IP: a.ip}}
		if len(s.ContainerStatuses) != len(pod.Spec.Containers) || s.ContainerStatuses[0].State.Running == nil {
			s.ContainerStatuses = nil
			for _, c := range pod.Spec.Containers {
				s.ContainerStatuses = append(s.ContainerStatuses, corev1.ContainerStatus{
					Name: c.Name, Image: c.Image, Ready: true, Started: ptr.To(true),
					State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now().Rfc3339Copy()}},
				})
			}
		}
		setCondition(s, corev1.PodScheduled, corev1.ConditionTrue, "", "")
		ready := corev1.ConditionFalse
		if state.Ready {
			ready = corev1.ConditionTrue
		}
		setCondition(s, corev1.PodReady, ready, "", "")
	})
}

// setStatus writes the pod's status if it changes.
func (k *Kubelet) setStatus(ctx context.Context, pod *corev1.Pod, change func(*corev1.PodStatus)) error {
	changed := pod.DeepCopy()
	change(&changed.Status)
	if equality.Semantic.DeepEqual(changed.Status, pod.Status) {
		return nil
	}
	if _, err := k.f.Kube.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, changed, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("write status of pod %s: %w", pod.Name, err)
	}
	return nil
}

func setCondition(s *corev1.PodStatus, kind corev1.PodConditionType, status corev1.ConditionStatus, reason, message string) {
	for i := range s.Conditions {
		if c := &s.Conditions[i]; c.Type == kind {
			if c.Status != status || c.Reason != reason || c.Message != message {
				*c = corev1.PodCondition{Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.Now().Rfc3339Copy()}
			}
			return
		}
	}
	s.Conditions = append(s.Conditions, corev1.PodCondition{Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.Now().Rfc3339Copy()})
}

// flagOf is the value of a flag on the server container's command line.
func flagOf(pod *corev1.Pod, flag string) string {
	for _, c := range pod.Spec.Containers {
		for i, word := range c.Command {
			if value, found := strings.CutPrefix(word, flag+"="); found {
				return value
			}
			if word == flag && i+1 < len(c.Command) {
				return c.Command[i+1]
			}
		}
	}
	return ""
}
