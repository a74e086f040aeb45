package specs

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"k8s.io/utils/ptr"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
)

func TestPodsPassTheRestrictedPodSecurityStandard(t *testing.T) {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	restricted := api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()}
	for name, c := range map[string]*v1.PostgresCluster{"with defaults": shop(), "with a full template": shop(full)} {
		pod := Pod(c, "shop-1", operatorImage)
		if result := policy.AggregateCheckResults(evaluator.EvaluatePod(restricted, &pod.ObjectMeta, &pod.Spec)); !result.Allowed {
			t.Errorf("%s: %s", name, result.ForbiddenDetail())
		}
	}
	// The evaluator must be able to say no.
	pod := Pod(shop(), "shop-1", operatorImage)
	pod.Spec.HostNetwork = true
	if policy.AggregateCheckResults(evaluator.EvaluatePod(restricted, &pod.ObjectMeta, &pod.Spec)).Allowed {
		t.Error("the evaluator lets a pod on the host's network pass")
	}
}

// the reference is the user's, and nobody reads a version out of its tag.
func TestImageReferencesReachThePodAsWritten(t *testing.T) {
	for _, image := range []string{
		"reg.example.com/pg:latest-debian",
		"reg.example.com/pg@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
		"reg.example.com/pg:16.4@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
		"reg.example.com:5000/pg",
		"pg",
	} {
		pod := Pod(shop(func(c *v1.PostgresCluster) { c.Spec.Postgres.Image = image }), "shop-1", operatorImage)
		got := []string{pod.Spec.Containers[0].Image, envOf(pod, "PGDATA")}
		if diff := cmp.Diff([]string{image, "/pgdata/17/data"}, got); diff != "" {
			t.Error(diff)
		}
	}
}

func envOf(pod *corev1.Pod, name string) string {
	env := pod.Spec.Containers[0].Env
	i := slices.IndexFunc(env, func(e corev1.EnvVar) bool { return e.Name == name })
	return env[i].Value
}

// no pod runs an image other than the user's and the operator's, but for
// sidecars, which have their own; and all are pulled with the user's secrets.
func TestEveryContainerHasAnImageOfTheSpec(t *testing.T) {
	c := shop(full)
	images := []string{c.Spec.Postgres.Image, operatorImage}
	for _, s := range c.Spec.Pod.Sidecars {
		images = append(images, s.Image)
	}
	for _, instance := range []string{"shop-1", "shop-3"} {
		pod := Pod(c, instance, operatorImage)
		for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
			if !slices.Contains(images, container.Image) {
				t.Errorf("container %s runs %s", container.Name, container.Image)
			}
		}
		if diff := cmp.Diff([]corev1.LocalObjectReference{{Name: "registry-login"}}, pod.Spec.ImagePullSecrets); diff != "" {
			t.Error(diff)
		}
	}
}

// asks asks for a container's resources.
func asks(cpu, memory string) func(*v1.PostgresCluster) {
	return func(c *v1.PostgresCluster) {
		c.Spec.Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse(memory)}
		c.Spec.Resources.Limits = corev1.ResourceList{"memory": resource.MustParse(memory)}
	}
}

