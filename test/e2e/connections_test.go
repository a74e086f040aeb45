//go:build e2e

package e2e

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/test/e2e/framework"
)

// E-05: clients take every connection. The status tells, nothing fails over or is
// started anew, and it is over when they are gone.
func TestE05ClientsTakeAllConnections(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	c := f.Create("taken", framework.Instances(3), framework.Parameter("max_connections", "20"))
	c.AwaitReady()
	primary, pods, began := c.Primary(), podUIDs(c), serverStarts(c)

	const take = `for n in $(seq 40); do
			psql -X -d "$1" -c 'select pg_sleep(600)' >/dev/null 2>&1 &
		done
		psql -X -d "$1" -c 'select pg_sleep(600)' >/dev/null 2>&1 || :`
	ctx, free := context.WithCancel(t.Context())
	defer free()
	go func() { _, _ = f.InClient(ctx, "", take, c.Secret()["uri"]) }()
	message := c.AwaitCondition(v1.ConditionPrimaryAvailable, metav1.ConditionTrue, "no connection", "max_connections")
	t.Logf("while all are taken: %s", message)
	if _, err := c.TrySQL(t.Context(), framework.RW, "select 1"); err == nil {
		t.Error("another client gets a connection")
	}
	c.SQLIn(primary, "select pg_terminate_backend(pid) from pg_stat_activity where query like 'select pg_sleep(600)%'")
	c.AwaitCondition(v1.ConditionPrimaryAvailable, metav1.ConditionTrue, "takes writes")
	c.AwaitRows(framework.RW, "select 1", "1")
	c.AwaitReady()
	if now := c.Primary(); now != primary {
		t.Errorf("%s is the primary, and was %s", now, primary)
	}
	for name, uid := range podUIDs(c) {
		if pods[name] != uid {
			t.Errorf("pod %s is another", name)
		}
	}
	if now := serverStarts(c); now != began {
		t.Errorf("servers started at %s, and before at %s", now, began)
	}
	if n := countEvents(t, c, v1.ReasonConnectionsTaken); n == 0 {
		t.Error("no event tells")
	}
}
