package specs

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"k8s.io/utils/ptr"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
)

// No Service leads to the pod that proves a backup, no budget counts it, and nobody takes
// its name for an instance's.
func TestPodThatProvesABackupIsTakenForNoInstance(t *testing.T) {
	for name, c := range map[string]*v1.PostgresCluster{"with defaults": shop(), "with a full template": shop(full)} {
		pod := VerifyPod(c, "id", "nightly", operatorImage)
		selectors := []map[string]string{SelectorOf(c), DisruptionBudget(c, 3).Spec.Selector.MatchLabels}
		for _, s := range Services(c) {
			if s.Spec.Selector != nil {
				selectors = append(selectors, s.Spec.Selector)
			}
		}
		for _, selector := range selectors {
			if labels.SelectorFromSet(selector).Matches(labels.Set(pod.Labels)) {
				t.Errorf("%s: %v selects it", name, selector)
			}
		}
		if _, is := InstanceNumber(c.Name, pod.Name); is || len(pod.Spec.Containers) != 1 || pod.Spec.Containers[0].Name == PostgresContainer {
			t.Errorf("%s: it looks like an instance: %s, %v", name, pod.Name, pod.Spec.Containers)
		}
		for _, volume := range pod.Spec.Volumes {
			if volume.Secret != nil {
				t.Errorf("%s: it mounts the Secret %s", name, volume.Secret.SecretName)
			}
		}
	}
}

func TestPodThatProvesABackupPassesTheRestrictedPodSecurityStandard(t *testing.T) {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	pod := VerifyPod(shop(full), "id", "nightly", operatorImage)
	restricted := api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()}
	if result := policy.AggregateCheckResults(evaluator.EvaluatePod(restricted, &pod.ObjectMeta, &pod.Spec)); !result.Allowed {
		t.Error(result.ForbiddenDetail())
	}
}

// What lies on an instance's volumes fits its volume, also when those have been larger.
func TestVolumeOfAProofHasRoomForAllOfAnInstance(t *testing.T) {
	for why, c := range map[string]struct {
		change func(*v1.PostgresCluster)
		want   string
	}{
		"as the spec asks":         {func(*v1.PostgresCluster) {}, "1Gi"},
		"volumes are larger":       {func(c *v1.PostgresCluster) { c.Status.VolumeSize = ptr.To(resource.MustParse("3Gi")) }, "3Gi"},
		"WAL has a volume as well": {func(c *v1.PostgresCluster) { c.Spec.Storage.WAL = &v1.WALStorageSpec{Size: resource.MustParse("2Gi")} }, "3Gi"},
	} {
		asked := shop(c.change)
		before := asked.DeepCopy()
		template := VerifyPod(asked, "id", "nightly", operatorImage).Spec.Volumes[0].Ephemeral.VolumeClaimTemplate
		if got := template.Spec.Resources.Requests[corev1.ResourceStorage]; got.Cmp(resource.MustParse(c.want)) != 0 {
			t.Errorf("%s: it asks for %s, not %s", why, got.String(), c.want)
		}
		if before.Spec.Storage.Size.Cmp(asked.Spec.Storage.Size) != 0 {
			t.Errorf("%s: the spec has changed", why)
		}
	}
}
