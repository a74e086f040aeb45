//go:build e2e

package framework

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// Where the operator runs, see deploy/operator.yaml.
const (
	OperatorNamespace = "postgres-operator"
	OperatorName      = "postgres-operator"
	operatorPods      = "app.kubernetes.io/name=postgres-operator"
)

// OperatorUser is the operator's name in an audit log.
const OperatorUser = "system:serviceaccount:" + OperatorNamespace + ":" + OperatorName

// CheckOperator says what is wrong with the operator's life so far: a panic in
// its log, or a restart of its container.
func CheckOperator(ctx context.Context) error {
	clients, err := connect()
	if err != nil {
		return err
	}
	pods, err := clients.Kube.CoreV1().Pods(OperatorNamespace).List(ctx, metav1.ListOptions{LabelSelector: operatorPods})
	if err != nil {
		return fmt.Errorf("look at the operator: %w", err)
	}
	var errs []error
	for _, pod := range pods.Items {
		for _, status := range pod.Status.ContainerStatuses {
			if status.RestartCount > 0 && !wentWithItsNode(status) {
				errs = append(errs, fmt.Errorf("the operator has restarted %d times: %s", status.RestartCount, podSummary(&pod)))
			}
		}
	}
	log, err := operatorLog(ctx, clients, 0)
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	if at := strings.Index(log, "panic"); at >= 0 {
		errs = append(errs, fmt.Errorf("a panic in the operator's log:\n%s", log[max(0, at-200):min(len(log), at+3000)]))
	}
	return errors.Join(errs...)
}

// wentWithItsNode says whether the container's last end was that of its node,
// of which the runtime knows nothing.
func wentWithItsNode(status corev1.ContainerStatus) bool {
	last := status.LastTerminationState.Terminated
	return last != nil && last.Reason == "Unknown"
}

// operatorLog is the log of the operator's pods, and of what ran in them
// before; lines 0 means all of it.
func operatorLog(ctx context.Context, clients Clients, lines int64) (string, error) {
	pods, err := clients.Kube.CoreV1().Pods(OperatorNamespace).List(ctx, metav1.ListOptions{LabelSelector: operatorPods})
	if err != nil {
		return "", fmt.Errorf("read the operator's log: %w", err)
	}
	var all strings.Builder
	for _, pod := range pods.Items {
		options := corev1.PodLogOptions{}
		if lines > 0 {
			options.TailLines = &lines
		}
		for _, status := range pod.Status.ContainerStatuses {
			if status.RestartCount > 0 {
				before := options
				before.Previous = true
				if log, err := readLog(ctx, clients, OperatorNamespace, pod.Name, &before); err == nil {
					all.WriteString(log)
				}
			}
		}
		log, err := readLog(ctx, clients, OperatorNamespace, pod.Name, &options)
		if apierrors.IsNotFound(err) && pod.DeletionTimestamp != nil {
			continue // it went meanwhile, and its log with it
		}
		if err != nil {
			return "", err
		}
		all.WriteString(log)
	}
	return all.String(), nil
}

// Operator is the operator's Deployment.
func (f *Framework) Operator() *appsv1.Deployment {
	f.T.Helper()
	deployment, err := f.Kube.AppsV1().Deployments(OperatorNamespace).Get(f.ctx(), OperatorName, metav1.GetOptions{})
	if err != nil {
		f.T.Fatal(err)
	}
	return deployment
}

// UninstallOperator deletes the operator's Deployment and returns when no pod
// of it is left. The test's end installs it again, whatever happens.
func (f *Framework) UninstallOperator() (was *appsv1.Deployment) {
	f.T.Helper()
	if err := CheckOperator(f.ctx()); err != nil {
		f.T.Error(err) // its log goes with it
	}
	was = f.Operator()
	f.T.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := installOperator(ctx, f.Clients, was); err != nil {
			f.T.Error(err)
		}
	})
	foreground := metav1.DeletePropagationForeground
	if err := f.Kube.AppsV1().Deployments(OperatorNamespace).Delete(f.ctx(), OperatorName, metav1.DeleteOptions{PropagationPolicy: &foreground}); err != nil {
		f.T.Fatal(err)
	}
	f.Await(time.Minute, "the operator is gone", func(ctx context.Context) error {
		pods, err := f.Kube.CoreV1().Pods(OperatorNamespace).List(ctx, metav1.ListOptions{LabelSelector: operatorPods})
		if err != nil {
			return err
		}
		return Want("the number of its pods", len(pods.Items), 0)
	})
	return was
}

