package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
)

const operatorName = "postgres-operator"

// measureTakeover takes the operator's leader away and prints how long it is
// until the other replica has carried out an edit made at that moment.
func (b *bench) measureTakeover(ctx context.Context, rounds int) error {
	if _, err := b.apply(ctx, "edited", 1); err != nil {
		return err
	}
	if err := b.awaitReady(ctx, "edited"); err != nil {
		return err
	}
	var killed, stopped []time.Duration
	for range rounds {
		took, err := b.takeOver(ctx, b.killLeader)
		if err != nil {
			return err
		}
		killed = append(killed, took)
		if took, err = b.takeOver(ctx, b.stopLeader); err != nil {
			return err
		}
		stopped = append(stopped, took)
	}
	fmt.Printf("Takeover by the operator's other replica, %d rounds; until an edit made as the leader goes is carried out\n", rounds)
	printSpread("leader killed (SIGKILL)", killed)
	printSpread("leader stopped (pod deleted)", stopped)
	return nil
}

func (b *bench) takeOver(ctx context.Context, end func(ctx context.Context, pod string) error) (time.Duration, error) {
	leader, err := b.leader(ctx)
	if err != nil {
		return 0, err
	}
	if err := end(ctx, leader); err != nil {
		return 0, err
	}
	ended := time.Now()
	generation, err := b.edit(ctx, "edited", strconv.FormatInt(ended.Unix(), 10))
	if err != nil {
		return 0, err
	}
	err = b.await(ctx, "the edit to be observed", func(ctx context.Context) (bool, error) {
		c, err := b.postgres.PgopV1().PostgresClusters(b.namespace).Get(ctx, "edited", metav1.GetOptions{})
		return err == nil && c.Status.ObservedGeneration == generation, err
	})
	took := time.Since(ended)
	return took, errors.Join(err, b.replaceOperator(ctx, leader))
}

// edit changes something that restarts nothing.
func (b *bench) edit(ctx context.Context, name, value string) (int64, error) {
	clusters := b.postgres.PgopV1().PostgresClusters(b.namespace)
	c, err := clusters.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return 0, fmt.Errorf("edit cluster %s: %w", name, err)
	}
	c.Spec.Postgres.Parameters = map[string]v1.ParameterValue{"bench.edit": v1.NewParameter(value)}
	if c, err = clusters.Update(ctx, c, metav1.UpdateOptions{}); err != nil {
		return 0, fmt.Errorf("edit cluster %s: %w", name, err)
	}
	return c.Generation, nil
}

// leader is the pod that leads; its identity is <pod>_<process>.
func (b *bench) leader(ctx context.Context) (string, error) {
	lease, err := b.kube.CoordinationV1().Leases(operatorName).Get(ctx, operatorName, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("find the leader: %w", err)
	}
	pod, _, _ := strings.Cut(ptr.Deref(lease.Spec.HolderIdentity, ""), "_")
	return pod, nil
}

func (b *bench) stopLeader(ctx context.Context, pod string) error {
	if err := b.kube.CoreV1().Pods(operatorName).Delete(ctx, pod, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("stop the leader: %w", err)
	}
	return nil
}

func (b *bench) killLeader(ctx context.Context, name string) error {
	pod, err := b.kube.CoreV1().Pods(operatorName).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("kill the leader: %w", err)
	}
	pid, err := operatorProcess(string(pod.UID))
	if err != nil {
		return fmt.Errorf("kill the leader: %w", err)
	}
	return syscall.Kill(pid, syscall.SIGKILL)
}

// replaceOperator puts a new pod in the place of one that was ended, so that no
// round meets the kubelet's back-off, and waits until two are available.
func (b *bench) replaceOperator(ctx context.Context, pod string) error {
	if err := b.stopLeader(ctx, pod); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	return b.await(ctx, "the operator's replicas", func(ctx context.Context) (bool, error) {
		pods, err := b.kube.CoreV1().Pods(operatorName).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + operatorName})
		if err != nil {
			return false, err
		}
		d, err := b.kube.AppsV1().Deployments(operatorName).Get(ctx, operatorName, metav1.GetOptions{})
		return err == nil && len(pods.Items) == int(d.Status.Replicas) && d.Status.AvailableReplicas == ptr.Deref(d.Spec.Replicas, 1), err
	})
}

// operatorProcess is the process of an operator's pod on this machine, by the
// UID in its cgroup's name.
func operatorProcess(podUID string) (int, error) {
	statuses, err := filepath.Glob("/proc/[0-9]*/status")
	if err != nil {
		return 0, err
	}
	for _, status := range statuses {
		directory := filepath.Dir(status)
		cgroup, err := os.ReadFile(filepath.Join(directory, "cgroup"))
		if err != nil || !strings.Contains(string(cgroup), podUID) {
			continue
		}
		text, err := os.ReadFile(status)
		if err == nil && strings.HasPrefix(string(text), "Name:\tpostgres-operat") {
			return strconv.Atoi(filepath.Base(directory))
		}
	}
	return 0, fmt.Errorf("the operator of pod %s runs on another machine", podUID)
}
