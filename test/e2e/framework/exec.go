//go:build e2e

package framework

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/utils/ptr"
)

const (
	clientPod   = "client"
	clientImage = "docker.io/library/postgres:17"
)

// Service is one of a cluster's Services.
type Service string

const (
	// RW leads to the primary.
	RW Service = "rw"
	// RO leads to the replicas.
	RO Service = "ro"
	// R leads to any instance.
	R Service = "r"
)

// startClient asks for the pod with psql in it, once.
func (f *Framework) startClient() {
	f.client.Do(func() { f.startTool(clientPod, clientImage) })
}

// startTool asks for a pod of this name that waits for programs to be run in its
// container of the same name.
func (f *Framework) startTool(name, image string) {
	_, err := f.Kube.CoreV1().Pods(f.Namespace).Create(f.ctx(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: ptr.To[int64](0),
			AutomountServiceAccountToken:  ptr.To(false),
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot:   ptr.To(true),
				RunAsUser:      ptr.To[int64](999),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{{
				Name:    name,
				Image:   image,
				Command: []string{"sleep", "infinity"},
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: ptr.To(false),
					Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
			}},
		},
	}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		f.T.Errorf("create the pod %s: %v", name, err)
	}
}

// awaitClient returns when psql can be run.
func (f *Framework) awaitClient(ctx context.Context) error {
	f.startClient()
	return f.awaitTool(ctx, clientPod)
}

func (f *Framework) awaitTool(ctx context.Context, name string) error {
	return poll(ctx, time.Minute, func(ctx context.Context) error {
		pod, err := f.Kube.CoreV1().Pods(f.Namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if !isReady(pod) {
			return fmt.Errorf("the pod %s is not ready: %s", name, podSummary(pod))
		}
		return nil
	})
}

// execIn runs a program in a container and returns what it printed, without the
// last line break. The shell script gets its arguments as $1, $2 and so on.
func (f *Framework) execIn(ctx context.Context, pod, container, stdin, script string, args ...string) (string, error) {
	options := &corev1.PodExecOptions{
		Container: container,
		Command:   append([]string{"sh", "-c", script, "sh"}, args...),
		Stdin:     true, Stdout: true, Stderr: true,
	}
	request := f.Kube.CoreV1().RESTClient().Post().Resource("pods").Namespace(f.Namespace).Name(pod).SubResource("exec").
		VersionedParams(options, scheme.ParameterCodec)
	executor, err := remotecommand.NewWebSocketExecutor(f.Config, "GET", request.URL().String())
	if err != nil {
		return "", err
	}
	var stdout, stderr bytes.Buffer
	err = executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: strings.NewReader(stdin), Stdout: &stdout, Stderr: &stderr})
	if err != nil {
		return "", fmt.Errorf("run in pod %s: %w: %s", pod, err, strings.TrimSpace(stderr.String()+stdout.String()))
	}
	return strings.TrimSuffix(stdout.String(), "\n"), nil
}

// InClient runs a shell script in the client's pod.
func (f *Framework) InClient(ctx context.Context, stdin, script string, args ...string) (string, error) {
	if err := f.awaitClient(ctx); err != nil {
		return "", err
	}
	return f.execIn(ctx, clientPod, clientPod, stdin, script, args...)
}

// TrySQL runs SQL through one of the cluster's Services with the published
// login, and returns its rows, with | between columns.
func (c *Cluster) TrySQL(ctx context.Context, service Service, sql string) (string, error) {
	secret, err := c.secret(ctx)
	if err != nil {
		return "", err
	}
	uri := strings.Replace(secret["uri"], c.Name+"-rw.", c.Name+"-"+string(service)+".", 1)
	return c.f.psql(ctx, uri, sql)
}

func (f *Framework) psql(ctx context.Context, conninfo, sql string) (string, error) {
	const script = `PGCONNECT_TIMEOUT=5 exec timeout 60 psql -X -q -A -t -v ON_ERROR_STOP=1 -d "$1" -f -`
	return f.InClient(ctx, sql, script, conninfo)
}

// PSQL runs SQL over a connection that conninfo describes.
func (f *Framework) PSQL(ctx context.Context, conninfo, sql string) (string, error) {
	return f.psql(ctx, conninfo, sql)
}

// SQL is TrySQL that has to work within the time that a Service may take to
// lead to a server that has just become ready. SQL that can't be repeated
// should be in a transaction, which psql's -f - does not make by itself.
func (c *Cluster) SQL(service Service, sql string) string {
	c.f.T.Helper()
	result := ""
	c.f.Await(20*time.Second, fmt.Sprintf("SQL through %s-%s: %s", c.Name, service, sql), func(ctx context.Context) error {
		var err error
		result, err = c.TrySQL(ctx, service, sql)
		return err
	})
	return result
}

// AwaitRows waits until SQL through a Service gives these rows, as a replica
// will a moment after the primary.
func (c *Cluster) AwaitRows(service Service, sql, rows string) {
	c.f.T.Helper()
	c.f.Await(Patience, fmt.Sprintf("%s through %s-%s gives %q", sql, c.Name, service, rows), func(ctx context.Context) error {
		got, err := c.TrySQL(ctx, service, sql)
		if err != nil {
			return err
		}
		return Want("the result", got, rows)
	})
}

// AwaitWrites waits until another instance than former takes an insert through the rw
// Service, and returns which: one whose pod was just deleted may serve for a moment.
func (c *Cluster) AwaitWrites(former, insert string) (primary string) {
	c.f.T.Helper()
	c.f.Await(Patience, "another primary than "+former+" takes writes", func(ctx context.Context) (err error) {
		primary, err = c.TrySQL(ctx, RW, insert+" returning current_setting('cluster_name')")
		if err == nil && primary == former {
			return fmt.Errorf("%s serves", former)
		}
		return err
	})
	return primary
}

// TryShell runs a shell script in an instance's container.
func (c *Cluster) TryShell(ctx context.Context, instance, script string) (string, error) {
	return c.f.execIn(ctx, instance, Container, "", script)
}

// Shell is TryShell that must work.
func (c *Cluster) Shell(instance, script string) string {
	c.f.T.Helper()
	result, err := c.TryShell(c.f.ctx(), instance, script)
	if err != nil {
		c.f.T.Fatalf("%s: %v", script, err)
	}
	return result
}

// SQLIn runs SQL as superuser inside an instance's pod, in the database
// postgres.
func (c *Cluster) SQLIn(instance, sql string) string {
	c.f.T.Helper()
	result, err := c.TrySQLIn(c.f.ctx(), instance, sql)
	if err != nil {
		c.f.T.Fatalf("%s: %v", sql, err)
	}
	return result
}

// TrySQLIn is SQLIn that may fail.
func (c *Cluster) TrySQLIn(ctx context.Context, instance, sql string) (string, error) {
	return c.f.execIn(ctx, instance, Container, sql, `exec timeout 60 psql -X -q -A -t -v ON_ERROR_STOP=1 -d postgres -f -`)
}
