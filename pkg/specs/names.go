package specs

import (
	"fmt"
	"strconv"
	"strings"
)

// Names of a cluster's objects. The longest DNS label among them, an instance
// or <cluster>-pods, must fit 63 characters; the schema limits the cluster's
// name to 50, which leaves room for names to come.

// RWService leads to the primary.
func RWService(cluster string) string { return cluster + "-rw" }

// ROService leads to the replicas.
func ROService(cluster string) string { return cluster + "-ro" }

// RService leads to any instance that serves.
func RService(cluster string) string { return cluster + "-r" }

// PodsService is headless and gives each instance a host name.
func PodsService(cluster string) string { return cluster + "-pods" }

// EndpointSlice is the one slice of RWService; the primary's agent fills it.
func EndpointSlice(cluster string) string { return cluster + "-rw" }

// Lease is what the primary holds.
func Lease(cluster string) string { return cluster }

// ConfigMap is how the operator configures the agents.
func ConfigMap(cluster string) string { return cluster + "-config" }

// AppSecret is the login of the application's owner.
func AppSecret(cluster string) string { return cluster + "-app" }

// CASecret is the certificate authority that the cluster shall have, with its
// key. No pod mounts it.
func CASecret(cluster string) string { return cluster + "-ca" }

// OperatorSecret has the operator's own certificate, the authority that signs
// and those that are trusted. No pod mounts it.
func OperatorSecret(cluster string) string { return cluster + "-operator" }

// TLSSecret has the certificates and keys of one instance.
func TLSSecret(instance string) string { return instance + "-tls" }

// CloneSecret lets the first instance copy another cluster, until it has. No pod
// mounts it.
func CloneSecret(cluster string) string { return cluster + "-clone" }

// ServiceAccount is what the pods of a cluster run as; Role and RoleBinding
// bear its name.
func ServiceAccount(cluster string) string { return cluster + "-instance" }

// VerifyPodName is the name of the pod that proves a backup. An instance's ends with a
// digit.
func VerifyPodName(cluster string) string { return cluster + "-verify" }

// PDB is the budget of voluntary disruptions.
func PDB(cluster string) string { return cluster }

// Instance is the name of the n-th instance, of its pod and of its data volume.
func Instance(cluster string, n int) string { return fmt.Sprintf("%s-%d", cluster, n) }

// WALVolumeName is the name of an instance's WAL volume.
func WALVolumeName(instance string) string { return instance + "-wal" }

// InstanceOfWALVolume is the reverse of WALVolumeName; false if name is none of a
// WAL volume. An instance's own name ends with a digit.
func InstanceOfWALVolume(name string) (string, bool) { return strings.CutSuffix(name, "-wal") }

// InstanceNumber is the reverse of Instance; false if name is not an instance
// of the cluster.
func InstanceNumber(cluster, name string) (int, bool) {
	digits, found := strings.CutPrefix(name, cluster+"-")
	if !found {
		return 0, false
	}
	n, err := strconv.Atoi(digits)
	if err != nil || n < 1 || strconv.Itoa(n) != digits {
		return 0, false
	}
	return n, true
}

// InstanceHost is the DNS name of an instance, which its certificate carries.
func InstanceHost(cluster, namespace, instance string) string {
	return fmt.Sprintf("%s.%s.%s.svc", instance, PodsService(cluster), namespace)
}
