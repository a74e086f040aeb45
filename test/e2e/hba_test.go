//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/test/e2e/framework"
)

func hba(lines ...string) framework.Modifier {
	return func(c *v1.PostgresCluster) { c.Spec.Postgres.HBA = lines }
}

// userMaps are lines of pg_ident.conf.
func userMaps(lines ...string) framework.Modifier {
	return func(c *v1.PostgresCluster) { c.Spec.Postgres.Ident = lines }
}

// awaitRefusal waits until a login fails by a line of pg_hba.conf that rejects it.
func awaitRefusal(f *framework.Framework, what string, login func(context.Context) (string, error)) {
	f.T.Helper()
	f.Await(framework.Patience, what+" is refused", func(ctx context.Context) error { return wantRefusal(login(ctx)) })
}

func wantRefusal(got string, err error) error {
	if err == nil {
		return fmt.Errorf("it gets in: %s", got)
	}
	if !strings.Contains(err.Error(), "pg_hba.conf rejects connection") {
		return err
	}
	return nil
}

// E-07: rules that let in one address and end with a line that rejects everybody:
// an outsider gets in nowhere, not by the closing default either, while replicas,
// probes and the operator do, also anew.
func TestE07DenyByDefault(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	c := f.Create("deny", framework.Instances(2))
	c.AwaitReady()
	client := c.SQL(framework.RW, "create table kept as select 1 as n; select host(inet_client_addr())")
	uri := c.Secret()["uri"]
	outsider := func(ctx context.Context) (string, error) {
		return c.TryShell(ctx, "deny-2", "PGCONNECT_TIMEOUT=5 psql -X -q -A -t -d '"+uri+"' -c 'select 1'")
	}
	f.Await(framework.Patience, "without rules everybody with a password gets in", func(ctx context.Context) error {
		_, err := outsider(ctx)
		return err
	})
	// "all" means every database, and not replication.
	c.Edit(hba("host all all "+client+"/32 scram-sha-256", "local all all reject", "host replication all all reject", "host all all all reject"))
	awaitRefusal(f, "the outsider", outsider)
	c.AwaitRows(framework.RW, "select n from kept", "1")

	// Each connection of the operator's own is made anew: the other instance takes over,
	// and the former primary follows.
	old := c.Pod("deny-1").UID
	c.DeletePod("deny-1")
	c.AwaitNewPod("deny-1", old)
	c.AwaitCondition(v1.ConditionUpToDate, metav1.ConditionTrue)
	if primary := c.Primary(); primary != "deny-2" {
		t.Errorf("the primary is %s", primary)
	}
	wantStreaming(t, c, 2)
	c.SQL(framework.RW, "insert into kept values (2)")
	c.AwaitRows(framework.RO, "select count(*) from kept", "2")
	if err := wantRefusal(outsider(t.Context())); err != nil {
		t.Errorf("the outsider, at the new primary: %v", err)
	}
}

// E-08: a line that can't be a rule, or a map of names, is held back with its number, and
// so is one that only the server finds out. The rules before stay, also in a new pod of
// the only instance, which serves and does not restart; the corrected ones are taken.
func TestE08BrokenLineOfHBA(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	const before = "hostssl postgres app all reject"
	c := f.Create("broken", hba(before))
	c.AwaitReady()
	c.SQL(framework.RW, "create table kept as select 1 as n")
	other := strings.Replace(c.Secret()["uri"], ":5432/app?", ":5432/postgres?", 1)
	login := func(ctx context.Context) (string, error) { return f.PSQL(ctx, other, "select 'in'") }
	awaitRefusal(f, "who may not use the database postgres", login)

	pod := c.Pod("broken-1").UID
	for _, bad := range []struct {
		line      string
		edit      framework.Modifier
		condition string
		words     []string
	}{
		{"a method that is none", hba(before, "host all all 10.0.0.0/33 md5x"), v1.ConditionSpecAccepted, []string{"spec.postgres.hba", "hba line 2", "md5x"}},
		{"a mask that is none", hba(before, "host all all 10.0.0.0/33 md5"), v1.ConditionUpToDate, []string{"spec.postgres", "hba line 2", "10.0.0.0/33"}},
		{"a map without a role", userMaps("people alice"), v1.ConditionSpecAccepted, []string{"spec.postgres.ident", "ident line 1", "people alice"}},
		{"a map whose pattern is none", userMaps("people alice app", "people /( app"), v1.ConditionUpToDate, []string{"spec.postgres", "ident line 2", "regular expression"}},
	} {
		c.Edit(hba(before), userMaps())
		c.Edit(bad.edit)
		message := c.AwaitCondition(bad.condition, metav1.ConditionFalse, bad.words...)
		t.Logf("%s: %s says: %s", bad.line, bad.condition, message)
		c.DeletePod("broken-1")
		f.Await(framework.Patience, "a new pod serves", func(ctx context.Context) error {
			now, err := f.Kube.CoreV1().Pods(f.Namespace).Get(ctx, "broken-1", metav1.GetOptions{})
			if err != nil {
				return err
			}
			if now.UID == pod || readySince(now).IsZero() {
				return errors.New("it is not there, or not ready")
			}
			rows, err := c.TrySQL(ctx, framework.RW, "select n from kept")
			return errors.Join(err, framework.Want("the rows", rows, "1"))
		})
		if err := wantRefusal(login(t.Context())); err != nil {
			t.Errorf("%s: who was refused before: %v", bad.line, err)
		}
		c.AwaitCondition(bad.condition, metav1.ConditionFalse, bad.words...)
		pod = neverRestarted(t, c, "broken-1")
	}
	c.Edit(hba("hostssl postgres app all scram-sha-256"), userMaps("people /^(.*)$ app"))
	wantPSQL(f, other, "select 'in'", "in")
	c.AwaitCondition(v1.ConditionSpecAccepted, metav1.ConditionTrue)
	c.AwaitCondition(v1.ConditionUpToDate, metav1.ConditionTrue)
	c.AwaitReady()
	if now := neverRestarted(t, c, "broken-1"); now != pod {
		t.Error("the correction took a new pod")
	}
}

// neverRestarted checks that a pod's server container has run all the time, and
// returns the pod's UID.
func neverRestarted(t *testing.T, c *framework.Cluster, instance string) types.UID {
	t.Helper()
	pod := c.Pod(instance)
	if n := pod.Status.ContainerStatuses[0].RestartCount; n != 0 {
		t.Errorf("the container of %s has restarted %d times", instance, n)
	}
	return pod.UID
}
