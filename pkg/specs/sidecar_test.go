package specs

import (
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
)

// What an older schema lets through is named, and does no harm.
func TestPodThatTheSchemaWouldRefuse(t *testing.T) {
	c := shop(func(c *v1.PostgresCluster) {
		c.Spec.Pod.Env = []v1.EnvVar{{Name: "POD_NAME", Value: "x"}, {Name: "MINE", Value: "y"}}
		c.Spec.Pod.Sidecars = []v1.Sidecar{
			{Name: "postgres", Image: "a"},
			{Name: "peeper", Image: "a", Ports: []corev1.ContainerPort{{ContainerPort: 5432}}, VolumeMounts: []v1.SidecarMount{{Name: "data", MountPath: "/d"}}, LivenessProbe: &v1.SidecarProbe{}},
		}
	})
	err := CheckConfiguration(c)
	for _, want := range []string{"spec.pod.env[POD_NAME]", "spec.pod.sidecars[postgres]", "spec.pod.sidecars[peeper].ports: 5432", "spec.pod.sidecars[peeper].volumeMounts[data]", "spec.pod.sidecars[peeper].livenessProbe"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("refused with %v, which does not name %s", err, want)
		}
	}
	if err != nil && strings.Contains(err.Error(), "MINE") {
		t.Errorf("refused: %v", err)
	}
	pod := Pod(c, "shop-1", operatorImage)
	if len(pod.Spec.Containers) != 2 || len(pod.Spec.Containers[1].VolumeMounts) != 0 {
		t.Errorf("containers are %+v", pod.Spec.Containers)
	}
	if names := slices.DeleteFunc(slices.Clone(pod.Spec.Containers[0].Env), func(e corev1.EnvVar) bool { return e.Name != "POD_NAME" }); len(names) != 1 || names[0].Value != "" {
		t.Errorf("POD_NAME is %+v", names)
	}
}

// The list of reserved variables is that of the schema.
func TestReservedEnvIsThatOfTheSchema(t *testing.T) {
	types, err := os.ReadFile("../apis/postgres/v1/types.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, prefix := range reservedEnvPrefixes {
		if !strings.Contains(string(types), "e.name.startsWith('"+prefix+"')") {
			t.Errorf("the schema takes names that begin with %s", prefix)
		}
	}
	for _, name := range reservedEnv {
		if !strings.Contains(string(types), "'"+name+"'") {
			t.Errorf("the schema takes %s", name)
		}
	}
}

// An older pod must not restart for a field that it does not use, and a change of
// env or a sidecar restarts it.
func TestEnvAndSidecarsAreOfTheTemplate(t *testing.T) {
	hash := func(change func(*v1.PostgresCluster)) string {
		return Pod(shop(change), "shop-1", operatorImage).Annotations[TemplateHashAnnotation]
	}
	plain := hash(func(*v1.PostgresCluster) {})
	for why, change := range map[string]func(*v1.PostgresCluster){
		"a variable": func(c *v1.PostgresCluster) { c.Spec.Pod.Env = []v1.EnvVar{{Name: "A", Value: "b"}} },
		"a sidecar":  func(c *v1.PostgresCluster) { c.Spec.Pod.Sidecars = []v1.Sidecar{{Name: "a", Image: "a"}} },
	} {
		if hash(change) == plain {
			t.Errorf("%s changes no template", why)
		}
	}
	if empty := hash(func(c *v1.PostgresCluster) { c.Spec.Pod.Env, c.Spec.Pod.Sidecars = []v1.EnvVar{}, []v1.Sidecar{} }); empty != plain {
		t.Error("empty lists change the template")
	}
}

// What a sidecar says of its security holds; the rest is filled in.
func TestSidecarsAreRestricted(t *testing.T) {
	if s := restricted(nil); *s.AllowPrivilegeEscalation || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) {
		t.Errorf("got %+v", s)
	}
	given := &corev1.SecurityContext{Privileged: ptr.To(true), Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"SYS_ADMIN"}}}
	if s := restricted(given); s.AllowPrivilegeEscalation != nil || len(s.Capabilities.Drop) != 0 || !*s.Privileged {
		t.Errorf("got %+v", s)
	}
}
