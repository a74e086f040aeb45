//go:build e2e

package framework

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// dump writes to the test's log what helps to find out why it failed.
func (f *Framework) dump(ctx context.Context) {
	t := f.T
	t.Logf("%s: what namespace %s looks like", time.Now().Format(time.TimeOnly), f.Namespace)
	if list, err := f.Postgres.PgopV1().PostgresClusters(f.Namespace).List(ctx, metav1.ListOptions{}); err != nil {
		t.Log(err)
	} else {
		for _, c := range list.Items {
			t.Logf("PostgresCluster %s: %s", c.Name, Summary(&c))
		}
	}
	f.dumpEvents(ctx)
	f.dumpPods(ctx)
	if claims, err := f.Kube.CoreV1().PersistentVolumeClaims(f.Namespace).List(ctx, metav1.ListOptions{}); err == nil {
		for _, claim := range claims.Items {
			t.Logf("PersistentVolumeClaim %s: %s, volume %q, deleted %v", claim.Name, claim.Status.Phase, claim.Spec.VolumeName, claim.DeletionTimestamp)
		}
	}
	if log, err := operatorLog(ctx, f.Clients, 2000); err != nil {
		t.Log(err)
	} else {
		t.Logf("the operator's log of this namespace:\n%s", linesWith(log, f.Namespace, 80))
	}
}

func (f *Framework) dumpEvents(ctx context.Context) {
	list, err := f.Kube.CoreV1().Events(f.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		f.T.Log(err)
		return
	}
	slices.SortFunc(list.Items, func(a, b corev1.Event) int { return eventTime(a).Compare(eventTime(b)) })
	for _, e := range list.Items {
		f.T.Logf("event %s %s/%s %s: %s", eventTime(e).Format(time.TimeOnly), e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Reason, e.Message)
	}
}

func eventTime(e corev1.Event) time.Time {
	if !e.EventTime.IsZero() {
		return e.EventTime.Time
	}
	return e.LastTimestamp.Time
}

func (f *Framework) dumpPods(ctx context.Context) {
	list, err := f.Kube.CoreV1().Pods(f.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		f.T.Log(err)
		return
	}
	for _, pod := range list.Items {
		f.T.Logf("pod %s", podSummary(&pod))
		if pod.Name == clientPod || pod.Name == jdbcPod {
			continue
		}
		for _, status := range pod.Status.ContainerStatuses {
			f.T.Logf("log of pod %s:\n%s", pod.Name, f.podLog(ctx, pod.Name, false))
			if status.RestartCount > 0 {
				f.T.Logf("log of pod %s before its container's restart:\n%s", pod.Name, f.podLog(ctx, pod.Name, true))
			}
		}
	}
}

func (f *Framework) podLog(ctx context.Context, pod string, previous bool) string {
	log, err := readLog(ctx, f.Clients, f.Namespace, pod, &corev1.PodLogOptions{
		Container: Container, TailLines: ptr.To[int64](80), Previous: previous,
	})
	if err != nil {
		return err.Error()
	}
	return log
}

func readLog(ctx context.Context, clients Clients, namespace, pod string, options *corev1.PodLogOptions) (string, error) {
	stream, err := clients.Kube.CoreV1().Pods(namespace).GetLogs(pod, options).Stream(ctx)
	if err != nil {
		return "", fmt.Errorf("read log of pod %s: %w", pod, err)
	}
	defer stream.Close()
	text, err := io.ReadAll(stream)
	return string(text), err
}

// podSummary is a pod's state in a line or two.
func podSummary(pod *corev1.Pod) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s on %q, uid %s, role %q", pod.Name, pod.Status.Phase, pod.Spec.NodeName, pod.UID, pod.Labels[RoleLabel])
	if pod.DeletionTimestamp != nil {
		b.WriteString(", stopping")
	}
	for _, c := range pod.Status.Conditions {
		if c.Status != corev1.ConditionTrue {
			fmt.Fprintf(&b, "; %s=%s %s %s", c.Type, c.Status, c.Reason, c.Message)
		}
	}
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		fmt.Fprintf(&b, "; %s: restarts %d", s.Name, s.RestartCount)
		if w := s.State.Waiting; w != nil {
			fmt.Fprintf(&b, ", waiting: %s %s", w.Reason, w.Message)
		}
		if e := s.LastTerminationState.Terminated; e != nil {
			fmt.Fprintf(&b, ", last ended: %s, exit code %d", e.Reason, e.ExitCode)
		}
	}
	return b.String()
}

// linesWith are the last lines of a log that have the word in them.
func linesWith(log, word string, most int) string {
	var lines []string
	for line := range strings.Lines(log) {
		if strings.Contains(line, word) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines[max(0, len(lines)-most):], "")
}
