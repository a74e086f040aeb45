package specs

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/ptr"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
)

// RWEndpointSlice is the slice of the rw Service, without endpoints: whoever
// is primary puts itself in. Its address family is that of the Service.
func RWEndpointSlice(c *v1.PostgresCluster, rw *corev1.Service) *discoveryv1.EndpointSlice {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  objectMeta(c, EndpointSlice(c.Name)),
		AddressType: addressType(rw),
		Endpoints:   []discoveryv1.Endpoint{},
		Ports: []discoveryv1.EndpointPort{{
			Name:     ptr.To(PostgresPortName),
			Port:     ptr.To[int32](PostgresPort),
			Protocol: ptr.To(corev1.ProtocolTCP),
		}},
	}
	slice.Labels[discoveryv1.LabelServiceName] = RWService(c.Name)
	slice.Labels[discoveryv1.LabelManagedBy] = v1.GroupName
	return slice
}

func addressType(rw *corev1.Service) discoveryv1.AddressType {
	if len(rw.Spec.IPFamilies) > 0 && rw.Spec.IPFamilies[0] == corev1.IPv6Protocol {
		return discoveryv1.AddressTypeIPv6
	}
	return discoveryv1.AddressTypeIPv4
}

// EmptyEndpointSlice returns live without endpoints and term, so that a reign of any
// term may write it, or nil if it is so. It goes with EmptyLease.
func EmptyEndpointSlice(live *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	if live == nil || live.Annotations[instanceapi.SliceTermAnnotation] == "" && len(live.Endpoints) == 0 {
		return nil
	}
	empty := live.DeepCopy()
	empty.Endpoints = []discoveryv1.Endpoint{}
	delete(empty.Annotations, instanceapi.SliceTermAnnotation)
	delete(empty.Annotations, instanceapi.SlicePodAnnotation)
	return empty
}

// RepairEndpointSlice returns live with the labels that lead the Service to it
// and with the port of want, or nil if it has them. Its endpoints are the
// agent's.
func RepairEndpointSlice(live, want *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	if hasLabels(live.Labels, want.Labels) && equality.Semantic.DeepEqual(live.Ports, want.Ports) {
		return nil
	}
	repaired := live.DeepCopy()
	repaired.Labels = withLabels(live.Labels, want.Labels)
	repaired.Ports = want.Ports
	return repaired
}
