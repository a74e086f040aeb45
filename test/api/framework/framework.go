//go:build e2e

package framework

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/pgop/postgres-operator/deploy"
	"github.com/pgop/postgres-operator/pkg/controller"
	"github.com/pgop/postgres-operator/pkg/generated/clientset/versioned"
)

// Patience is enough for whatever an operator does by itself on a busy machine.
const Patience = 2 * time.Minute

// Clients are the test's own: administrators that talk to the API server
// directly.
type Clients struct {
	Config     *rest.Config
	Kube       *kubernetes.Clientset
	Postgres   *versioned.Clientset
	Extensions *apiextensions.Clientset
	Dynamic    *dynamic.DynamicClient
}

var connect = sync.OnceValues(func() (Clients, error) {
	path := os.Getenv("API_KUBECONFIG")
	if path == "" {
		return Clients{}, errors.New("API_KUBECONFIG names no API server; run `make test-api`, or `go -C test/localcluster run . up --api-only` and set it to what `… kubeconfig --api-only` prints")
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return Clients{}, fmt.Errorf("read API_KUBECONFIG: %w", err)
	}
	config.QPS, config.Burst = -1, -1
	config.UserAgent = "api-test"
	c := Clients{Config: config}
	if c.Kube, err = kubernetes.NewForConfig(config); err != nil {
		return Clients{}, fmt.Errorf("make a client: %w", err)
	}
	if c.Postgres, err = versioned.NewForConfig(config); err != nil {
		return Clients{}, fmt.Errorf("make a client: %w", err)
	}
	if c.Extensions, err = apiextensions.NewForConfig(config); err != nil {
		return Clients{}, fmt.Errorf("make a client: %w", err)
	}
	if c.Dynamic, err = dynamic.NewForConfig(config); err != nil {
		return Clients{}, fmt.Errorf("make a client: %w", err)
	}
	return c, nil
})

// Main runs the tests of a package with this tree's CRDs installed.
func Main(m *testing.M) {
	clients, err := connect()
	if err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), Patience)
		err = clients.InstallCRD(ctx)
		cancel()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "FAIL:", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// InstallCRD installs this tree's CRDs, whatever version the API server has.
func (c Clients) InstallCRD(ctx context.Context) error {
	crds := c.Extensions.ApiextensionsV1().CustomResourceDefinitions()
	logger := logrus.New()
	logger.SetLevel(logrus.ErrorLevel)
	unnumbered := []byte(`{"metadata":{"annotations":{"pgop.dev/schema-version":null}}}`)
	for name, manifest := range map[string][]byte{
		"postgresclusters.pgop.dev": deploy.PostgresClusterCRD,
		"postgresbackups.pgop.dev":  deploy.PostgresBackupCRD,
		"postgresrestores.pgop.dev": deploy.PostgresRestoreCRD,
	} {
		_, err := crds.Patch(ctx, name, types.MergePatchType, unnumbered, metav1.PatchOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("make way for CRD %s: %w", name, err)
		}
		if err := controller.InstallCRD(ctx, crds, manifest, logrus.NewEntry(logger)); err != nil {
			return err
		}
	}
	return nil
}

// Framework is one test's namespace, with a Kubelet for it.
type Framework struct {
	T *testing.T
	Clients
	// Namespace is the test's own. Pods in it must pass the restricted Pod
	// Security Standard.
	Namespace string
	Kubelet   *Kubelet

	operators []*Operator
}

// New makes a namespace with a Kubelet, and no operator. When the test has
// failed, what is in it is written to the test's log before it goes.
func New(t *testing.T) *Framework {
	t.Helper()
	clients, err := connect()
	if err != nil {
		t.Fatal(err)
	}
	f := &Framework{T: t, Clients: clients}
	namespace, err := f.Kube.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: "api-",
		Labels:       map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
		Annotations:  map[string]string{"api.pgop.dev/test": t.Name()},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("create a namespace: %v", err)
	}
	f.Namespace = namespace.Name
	// First in, last out: operators end before the kubelet, and both before the
	// namespace.
	t.Cleanup(f.removeNamespace)
	f.Kubelet = startKubelet(f)
	t.Cleanup(f.Kubelet.stop)
	t.Cleanup(func() {
		if t.Failed() {
			f.dump()
		}
	})
	return f
}

// removeNamespace takes the namespace away with all that is in it.
func (f *Framework) removeNamespace() {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	if err := f.emptyNamespace(ctx); err != nil {
		f.T.Errorf("empty namespace %s: %v", f.Namespace, err)
	}
}

// ctx is the test's context.
func (f *Framework) ctx() context.Context { return f.T.Context() }

// dump writes to the test's log what helps to find out why it failed.
func (f *Framework) dump() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if list, err := f.Postgres.PgopV1().PostgresClusters(f.Namespace).List(ctx, metav1.ListOptions{}); err == nil {
		for _, c := range list.Items {
			f.T.Logf("PostgresCluster %s: %s", c.Name, Summary(&c))
		}
	}
	if list, err := f.Postgres.PgopV1().PostgresBackups(f.Namespace).List(ctx, metav1.ListOptions{}); err == nil {
		for _, b := range list.Items {
			f.T.Logf("PostgresBackup %s of %s: %s %s", b.Name, b.Spec.Cluster, b.Status.Phase, b.Status.Message)
		}
	}
	if list, err := f.Kube.CoreV1().Pods(f.Namespace).List(ctx, metav1.ListOptions{}); err == nil {
		for _, p := range list.Items {
			f.T.Logf("Pod %s: %s, uid %s, deleted %v, conditions %v", p.Name, p.Status.Phase, p.UID, p.DeletionTimestamp, p.Status.Conditions)
		}
	}
	if list, err := f.Kube.CoreV1().PersistentVolumeClaims(f.Namespace).List(ctx, metav1.ListOptions{}); err == nil {
		for _, p := range list.Items {
			f.T.Logf("PersistentVolumeClaim %s: %s, uid %s, deleted %v", p.Name, p.Status.Phase, p.UID, p.DeletionTimestamp)
		}
	}
	if list, err := f.Kube.EventsV1().Events(f.Namespace).List(ctx, metav1.ListOptions{}); err == nil {
		slices.SortFunc(list.Items, eventOrder)
		for _, e := range list.Items {
			f.T.Logf("event %s %s/%s %s: %s", e.EventTime.Format(time.TimeOnly), e.Regarding.Kind, e.Regarding.Name, e.Reason, e.Note)
		}
	}
	for n, o := range f.operators {
		lines := o.Log.Lines()
		f.T.Logf("log of operator %d:\n%s", n+1, strings.Join(lines[max(0, len(lines)-80):], ""))
	}
}
