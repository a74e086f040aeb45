package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
)

// netnsDir is where iproute2 keeps named network namespaces.
const netnsDir = "/run/netns"

// makeNetwork makes the bridge and, for each node, a network namespace with a
// cable to it. Nothing of it may exist. All namespaces are made before the first
// pod: iproute2 remounts netnsDir when it adds one.
func makeNetwork(ctx context.Context, nodes []node) error {
	if err := refuseTakenNetworks(); err != nil {
		return err
	}
	for _, n := range nodes {
		if err := run(ctx, "", "ip", "netns", "add", n.netns()); err != nil {
			return fmt.Errorf("make network: %w", err)
		}
	}
	if err := run(ctx, hostLinks(nodes), "ip", "-batch", "-"); err != nil {
		return fmt.Errorf("make network: %w", err)
	}
	for _, n := range nodes {
		if err := run(ctx, nodeLinks(n, nodes), "ip", "-n", n.netns(), "-batch", "-"); err != nil {
			return fmt.Errorf("make network of %s: %w", n.name(), err)
		}
		if err := run(ctx, "", "nsenter", "--net="+filepath.Join(netnsDir, n.netns()), "sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward"); err != nil {
			return fmt.Errorf("make network of %s: %w", n.name(), err)
		}
	}
	if err := allowForwarding(ctx); err != nil {
		return err
	}
	return routeServices(ctx, nodes[0])
}

// forwardRule lets the bridge's traffic pass.
var forwardRule = []string{"FORWARD", "-i", bridge, "-o", bridge, "-m", "comment", "--comment", "pgop-localcluster", "-j", "ACCEPT"}

// allowForwarding adds forwardRule where the machine's packet filter would drop
// what nodes send to each other, as it does where Docker runs: a bridge's traffic
// counts as forwarded.
func allowForwarding(ctx context.Context) error {
	rules, err := output(ctx, "", "iptables", "-S", "FORWARD")
	if err != nil || !strings.HasPrefix(rules, "-P FORWARD DROP") {
		return nil // a machine without this filter cannot drop by it
	}
	if err := run(ctx, "", "iptables", append([]string{"--wait", "-I"}, forwardRule...)...); err != nil {
		return fmt.Errorf("let nodes reach each other: %w", err)
	}
	return nil
}

// forbidForwarding removes forwardRule, however often it is there.
func forbidForwarding(ctx context.Context) error {
	for {
		rules, err := output(ctx, "", "iptables", "-S", "FORWARD")
		if err != nil || !strings.Contains(rules, "-i "+bridge+" -o "+bridge+" ") {
			return nil // there is no such rule
		}
		if err := run(ctx, "", "iptables", append([]string{"--wait", "-D"}, forwardRule...)...); err != nil {
			return fmt.Errorf("remove packet filter rule: %w", err)
		}
	}
}

// hostLinks are the iproute2 commands for the machine's own end.
func hostLinks(nodes []node) string {
	var b strings.Builder
	fmt.Fprintf(&b, "link add %s type bridge\n", bridge)
	fmt.Fprintf(&b, "addr add %s/%d dev %s\n", hostIP, nodeBits, bridge)
	fmt.Fprintf(&b, "addr add %s/%d dev %s\n", dnsIP, nodeBits, bridge)
	fmt.Fprintf(&b, "link set %s up\n", bridge)
	for _, n := range nodes {
		fmt.Fprintf(&b, "link add %s type veth peer name %s netns %s\n", n.link(), nodeInterface, n.netns())
		fmt.Fprintf(&b, "link set %s master %s up\n", n.link(), bridge)
		fmt.Fprintf(&b, "route add %s via %s\n", n.podCIDR(), n.ip())
	}
	return b.String()
}

// nodeLinks are the iproute2 commands for the end of n.
func nodeLinks(n node, nodes []node) string {
	var b strings.Builder
	fmt.Fprintf(&b, "link set lo up\n")
	fmt.Fprintf(&b, "addr add %s/%d dev %s\n", n.ip(), nodeBits, nodeInterface)
	fmt.Fprintf(&b, "link set %s up\n", nodeInterface)
	fmt.Fprintf(&b, "route add default via %s\n", hostIP)
	for _, other := range nodes {
		if other != n {
			fmt.Fprintf(&b, "route add %s via %s\n", other.podCIDR(), other.ip())
		}
	}
	return b.String()
}

// routeServices lets the machine itself reach Services, by the kube-proxy of a
// node.
func routeServices(ctx context.Context, through node) error {
	if err := run(ctx, "", "ip", "route", "replace", serviceCIDR, "via", through.ip()); err != nil {
		return fmt.Errorf("route Services through %s: %w", through.name(), err)
	}
	return nil
}

// refuseTakenNetworks looks for our addresses on the machine's interfaces, of
// which none is ours at this time.
func refuseTakenNetworks() error {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return fmt.Errorf("make network: %w", err)
	}
	for _, ours := range []string{hostIP + "/24", podCIDR, serviceCIDR} {
		_, network, err := net.ParseCIDR(ours)
		if err != nil {
			return fmt.Errorf("make network: %w", err)
		}
		for _, a := range addresses {
			if theirs, ok := a.(*net.IPNet); ok && (network.Contains(theirs.IP) || theirs.Contains(network.IP)) {
				return fmt.Errorf("make network: the machine has the address %s already, the local cluster needs %s", theirs, network)
			}
		}
	}
	return nil
}

// removeNetwork removes every link and network namespace that is named as ours.
func removeNetwork(ctx context.Context) error {
	if err := forbidForwarding(ctx); err != nil {
		return err
	}
	for _, name := range nodeNamespaces() {
		if err := run(ctx, "", "ip", "netns", "delete", name); err != nil {
			return fmt.Errorf("remove network: %w", err)
		}
	}
	interfaces, err := net.Interfaces()
	if err != nil {
		return fmt.Errorf("remove network: %w", err)
	}
	for _, i := range interfaces {
		if i.Name != bridge && !isNodeLink(i.Name) {
			continue
		}
		// A cable goes with its namespace, which the kernel may be removing now.
		if err := run(ctx, "", "ip", "link", "delete", i.Name); err != nil && interfaceExists(i.Name) {
			return fmt.Errorf("remove network: %w", err)
		}
	}
	return nil
}

// nodeNamespaces names all that are ours; without netnsDir there are none.
func nodeNamespaces() []string {
	paths, err := filepath.Glob(filepath.Join(netnsDir, netnsPrefix+"node-*"))
	if err != nil {
		return nil
	}
	var names []string
	for _, path := range paths {
		names = append(names, filepath.Base(path))
	}
	return names
}

func isNodeLink(name string) bool {
	for _, n := range fullCluster().nodes(maxNodes) {
		if n.link() == name {
			return true
		}
	}
	return false
}

func interfaceExists(name string) bool {
	_, err := net.InterfaceByName(name)
	return err == nil
}

// networkExists is false unless all of makeNetwork's work is there.
func networkExists(nodes []node) bool {
	for _, n := range nodes {
		if _, err := os.Stat(filepath.Join(netnsDir, n.netns())); err != nil || !interfaceExists(n.link()) {
			return false
		}
	}
	return interfaceExists(bridge)
}
