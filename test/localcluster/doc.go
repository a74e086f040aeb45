// Command localcluster runs a real Kubernetes of several nodes on one Linux
// machine, without a container engine, an image registry or a download other
// than Go modules and Debian packages.
//
//	root namespaces                      node-1, node-2, node-3: namespaces of
//	of the machine                       their own (net, mount, pid, uts)
//	┌───────────────────────────┐        ┌───────────────────────────────────┐
//	│ etcd  kube-apiserver      │ bridge │ node-init (PID 1)                 │
//	│ kube-controller-manager   │────────│   containerd ── shims ── pods     │
//	│ kube-scheduler  dns       │ pgop0  │   kubelet  kube-proxy             │
//	│ provisioner (volumes)     │        │                                   │
//	└───────────────────────────┘        └───────────────────────────────────┘
//
// Invariants:
//
//  1. Everything that the cluster makes is found again without its own records:
//     processes by their cgroup, mounts and loop devices by the state directory's
//     path, network namespaces and links by their name. So any leftover of a
//     killed run can be removed, and nothing else is ever touched.
//  2. A node lives and dies with its PID 1. When that is killed, the kernel ends
//     every process and every mount of the node at once, like a power cut.
//  3. State without the mark of a finished `up` of this boot is never used again.
package main
