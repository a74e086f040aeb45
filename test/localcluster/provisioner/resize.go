package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	informers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

// resizer grows the volumes of claims that ask for more than they have, and
// keeps the claims' status as a CSI driver's resizer and the kubelet would for
// online expansion. Whether a class allows it, the API server has checked before.
type resizer struct {
	client kubernetes.Interface
	claims listers.PersistentVolumeClaimLister
	pvs    listers.PersistentVolumeLister
	store  grower
	events record.EventRecorder
	queue  workqueue.TypedRateLimitingInterface[string]
}

// grower makes a volume at least size bytes large while it is in use. Repeating it
// does no harm.
type grower interface {
	grow(ctx context.Context, name string, size int64) error
}

var _ grower = (*disks)(nil)

func newResizer(ctx context.Context, client kubernetes.Interface, claims informers.PersistentVolumeClaimInformer,
	pvs informers.PersistentVolumeInformer, store grower) *resizer {
	r := &resizer{
		client: client,
		claims: claims.Lister(),
		pvs:    pvs.Lister(),
		store:  store,
		events: newEventRecorder(ctx, client),
		queue:  workqueue.NewTypedRateLimitingQueue(retries()),
	}
	claims.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    r.enqueueClaim,
		UpdateFunc: func(_, claim any) { r.enqueueClaim(claim) },
	})
	// The claim may be seen as bound before its volume is seen at all.
	pvs.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    r.enqueueClaimOf,
		UpdateFunc: func(_, pv any) { r.enqueueClaimOf(pv) },
	})
	return r
}

func newEventRecorder(ctx context.Context, client kubernetes.Interface) record.EventRecorder {
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	return broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "local-resizer"})
}

func (r *resizer) enqueueClaim(obj any) {
	key, err := cache.MetaNamespaceKeyFunc(obj)
	if err != nil {
		utilruntime.HandleError(err)
		return
	}
	r.queue.Add(key)
}

func (r *resizer) enqueueClaimOf(obj any) {
	pv, isPV := obj.(*corev1.PersistentVolume)
	if !isPV || pv.Spec.ClaimRef == nil {
		return
	}
	r.queue.Add(cache.NewObjectName(pv.Spec.ClaimRef.Namespace, pv.Spec.ClaimRef.Name).String())
}

// run works until ctx ends.
func (r *resizer) run(ctx context.Context) {
	defer utilruntime.HandleCrash()
	go func() {
		<-ctx.Done()
		r.queue.ShutDown()
	}()
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for r.next(ctx) {
			}
		})
	}
	group.Wait()
}

func (r *resizer) next(ctx context.Context) bool {
	key, shutdown := r.queue.Get()
	if shutdown {
		return false
	}
	defer r.queue.Done(key)
	err := r.sync(ctx, key)
	if apierrors.IsConflict(err) {
		r.queue.AddRateLimited(key) // our copy was old, which is no news
		return true
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "Will retry to resize volume", "claim", key)
		r.queue.AddRateLimited(key)
		return true
	}
	r.queue.Forget(key)
	return true
}

// sync does what is left to do for one claim. Each step is visible to the next
// run, so it may be killed between any two.
func (r *resizer) sync(ctx context.Context, key string) error {
	claim, pv, err := r.pair(key)
	if err != nil || pv == nil {
		return err
	}
	if wantsGrowth(claim, pv) {
		return r.grow(ctx, claim, pv)
	}
	if isOutdated(claim, pv) {
		return r.finish(ctx, claim, pv)
	}
	return nil
}

// pair returns the claim with this key and its volume, or nil for either if
// there is none or it's not for this provisioner to resize.
func (r *resizer) pair(key string) (*corev1.PersistentVolumeClaim, *corev1.PersistentVolume, error) {
	name, err := cache.ParseObjectName(key)
	if err != nil {
		return nil, nil, err
	}
	claim, err := r.claims.PersistentVolumeClaims(name.Namespace).Get(name.Name)
	if apierrors.IsNotFound(err) {
		return nil, nil, nil // deleted since
	}
	if err != nil {
		return nil, nil, fmt.Errorf("get claim %s: %w", key, err)
	}
	if claim.Status.Phase != corev1.ClaimBound {
		return nil, nil, nil // its binding will wake us
	}
	pv, err := r.pvs.Get(claim.Spec.VolumeName)
	if apierrors.IsNotFound(err) {
		return nil, nil, nil // its appearance will wake us
	}
	if err != nil {
		return nil, nil, fmt.Errorf("get volume %s: %w", claim.Spec.VolumeName, err)
	}
	if !isOurs(pv) || pv.Spec.ClaimRef == nil || pv.Spec.ClaimRef.UID != claim.UID {
		return nil, nil, nil
	}
	return claim, pv, nil
}

// grow makes the volume as large as the claim wants, and has sync called again
// by the change of the PersistentVolume.
func (r *resizer) grow(ctx context.Context, claim *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) error {
	start := time.Now()
	size := volumeSize(claim.Spec.Resources.Requests)
	claim, err := r.updateStatus(ctx, claim, startedStatus(claim.Status, quantity(size), metav1.Now()))
	if err != nil {
		return err
	}
	if err := r.store.grow(ctx, pv.Name, size); err != nil {
		r.reportFailure(ctx, claim, err)
		return fmt.Errorf("grow volume %s: %w", pv.Name, err)
	}
	grown := pv.DeepCopy()
	grown.Spec.Capacity[corev1.ResourceStorage] = quantity(size)
	if _, err := r.client.CoreV1().PersistentVolumes().Update(ctx, grown, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("update volume %s: %w", pv.Name, err)
	}
	klog.FromContext(ctx).Info("Grew volume", "volume", pv.Name, "claim", klog.KObj(claim), "size", size,
		"took", time.Since(start).Round(time.Millisecond))
	return nil
}

