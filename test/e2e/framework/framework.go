//go:build e2e

package framework

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/pgop/postgres-operator/pkg/generated/clientset/versioned"
)

// Clients talk to the cluster that KUBECONFIG names.
type Clients struct {
	Config    *rest.Config
	Kube      *kubernetes.Clientset
	Postgres  *versioned.Clientset
	Metadata  metadata.Interface
	Discovery discovery.DiscoveryInterface
}

var connect = sync.OnceValues(func() (Clients, error) {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return Clients{}, fmt.Errorf("read KUBECONFIG: %w", err)
	}
	config.QPS, config.Burst = 200, 400
	config.UserAgent = "postgres-operator-e2e"
	c := Clients{Config: config}
	if c.Kube, err = kubernetes.NewForConfig(config); err != nil {
		return Clients{}, fmt.Errorf("make a client: %w", err)
	}
	if c.Postgres, err = versioned.NewForConfig(config); err != nil {
		return Clients{}, fmt.Errorf("make a client: %w", err)
	}
	if c.Metadata, err = metadata.NewForConfig(config); err != nil {
		return Clients{}, fmt.Errorf("make a client: %w", err)
	}
	c.Discovery = c.Kube.Discovery()
	return c, nil
})

// Framework is one test's namespace and its clients.
type Framework struct {
	T *testing.T
	Clients
	// Namespace is the test's own. Pods in it must pass the restricted Pod
	// Security Standard. It goes when the test ends.
	Namespace string

	client sync.Once
}

// New makes a namespace for the test. When the test has failed, what is in it
// is written to the test's log before it goes.
func New(t *testing.T) *Framework {
	t.Helper()
	clients, err := connect()
	if err != nil {
		t.Fatal(err)
	}
	f := &Framework{T: t, Clients: clients}
	namespace, err := f.Kube.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: "e2e-",
		Labels:       map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
		Annotations:  map[string]string{"e2e.pgop.dev/test": t.Name()},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("create a namespace: %v", err)
	}
	f.Namespace = namespace.Name
	t.Logf("%s in namespace %s", time.Now().Format(time.TimeOnly), f.Namespace)
	t.Cleanup(f.cleanUp)
	return f
}

func (f *Framework) cleanUp() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if f.T.Failed() {
		f.dump(ctx)
	}
	if os.Getenv("E2E_KEEP") != "" && f.T.Failed() {
		f.T.Logf("E2E_KEEP is set: namespace %s stays", f.Namespace)
		return
	}
	if err := f.Kube.CoreV1().Namespaces().Delete(ctx, f.Namespace, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		f.T.Errorf("delete namespace %s: %v", f.Namespace, err)
	}
}

// ctx is the test's context, or, once that has ended, none.
func (f *Framework) ctx() context.Context { return f.T.Context() }

// Nodes are the names of the cluster's nodes.
func (f *Framework) Nodes() []string {
	list, err := f.Kube.CoreV1().Nodes().List(context.Background(), metav1.ListOptions{})
	if err != nil {
		f.T.Fatal(err)
	}
	var names []string
	for _, node := range list.Items {
		names = append(names, node.Name)
	}
	return names
}
