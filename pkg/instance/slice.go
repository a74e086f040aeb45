package instance

import (
	"context"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/pgop/postgres-operator/pkg/instanceapi"
)

// sliceTerm is the term in which slice was written; 0: never.
func sliceTerm(slice *discoveryv1.EndpointSlice) uint64 {
	term, err := strconv.ParseUint(slice.Annotations[instanceapi.SliceTermAnnotation], 10, 64)
	if err != nil {
		return 0 // nobody's, so everybody may write it
	}
	return term
}

// servingSlice is slice with the one address of a primary, in its term.
func servingSlice(slice *discoveryv1.EndpointSlice, o Options, term uint64) *discoveryv1.EndpointSlice {
	slice = slice.DeepCopy()
	endpoint := discoveryv1.Endpoint{
		Addresses:  []string{o.PodIP},
		Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true), Serving: ptr.To(true), Terminating: ptr.To(false)},
		TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: o.Namespace, Name: o.Instance, UID: types.UID(o.PodUID)},
	}
	if o.NodeName != "" {
		endpoint.NodeName = &o.NodeName
	}
	slice.Endpoints = []discoveryv1.Endpoint{endpoint}
	if len(slice.Ports) == 0 {
		slice.Ports = []discoveryv1.EndpointPort{{
			Name: ptr.To("postgres"), Port: ptr.To(int32(o.Port)), Protocol: ptr.To(corev1.ProtocolTCP),
		}}
	}
	metav1.SetMetaDataAnnotation(&slice.ObjectMeta, instanceapi.SliceTermAnnotation, strconv.FormatUint(term, 10))
	metav1.SetMetaDataAnnotation(&slice.ObjectMeta, instanceapi.SlicePodAnnotation, o.PodUID)
	return slice
}

// serveInSlice writes this instance's address into the rw EndpointSlice,
// unless it is there. Nobody replaces a higher term.
func (a *Agent) serveInSlice(ctx context.Context, term uint64) error {
	slice := a.view.knownSlice()
	if slice == nil {
		return fmt.Errorf("write EndpointSlice %s-rw: the operator has not created it yet", a.options.Cluster)
	}
	if sliceTerm(slice) > term {
		return fmt.Errorf("write EndpointSlice %s: it is of term %d, and this is term %d", slice.Name, sliceTerm(slice), term)
	}
	if a.servesInSlice(term) {
		return nil
	}
	return a.updateSlice(ctx, servingSlice(slice, a.options, term))
}

// sliceIsWrong says whether serveInSlice has something to write, and may.
func (a *Agent) sliceIsWrong(term uint64) bool {
	slice := a.view.knownSlice()
	return slice != nil && sliceTerm(slice) <= term && !a.servesInSlice(term)
}

// servesInSlice says whether there is nothing for serveInSlice to write.
func (a *Agent) servesInSlice(term uint64) bool {
	slice := a.view.knownSlice()
	return slice != nil && equality.Semantic.DeepEqual(slice, servingSlice(slice, a.options, term))
}

// leaveSlice takes this instance's address out of the rw EndpointSlice.
func (a *Agent) leaveSlice(ctx context.Context) error {
	slice := a.view.knownSlice()
	if slice == nil || slice.Annotations[instanceapi.SlicePodAnnotation] != a.options.PodUID || len(slice.Endpoints) == 0 {
		return nil // somebody else's, or empty
	}
	empty := slice.DeepCopy()
	empty.Endpoints = []discoveryv1.Endpoint{}
	return a.updateSlice(ctx, empty)
}

func (a *Agent) updateSlice(ctx context.Context, slice *discoveryv1.EndpointSlice) error {
	ctx, cancel := context.WithTimeout(ctx, leaseTimeout)
	defer cancel()
	updated, err := a.kube.UpdateSlice(ctx, slice)
	if err != nil {
		return fmt.Errorf("write EndpointSlice %s: %w", slice.Name, err)
	}
	a.view.SawSlice(updated)
	return nil
}