func (r *resizer) reportFailure(ctx context.Context, claim *corev1.PersistentVolumeClaim, cause error) {
	r.events.Event(claim, corev1.EventTypeWarning, "VolumeResizeFailed", cause.Error())
	_, err := r.updateStatus(ctx, claim, failedStatus(claim.Status, cause.Error(), metav1.Now()))
	if err != nil {
		// The cause matters more, and the next try reports it again.
		klog.FromContext(ctx).Error(err, "Cannot report failed resize", "claim", klog.KObj(claim))
	}
}

// finish tells the claim what it has.
func (r *resizer) finish(ctx context.Context, claim *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) error {
	if _, err := r.updateStatus(ctx, claim, finishedStatus(claim.Status, *pv.Spec.Capacity.Storage())); err != nil {
		return err
	}
	r.events.Eventf(claim, corev1.EventTypeNormal, "FileSystemResizeSuccessful", "Volume %s now has %s", pv.Name, pv.Spec.Capacity.Storage())
	return nil
}

// updateStatus fails if the claim has changed since it was read. Without a
// difference it does nothing: an update wakes us, and so would repeat a failing
// step without a pause.
func (r *resizer) updateStatus(ctx context.Context, claim *corev1.PersistentVolumeClaim, status corev1.PersistentVolumeClaimStatus) (*corev1.PersistentVolumeClaim, error) {
	if equality.Semantic.DeepEqual(claim.Status, status) {
		return claim, nil
	}
	changed := claim.DeepCopy()
	changed.Status = status
	updated, err := r.client.CoreV1().PersistentVolumeClaims(claim.Namespace).UpdateStatus(ctx, changed, metav1.UpdateOptions{})
	if err != nil {
		return nil, fmt.Errorf("update status of claim %s: %w", klog.KObj(claim), err)
	}
	return updated, nil
}

// wantsGrowth compares the request itself, not the rounded size, with what is
// there: a volume of another size that suffices is left alone.
func wantsGrowth(claim *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) bool {
	return claim.Spec.Resources.Requests.Storage().Cmp(*pv.Spec.Capacity.Storage()) > 0
}

// isOutdated tells whether the claim's status still speaks of a resize that is over.
func isOutdated(claim *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) bool {
	return claim.Status.Capacity.Storage().Cmp(*pv.Spec.Capacity.Storage()) < 0 ||
		slices.ContainsFunc(claim.Status.Conditions, isResizeCondition) ||
		claim.Status.AllocatedResourceStatuses[corev1.ResourceStorage] != ""
}

// startedStatus is a claim's status while its volume becomes size large. Of
// earlier tries it keeps the error.
func startedStatus(status corev1.PersistentVolumeClaimStatus, size resource.Quantity, now metav1.Time) corev1.PersistentVolumeClaimStatus {
	out := *status.DeepCopy()
	out.Conditions = withCondition(out.Conditions, corev1.PersistentVolumeClaimResizing, "", now)
	out.AllocatedResources = corev1.ResourceList{corev1.ResourceStorage: size}
	out.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{
		corev1.ResourceStorage: corev1.PersistentVolumeClaimControllerResizeInProgress,
	}
	return out
}

// failedStatus is the status of a claim whose volume could not grow so far.
func failedStatus(status corev1.PersistentVolumeClaimStatus, message string, now metav1.Time) corev1.PersistentVolumeClaimStatus {
	out := *status.DeepCopy()
	out.Conditions = withCondition(out.Conditions, corev1.PersistentVolumeClaimControllerResizeError, message, now)
	return out
}

// withCondition returns conditions with one that is true. The time of one that
// was true before stays.
func withCondition(conditions []corev1.PersistentVolumeClaimCondition, kind corev1.PersistentVolumeClaimConditionType,
	message string, now metav1.Time) []corev1.PersistentVolumeClaimCondition {
	out := slices.Clone(conditions)
	i := slices.IndexFunc(out, func(c corev1.PersistentVolumeClaimCondition) bool { return c.Type == kind })
	if i >= 0 {
		out[i].Status, out[i].Message = corev1.ConditionTrue, message
		return out
	}
	return append(out, corev1.PersistentVolumeClaimCondition{
		Type:               kind,
		Status:             corev1.ConditionTrue,
		LastTransitionTime: now,
		Message:            message,
	})
}

// finishedStatus is the status of a claim whose volume is size large.
func finishedStatus(status corev1.PersistentVolumeClaimStatus, size resource.Quantity) corev1.PersistentVolumeClaimStatus {
	out := *status.DeepCopy()
	out.Conditions = withoutResizeConditions(out.Conditions)
	out.Capacity = maps.Clone(out.Capacity)
	if out.Capacity == nil {
		out.Capacity = corev1.ResourceList{}
	}
	out.Capacity[corev1.ResourceStorage] = size
	out.AllocatedResources = corev1.ResourceList{corev1.ResourceStorage: size}
	out.AllocatedResourceStatuses = nil
	return out
}

func withoutResizeConditions(conditions []corev1.PersistentVolumeClaimCondition) []corev1.PersistentVolumeClaimCondition {
	return slices.DeleteFunc(slices.Clone(conditions), isResizeCondition)
}

func isResizeCondition(c corev1.PersistentVolumeClaimCondition) bool {
	switch c.Type {
	case corev1.PersistentVolumeClaimResizing,
		corev1.PersistentVolumeClaimFileSystemResizePending,
		corev1.PersistentVolumeClaimControllerResizeError,
		corev1.PersistentVolumeClaimNodeResizeError:
		return true
	}
	return false
}
