package v1

import corev1 "k8s.io/api/core/v1"

// ServicesSpec is how clients reach the cluster.
type ServicesSpec struct {
	// The Service <cluster>-rw, which leads to the primary.
	// +optional
	RW ServiceSpec `json:"rw,omitzero"`
	// The Service <cluster>-ro, which leads to the replicas.
	// +optional
	RO ServiceSpec `json:"ro,omitzero"`
}

// ServiceSpec is what you may choose of a Service.
//
// +kubebuilder:validation:XValidation:rule="!has(self.loadBalancerSourceRanges) || self.loadBalancerSourceRanges.size() == 0 || (has(self.type) && self.type == 'LoadBalancer')",message="loadBalancerSourceRanges: needs type: LoadBalancer; set it, or restrict clients by spec.postgres.hba"
type ServiceSpec struct {
	// ClusterIP: reached from within the Kubernetes cluster. LoadBalancer: reached
	// through a load balancer, whose address the servers' certificates carry, too.
	// NodePort: reached on a port of every node. Default ClusterIP.
	// +kubebuilder:default=ClusterIP
	// +kubebuilder:validation:Enum=ClusterIP;LoadBalancer;NodePort
	// +optional
	Type corev1.ServiceType `json:"type,omitempty"`
	// Annotations of the Service, such as those that a cloud's load balancer goes by.
	// One that you take out is removed; those of others stay.
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="!self.exists(k, k.startsWith('pgop.dev/'))",message="annotations: keys under pgop.dev/ are the operator's; use a prefix of your own"
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
	// Addresses that may connect, such as 203.0.113.0/24, where the load balancer can
	// tell. Default: all.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=43
	// +kubebuilder:validation:XValidation:rule="self.all(r, isCIDR(r))",message="loadBalancerSourceRanges: an address and the length of its prefix, such as 203.0.113.0/24"
	// +listType=set
	// +optional
	LoadBalancerSourceRanges []string `json:"loadBalancerSourceRanges,omitempty"`
}
