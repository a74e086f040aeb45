// Command bench measures what a user waits for and pays, on the cluster that
// KUBECONFIG names, and prints the figures with how they were taken. It asserts
// nothing.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	set := flag.NewFlagSet("bench", flag.ContinueOnError)
	rounds := set.Int("rounds", 5, "how often to create a cluster, after one round that is not counted")
	clusters := set.Int("clusters", 10, "how many clusters of one instance the operator has while its memory is read")
	takeovers := set.Int("takeovers", 5, "how often to kill, and to stop, the operator's leader")
	if err := set.Parse(args); err != nil {
		return err
	}
	b, err := newBench(ctx)
	if err != nil {
		return err
	}
	defer b.cleanUp()
	if *rounds > 0 {
		if err := b.measureStart(ctx, *rounds); err != nil {
			return err
		}
	}
	if err := b.measureMemory(ctx, *clusters); err != nil {
		return err
	}
	return b.measureTakeover(ctx, *takeovers)
}

// printSpread prints the smallest, the median and the largest figure.
func printSpread(what string, figures []time.Duration) {
	slices.Sort(figures)
	texts := make([]string, 0, len(figures))
	for _, f := range figures {
		texts = append(texts, fmt.Sprintf("%.1f", f.Seconds()))
	}
	fmt.Printf("  %-34s min %.1f s   median %.1f s   max %.1f s   (%s)\n", what,
		figures[0].Seconds(), figures[len(figures)/2].Seconds(), figures[len(figures)-1].Seconds(), strings.Join(texts, " "))
}
