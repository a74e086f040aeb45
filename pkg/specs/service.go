package specs

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
)

// PostgresPort is where the server listens, and PostgresPortName its name in
// Services and slices.
const (
	PostgresPort     = 5432
	PostgresPortName = "postgres"
)

// Services are the four Services of a cluster: RWService first.
func Services(c *v1.PostgresCluster) []*corev1.Service {
	return []*corev1.Service{rwService(c), roService(c), rService(c), podsService(c)}
}

// rwService has no selector from the start: the primary's agent writes its
// slice, and a selector that is taken away later would leave slices behind.
func rwService(c *v1.PostgresCluster) *corev1.Service {
	return service(c, RWService(c.Name), nil)
}

func roService(c *v1.PostgresCluster) *corev1.Service {
	selector := SelectorOf(c)
	selector[RoleLabel] = "replica"
	return service(c, ROService(c.Name), selector)
}

func rService(c *v1.PostgresCluster) *corev1.Service {
	return service(c, RService(c.Name), SelectorOf(c))
}

// podsService publishes addresses that are not ready, too: a replica must find
// its peers before it serves.
func podsService(c *v1.PostgresCluster) *corev1.Service {
	s := service(c, PodsService(c.Name), SelectorOf(c))
	s.Spec.ClusterIP = corev1.ClusterIPNone
	s.Spec.PublishNotReadyAddresses = true
	return s
}

func service(c *v1.PostgresCluster, name string, selector map[string]string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: objectMeta(c, name),
		Spec: corev1.ServiceSpec{
			Type:     corev1.ServiceTypeClusterIP,
			Selector: selector,
			Ports: []corev1.ServicePort{{
				Name:       PostgresPortName,
				Port:       PostgresPort,
				TargetPort: intstr.FromInt32(PostgresPort),
				Protocol:   corev1.ProtocolTCP,
			}},
		},
	}
}

// RepairService returns live with everything in it that want asks for, or nil
// if live is as asked.
func RepairService(live, want *corev1.Service) *corev1.Service {
	repaired := live.DeepCopy()
	repaired.Labels = withLabels(live.Labels, want.Labels)
	repaired.Spec.Selector = want.Spec.Selector
	repaired.Spec.Type = want.Spec.Type
	repaired.Spec.ExternalName, repaired.Spec.ExternalIPs = "", nil
	if repaired.Spec.ClusterIP == "" {
		repaired.Spec.ClusterIP = want.Spec.ClusterIP // it was of a type that has none
	}
	repaired.Spec.PublishNotReadyAddresses = want.Spec.PublishNotReadyAddresses
	if !slices.EqualFunc(live.Spec.Ports, want.Spec.Ports, samePort) {
		repaired.Spec.Ports = want.Spec.Ports
	}
	same := hasLabels(live.Labels, want.Labels) &&
		maps.Equal(live.Spec.Selector, want.Spec.Selector) &&
		live.Spec.Type == want.Spec.Type &&
		live.Spec.ExternalName == "" && len(live.Spec.ExternalIPs) == 0 &&
		live.Spec.PublishNotReadyAddresses == want.Spec.PublishNotReadyAddresses &&
		slices.EqualFunc(live.Spec.Ports, want.Spec.Ports, samePort)
	if same {
		return nil
	}
	return repaired
}

func samePort(a, b corev1.ServicePort) bool {
	return a.Name == b.Name && a.Port == b.Port && a.TargetPort == b.TargetPort && a.Protocol == b.Protocol
}

// MustRemakeService says whether live has lost what makes it headless, which
// can't be put back.
func MustRemakeService(live, want *corev1.Service) bool {
	return want.Spec.ClusterIP == corev1.ClusterIPNone && live.Spec.ClusterIP != "" && live.Spec.ClusterIP != corev1.ClusterIPNone
}
