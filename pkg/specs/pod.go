package specs

import (
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
)

// PostgresContainer is the name of the container that runs the server.
const PostgresContainer = "postgres"

// tlsVolume has an instance's certificates.
const tlsVolume = "tls"

// agentContainer brings the agent's binary into the pod.
const agentContainer = "agent"

// AgentPort serves the agent's API over mutual TLS, ProbePort its probes.
const (
	AgentPort = 8443
	ProbePort = 8080
)

// Where things are in a pod. The image's own VOLUME, /var/lib/postgresql/data,
// is left alone.
const (
	dataMount       = "/pgdata"
	walMount        = "/pgwal"
	binaryMount     = "/pgop/bin"
	binaryPath      = "/pgop/bin/postgres-operator"
	tlsMount        = "/pgop/tls"
	backupsMount    = "/pgop/backups"
	restoreMount    = "/pgop/restore"
	tokenMount      = "/var/run/secrets/kubernetes.io/serviceaccount"
	socketDirectory = "/run/postgresql"
)

// stopGrace is how long, in seconds, a pod may take to stop. The agent's fast
// shutdown ends well within it.
const stopGrace = 60

// Pod is the pod of an instance. The agent, which an init container copies from
// operatorImage, is PID 1 in the user's Postgres image.
func Pod(c *v1.PostgresCluster, instance, operatorImage string) *corev1.Pod {
	uid := *c.Spec.Postgres.UID
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:            instance,
			Namespace:       c.Namespace,
			Labels:          withLabels(c.Spec.Pod.Labels, instanceLabels(c, instance)),
			Annotations:     podAnnotations(c),
			OwnerReferences: []metav1.OwnerReference{OwnerOf(c)},
		},
		Spec: corev1.PodSpec{
			Hostname:           instance,
			Subdomain:          PodsService(c.Name),
			ServiceAccountName: ServiceAccount(c.Name),
			// The token is mounted by a volume of our own, since the init
			// container has no use for it.
			AutomountServiceAccountToken:  ptr.To(false),
			EnableServiceLinks:            ptr.To(false),
			TerminationGracePeriodSeconds: ptr.To[int64](stopGrace),
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot:        ptr.To(true),
				RunAsUser:           &uid,
				RunAsGroup:          &uid,
				FSGroup:             &uid,
				FSGroupChangePolicy: ptr.To(corev1.FSGroupChangeOnRootMismatch),
				SeccompProfile:      &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			InitContainers:            []corev1.Container{installContainer(c, operatorImage)},
			Containers:                append([]corev1.Container{postgresContainer(c)}, sidecars(c)...),
			Volumes:                   podVolumes(c, instance),
			Affinity:                  affinity(c),
			NodeSelector:              c.Spec.Pod.NodeSelector,
			Tolerations:               c.Spec.Pod.Tolerations,
			TopologySpreadConstraints: spread(c),
			PriorityClassName:         c.Spec.Pod.PriorityClassName,
			ImagePullSecrets:          c.Spec.Pod.ImagePullSecrets,
		},
	}
	mountWALVolume(c, pod)
	mountBackups(c, pod)
	pod.Annotations[TemplateHashAnnotation] = hashOf(templateOf(pod, operatorImage))
	mountRestoreSource(c, pod)
	if request := c.Annotations[v1.RestartAnnotation]; request != "" {
		pod.Annotations[v1.RestartAnnotation] = request
	}
	return pod
}

// mountWALVolume gives pod the WAL volume, if the spec asks for one.
func mountWALVolume(c *v1.PostgresCluster, pod *corev1.Pod) {
	if c.Spec.Storage.WAL == nil {
		return
	}
	pod.Spec.Volumes = append(pod.Spec.Volumes, claimVolume("wal", WALVolumeName(pod.Name)))
	server := &pod.Spec.Containers[0]
	server.Command = append(server.Command, "--wal-mount", walMount)
	server.VolumeMounts = append(server.VolumeMounts, corev1.VolumeMount{Name: "wal", MountPath: walMount})
}

