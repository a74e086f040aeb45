package specs

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
)

// What the ConfigMap keeps of a spec is all that pods are made of.
func TestPodsAreMadeOfTheSpecThatWasAccepted(t *testing.T) {
	for name, c := range map[string]*v1.PostgresCluster{
		"minimal": shop(), "full": shop(full), "with WAL": shop(wal("1Gi", "")), "with backups": shop(backedUp),
		"with backups on a volume": shop(backedUpOn("backups", "shop")), "copied": shop(cloned),
	} {
		accepted := configMap(t, c, Configuration{})
		edited := shop(asks("1", "10Mi"))
		edited.Annotations, edited.Spec.Postgres.Image = c.Annotations, "nonsense:1"
		if diff := cmp.Diff(Pod(c, "shop-1", "operator:1"), Pod(ForPods(edited, accepted), "shop-1", "operator:1")); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		for _, text := range []string{"", "{}", "null", "nonsense"} {
			if got := ForPods(edited, &corev1.ConfigMap{Data: map[string]string{acceptedKey: text}}); got != edited {
				t.Errorf("%s: of %q they are made of %+v", name, text, got.Spec)
			}
		}
		accepted.Data[acceptedKey] = `{"postgres":{"version":17}}`
		Pod(ForPods(edited, accepted), "shop-1", "operator:1") // what somebody has cut is no panic
	}
}
