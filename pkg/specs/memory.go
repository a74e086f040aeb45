package specs

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/postgres"
)

// defaultBuffers is the server's own default of shared_buffers.
const defaultBuffers = 128 << 20

// checkMemory says whether shared_buffers, as given, has no room in what the
// container asks for: in huge pages if the server may use them and there are
// enough, else in its memory. Where no memory is asked for, nothing is checked.
func checkMemory(c *v1.PostgresCluster, given map[string]string) error {
	value, isGiven := given["shared_buffers"]
	buffers, ok := postgres.ParseBlocks(value)
	if isGiven && !ok {
		return nil // the server says so in its own words
	}
	pages := hugePages(c)
	use := postgres.ParseHugePages(given["huge_pages"])
	if use == postgres.HugePagesOn {
		if !isGiven {
			value, buffers = "128MB, the server's default,", defaultBuffers
		}
		if buffers > pages.Value() {
			return fmt.Errorf("spec.postgres.parameters[huge_pages]: shared_buffers of %s needs more huge pages than the %s in spec.resources.limits; raise hugepages-2Mi or hugepages-1Gi, or set huge_pages to try", value, &pages)
		}
		return nil
	}
	memory, isSet := requestedMemory(c)
	if !isGiven || !isSet || buffers <= memory.Value() || use == postgres.HugePagesTry && buffers <= pages.Value() {
		return nil
	}
	return fmt.Errorf("spec.postgres.parameters[shared_buffers]: %s is more than the memory of %s in spec.resources; lower it, or raise the memory", value, &memory)
}

// requestedMemory is what the scheduler sets aside: the request, or the limit
// where there is no request.
func requestedMemory(c *v1.PostgresCluster) (resource.Quantity, bool) {
	if memory, found := c.Spec.Resources.Requests[corev1.ResourceMemory]; found {
		return memory, true
	}
	memory, found := c.Spec.Resources.Limits[corev1.ResourceMemory]
	return memory, found
}

// hugePages are those of all sizes. Their request and their limit are the same.
func hugePages(c *v1.PostgresCluster) resource.Quantity {
	sum := resource.Quantity{Format: resource.BinarySI}
	for name, quantity := range c.Spec.Resources.Limits {
		if strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) {
			sum.Add(quantity)
		}
	}
	return sum
}
