package main

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// partitionTable starts the name of every packet filter table of a partition.
const partitionTable = "partition-"

// cut pulls the node's cable.
func (n node) cut(ctx context.Context) error {
	if err := run(ctx, "", "ip", "link", "set", n.link(), "down"); err != nil {
		return fmt.Errorf("cut %s: %w", n.name(), err)
	}
	return n.cluster.rerouteServices(ctx)
}

// heal plugs it in again.
func (n node) heal(ctx context.Context) error {
	if err := run(ctx, "", "ip", "link", "set", n.link(), "up"); err != nil {
		return fmt.Errorf("heal %s: %w", n.name(), err)
	}
	return n.cluster.rerouteServices(ctx)
}

func (n node) isCut() bool {
	link, err := net.InterfaceByName(n.link())
	return err != nil || link.Flags&net.FlagUp == 0
}

// rerouteServices keeps Services in reach of the machine while one node is out of
// reach.
func (c *cluster) rerouteServices(ctx context.Context) error {
	record, err := c.readRecord()
	if err != nil {
		return err
	}
	for _, n := range c.nodes(record.Nodes) {
		if !n.isCut() && n.process().runs() {
			return routeServices(ctx, n)
		}
	}
	return nil // no node is left to route through
}

// pause makes every process of the node stand still. Its kernel, which answers
// pings and opens connections, does not.
func (n node) pause() error  { return freezeCgroup(n.cgroup(), true) }
func (n node) resume() error { return freezeCgroup(n.cgroup(), false) }

// stop is a power cut.
func (n node) stop(ctx context.Context) error {
	if err := n.powerOff(ctx); err != nil {
		return err
	}
	return n.cluster.rerouteServices(ctx)
}

// restart is a power cycle. It does not mend the network, and a paused node runs
// afterwards.
func (n node) restart(ctx context.Context) error {
	if err := n.powerOff(ctx); err != nil {
		return err
	}
	return n.start(ctx)
}

// peer is one side of a partition: a node, or the API server.
type peer struct {
	name string
	node *node
	// from and to match, in nft's language, packets from and to the peer.
	from, to string
}

const apiServerPeer = "apiserver"

func (c *cluster) peer(name string, nodes int) (peer, error) {
	if name == apiServerPeer {
		return peer{name: name,
			from: fmt.Sprintf("ip saddr %s tcp sport %d", c.apiIP, c.apiPort),
			to:   fmt.Sprintf("ip daddr %s tcp dport %d", c.apiIP, c.apiPort)}, nil
	}
	n, err := c.node(name, nodes)
	if err != nil {
		return peer{}, err
	}
	addresses := fmt.Sprintf("{ %s, %s }", n.ip(), n.podCIDR())
	return peer{name: name, node: &n, from: "ip saddr " + addresses, to: "ip daddr " + addresses}, nil
}

// partition drops all packets between a and b, and no others.
func partition(ctx context.Context, a, b peer) error {
	if a.name == b.name {
		return fmt.Errorf("partition %s %s: that is one and the same", a.name, b.name)
	}
	for _, side := range [][2]peer{{a, b}, {b, a}} {
		here, there := side[0], side[1]
		if here.node == nil {
			continue // the node's side is enough
		}
		if err := here.node.nft(ctx, partitionRules(partitionTable+there.name, there.from, there.to)); err != nil {
			return fmt.Errorf("partition %s %s: %w", a.name, b.name, err)
		}
	}
	return nil
}

// healPartition undoes partition, if there is one.
func healPartition(ctx context.Context, a, b peer) error {
	for _, side := range [][2]peer{{a, b}, {b, a}} {
		here, there := side[0], side[1]
		if here.node == nil {
			continue
		}
		table := partitionTable + there.name
		if err := here.node.nft(ctx, "add table ip "+table+"\ndelete table ip "+table+"\n"); err != nil {
			return fmt.Errorf("heal partition of %s and %s: %w", a.name, b.name, err)
		}
	}
	return nil
}

// healPartitions undoes every partition.
func healPartitions(ctx context.Context, nodes []node) error {
	for _, n := range nodes {
		tables, err := n.partitionTables(ctx)
		if err != nil {
			return fmt.Errorf("heal partitions: %w", err)
		}
		for _, table := range tables {
			if err := n.nft(ctx, "delete table ip "+table+"\n"); err != nil {
				return fmt.Errorf("heal partitions: %w", err)
			}
		}
	}
	return nil
}

func (n node) partitionTables(ctx context.Context) ([]string, error) {
	out, err := output(ctx, "", "nsenter", "--net="+filepath.Join(netnsDir, n.netns()), "nft", "list", "tables", "ip")
	if err != nil {
		return nil, err
	}
	return parsePartitionTables(out), nil
}

// parsePartitionTables reads the output of `nft list tables ip`.
func parsePartitionTables(out string) []string {
	var tables []string
	for _, line := range strings.Split(out, "\n") {
		fields := strings.Fields(line)
		if len(fields) == 3 && strings.HasPrefix(fields[2], partitionTable) {
			tables = append(tables, fields[2])
		}
	}
	slices.Sort(tables)
	return tables
}

// stopAPIServer stops the API server only; etcd keeps everything.
func (c *cluster) stopAPIServer() error {
	return c.process("kube-apiserver").stop(2 * time.Second)
}

func (c *cluster) stopDNS() error { return c.process("dns").stop(time.Second) }

// healAll undoes every fault.
func (c *cluster) healAll(ctx context.Context, nodes []node) error {
	for _, n := range nodes {
		if n.isCut() {
			if err := n.heal(ctx); err != nil {
				return err
			}
		}
		if isFrozen(n.cgroup()) {
			if err := n.resume(); err != nil {
				return err
			}
		}
	}
	return healPartitions(ctx, nodes)
}
