package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/utils/ptr"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/generated/clientset/versioned"
)

const (
	poll        = 20 * time.Millisecond
	patience    = 3 * time.Minute
	clientImage = "docker.io/library/postgres:17"
)

// bench is one namespace with a pod to write from.
type bench struct {
	config    *rest.Config
	kube      *kubernetes.Clientset
	postgres  *versioned.Clientset
	namespace string
}

func newBench(ctx context.Context) (*bench, error) {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return nil, fmt.Errorf("read KUBECONFIG: %w", err)
	}
	config.QPS, config.Burst = 200, 400
	b := &bench{config: config}
	if b.kube, err = kubernetes.NewForConfig(config); err != nil {
		return nil, err
	}
	if b.postgres, err = versioned.NewForConfig(config); err != nil {
		return nil, err
	}
	namespace, err := b.kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: "bench-",
		Labels:       map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
	}}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("create namespace: %w", err)
	}
	b.namespace = namespace.Name
	return b, b.startClient(ctx)
}

func (b *bench) cleanUp() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := b.kube.CoreV1().Namespaces().Delete(ctx, b.namespace, metav1.DeleteOptions{}); err != nil {
		fmt.Fprintln(os.Stderr, "bench: delete namespace:", err)
	}
}

// startClient makes a pod with psql in it.
func (b *bench) startClient(ctx context.Context) error {
	_, err := b.kube.CoreV1().Pods(b.namespace).Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "client"},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: ptr.To[int64](0),
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot:   ptr.To(true),
				RunAsUser:      ptr.To[int64](999),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{{
				Name:    "client",
				Image:   clientImage,
				Command: []string{"sleep", "infinity"},
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: ptr.To(false),
					Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
			}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create the client's pod: %w", err)
	}
	return b.await(ctx, "the client's pod", func(ctx context.Context) (bool, error) {
		pod, err := b.kube.CoreV1().Pods(b.namespace).Get(ctx, "client", metav1.GetOptions{})
		return err == nil && pod.Status.Phase == corev1.PodRunning, err
	})
}

// exec runs a shell command in a pod and returns what it printed.
func (b *bench) exec(ctx context.Context, pod, container, command string) (string, error) {
	request := b.kube.CoreV1().RESTClient().Post().Resource("pods").Namespace(b.namespace).Name(pod).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{
			Container: container, Command: []string{"sh", "-c", command}, Stdout: true, Stderr: true,
		}, scheme.ParameterCodec)
	executor, err := remotecommand.NewWebSocketExecutor(b.config, "GET", request.URL().String())
	if err != nil {
		return "", err
	}
	var stdout, stderr bytes.Buffer
	err = executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: &stdout, Stderr: &stderr})
	if err != nil {
		return "", fmt.Errorf("run in pod %s: %w: %s", pod, err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}

// apply creates a cluster and returns the time at which it asked for it.
func (b *bench) apply(ctx context.Context, name string, instances int32) (time.Time, error) {
	asked := time.Now()
	_, err := b.postgres.PgopV1().PostgresClusters(b.namespace).Create(ctx, &v1.PostgresCluster{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1.PostgresClusterSpec{
			Instances: &instances,
			Postgres:  v1.PostgresSpec{Version: 17},
			Storage:   v1.StorageSpec{Size: resource.MustParse("1Gi"), Retain: v1.DeleteVolumes},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return asked, fmt.Errorf("create cluster %s: %w", name, err)
	}
	return asked, nil
}

// awaitWrite returns when a row was written through the rw Service.
func (b *bench) awaitWrite(ctx context.Context, name string) error {
	var uri string
	err := b.await(ctx, "the Secret of cluster "+name, func(ctx context.Context) (bool, error) {
		secret, err := b.kube.CoreV1().Secrets(b.namespace).Get(ctx, name+"-app", metav1.GetOptions{})
		if err == nil {
			uri = string(secret.Data["uri"])
		}
		return err == nil, err
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_, err = b.exec(ctx, "client", "client", fmt.Sprintf(
		`until PGCONNECT_TIMEOUT=1 psql -Xqw '%s' -c 'create table bench ()' 2>/dev/null; do sleep 0.05; done`, uri))
	return err
}

func (b *bench) awaitReady(ctx context.Context, name string) error {
	return b.await(ctx, "cluster "+name+" to be ready", func(ctx context.Context) (bool, error) {
		c, err := b.postgres.PgopV1().PostgresClusters(b.namespace).Get(ctx, name, metav1.GetOptions{})
		return err == nil && meta.IsStatusConditionTrue(c.Status.Conditions, v1.ConditionReady), err
	})
}

// remove deletes a cluster and waits until its pods and volumes are gone.
func (b *bench) remove(ctx context.Context, name string) error {
	err := b.postgres.PgopV1().PostgresClusters(b.namespace).Delete(ctx, name, metav1.DeleteOptions{})
	if err != nil {
		return fmt.Errorf("delete cluster %s: %w", name, err)
	}
	return b.await(ctx, "cluster "+name+" to be gone", func(ctx context.Context) (bool, error) {
		volumes, err := b.kube.CoreV1().PersistentVolumeClaims(b.namespace).List(ctx, metav1.ListOptions{LabelSelector: "pgop.dev/cluster=" + name})
		return err == nil && len(volumes.Items) == 0, err
	})
}

func (b *bench) await(ctx context.Context, what string, done func(context.Context) (bool, error)) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, poll, patience, true, func(ctx context.Context) (bool, error) {
		var ok bool
		ok, last = done(ctx)
		if last != nil && !errors.IsNotFound(last) {
			return false, last
		}
		return ok, nil
	})
	if err != nil {
		return fmt.Errorf("wait for %s: %w", what, err)
	}
	return nil
}
