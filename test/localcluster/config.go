package main

import (
	"fmt"
	"strings"
)

// pauseImage is the sandbox image that containerd is told to use.
const pauseImage = "registry.k8s.io/pause:3.10"

// auditPolicy keeps one line of metadata for each request that tests may want to
// count, and drops what only makes noise.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  nonResourceURLs: ["/healthz*", "/livez*", "/readyz*", "/version", "/openapi/*", "/metrics"]
- level: None
  resources:
  - group: ""
    resources: [events]
  - group: events.k8s.io
    resources: [events]
- level: None
  userGroups: ["system:nodes"]
  resources:
  - group: coordination.k8s.io
    resources: [leases]
- level: Metadata
`

func etcdArgs(c *cluster) []string {
	return []string{"etcd",
		"--name=default",
		"--data-dir=" + c.path("etcd"),
		"--listen-client-urls=" + c.etcdURL(),
		"--advertise-client-urls=" + c.etcdURL(),
		"--listen-peer-urls=" + c.etcdPeerURL(),
		"--initial-advertise-peer-urls=" + c.etcdPeerURL(),
		"--initial-cluster=default=" + c.etcdPeerURL(),
		"--log-level=warn",
		// State never outlives the machine's boot, so nothing is gained by
		// waiting for a disk that volumes and images keep busy.
		"--unsafe-no-fsync",
	}
}

func apiServerArgs(c *cluster) []string {
	pki := func(name string) string { return c.path("pki", name) }
	args := []string{"kube-apiserver",
		"--bind-address=" + c.apiIP,
		"--advertise-address=" + c.apiIP,
		fmt.Sprintf("--secure-port=%d", c.apiPort),
		"--etcd-servers=" + c.etcdURL(),
		"--service-cluster-ip-range=" + serviceCIDR,
		"--allow-privileged=true",
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--client-ca-file=" + pki("ca.crt"),
		"--tls-cert-file=" + pki("apiserver.crt"),
		"--tls-private-key-file=" + pki("apiserver.key"),
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + pki("sa.key"),
		"--service-account-signing-key-file=" + pki("sa.key"),
		"--kubelet-certificate-authority=" + pki("ca.crt"),
		"--kubelet-client-certificate=" + pki("apiserver-kubelet-client.crt"),
		"--kubelet-client-key=" + pki("apiserver-kubelet-client.key"),
		// Nobody resolves the nodes' names.
		"--kubelet-preferred-address-types=InternalIP",
		"--requestheader-client-ca-file=" + pki("front-proxy-ca.crt"),
		"--requestheader-allowed-names=front-proxy-client",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-username-headers=X-Remote-User",
		"--proxy-client-cert-file=" + pki("front-proxy-client.crt"),
		"--proxy-client-key-file=" + pki("front-proxy-client.key"),
		// The API server reaches pods but no Service addresses, so webhooks and
		// aggregated APIs are called at their endpoints.
		"--enable-aggregator-routing=true",
		"--audit-policy-file=" + c.path("config", "audit-policy.yaml"),
		"--audit-log-path=" + c.auditLog(),
		"--audit-log-maxsize=200",
		"--audit-log-maxbackup=2",
	}
	if c.apiOnly {
		// Nobody makes the service accounts that pods would be required to have.
		args = append(args, "--disable-admission-plugins=ServiceAccount")
	}
	return args
}

func controllerManagerArgs(c *cluster) []string {
	config := c.userConfig("kube-controller-manager")
	return []string{"kube-controller-manager",
		"--kubeconfig=" + config,
		"--authentication-kubeconfig=" + config,
		"--authorization-kubeconfig=" + config,
		"--bind-address=" + c.apiIP,
		"--client-ca-file=" + c.path("pki", "ca.crt"),
		"--requestheader-client-ca-file=" + c.path("pki", "front-proxy-ca.crt"),
		"--root-ca-file=" + c.path("pki", "ca.crt"),
		"--service-account-private-key-file=" + c.path("pki", "sa.key"),
		"--cluster-signing-cert-file=" + c.path("pki", "ca.crt"),
		"--cluster-signing-key-file=" + c.path("pki", "ca.key"),
		"--use-service-account-credentials=true",
		// There is only one, and a leader exits when it cannot renew its lease:
		// nobody would start it again after an outage of the API server.
		"--leader-elect=false",
	}
}

func schedulerArgs(c *cluster) []string {
	config := c.userConfig("kube-scheduler")
	return []string{"kube-scheduler",
		"--kubeconfig=" + config,
		"--authentication-kubeconfig=" + config,
		"--authorization-kubeconfig=" + config,
		"--bind-address=" + c.apiIP,
		"--leader-elect=false", // as for the controller manager
	}
}

// corefile is kubeadm's, without what leads out of the cluster.
func corefile(c *cluster) string {
	return fmt.Sprintf(`.:53 {
    bind %[1]s
    errors
    ready %[1]s:8181
    kubernetes cluster.local in-addr.arpa ip6.arpa {
        kubeconfig %[2]s
        pods insecure
        ttl 30
    }
    cache 30 {
        disable success cluster.local
        disable denial cluster.local
    }
}
`, dnsIP, c.userConfig("dns"))
}

// containerdConfig sets restrictOOM where root may not lower oom_score_adj: runc
// would fail to start every sandbox.
func containerdConfig(n node, restrictOOM bool) string {
	return fmt.Sprintf(`version = 2
root = %q
state = "/run/containerd"
oom_score = 0
disabled_plugins = ["io.containerd.internal.v1.restart", "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs"]

