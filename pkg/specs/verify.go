package specs

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
)

// VerifyContainer is the name of the container that proves a backup.
const VerifyContainer = "verify"

// VerifyPod is the pod that proves the backup with that id, which people call name. It
// restores it onto a volume of its own, which goes with the pod. It bears none of the
// labels by which Services, budgets and people find the instances, and none of the
// user's, by which others might: it must never be taken for one.
func VerifyPod(c *v1.PostgresCluster, id, name, operatorImage string) *corev1.Pod {
	// The volume, its uid, the store and the resources are those of an instance.
	pod := Pod(c, VerifyPodName(c.Name), operatorImage)
	pod.Labels = map[string]string{VerifiesLabel: c.Name, ManagedByLabel: ManagedBy, "app.kubernetes.io/name": "postgresql-verify"}
	pod.Annotations = map[string]string{
		"kubectl.kubernetes.io/default-container": VerifyContainer,
		BackupIDAnnotation:                        id,
		BackupNameAnnotation:                      name,
	}
	pod.Spec.Hostname, pod.Spec.Subdomain = "", ""
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	pod.Spec.Affinity, pod.Spec.TopologySpreadConstraints = verifyAffinity(c), nil
	pod.Spec.Containers = []corev1.Container{verifyContainer(c, id)}
	pod.Spec.Volumes = []corev1.Volume{
		verifyVolume(c),
		emptyDir("agent", corev1.StorageMediumDefault),
		memoryDir("run", c, func(int64) int64 { return mostOfSockets }),
		emptyDir("tmp", corev1.StorageMediumDefault),
		memoryDir("shm", c, func(limit int64) int64 { return limit / 2 }),
		tokenVolume("token"),
	}
	mountBackups(c, pod)
	return pod
}

func verifyContainer(c *v1.PostgresCluster, id string) corev1.Container {
	return corev1.Container{
		Name:  VerifyContainer,
		Image: c.Spec.Postgres.Image,
		Command: []string{
			binaryPath, "verify",
			"--cluster", c.Name,
			"--cluster-uid", string(c.UID),
			"--major", fmt.Sprint(c.Spec.Postgres.Version),
			"--mount", dataMount,
			"--run-dir", socketDirectory,
			"--backup", id,
		},
		Env: append([]corev1.EnvVar{
			fieldEnv("POD_NAME", "metadata.name"),
			fieldEnv("POD_NAMESPACE", "metadata.namespace"),
			fieldEnv("POD_UID", "metadata.uid"),
		}, userEnv(c)...),
		Resources:       resources(c),
		SecurityContext: containerSecurity(),
		VolumeMounts: []corev1.VolumeMount{
			{Name: "data", MountPath: dataMount},
			{Name: "agent", MountPath: binaryMount, ReadOnly: true},
			{Name: "token", MountPath: tokenMount, ReadOnly: true},
			{Name: "run", MountPath: socketDirectory},
			{Name: "tmp", MountPath: "/tmp"},
			{Name: "shm", MountPath: "/dev/shm"},
		},
	}
}

// verifyAffinity prefers a node without an instance, since the work is hard on disks.
// Of the user's it keeps which nodes will do: rules that keep the instances apart could
// leave it none.
func verifyAffinity(c *v1.PostgresCluster) *corev1.Affinity {
	without := c.DeepCopy()
	without.Spec.Pod.Affinity = nil
	apart := affinity(without)
	if c.Spec.Pod.Affinity != nil {
		apart.NodeAffinity = c.Spec.Pod.Affinity.NodeAffinity
	}
	return apart
}

// verifyVolume has room for what the largest volumes of an instance hold together. It
// is made with the pod, and goes with it.
func verifyVolume(c *v1.PostgresCluster) corev1.Volume {
	size := larger(c.Spec.Storage.Size, c.Status.VolumeSize)
	if wal := c.Spec.Storage.WAL; wal != nil {
		size.Add(larger(wal.Size, c.Status.WALVolumeSize))
	}
	claim := corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: size}},
	}
	if class := c.Spec.Storage.Class; class != "" {
		claim.StorageClassName = ptr.To(class)
	}
	return corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{
		VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{VerifiesLabel: c.Name}},
			Spec:       claim,
		},
	}}}
}

func larger(asked resource.Quantity, had *resource.Quantity) resource.Quantity {
	if had != nil && had.Cmp(asked) > 0 {
		return had.DeepCopy()
	}
	return asked.DeepCopy()
}

// Proves are the backup that a pod proves, by its id and by what people call it.
func Proves(pod *corev1.Pod) (id, name string) {
	return pod.Annotations[BackupIDAnnotation], pod.Annotations[BackupNameAnnotation]
}
