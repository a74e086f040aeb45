package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// status prints what runs, and where everything is.
func (c *cluster) status(ctx context.Context, out io.Writer) error {
	r, err := c.readRecord()
	if err != nil {
		return err
	}
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, name := range c.controlPlane(r) {
		fmt.Fprintf(t, "%s\t%s\n", name, c.process(name).state())
	}
	for _, n := range c.nodes(r.Nodes) {
		fmt.Fprintf(t, "%s\t%s\tip %s\tpods %s\n", n.name(), n.state(ctx), n.ip(), n.podCIDR())
	}
	fmt.Fprintf(t, "\nkubeconfig\t%s\n", c.kubeconfig())
	fmt.Fprintf(t, "kubectl\t%s\n", c.path("bin", "kubectl"))
	fmt.Fprintf(t, "API server\t%s\n", c.apiURL())
	fmt.Fprintf(t, "audit log\t%s\n", c.auditLog())
	fmt.Fprintf(t, "logs\t%s\n", c.path("logs"))
	if !c.apiOnly {
		fmt.Fprintf(t, "volumes\t%s\n", c.volumes())
	}
	return t.Flush()
}

func (c *cluster) controlPlane(r record) []string {
	names := []string{"etcd", "kube-apiserver"}
	if c.apiOnly {
		return names
	}
	names = append(names, "kube-controller-manager", "kube-scheduler", "dns")
	if r.Programs.Provisioner != "" {
		names = append(names, "provisioner")
	}
	return names
}

func (p process) state() string {
	if pid := p.pid(); pid != 0 {
		return fmt.Sprintf("runs (pid %d)", pid)
	}
	return "stopped"
}

// state names every fault of the node.
func (n node) state(ctx context.Context) string {
	words := []string{n.process().state()}
	if isFrozen(n.cgroup()) {
		words = append(words, "paused")
	}
	if n.isCut() {
		words = append(words, "cut")
	}
	tables, err := n.partitionTables(ctx)
	if err != nil {
		words = append(words, err.Error())
	}
	for _, table := range tables {
		words = append(words, "parted from "+strings.TrimPrefix(table, partitionTable))
	}
	return strings.Join(words, ", ")
}
