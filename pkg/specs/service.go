package specs

import (
	"maps"
	"slices"
	"strings"

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
	return exposed(service(c, RWService(c.Name), nil), c.Spec.Services.RW)
}

func roService(c *v1.PostgresCluster) *corev1.Service {
	selector := SelectorOf(c)
	selector[RoleLabel] = "replica"
	return exposed(service(c, ROService(c.Name), selector), c.Spec.Services.RO)
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

// AskedAnnotation names the annotations of a Service that the spec has asked for, so
// that one that it asks for no more is told from one that somebody else has set.
const AskedAnnotation = v1.GroupName + "/annotations"

// exposed gives a Service what the user has chosen of it.
func exposed(s *corev1.Service, asked v1.ServiceSpec) *corev1.Service {
	s.Spec.Type = asked.Type
	s.Spec.LoadBalancerSourceRanges = asked.LoadBalancerSourceRanges
	if len(asked.Annotations) > 0 {
		s.Annotations = maps.Clone(asked.Annotations)
		s.Annotations[AskedAnnotation] = strings.Join(slices.Sorted(maps.Keys(asked.Annotations)), ",")
	}
	return s
}

// LoadBalancerHosts are the addresses and names under which load balancers lead to
// a Service.
func LoadBalancerHosts(s *corev1.Service) []string {
	var hosts []string
	if s == nil || s.Spec.Type != corev1.ServiceTypeLoadBalancer {
		return nil
	}
	for _, ingress := range s.Status.LoadBalancer.Ingress {
		for _, host := range []string{ingress.IP, ingress.Hostname} {
			if host != "" {
				hosts = append(hosts, host)
			}
		}
	}
	return hosts
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
	repaired.Annotations = annotationsOf(live, want)
	repaired.Spec.LoadBalancerSourceRanges = want.Spec.LoadBalancerSourceRanges
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
		maps.Equal(live.Annotations, repaired.Annotations) &&
		slices.Equal(live.Spec.LoadBalancerSourceRanges, want.Spec.LoadBalancerSourceRanges) &&
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

// annotationsOf are live's with those that want asks for, and without those that
// were asked for before.
func annotationsOf(live, want *corev1.Service) map[string]string {
	annotations := maps.Clone(live.Annotations)
	for _, key := range strings.Split(live.Annotations[AskedAnnotation], ",") {
		delete(annotations, key)
	}
	delete(annotations, AskedAnnotation)
	if len(want.Annotations) > 0 {
		return withLabels(annotations, want.Annotations)
	}
	return annotations
}

func samePort(a, b corev1.ServicePort) bool {
	return a.Name == b.Name && a.Port == b.Port && a.TargetPort == b.TargetPort && a.Protocol == b.Protocol
}

// MustRemakeService says whether live has lost what makes it headless, which
// can't be put back.
func MustRemakeService(live, want *corev1.Service) bool {
	return want.Spec.ClusterIP == corev1.ClusterIPNone && live.Spec.ClusterIP != "" && live.Spec.ClusterIP != corev1.ClusterIPNone
}
