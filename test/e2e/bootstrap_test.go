//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/test/e2e/framework"
)

// dollarQuoted has all that a shell or a splitter at semicolons would spoil.
const dollarQuoted = `-- it's a comment; with a quote and $HOME and $(id)
CREATE FUNCTION price(n int) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  s text := 'a;b''c\d "e" $1 ${HOME} %s';
BEGIN
  RETURN s || n::text; -- done; really
END;
$$;
CREATE TABLE bytes (name text, body text);
INSERT INTO bytes VALUES ('semi;colon', $x$it's $$ here$x$), (E'tab\there', 'ünïcode ☃');
`

// SQL of the manifest reaches the server byte for byte.
func TestA19DollarQuotedInitSQL(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	c := f.Create("dollar", framework.Initdb(v1.InitdbSpec{Database: "Shop-db", Owner: "Shop_owner", SQL: []string{
		dollarQuoted,
		`GRANT ALL ON bytes TO "Shop_owner"`,
		"CREATE DATABASE second", // not possible in a transaction
	}}))
	c.AwaitReady()
	want := `a;b'c\d "e" $1 ${HOME} %s7`
	if got := c.SQL(framework.RW, "select price(7)"); got != want {
		t.Errorf("the function returns %q instead of %q", got, want)
	}
	want = "semi;colon|it's $$ here\ntab\there|ünïcode ☃"
	if got := c.SQL(framework.RW, "select * from bytes order by name"); got != want {
		t.Errorf("the rows are %q instead of %q", got, want)
	}
	if got := c.SQL(framework.RW, "select current_user, current_database(), (select count(*) from pg_database where datname = 'second')"); got != "Shop_owner|Shop-db|1" {
		t.Errorf("user, database, the other database: %s", got)
	}
}

// SQL that fails, or that is not SQL, is shown in the status with the
// statement; once it is corrected the bootstrap runs again by itself.
func TestA19B27BrokenInitSQLThenCorrected(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	sql := func(items ...string) framework.Modifier {
		return func(c *v1.PostgresCluster) { c.Spec.Bootstrap.Initdb.SQL = items }
	}
	c := f.Create("broken", framework.Initdb(v1.InitdbSpec{SQL: []string{"create table first (n int)", "create table t (n int);\n\\connect x\n"}}))
	message := c.AwaitCondition(v1.ConditionPrimaryAvailable, metav1.ConditionFalse, "spec.bootstrap.initdb.sql[1]", "line 2", `\connect`, "psql")
	t.Logf("a backslash command: %s", message)
	volume := c.Volume("broken-1").UID

	c.Edit(sql("create table first (n int)", "create tabel t (n int)"))
	message = c.AwaitCondition(v1.ConditionPrimaryAvailable, metav1.ConditionFalse, "spec.bootstrap.initdb.sql[1]", "syntax error", "create tabel")
	t.Logf("a syntax error: %s", message)
	if reason := conditionOf(c.Live(), v1.ConditionPrimaryAvailable).Reason; reason != v1.ReasonBootstrapFailed {
		t.Errorf("the reason is %s", reason)
	}

	c.Edit(sql("create table first (n int)", "create table t (n int)"))
	c.AwaitReady()
	if got := c.SQLIn("broken-1", "\\c app\nselect count(*) from pg_tables where tablename in ('first', 't')"); got != "2" {
		t.Errorf("%s of 2 tables are there", got)
	}
	if c.Volume("broken-1").UID != volume {
		t.Errorf("the volume was replaced")
	}
	// Once the database exists, bootstrap is history.
	if err := c.TryEdit(sql("create table late (n int)")); err == nil {
		t.Errorf("the bootstrap of an existing cluster could be changed")
	}
}

