package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// measureMemory reads the resident memory of the agents and of the operator
// with a number of clusters.
func (b *bench) measureMemory(ctx context.Context, clusters int) error {
	for n := range clusters {
		if _, err := b.apply(ctx, fmt.Sprintf("memory-%d", n), 1); err != nil {
			return err
		}
	}
	var agents []float64
	for n := range clusters {
		name := fmt.Sprintf("memory-%d", n)
		if err := b.awaitReady(ctx, name); err != nil {
			return err
		}
		text, err := b.exec(ctx, name+"-1", "postgres", "cat /proc/1/status")
		if err != nil {
			return err
		}
		agents = append(agents, residentMiB(text))
	}
	slices.Sort(agents)
	fmt.Printf("Memory with %d clusters of one instance\n", clusters)
	fmt.Printf("  %-34s min %.1f MiB   median %.1f MiB   max %.1f MiB\n", "agent, VmRSS of PID 1", agents[0], agents[len(agents)/2], agents[len(agents)-1])
	return b.printOperatorMemory(ctx)
}

// printOperatorMemory finds the operator among this machine's processes: its
// image has no shell to ask.
func (b *bench) printOperatorMemory(ctx context.Context) error {
	pods, err := b.kube.CoreV1().Pods("postgres-operator").List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=postgres-operator"})
	if err != nil {
		return fmt.Errorf("list the operator's pods: %w", err)
	}
	leader, err := b.leader(ctx)
	if err != nil {
		return err
	}
	for _, pod := range pods.Items {
		what := map[bool]string{true: "operator that leads, VmRSS", false: "operator that stands by, VmRSS"}[pod.Name == leader]
		fmt.Printf("  %-34s %s\n", what, processMemory(string(pod.UID)))
	}
	return nil
}

// processMemory is the memory of the process of an operator's pod.
func processMemory(podUID string) string {
	pid, err := operatorProcess(podUID)
	if err != nil {
		return err.Error()
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%.1f MiB", residentMiB(string(status)))
}

func residentMiB(status string) float64 {
	for line := range strings.Lines(status) {
		if value, found := strings.CutPrefix(line, "VmRSS:"); found {
			kib, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 64)
			if err == nil {
				return kib / 1024
			}
		}
	}
	return 0
}
