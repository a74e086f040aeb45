//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pgop/postgres-operator/test/e2e/framework"
)

// An operator with the rights of one namespace does all that a cluster needs.
// Beside another one, which looks after all namespaces, it makes no pod twice,
// and at rest neither writes (B-20). The namespace goes with everything in it,
// though its operator dies on the way (B-08, B-07).
func TestB08B20OperatorOfOneNamespace(t *testing.T) {
	f := framework.New(t)
	everywhere := f.UninstallOperator()
	installNamespaced(t, f, everywhere.Spec.Template.Spec.Containers[0].Image)

	c := f.Create("small", framework.Instances(2))
	c.AwaitReady()
	c.Edit(framework.Instances(1), framework.Parameter("work_mem", "7MB"))
	c.AwaitReady()
	c.AwaitRows(framework.RW, "show work_mem", "7MB")

	f.InstallOperator(everywhere)
	c.Edit(framework.Instances(3))
	c.AwaitReady()
	f.Hold(3*time.Second, "there is no pod too many", func(context.Context) error {
		return framework.Want("pods", len(c.Pods()), 3)
	})
	if framework.IsLocal() {
		mark := f.MarkAudit()
		f.Pause(10 * time.Second)
		inside := "system:serviceaccount:" + f.Namespace + ":postgres-operator"
		for _, r := range append(f.Requests(framework.OperatorUser, mark), f.Requests(inside, mark)...) {
			if r.Verb != "watch" && r.ObjectRef.Name != framework.OperatorName {
				t.Errorf("two operators at rest, and one asks for something: %+v", r)
			}
		}
	}

	f.UninstallOperator()
	f.Kubectl("delete", "namespace", f.Namespace, "--wait=false")
	f.Await(framework.Patience, "the namespace is gone", func(ctx context.Context) error {
		live, err := f.Kube.CoreV1().Namespaces().Get(ctx, f.Namespace, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		return fmt.Errorf("it is %s: %v", live.Status.Phase, live.Status.Conditions)
	})
}

// installNamespaced puts deploy/operator-namespaced.yaml into the test's
// namespace.
func installNamespaced(t *testing.T, f *framework.Framework, image string) {
	t.Helper()
	manifest, err := os.ReadFile("../../deploy/operator-namespaced.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(string(manifest), "docker.io/pgop/postgres-operator:dev", image)
	if output, err := f.TryKubectl(text, "apply", "-f", "-"); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	f.Kubectl("rollout", "status", "deployment/postgres-operator", "--timeout=60s")
}
