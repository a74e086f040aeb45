package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

const usage = `usage: localcluster COMMAND

  up [--nodes N]               start the cluster with 3 nodes or N, or repair the
                               one that runs and heal all faults
  down                         remove it, and nothing else
  status                       what runs, where logs and files are
  kubeconfig                   print the path of the administrator's kubeconfig
  load IMAGE.tar...            import images on every node

  node cut|heal NODE           pull the node's cable, plug it in
  node pause|resume NODE       freeze every process of the node
  node stop|start NODE         power off, power on
  node restart NODE            power cycle
  node exec NODE COMMAND...    run a command in the node's namespaces
  apiserver stop|start
  dns stop|start
  partition A B                drop all packets between two nodes, or between a
                               node and "apiserver"
  heal-partition [A B]         undo that one, or every partition

up, down, status, kubeconfig and apiserver take --api-only: a cluster of its own
that is an API server and nothing else.
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "localcluster:", err)
		os.Exit(1)
	}
}

// errUsage means that the arguments make no command.
var errUsage = errors.New("wrong arguments; see localcluster help")

func command(ctx context.Context, args []string) error {
	if len(args) == 0 || slices.Contains([]string{"help", "-h", "--help"}, args[0]) {
		fmt.Print(usage)
		return nil
	}
	if err := keepFilesFromChildren(); err != nil {
		return err
	}
	switch args[0] { // the parts that the cluster itself runs
	case "run-in":
		if len(args) < 4 {
			return errUsage
		}
		return runIn(args[1], args[2], args[3:])
	case "node-init":
		if len(args) != 2 {
			return errUsage
		}
		return nodeInit(args[1])
	}
	// sudo and cron leave out where half of the tools are.
	os.Setenv("PATH", os.Getenv("PATH")+":"+strings.TrimPrefix(programPath, "PATH="))

	c := fullCluster()
	if i := slices.Index(args, "--api-only"); i > 0 {
		c = apiOnlyCluster()
		args = slices.Delete(slices.Clone(args), i, i+1)
	}
	if args[0] == "kubeconfig" { // also for users who have another cluster
		fmt.Println(c.kubeconfig())
		return nil
	}
	if err := requireRoot(); err != nil {
		return err
	}
	if args[0] == "status" {
		return c.status(ctx, os.Stdout)
	}
	if args[0] == "node" && len(args) > 3 && args[1] == "exec" {
		n, err := c.runningNode(args[2])
		if err != nil {
			return err
		}
		return n.exec(args[3:])
	}
	unlock, err := lockFile(c.lockPath())
	if err != nil {
		return err
	}
	defer unlock()
	switch args[0] {
	case "up":
		return c.upCommand(ctx, args[1:])
	case "down":
		return c.down(ctx)
	}
	r, err := c.readRecord()
	if err != nil {
		return err
	}
	if args[0] == "apiserver" {
		return c.apiServerCommand(ctx, r, args[1:])
	}
	if c.apiOnly {
		return errUsage
	}
	switch args[0] {
	case "load":
		return c.loadCommand(ctx, r, args[1:])
	case "node":
		return c.nodeCommand(ctx, r, args[1:])
	case "dns":
		return c.dnsCommand(ctx, r, args[1:])
	case "partition":
		return c.partitionCommand(ctx, r, args[1:])
	case "heal-partition":
		if len(args) == 1 {
			return healPartitions(ctx, c.nodes(r.Nodes))
		}
		return c.healPartitionCommand(ctx, r, args[1:])
	}
	return errUsage
}

func (c *cluster) upCommand(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("up", flag.ContinueOnError)
	count := flags.Int("nodes", 0, "number of nodes; 0 is as many as there are, else 3")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 || *count < 0 || *count > maxNodes || c.apiOnly && *count > 0 {
		return fmt.Errorf("up: want 1 to %d nodes, none with --api-only, and no further arguments", maxNodes)
	}
	p := progress{out: os.Stderr}
	if err := c.up(ctx, *count, p); err != nil {
		return err
	}
	p.say("the cluster is ready: export KUBECONFIG=%s PATH=%s:$PATH", c.kubeconfig(), c.path("bin"))
	return nil
}

func (c *cluster) loadCommand(ctx context.Context, r record, args []string) error {
	if len(args) == 0 {
		return errUsage
	}
	return c.load(ctx, c.nodes(r.Nodes), args)
}

func (c *cluster) nodeCommand(ctx context.Context, r record, args []string) error {
	if len(args) != 2 {
		return errUsage
	}
	n, err := c.node(args[1], r.Nodes)
	if err != nil {
		return err
	}
	switch args[0] {
	case "cut":
		return n.cut(ctx)
	case "heal":
		return n.heal(ctx)
	case "pause":
		return n.pause()
	case "resume":
		return n.resume()
	case "stop":
		return n.stop(ctx)
	case "start":
		return n.start(ctx)
	case "restart":
		return n.restart(ctx)
	}
	return errUsage
}

func (c *cluster) apiServerCommand(ctx context.Context, r record, args []string) error {
	switch strings.Join(args, " ") {
	case "stop":
		return c.stopAPIServer()
	case "start":
		_, err := c.startAPIServer(ctx, r.Programs.Kube)
		return err
	}
	return errUsage
}

func (c *cluster) dnsCommand(ctx context.Context, r record, args []string) error {
	switch strings.Join(args, " ") {
	case "stop":
		return c.stopDNS()
	case "start":
		if err := c.startDNS(r.Programs.DNS); err != nil {
			return err
		}
		return await(ctx, "the cluster's DNS", dnsLimit, dnsReady, c.process("dns"))
	}
	return errUsage
}

func (c *cluster) partitionCommand(ctx context.Context, r record, args []string) error {
	a, b, err := c.peers(r, args)
	if err != nil {
		return err
	}
	return partition(ctx, a, b)
}

func (c *cluster) healPartitionCommand(ctx context.Context, r record, args []string) error {
	a, b, err := c.peers(r, args)
	if err != nil {
		return err
	}
	return healPartition(ctx, a, b)
}

func (c *cluster) peers(r record, names []string) (a, b peer, err error) {
	if len(names) != 2 {
		return a, b, errUsage
	}
	if a, err = c.peer(names[0], r.Nodes); err != nil {
		return a, b, err
	}
	b, err = c.peer(names[1], r.Nodes)
	return a, b, err
}

// node finds one of the cluster's count nodes by its name.
func (c *cluster) node(name string, count int) (node, error) {
	ordinal, err := strconv.Atoi(strings.TrimPrefix(name, "node-"))
	if err != nil || ordinal < 1 || ordinal > count {
		return node{}, fmt.Errorf("there is no node %q; there are node-1 to node-%d", name, count)
	}
	return node{cluster: c, ordinal: ordinal}, nil
}

func (c *cluster) runningNode(name string) (node, error) {
	r, err := c.readRecord()
	if err != nil {
		return node{}, err
	}
	return c.node(name, r.Nodes)
}
