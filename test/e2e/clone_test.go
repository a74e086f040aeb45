//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/test/e2e/framework"
)

// The example is applied before there is anything to copy; then the cluster is there,
// and each has its own rows and logins. Nothing of the copy stays with the other.
func TestCopyOfARunningCluster(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	f.Kubectl("apply", "-f", "../../example/clone.yaml")
	copied := f.Cluster("shop-copy")
	copied.AwaitCondition(v1.ConditionSpecAccepted, metav1.ConditionFalse, "there is no PostgresCluster shop")
	c := f.Create("shop", framework.Instances(2))
	copied.AwaitReady()
	// It has begun with whatever there was; a second one is made of what is known.
	c.AwaitReady()
	c.SQL(framework.RW, "create table story (row text)")
	insert(c, "before")
	c.AwaitRows(framework.RO, "select count(*) from story", "1")
	const slots = "select string_agg(slot_name, ',' order by slot_name) from pg_replication_slots"
	before := c.SQLIn(c.Primary(), slots)

	second := f.Create("second", framework.Instances(2), func(c *v1.PostgresCluster) {
		c.Spec.Bootstrap = &v1.BootstrapSpec{Clone: &v1.CloneSource{Cluster: "shop"}}
	})
	second.AwaitReady()
	insert(second, "in the copy")
	insert(c, "in the other")
	if rows := second.SQL(framework.RW, story); rows != "before,in the copy" {
		t.Errorf("the copy has the rows %s", rows)
	}
	if rows := c.SQL(framework.RW, story); rows != "before,in the other" {
		t.Errorf("the other has the rows %s", rows)
	}
	if second.Secret()["password"] == c.Secret()["password"] {
		t.Error("both have the same login")
	}
	if a, b := second.Live().Status, c.Live().Status; a.SystemID != b.SystemID || a.Timeline != 2 || b.Timeline != 1 {
		t.Errorf("the copy is system %s on timeline %d, the other %s on %d", a.SystemID, a.Timeline, b.SystemID, b.Timeline)
	}
	if after := c.SQLIn(c.Primary(), slots); after != before {
		t.Errorf("the other had the slots %s and has %s", before, after)
	}
	f.Await(time.Minute, "nobody may copy the other any more", func(ctx context.Context) error {
		_, err := f.Kube.CoreV1().Secrets(f.Namespace).Get(ctx, "second-clone", metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("the Secret is there: %v", err)
		}
		return nil
	})
}
