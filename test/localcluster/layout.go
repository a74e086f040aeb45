package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// Everything that carries one of these names on the machine belongs to a local
// cluster.
const (
	bridge        = "pgop0"
	netnsPrefix   = "pgop-"
	defaultState  = "/var/lib/pgop-localcluster"
	defaultCache  = "/var/cache/pgop-localcluster"
	nodeInterface = "eth0"
)

// The networks: one for the nodes, a /24 for the pods of each node, one for
// Services.
const (
	hostIP       = "10.171.0.1"
	dnsIP        = "10.171.0.10"
	nodeBits     = 24
	podCIDR      = "10.172.0.0/16"
	serviceCIDR  = "10.173.0.0/16"
	kubernetesIP = "10.173.0.1"
	dnsServiceIP = "10.173.0.10"
)

const maxNodes = 9

// cluster is one local cluster: where it lives on this machine. It holds no
// state; that is on disk and in the kernel.
type cluster struct {
	// name is the name of its cgroup.
	name string
	// state is wiped by down.
	state string
	// cache survives down.
	cache string
	// apiIP and the ports are where the control plane listens.
	apiIP    string
	apiPort  int
	etcdPort int
	// apiOnly means: no nodes, and nothing that acts on objects.
	apiOnly bool
}

// fullCluster is the one with nodes. A machine has at most one of it, since the
// networks are the machine's.
func fullCluster() *cluster {
	return &cluster{
		name:     "pgop-localcluster",
		state:    envOr("LOCALCLUSTER_STATE", defaultState),
		cache:    envOr("LOCALCLUSTER_CACHE", defaultCache),
		apiIP:    hostIP,
		apiPort:  6443,
		etcdPort: 23790,
	}
}

// apiOnlyCluster runs beside the full one.
func apiOnlyCluster() *cluster {
	return &cluster{
		name:     "pgop-localcluster-api",
		state:    envOr("LOCALCLUSTER_STATE", defaultState) + "-api",
		cache:    envOr("LOCALCLUSTER_CACHE", defaultCache),
		apiIP:    "127.0.0.1",
		apiPort:  16443,
		etcdPort: 23890,
		apiOnly:  true,
	}
}

func envOr(name, value string) string {
	if v := os.Getenv(name); v != "" {
		return filepath.Clean(v)
	}
	return value
}

// usualNodes is how many nodes a cluster has if nobody asks for another number.
func (c *cluster) usualNodes() int {
	if c.apiOnly {
		return 0
	}
	return 3
}

func (c *cluster) path(elements ...string) string {
	return filepath.Join(append([]string{c.state}, elements...)...)
}

// lockPath is held by whoever changes the cluster. The machine has one, whatever
// the state directory.
func (c *cluster) lockPath() string { return "/run/" + c.name + ".lock" }

func (c *cluster) apiURL() string               { return fmt.Sprintf("https://%s:%d", c.apiIP, c.apiPort) }
func (c *cluster) etcdURL() string              { return fmt.Sprintf("http://127.0.0.1:%d", c.etcdPort) }
func (c *cluster) etcdPeerURL() string          { return fmt.Sprintf("http://127.0.0.1:%d", c.etcdPort+1) }
func (c *cluster) kubeconfig() string           { return c.path("kubeconfig") }
func (c *cluster) userConfig(who string) string { return c.path("kubeconfigs", who) }
func (c *cluster) auditLog() string             { return c.path("logs", "audit.log") }
func (c *cluster) logFile(process string) string {
	return c.path("logs", process+".log")
}

// volumes is where the provisioner keeps and mounts volumes; nodes see the
// mounts below it.
func (c *cluster) volumes() string { return c.path("volumes") }

// controlPlaneCgroup holds everything that runs in the machine's own
// namespaces.
func (c *cluster) controlPlaneCgroup() string { return "/" + c.name + "/control-plane" }

// node is one node of a cluster; ordinal counts from 1.
type node struct {
	cluster *cluster
	ordinal int
}

func (c *cluster) nodes(n int) []node {
	var all []node
	for i := 1; i <= n; i++ {
		all = append(all, node{cluster: c, ordinal: i})
	}
	return all
}

func (n node) name() string    { return fmt.Sprintf("node-%d", n.ordinal) }
func (n node) ip() string      { return fmt.Sprintf("10.171.0.%d", 10+n.ordinal) }
func (n node) podCIDR() string { return fmt.Sprintf("10.172.%d.0/24", n.ordinal) }
func (n node) netns() string   { return netnsPrefix + n.name() }

// link is the end of the node's cable that is on the machine's bridge.
func (n node) link() string { return fmt.Sprintf("pgop-n%d", n.ordinal) }

func (n node) cgroup() string { return "/" + n.cluster.name + "/" + n.name() }

// systemCgroup holds what is not a pod. It is a leaf, as cgroup v2 demands of
// cgroups with processes.
func (n node) systemCgroup() string { return n.cgroup() + "/system" }

func (n node) dir(elements ...string) string {
	return n.cluster.path(append([]string{"nodes", n.name()}, elements...)...)
}