func TestTemplateHashFollowsTheTemplateAndNothingElse(t *testing.T) {
	before := hash(shop(), operatorImage)
	same := map[string]string{
		"built again":       hash(shop(), operatorImage),
		"by a new operator": hash(shop(), "docker.io/pgop/postgres-operator:2.0"),
		"of a status":       hash(shop(func(c *v1.PostgresCluster) { c.Status.SystemID = "1"; c.Generation = 7 }), operatorImage),
		"a restart was asked for": hash(shop(func(c *v1.PostgresCluster) {
			c.Annotations = map[string]string{v1.RestartAnnotation: "now"}
		}), operatorImage),
		"more instances": hash(shop(func(c *v1.PostgresCluster) { c.Spec.Instances = ptr.To[int32](9) }), operatorImage),
		"a parameter": hash(shop(func(c *v1.PostgresCluster) {
			c.Spec.Postgres.Parameters = map[string]v1.ParameterValue{"jit": v1.NewParameter("off")}
		}), operatorImage),
		"a larger volume": hash(shop(func(c *v1.PostgresCluster) { c.Spec.Storage.Size = resource.MustParse("2Gi") }), operatorImage),
		"retain":          hash(shop(func(c *v1.PostgresCluster) { c.Spec.Storage.Retain = v1.DeleteVolumes }), operatorImage),
		"empty is left out": hash(shop(func(c *v1.PostgresCluster) {
			c.Spec.Pod.Labels, c.Spec.Pod.Tolerations = map[string]string{}, []corev1.Toleration{}
		}), operatorImage),
		"the image's default": hash(shop(func(c *v1.PostgresCluster) { c.Spec.Postgres.Image = "docker.io/library/postgres:17" }), operatorImage),
	}
	if hash(shop(asks("500m", "1Gi")), operatorImage) != hash(shop(asks("0.5", "1073741824")), operatorImage) {
		t.Error("the same quantities in other units: the hash changes")
	}
	for why, got := range same {
		if got != before {
			t.Errorf("%s: the hash changes", why)
		}
	}
	seen := map[string]string{before: "defaults"}
	for why, change := range map[string]func(*v1.PostgresCluster){
		"image": func(c *v1.PostgresCluster) { c.Spec.Postgres.Image = "pg:17" },
		"uid":   func(c *v1.PostgresCluster) { c.Spec.Postgres.UID = ptr.To[int64](70) },
		"requests": func(c *v1.PostgresCluster) {
			c.Spec.Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse("1")}
		},
		"limits": func(c *v1.PostgresCluster) {
			c.Spec.Resources.Limits = corev1.ResourceList{"cpu": resource.MustParse("1")}
		},
		"labels":        func(c *v1.PostgresCluster) { c.Spec.Pod.Labels = map[string]string{"a": "b"} },
		"annotations":   func(c *v1.PostgresCluster) { c.Spec.Pod.Annotations = map[string]string{"a": "b"} },
		"affinity":      func(c *v1.PostgresCluster) { c.Spec.Pod.Affinity = &corev1.Affinity{} },
		"node selector": func(c *v1.PostgresCluster) { c.Spec.Pod.NodeSelector = map[string]string{"a": "b"} },
		"tolerations":   func(c *v1.PostgresCluster) { c.Spec.Pod.Tolerations = []corev1.Toleration{{Key: "a"}} },
		"spread": func(c *v1.PostgresCluster) {
			c.Spec.Pod.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{MaxSkew: 1}}
		},
		"lease duration": func(c *v1.PostgresCluster) { c.Spec.Failover.LeaseDuration.Duration = time.Minute },
		"priority":       func(c *v1.PostgresCluster) { c.Spec.Pod.PriorityClassName = "high" },
		"pull secrets":   func(c *v1.PostgresCluster) { c.Spec.Pod.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "a"}} },
	} {
		got := hash(shop(change), operatorImage)
		if other, taken := seen[got]; taken {
			t.Errorf("%s: the same hash as %s", why, other)
		}
		seen[got] = why
	}
}

// A user may run the operator's own image as a server; only the init
// container's image is left out of the hash.
func TestTemplateHashSeesAServerWithTheOperatorsImage(t *testing.T) {
	own := func(c *v1.PostgresCluster) { c.Spec.Postgres.Image = operatorImage }
	if hash(shop(own), operatorImage) == hash(shop(), operatorImage) {
		t.Error("the server's image is not part of the hash")
	}
}

func hash(c *v1.PostgresCluster, image string) string {
	return Pod(c, "shop-1", image).Annotations[TemplateHashAnnotation]
}

func TestUsersTemplateCantTakeTheOperatorsLabels(t *testing.T) {
	pod := Pod(shop(func(c *v1.PostgresCluster) {
		c.Spec.Pod.Labels = map[string]string{ClusterLabel: "other", InstanceLabel: "other", ManagedByLabel: "other", "mine": "yes"}
		c.Spec.Pod.Annotations = map[string]string{TemplateHashAnnotation: "mine"}
	}), "shop-1", operatorImage)
	want := map[string]string{
		ClusterLabel: "shop", InstanceLabel: "shop-1", ManagedByLabel: ManagedBy, "mine": "yes",
		"app.kubernetes.io/name": "postgresql", "app.kubernetes.io/instance": "shop",
	}
	if diff := cmp.Diff(want, pod.Labels); diff != "" {
		t.Error(diff)
	}
	if pod.Annotations[TemplateHashAnnotation] == "mine" {
		t.Error("the template hash is the user's")
	}
}

func TestBuildersDontShareTheSpec(t *testing.T) {
	c := shop(full)
	before := c.DeepCopy()
	pod := Pod(c, "shop-1", operatorImage)
	pod.Labels["x"], pod.Annotations["x"] = "y", "y"
	Volume(c, "shop-1").Labels["x"] = "y"
	for _, s := range Services(c) {
		s.Labels["x"] = "y"
	}
	if diff := cmp.Diff(before, c, cmp.AllowUnexported(v1.ParameterValue{})); diff != "" {
		t.Error(diff)
	}
}

// The watchdog must be done before another instance may reign: a probe has just
// passed and the Lease was renewed a while before the agent freezes.
func TestWatchdogKillsBeforeTheLeaseExpires(t *testing.T) {
	for lease := 6 * time.Second; lease <= 60*time.Second; lease += 500 * time.Millisecond {
		p := watchdog(lease)
		if p.PeriodSeconds < 1 || p.TimeoutSeconds < 1 || p.FailureThreshold < 2 || *p.TerminationGracePeriodSeconds < 1 {
			t.Errorf("%s: the API server refuses %+v, or one late answer kills", lease, p)
		}
		killed := time.Duration(p.PeriodSeconds*p.FailureThreshold+p.TimeoutSeconds+killGrace) * time.Second
		if limit := lease - renewPeriod*time.Second; killed > limit && lease >= 8*time.Second || killed >= lease {
			t.Errorf("%s: killed after %s, another reigns from %s", lease, killed, limit)
		}
	}
}