// InstallOperator makes the Deployment and returns when the operator is ready.
func (f *Framework) InstallOperator(deployment *appsv1.Deployment) {
	f.T.Helper()
	if err := installOperator(f.ctx(), f.Clients, deployment); err != nil {
		f.T.Fatal(err)
	}
}

// installOperator makes the Deployment or changes it back.
func installOperator(ctx context.Context, clients Clients, want *appsv1.Deployment) error {
	deployments := clients.Kube.AppsV1().Deployments(OperatorNamespace)
	_, err := deployments.Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: want.Name, Labels: want.Labels, Annotations: want.Annotations},
		Spec:       want.Spec,
	}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		var live *appsv1.Deployment
		if live, err = deployments.Get(ctx, want.Name, metav1.GetOptions{}); err == nil {
			live.Spec = want.Spec
			_, err = deployments.Update(ctx, live, metav1.UpdateOptions{})
		}
	}
	if err != nil {
		return fmt.Errorf("install the operator: %w", err)
	}
	return awaitOperator(ctx, clients)
}

// RestartOperator replaces the operator's pod, as a new release does.
func (f *Framework) RestartOperator(change func(*corev1.PodTemplateSpec)) {
	f.T.Helper()
	if err := CheckOperator(f.ctx()); err != nil {
		f.T.Error(err) // its log goes with it
	}
	deployment := f.Operator()
	if deployment.Spec.Template.Annotations == nil {
		deployment.Spec.Template.Annotations = map[string]string{}
	}
	deployment.Spec.Template.Annotations["e2e.pgop.dev/restarted-by"] = f.Namespace + " " + time.Now().Format(time.RFC3339Nano)
	if change != nil {
		change(&deployment.Spec.Template)
	}
	if _, err := f.Kube.AppsV1().Deployments(OperatorNamespace).Update(f.ctx(), deployment, metav1.UpdateOptions{}); err != nil {
		f.T.Fatal(err)
	}
	if err := awaitOperator(f.ctx(), f.Clients); err != nil {
		f.T.Fatal(err)
	}
}

// RunOperatorWith restarts the operator with flags beside those that it has, until the
// test ends.
func (f *Framework) RunOperatorWith(flags ...string) {
	f.T.Helper()
	was := f.Operator()
	f.T.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		if err := installOperator(ctx, f.Clients, was); err != nil {
			f.T.Error(err)
		}
	})
	f.RestartOperator(func(template *corev1.PodTemplateSpec) {
		container := &template.Spec.Containers[0]
		container.Args = append(container.Args, flags...)
	})
}

// AwaitOperator waits until the operator has all its replicas.
func (f *Framework) AwaitOperator() {
	f.T.Helper()
	if err := awaitOperator(f.ctx(), f.Clients); err != nil {
		f.T.Fatal(err)
	}
}

// awaitOperator waits until the newest operator, and only that, runs.
func awaitOperator(ctx context.Context, clients Clients) error {
	return poll(ctx, Patience, func(ctx context.Context) error {
		d, err := clients.Kube.AppsV1().Deployments(OperatorNamespace).Get(ctx, OperatorName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		s := d.Status
		want := ptr.Deref(d.Spec.Replicas, 1)
		if s.ObservedGeneration != d.Generation || s.UpdatedReplicas != want || s.AvailableReplicas != want || s.Replicas != want {
			return fmt.Errorf("the operator's Deployment is not there yet: %d replicas, %d updated, %d available", s.Replicas, s.UpdatedReplicas, s.AvailableReplicas)
		}
		return nil
	})
}

// Kubectl runs kubectl in the test's namespace.
func (f *Framework) Kubectl(args ...string) string {
	f.T.Helper()
	output, err := exec.CommandContext(f.ctx(), "kubectl", append([]string{"-n", f.Namespace}, args...)...).CombinedOutput()
	if err != nil {
		f.T.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, output)
	}
	return string(output)
}

// TryKubectl runs kubectl with something on its standard input, and returns
// what it printed, whether or not it failed.
func (f *Framework) TryKubectl(stdin string, args ...string) (string, error) {
	cmd := exec.CommandContext(f.ctx(), "kubectl", append([]string{"-n", f.Namespace}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	output, err := cmd.CombinedOutput()
	if err != nil {
		return string(output), fmt.Errorf("kubectl %s: %w\n%s", strings.Join(args, " "), err, output)
	}
	return string(output), nil
}