// UsesVolume says whether the pod was made to use the claim of that name.
func UsesVolume(pod *corev1.Pod, claim string) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim
	})
}

// HasServerFiles says whether the pod gets what its server shows of people's own.
// Those that an operator made who did not know of that get the other certificates
// alone.
func HasServerFiles(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		return v.Name == tlsVolume && v.Secret != nil && len(v.Secret.Items) == 0
	})
}

// RepairPodLabels returns live with the operator's labels, and with the role if
// one is given, or nil if it has them. The user's own labels are of the
// template: they change when the pod is replaced.
func RepairPodLabels(live *corev1.Pod, c *v1.PostgresCluster, role string) *corev1.Pod {
	want := instanceLabels(c, live.Name)
	if role != "" {
		want[RoleLabel] = role
	}
	if hasLabels(live.Labels, want) {
		return nil
	}
	repaired := live.DeepCopy()
	repaired.Labels = withLabels(live.Labels, want)
	return repaired
}

// DropPodRole returns live without a role, so that no Service leads to it by
// one, or nil if it has none.
func DropPodRole(live *corev1.Pod) *corev1.Pod {
	if _, has := live.Labels[RoleLabel]; !has {
		return nil
	}
	dropped := live.DeepCopy()
	delete(dropped.Labels, RoleLabel)
	return dropped
}

// DropRestartMark returns live without the mark of the request for a restart that it
// has followed, or nil if it has none. The next request may be in the same words.
func DropRestartMark(live *corev1.Pod) *corev1.Pod {
	if _, has := live.Annotations[v1.RestartAnnotation]; !has {
		return nil
	}
	dropped := live.DeepCopy()
	delete(dropped.Annotations, v1.RestartAnnotation)
	return dropped
}

// templateOf is the part of pod whose change means that the instance must
// restart. The operator's own image is left out: a new operator restarts no
// server by itself; and so is the volume of a restore, which is over one day, and
// that the pod gets all of its certificates, for which HasServerFiles asks.
func templateOf(pod *corev1.Pod, operatorImage string) *corev1.Pod {
	template := pod.DeepCopy()
	template.OwnerReferences = nil
	for i := range template.Spec.InitContainers {
		container := &template.Spec.InitContainers[i]
		if container.Image == operatorImage {
			container.Image = ""
		}
		inPlainUnits(container.Resources)
	}
	for i := range template.Spec.Volumes {
		if v := &template.Spec.Volumes[i]; v.Name == tlsVolume {
			v.Secret.Items = secretVolume(tlsVolume, "", instanceapi.CredentialFiles...).Secret.Items
		}
	}
	for i := range template.Spec.Containers {
		inPlainUnits(template.Spec.Containers[i].Resources)
	}
	return template
}

// inPlainUnits writes quantities without a unit of memory, so that 1Gi and
// 1073741824 are the same.
func inPlainUnits(r corev1.ResourceRequirements) {
	for _, list := range []corev1.ResourceList{r.Requests, r.Limits} {
		for name, quantity := range list {
			list[name] = resource.MustParse(quantity.AsDec().String())
		}
	}
}

// agentGeneration is raised when a server's configuration needs an agent that pods
// made before don't have, so that they are made anew for it. 2: archive_command.
const agentGeneration = "2"

func podAnnotations(c *v1.PostgresCluster) map[string]string {
	annotations := map[string]string{
		"kubectl.kubernetes.io/default-container": PostgresContainer,
		AgentAnnotation: agentGeneration,
	}
	maps.Copy(annotations, c.Spec.Pod.Annotations)
	return annotations
}

func installContainer(c *v1.PostgresCluster, operatorImage string) corev1.Container {
	return corev1.Container{
		Name:    agentContainer,
		Image:   operatorImage,
		Command: []string{"/postgres-operator", "install", binaryPath},
		// The same as the server's: it runs before it, so it costs nothing more,
		// and a quota that wants resources of every container gets them.
		Resources:       resources(c),
		SecurityContext: containerSecurity(),
		VolumeMounts:    []corev1.VolumeMount{{Name: "agent", MountPath: binaryMount}},
	}
}

