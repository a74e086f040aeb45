// Command postgres-operator runs PostgreSQL clusters on Kubernetes.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	_ "github.com/pgop/postgres-operator/cmd/postgres-operator/early" // archive and restore-wal
)

// version is set by the linker.
var version = "dev"

// subcommands are what the binary can be, by name.
var subcommands = []struct {
	name, help string
	run        func(ctx context.Context, args []string) error
}{
	{"run", "look after the PostgresClusters of a Kubernetes cluster", runOperator},
	{"instance", "be the agent of one instance, PID 1 in its pod", runInstance},
	{"verify", "prove a backup by restoring it, in a pod of its own", runVerify},
	{"install", "copy this binary to a path, for an instance's pod", runInstall},
	{"archive", "hand a WAL file over to the agent; the server's archive_command", runEarly},
	{"restore-wal", "get a WAL file from the agent; the server's restore_command", runEarly},
	{"version", "print the version", printVersion},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := dispatch(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "postgres-operator:", err)
		os.Exit(1)
	}
}

func dispatch(ctx context.Context, args []string) error {
	if len(args) > 0 {
		for _, sub := range subcommands {
			if sub.name == args[0] {
				return sub.run(ctx, args[1:])
			}
		}
	}
	usage()
	return fmt.Errorf("name one of the subcommands above")
}

func usage() {
	fmt.Fprintln(os.Stderr, "usage: postgres-operator SUBCOMMAND [flags]   (-h after a subcommand shows its flags)")
	for _, sub := range subcommands {
		fmt.Fprintf(os.Stderr, "  %-11s %s\n", sub.name, sub.help)
	}
}

// runEarly is never reached: package early has carried the subcommand out.
func runEarly(context.Context, []string) error {
	return fmt.Errorf("this subcommand is called by the server of an instance")
}

func printVersion(context.Context, []string) error {
	fmt.Println(version)
	return nil
}
