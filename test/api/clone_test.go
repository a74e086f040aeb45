//go:build e2e

package api

import (
	"context"
	"errors"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/test/api/framework"
)

// A cluster that is to be a copy of another is refused while there is none of that name,
// waits until that one serves, is told of one of its servers, and has what lets it in for
// as long as there is no database.
func TestCopyWaitsForTheOtherCluster(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	f.StartOperator()
	f.Kubelet.Script("shop-1", framework.Script{Unschedulable: "no node"})
	f.Kubelet.Script("copy-1", framework.Script{Unschedulable: "not yet"}) // once there is a database, nobody is told whom to copy
	copied := f.Create("copy", func(c *v1.PostgresCluster) {
		c.Spec.Bootstrap = &v1.BootstrapSpec{Clone: &v1.CloneSource{Cluster: "shop"}}
	})
	copied.AwaitCondition(v1.ConditionSpecAccepted, metav1.ConditionFalse, "there is no PostgresCluster shop")
	shop := f.Create("shop", framework.Instances(2))
	copied.AwaitCondition(v1.ConditionPrimaryAvailable, metav1.ConditionFalse, "cluster shop has no database yet")
	f.Kubelet.Script("shop-1", framework.Script{})
	shop.AwaitReady()
	f.Await("the agent is told whom to copy", func(ctx context.Context) error {
		config, err := copied.Told(ctx)
		if err != nil {
			return err
		}
		told := config.Bootstrap.Clone
		if told == nil {
			return errors.New("nobody")
		}
		secret, err := f.Kube.CoreV1().Secrets(f.Namespace).Get(ctx, told.Secret, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if len(secret.Data["replication.key"]) == 0 {
			return errors.New("the Secret has no key")
		}
		// Whoever was the first to serve stays the one.
		if told.Host != fmt.Sprintf("shop-1.shop-pods.%s.svc", f.Namespace) && told.Host != fmt.Sprintf("shop-2.shop-pods.%s.svc", f.Namespace) {
			return fmt.Errorf("%+v", told)
		}
		return nil
	})
	f.Kubelet.Script("copy-1", framework.Script{})
	copied.AwaitReady()
	f.Await("what let it in goes", func(ctx context.Context) error {
		_, err := f.Kube.CoreV1().Secrets(f.Namespace).Get(ctx, "copy-clone", metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is there: %v", err)
		}
		return nil
	})
}