// initdb's own message reaches the status, and the correction heals on the same
// volume.
func TestA20BadLocaleThenCorrected(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	locale := func(locale, encoding string) framework.Modifier {
		return func(c *v1.PostgresCluster) {
			c.Spec.Bootstrap.Initdb.Locale, c.Spec.Bootstrap.Initdb.Encoding = locale, encoding
		}
	}
	c := f.Create("locale", framework.Initdb(v1.InitdbSpec{Locale: "UTF8"}))
	message := c.AwaitCondition(v1.ConditionPrimaryAvailable, metav1.ConditionFalse, "invalid locale name", "UTF8")
	t.Logf("locale UTF8: %s", message)
	volume := c.Volume("locale-1").UID
	c.Edit(locale("en_US.utf8", "LATIN1"))
	message = c.AwaitCondition(v1.ConditionPrimaryAvailable, metav1.ConditionFalse, "encoding mismatch")
	t.Logf("en_US.utf8 with LATIN1: %s", message)
	c.Edit(locale("en_US.utf8", "UTF8"))
	c.AwaitReady()
	if got := c.SQL(framework.RW, "select datcollate, pg_encoding_to_char(encoding) from pg_database where datname = 'app'"); got != "en_US.utf8|UTF8" {
		t.Errorf("locale and encoding are %s", got)
	}
	if c.Volume("locale-1").UID != volume {
		t.Errorf("the volume was replaced")
	}
}

// A pod that dies while initdb is at work leaves nothing that hinders the next.
func TestB25KilledDuringInitdb(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("replay: SEED=%d", seed)
	random := rand.New(rand.NewPCG(seed, 0))

	const clusters = 3
	var stories []func() error
	for n := range clusters {
		// Bootstrap takes a second or two.
		delay := time.Duration(random.IntN(1800)) * time.Millisecond
		force := random.IntN(3) > 0
		var grace *int64
		if force {
			grace = ptr.To[int64](0)
		}
		c := f.Cluster(fmt.Sprintf("killed-%d", n))
		t.Logf("%s: killed %v after its container's start, by force: %v", c.Name, delay, force)
		stories = append(stories, func() error {
			manifest := framework.Manifest(c.Name, framework.Initdb(v1.InitdbSpec{SQL: []string{"create table once as select 1 as n"}}))
			if err := f.TryCreate(manifest); err != nil {
				return err
			}
			if err := awaitContainer(t.Context(), f, c.Instance(1)); err != nil {
				return err
			}
			if err := framework.Sleep(t.Context(), delay); err != nil {
				return err
			}
			return f.Kube.CoreV1().Pods(f.Namespace).Delete(t.Context(), c.Instance(1), metav1.DeleteOptions{GracePeriodSeconds: grace})
		})
	}
	f.Together(stories...)
	for n := range clusters {
		c := f.Cluster(fmt.Sprintf("killed-%d", n))
		f.Await(framework.Patience, "the new pod serves", func(ctx context.Context) error {
			if err := c.Ready(ctx); err != nil {
				return err
			}
			got, err := c.TrySQLIn(ctx, c.Instance(1), "\\c app\nselect count(*) from once")
			if err != nil {
				return err
			}
			return framework.Want("the row of initdb.sql", got, "1")
		})
		c.AwaitRows(framework.RW, "select 1", "1")
		if left := c.Shell(c.Instance(1), "ls /pgdata/17 | grep -v -e '^config$' -e '^data$' -e '^data-id$' -e '^reign.json$' || true"); left != "" {
			t.Errorf("%s: left over on the volume: %s", c.Name, left)
		}
	}
}

// awaitContainer returns as soon as the server's container runs.
func awaitContainer(ctx context.Context, f *framework.Framework, pod string) error {
	watch, err := f.Kube.CoreV1().Pods(f.Namespace).Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + pod})
	if err != nil {
		return err
	}
	defer watch.Stop()
	deadline := time.After(framework.Patience)
	for {
		select {
		case <-deadline:
			return fmt.Errorf("the container of pod %s does not start", pod)
		case event, open := <-watch.ResultChan():
			if !open {
				return errors.New("the watch has ended")
			}
			if runs(event.Object) {
				return nil
			}
		}
	}
}

func runs(object any) bool {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return false
	}
	for _, status := range pod.Status.ContainerStatuses {
		if status.State.Running != nil {
			return true
		}
	}
	return false
}
