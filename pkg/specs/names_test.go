package specs

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
)

// the longest name that the schema lets through, at the highest number of
// instances, gives names that are legal wherever they are used. A replication
// slot, which has 63 characters, is named after its instance.
func TestLongestNamesFit(t *testing.T) {
	const longestCluster, mostInstances = 50, 99 // as in the schema, whose test has both
	cluster := strings.Repeat("a", longestCluster)
	instance := Instance(cluster, mostInstances)
	longest := ""
	for _, name := range []string{RWService(cluster), ROService(cluster), RService(cluster), PodsService(cluster), instance} {
		for _, problem := range validation.IsDNS1035Label(name) {
			t.Errorf("%s (%d characters): %s", name, len(name), problem)
		}
		if len(name) > len(longest) {
			longest = name
		}
	}
	for _, name := range []string{EndpointSlice(cluster), Lease(cluster), ConfigMap(cluster), AppSecret(cluster), OperatorSecret(cluster),
		CASecret(cluster), TLSSecret(instance), ServiceAccount(cluster)} {
		for _, problem := range validation.IsDNS1123Subdomain(name) {
			t.Errorf("%s: %s", name, problem)
		}
	}
	c := shop(func(c *v1.PostgresCluster) { c.Name = cluster })
	pod := Pod(c, instance, "operator")
	for key, value := range pod.Labels {
		for _, problem := range validation.IsValidLabelValue(value) {
			t.Errorf("label %s of the pod: %s", key, problem)
		}
	}
	t.Logf("the longest label is %s, of %d characters", longest, len(longest))
}
