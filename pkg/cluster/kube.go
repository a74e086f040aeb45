package cluster

import (
	"errors"
	"fmt"

	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	discoveryclient "k8s.io/client-go/kubernetes/typed/discovery/v1"
	policyclient "k8s.io/client-go/kubernetes/typed/policy/v1"
	rbacclient "k8s.io/client-go/kubernetes/typed/rbac/v1"
	"k8s.io/client-go/rest"
)

// Kube is what clusters need of the API server. The clientset of all groups is
// left out on purpose: it would make up a fifth of the binary.
type Kube struct {
	Core         coreclient.CoreV1Interface
	RBAC         rbacclient.RbacV1Interface
	Coordination coordinationclient.CoordinationV1Interface
	Discovery    discoveryclient.DiscoveryV1Interface
	Policy       policyclient.PolicyV1Interface
}

// NewKube makes the clients of the groups that clusters need.
func NewKube(config *rest.Config) (Kube, error) {
	core, err1 := coreclient.NewForConfig(config)
	rbac, err2 := rbacclient.NewForConfig(config)
	coordination, err3 := coordinationclient.NewForConfig(config)
	discovery, err4 := discoveryclient.NewForConfig(config)
	policy, err5 := policyclient.NewForConfig(config)
	if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
		return Kube{}, fmt.Errorf("make the clients of Kubernetes: %w", err)
	}
	return Kube{Core: core, RBAC: rbac, Coordination: coordination, Discovery: discovery, Policy: policy}, nil
}