func postgresContainer(c *v1.PostgresCluster) corev1.Container {
	return corev1.Container{
		Name:  PostgresContainer,
		Image: c.Spec.Postgres.Image,
		Command: []string{
			binaryPath, "instance",
			"--cluster", c.Name,
			"--cluster-uid", string(c.UID),
			"--major", fmt.Sprint(c.Spec.Postgres.Version),
			"--mount", dataMount,
			"--run-dir", socketDirectory,
			"--tls-dir", tlsMount,
			"--api-listen", fmt.Sprintf(":%d", AgentPort),
			"--probe-listen", fmt.Sprintf(":%d", ProbePort),
		},
		Env: append([]corev1.EnvVar{
			fieldEnv("POD_NAME", "metadata.name"),
			fieldEnv("POD_NAMESPACE", "metadata.namespace"),
			fieldEnv("POD_UID", "metadata.uid"),
			fieldEnv("POD_IP", "status.podIP"),
			fieldEnv("NODE_NAME", "spec.nodeName"),
			// For people who open a shell in the pod.
			{Name: "PGDATA", Value: fmt.Sprintf("%s/%d/data", dataMount, c.Spec.Postgres.Version)},
			{Name: "PGHOST", Value: socketDirectory},
			{Name: "PGUSER", Value: "postgres"},
		}, userEnv(c)...),
		Ports: []corev1.ContainerPort{
			{Name: PostgresPortName, ContainerPort: PostgresPort, Protocol: corev1.ProtocolTCP},
			{Name: "agent", ContainerPort: AgentPort, Protocol: corev1.ProtocolTCP},
			{Name: "probes", ContainerPort: ProbePort, Protocol: corev1.ProtocolTCP},
		},
		Resources:       resources(c),
		SecurityContext: containerSecurity(),
		// Until the agent answers for the first time, the watchdog sleeps: a
		// machine that starts many pods at once is slow.
		StartupProbe:   probe("/healthz", 1, 3, 60),
		ReadinessProbe: probe("/readyz", 1, 3, 3),
		LivenessProbe:  watchdog(c.Spec.Failover.LeaseDuration.Duration),
		VolumeMounts: []corev1.VolumeMount{
			{Name: "data", MountPath: dataMount},
			{Name: "agent", MountPath: binaryMount, ReadOnly: true},
			{Name: tlsVolume, MountPath: tlsMount, ReadOnly: true},
			{Name: "token", MountPath: tokenMount, ReadOnly: true},
			{Name: "run", MountPath: socketDirectory},
			{Name: "tmp", MountPath: "/tmp"},
			// Docker's 64 MB are too few for parallel queries.
			{Name: "shm", MountPath: "/dev/shm"},
		},
	}
}

func resources(c *v1.PostgresCluster) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{
		Limits:   c.Spec.Resources.Limits,
		Requests: c.Spec.Resources.Requests,
	}
}

func fieldEnv(name, path string) corev1.EnvVar {
	return corev1.EnvVar{
		Name:      name,
		ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: path}},
	}
}

func containerSecurity() *corev1.SecurityContext {
	return &corev1.SecurityContext{
		AllowPrivilegeEscalation: ptr.To(false),
		ReadOnlyRootFilesystem:   ptr.To(true),
		Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
}

func probe(path string, period, timeout, failures int32) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{
			HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromInt32(ProbePort)},
		},
		PeriodSeconds:    period,
		TimeoutSeconds:   timeout,
		FailureThreshold: failures,
	}
}

const (
	// killGrace is how long, in seconds, a kubelet lets a container live that it
	// has decided to kill, whatever shorter time the probe asks for.
	killGrace = 2
	// renewPeriod is how old, in seconds, the last renewal of the Lease may be when
	// an agent freezes.
	renewPeriod = 2
)

