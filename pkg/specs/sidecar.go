package specs

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
)

// The schema refuses all of this, too; an API server may have an older one.
var (
	// reservedEnvPrefixes and reservedEnv are variables that the agent goes by, or
	// that the server does not get.
	reservedEnvPrefixes = []string{"PG", "POD_", "KUBERNETES_", "LC_"}
	reservedEnv         = []string{
		"NODE_NAME", "HOME", "PATH", "LANG", "LANGUAGE", "TZ", "GODEBUG", "GOGC", "GOMAXPROCS", "GOMEMLIMIT", "GOTRACEBACK",
		"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy", "SSL_CERT_DIR", "SSL_CERT_FILE",
	}
	// ownContainers are the operator's.
	ownContainers = []string{PostgresContainer, agentContainer}
	ownPorts      = []int32{PostgresPort, AgentPort, ProbePort}
)

// runVolume holds the server's socket. It is the one volume that sidecars see.
const runVolume = "run"

func isReservedEnv(name string) bool {
	return slices.Contains(reservedEnv, name) ||
		slices.ContainsFunc(reservedEnvPrefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// checkPod says what in spec.pod the operator refuses.
func checkPod(c *v1.PostgresCluster) error {
	var errs []error
	for _, e := range c.Spec.Pod.Env {
		if isReservedEnv(e.Name) {
			errs = append(errs, fmt.Errorf("spec.pod.env[%s]: the name is reserved, since the operator's agent or the server goes by it; leave it out, or set it in a sidecar", e.Name))
		}
	}
	for _, s := range c.Spec.Pod.Sidecars {
		if slices.Contains(ownContainers, s.Name) {
			errs = append(errs, fmt.Errorf("spec.pod.sidecars[%s]: the operator's own container has that name; choose another", s.Name))
		}
		if p := s.LivenessProbe; p != nil && p.Exec == nil && p.HTTPGet == nil && p.TCPSocket == nil {
			errs = append(errs, fmt.Errorf("spec.pod.sidecars[%s].livenessProbe: it does not say how to ask; name exactly one of exec, httpGet and tcpSocket", s.Name))
		}
		for _, p := range s.Ports {
			if slices.Contains(ownPorts, p.ContainerPort) {
				errs = append(errs, fmt.Errorf("spec.pod.sidecars[%s].ports: %d is taken by the server or its agent; let the sidecar listen on another port", s.Name, p.ContainerPort))
			}
		}
		for _, m := range s.VolumeMounts {
			if m.Name != runVolume {
				errs = append(errs, fmt.Errorf("spec.pod.sidecars[%s].volumeMounts[%s]: only %s, the directory of the server's socket, can be mounted", s.Name, m.Name, runVolume))
			}
		}
	}
	return errors.Join(errs...)
}

// userEnv are the user's variables. One that is refused is left out, whatever
// became of the refusal: it would bend the agent.
func userEnv(c *v1.PostgresCluster) []corev1.EnvVar {
	return slices.DeleteFunc(variablesOf(c.Spec.Pod.Env), func(e corev1.EnvVar) bool { return isReservedEnv(e.Name) })
}

func variablesOf(given []v1.EnvVar) []corev1.EnvVar {
	var variables []corev1.EnvVar
	for _, e := range given {
		variable := corev1.EnvVar{Name: e.Name, Value: e.Value}
		if from := e.ValueFrom; from != nil {
			variable.ValueFrom = &corev1.EnvVarSource{SecretKeyRef: from.SecretKeyRef, ConfigMapKeyRef: from.ConfigMapKeyRef, FieldRef: from.FieldRef}
		}
		variables = append(variables, variable)
	}
	return variables
}

// sidecars are the user's containers. They are no init containers that go on, since
// then the server would not start as long as one of them doesn't.
func sidecars(c *v1.PostgresCluster) []corev1.Container {
	var containers []corev1.Container
	for _, s := range c.Spec.Pod.Sidecars {
		if slices.Contains(ownContainers, s.Name) {
			continue // it is refused, and two of a name would keep the pod from being made
		}
		containers = append(containers, corev1.Container{
			Name:            s.Name,
			Image:           s.Image,
			ImagePullPolicy: s.ImagePullPolicy,
			Command:         s.Command,
			Args:            s.Args,
			Env:             variablesOf(s.Env),
			EnvFrom:         s.EnvFrom,
			Ports:           s.Ports,
			Resources:       corev1.ResourceRequirements{Limits: listOf(s.Resources.Limits), Requests: listOf(s.Resources.Requests)},
			LivenessProbe:   probeOf(s.LivenessProbe),
			SecurityContext: restricted(s.SecurityContext),
			VolumeMounts:    sidecarMounts(s),
		})
	}
	return containers
}

func listOf(given v1.SidecarQuantities) corev1.ResourceList {
	list := corev1.ResourceList{}
	for name, quantity := range map[corev1.ResourceName]*resource.Quantity{
		corev1.ResourceCPU: given.CPU, corev1.ResourceMemory: given.Memory, corev1.ResourceEphemeralStorage: given.EphemeralStorage,
	} {
		if quantity != nil {
			list[name] = *quantity
		}
	}
	if len(list) == 0 {
		return nil
	}
	return list
}

func probeOf(given *v1.SidecarProbe) *corev1.Probe {
	if given == nil {
		return nil
	}
	p := &corev1.Probe{
		InitialDelaySeconds: given.InitialDelaySeconds, TimeoutSeconds: given.TimeoutSeconds,
		PeriodSeconds: given.PeriodSeconds, FailureThreshold: given.FailureThreshold,
	}
	if exec := given.Exec; exec != nil {
		p.Exec = &corev1.ExecAction{Command: exec.Command}
	}
	if get := given.HTTPGet; get != nil {
		p.HTTPGet = &corev1.HTTPGetAction{Path: get.Path, Port: intstr.FromInt32(get.Port), Scheme: get.Scheme}
	}
	if socket := given.TCPSocket; socket != nil {
		p.TCPSocket = &corev1.TCPSocketAction{Port: intstr.FromInt32(socket.Port)}
	}
	return p
}

func sidecarMounts(s v1.Sidecar) []corev1.VolumeMount {
	var mounts []corev1.VolumeMount
	for _, m := range s.VolumeMounts {
		if m.Name == runVolume {
			mounts = append(mounts, corev1.VolumeMount{Name: m.Name, MountPath: m.MountPath, ReadOnly: true})
		}
	}
	return mounts
}

// restricted is given, with what it leaves out as the Pod Security Standard
// "restricted" wants it; the rest is the pod's.
func restricted(given *corev1.SecurityContext) *corev1.SecurityContext {
	s := &corev1.SecurityContext{}
	if given != nil {
		s = given.DeepCopy()
	}
	if s.AllowPrivilegeEscalation == nil && !ptr.Deref(s.Privileged, false) {
		s.AllowPrivilegeEscalation = ptr.To(false)
	}
	if s.Capabilities == nil {
		s.Capabilities = &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}
	}
	return s
}