[grpc]
address = "/run/containerd/containerd.sock"

[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = %q
restrict_oom_score_adj = %t

[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
conf_dir = %q

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
`, n.dir("containerd"), pauseImage, restrictOOM, n.dir("config", "cni"))
}

// cniConfig connects pods point to point, not by a bridge: all their traffic is
// routed, so Services work between pods of one node without help from a bridge's
// netfilter.
func cniConfig(n node) string {
	return fmt.Sprintf(`{
  "cniVersion": "0.4.0",
  "name": "pgop",
  "plugins": [
    {
      "type": "ptp",
      "ipam": {
        "type": "host-local",
        "ranges": [[{"subnet": %q}]],
        "routes": [{"dst": "0.0.0.0/0"}]
      }
    },
    {"type": "portmap", "capabilities": {"portMappings": true}}
  ]
}
`, n.podCIDR())
}

func kubeletConfig(n node) string {
	return fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: %[1]s
tlsCertFile: %[2]s
tlsPrivateKeyFile: %[3]s
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: %[4]s}
authorization: {mode: Webhook}
clusterDNS: [%[5]s]
clusterDomain: cluster.local
# The cluster's DNS is enough, and leads nowhere else.
resolvConf: /dev/null
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
cgroupDriver: cgroupfs
cgroupRoot: %[6]s
failCgroupV1: false
failSwapOn: false
serializeImagePulls: false
makeIPTablesUtilChains: false
volumePluginDir: /var/lib/kubelet/volume-plugins
# The disk is the machine's, and what else fills it is not this node's to
# answer for.
imageGCHighThresholdPercent: 100
evictionHard:
  memory.available: 100Mi
  nodefs.available: "0%%"
  nodefs.inodesFree: "0%%"
  imagefs.available: "0%%"
  imagefs.inodesFree: "0%%"
`, n.ip(), n.cluster.path("pki", n.name()+".crt"), n.cluster.path("pki", n.name()+".key"),
		n.cluster.path("pki", "ca.crt"), dnsServiceIP, n.cgroup())
}

func kubeletArgs(n node) []string {
	return []string{"kubelet",
		"--config=" + n.dir("config", "kubelet.yaml"),
		"--kubeconfig=" + n.cluster.userConfig(n.name()),
		"--hostname-override=" + n.name(),
		"--node-ip=" + n.ip(),
		"--root-dir=/var/lib/kubelet",
	}
}

func kubeProxyConfig(n node) string {
	return fmt.Sprintf(`apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
clusterCIDR: %s
hostnameOverride: %s
clientConnection:
  kubeconfig: %s
healthzBindAddress: %[4]s:10256
metricsBindAddress: %[4]s:10249
# Conntrack's limits are the machine's, not a network namespace's.
conntrack:
  maxPerCore: 0
  min: 0
  tcpEstablishedTimeout: 0s
  tcpCloseWaitTimeout: 0s
`, podCIDR, n.name(), n.cluster.userConfig("kube-proxy"), n.ip())
}

// dnsObjects are applied in this order. The DNS server is no pod, so its Service
// has no selector.
func dnsObjects() []object {
	return []object{
		{"/apis/rbac.authorization.k8s.io/v1/clusterroles/system:coredns", `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: "system:coredns"}
rules:
- apiGroups: [""]
  resources: [endpoints, services, pods, namespaces]
  verbs: [list, watch]
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [list, watch]
`},
		{"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/system:coredns", `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: "system:coredns"}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "system:coredns"}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: "system:coredns"}
`},
		{"/api/v1/namespaces/kube-system/services/kube-dns", fmt.Sprintf(`apiVersion: v1
kind: Service
metadata:
  name: kube-dns
  namespace: kube-system
  labels: {k8s-app: kube-dns, kubernetes.io/name: CoreDNS}
spec:
  clusterIP: %s
  ports:
  - {name: dns, port: 53, protocol: UDP}
  - {name: dns-tcp, port: 53, protocol: TCP}
`, dnsServiceIP)},
		{"/apis/discovery.k8s.io/v1/namespaces/kube-system/endpointslices/kube-dns", fmt.Sprintf(`apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: kube-dns
  namespace: kube-system
  labels: {kubernetes.io/service-name: kube-dns, endpointslice.kubernetes.io/managed-by: localcluster}
addressType: IPv4
ports:
- {name: dns, port: 53, protocol: UDP}
- {name: dns-tcp, port: 53, protocol: TCP}
endpoints:
- addresses: [%s]
  conditions: {ready: true}
`, dnsIP)},
	}
}

// silenceTable is the packet filter table of a node without power.
const silenceTable = "silence"

// silenceRules let no packet in or out.
const silenceRules = `add table ip ` + silenceTable + `
add chain ip ` + silenceTable + ` in { type filter hook prerouting priority raw; policy drop; }
add chain ip ` + silenceTable + ` out { type filter hook postrouting priority raw; policy drop; }
`

// partitionRules drop, in the network namespace of one side, all packets from
// and to the other. Conditions on source and destination, behind the address
// translation of Services, catch every way around.
func partitionRules(table, from, to string) string {
	return strings.Join([]string{
		"add table ip " + table,
		"delete table ip " + table, // starts anew, whether it was there or not
		"add table ip " + table,
		"add chain ip " + table + " in { type filter hook prerouting priority raw; }",
		"add chain ip " + table + " out { type filter hook postrouting priority raw; }",
		"add rule ip " + table + " in " + from + " drop",
		"add rule ip " + table + " out " + to + " drop",
	}, "\n") + "\n"
}