// watchdog is the liveness probe. It kills an agent that hangs, and with it the
// server, before another instance may reign: from the last good answer until the
// end go by at most one period for each failure, one timeout and killGrace, which
// together are no more than leaseDuration less renewPeriod. With less than 8 s
// that can't be done without killing an agent for one late answer, so two are
// waited for. Of an agent whose loop alone hangs the answers are good for some seconds
// more; its alarm ends the server in time.
func watchdog(leaseDuration time.Duration) *corev1.Probe {
	const failures = 3
	room := int32(leaseDuration/time.Second) - killGrace - renewPeriod
	period := max(1, room/(failures+1))
	p := probe("/healthz", period, period, min(failures, max(failures-1, room/period-1)))
	p.TerminationGracePeriodSeconds = ptr.To[int64](1)
	return p
}

// groupReadable lets the server's group read a mounted secret. The server and
// libpq accept a key that root owns and the group can read.
var groupReadable = ptr.To[int32](0o440)

func podVolumes(c *v1.PostgresCluster, instance string) []corev1.Volume {
	return []corev1.Volume{
		claimVolume("data", instance),
		emptyDir("agent", corev1.StorageMediumDefault),
		memoryDir("run", c, func(int64) int64 { return mostOfSockets }),
		emptyDir("tmp", corev1.StorageMediumDefault),
		memoryDir("shm", c, func(limit int64) int64 { return limit / 2 }),
		secretVolume(tlsVolume, TLSSecret(instance)), // all of it: instanceapi.ServerFiles come and go
		tokenVolume("token"),
	}
}

func claimVolume(name, claim string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
	}}
}

func emptyDir(name string, medium corev1.StorageMedium) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
		EmptyDir: &corev1.EmptyDirVolumeSource{Medium: medium},
	}}
}

// mostOfSockets is more than the server's sockets and their lock files take.
const mostOfSockets = 16 << 20

// memoryDir is an emptyDir of memory. What is in it counts as the container's own
// memory and outlives the container, not the pod: where memory is limited it may
// take a part of that only, or a container that was killed for want of memory could
// never start again.
func memoryDir(name string, c *v1.PostgresCluster, most func(limit int64) int64) corev1.Volume {
	volume := emptyDir(name, corev1.StorageMediumMemory)
	if limit, found := c.Spec.Resources.Limits[corev1.ResourceMemory]; found {
		volume.EmptyDir.SizeLimit = resource.NewQuantity(most(limit.Value()), resource.BinarySI)
	}
	return volume
}

func secretVolume(name, secret string, keys ...string) corev1.Volume {
	source := &corev1.SecretVolumeSource{SecretName: secret, DefaultMode: groupReadable}
	for _, key := range keys {
		source.Items = append(source.Items, corev1.KeyToPath{Key: key, Path: key})
	}
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{Secret: source}}
}

// tokenVolume is what the API server would mount by itself.
func tokenVolume(name string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		DefaultMode: groupReadable,
		Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: ptr.To[int64](3607)}},
			{ConfigMap: &corev1.ConfigMapProjection{
				LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"},
				Items:                []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}},
			}},
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{
				Path: "namespace", FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"},
			}}}},
		},
	}}}
}

// affinity is the user's, or else prefers a node without an instance of the
// cluster, so that a lost node costs one.
func affinity(c *v1.PostgresCluster) *corev1.Affinity {
	if c.Spec.Pod.Affinity != nil {
		return c.Spec.Pod.Affinity
	}
	return &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
		PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{
			Weight: 100,
			PodAffinityTerm: corev1.PodAffinityTerm{
				LabelSelector: &metav1.LabelSelector{MatchLabels: SelectorOf(c)},
				TopologyKey:   corev1.LabelHostname,
			},
		}},
	}}
}

// spread is the user's, or else prefers a zone that has fewer of the cluster's
// instances.
func spread(c *v1.PostgresCluster) []corev1.TopologySpreadConstraint {
	if len(c.Spec.Pod.TopologySpreadConstraints) > 0 {
		return c.Spec.Pod.TopologySpreadConstraints
	}
	return []corev1.TopologySpreadConstraint{{
		MaxSkew:           1,
		TopologyKey:       corev1.LabelTopologyZone,
		WhenUnsatisfiable: corev1.ScheduleAnyway,
		LabelSelector:     &metav1.LabelSelector{MatchLabels: SelectorOf(c)},
	}}
}
