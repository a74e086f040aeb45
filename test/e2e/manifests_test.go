//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/test/e2e/framework"
)

// Values without quotes, and with all that a shell or a template would spoil,
// arrive in the server with the meaning that they have for people, and do so
// again after a restart.
func TestA01A05ParametersArriveAsMeant(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	const manifest = `
apiVersion: pgop.dev/v1
kind: PostgresCluster
metadata: {name: meant}
spec:
  storage: {size: 512Mi, retain: Delete}
  postgres:
    version: 17
    parameters:
      max_connections: 150
      autovacuum: off
      jit: on
      random_page_cost: 1.1
      log_statement: ddl
      Work_Mem: 5 MB
      log_line_prefix: "%m it's [%p] "
      search_path: '"$user", public'
      default_transaction_isolation: read committed
      application_name: 'back\slash $HOME ${HOME} %s "q"'
      auto_explain.log_min_duration: 1s
`
	if output, err := f.TryKubectl(manifest, "apply", "-f", "-"); err != nil {
		t.Fatal(output)
	}
	c := f.Cluster("meant")
	c.AwaitReady()
	const ask = `select string_agg(name || '=' || current_setting(name), E'\n' order by name) from unnest(array['max_connections', 'autovacuum', 'jit',
		'random_page_cost', 'log_statement', 'work_mem', 'log_line_prefix', 'search_path', 'default_transaction_isolation', 'auto_explain.log_min_duration']) as name`
	want := strings.Join([]string{
		"auto_explain.log_min_duration=1s", "autovacuum=off", "default_transaction_isolation=read committed", "jit=on", "log_line_prefix=%m it's [%p] ",
		"log_statement=ddl", "max_connections=150", "random_page_cost=1.1", `search_path="$user", public`, "work_mem=5MB",
	}, "\n")
	check := func(when string) {
		t.Helper()
		if got := c.SQLIn("meant-1", ask); got != want {
			t.Errorf("%s: settings are\n%s\ninstead of\n%s", when, got, want)
		}
		if file := c.SQLIn("meant-1", "select setting from pg_file_settings where name = 'application_name' and applied"); file != `back\slash $HOME ${HOME} %s "q"` {
			t.Errorf("%s: application_name is %q", when, file)
		}
	}
	check("at first")
	old := c.Pod("meant-1").UID
	c.DeletePod("meant-1")
	c.AwaitNewPod("meant-1", old)
	check("after a restart")
}

// What the server refuses is held back: the status names the parameter and
// what is allowed, the servers run on with what they had and start again with
// it, and legal forms pass.
func TestA03A04BadValuesAreHeldBack(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	c := f.Create("held", framework.Parameter("work_mem", "5MB"))
	c.AwaitReady()
	pod := c.Pod("held-1")
	for _, bad := range []struct{ name, value, words string }{
		{"shared_buffers", "128M", "Valid units for this parameter are"},
		{"shared_buffers", "256Mi", "Valid units for this parameter are"},
		{"no_such_parameter", "on", "unrecognized configuration parameter"},
	} {
		c.Edit(framework.Parameter(bad.name, bad.value), framework.Parameter("work_mem", "6MB"))
		message := c.AwaitCondition(v1.ConditionUpToDate, metav1.ConditionFalse, bad.name, bad.words)
		t.Logf("%s=%s: %s", bad.name, bad.value, message)
		if got := c.SQL(framework.RW, "show work_mem"); got != "5MB" {
			t.Errorf("%s=%s: work_mem is %s", bad.name, bad.value, got)
		}
		if bad.name == "no_such_parameter" { // the server meets it at its start, too
			c.DeletePod("held-1")
			c.AwaitNewPod("held-1", pod.UID)
			pod = c.Pod("held-1")
			c.AwaitRows(framework.RW, "show work_mem", "5MB")
		}
		c.Edit(func(c *v1.PostgresCluster) { delete(c.Spec.Postgres.Parameters, bad.name) })
		c.AwaitRows(framework.RW, "show work_mem", "6MB")
		c.Edit(framework.Parameter("work_mem", "5MB"))
		c.AwaitRows(framework.RW, "show work_mem", "5MB")
	}
	for value, want := range map[string]string{"6 MB": "6MB", "0.0625GB": "64MB", "7168kB": "7MB"} {
		c.Edit(framework.Parameter("work_mem", value))
		c.AwaitRows(framework.RW, "show work_mem", want)
	}
	if now := c.Pod("held-1"); now.UID != pod.UID || now.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("the server was restarted")
	}
	for _, name := range []string{"log_disconnections=", "1work_mem", "work-mem"} {
		err := c.TryEdit(framework.Parameter(name, "off"))
		if err == nil || !strings.Contains(err.Error(), "spec.postgres.parameters["+name+"]") {
			t.Errorf("parameter %q: %v", name, err)
		}
	}
}

// Names with dashes, in upper case and with underscores stay as they are, in SQL
// and in the Secret, through a change of the password, too.
func TestA09A10AwkwardNames(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	for name, initdb := range map[string]v1.InitdbSpec{
		"dashes": {Database: "example-db", Owner: "example-db"},
		"cases":  {Database: "AppDB", Owner: "_Report_User"},
	} {
		f.Create(name, framework.Initdb(initdb))
	}
	for name, want := range map[string]string{"dashes": "example-db|example-db", "cases": "_Report_User|AppDB"} {
		c := f.Cluster(name)
		c.AwaitReady()
		if got := c.SQL(framework.RW, "select current_user, current_database()"); got != want {
			t.Errorf("user and database are %s instead of %s", got, want)
		}
		c.SetPassword("another password")
		c.AwaitRows(framework.RW, "select current_user, current_database()", want)
	}
}

// an owner and a database called postgres are refused by name. Without them the
// other database is made, and the superuser is as initdb made it: without a password.
func TestA11OwnerAndDatabaseCalledPostgres(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	database := func(name string) framework.Modifier {
		return func(c *v1.PostgresCluster) {
			c.Spec.Databases = append(c.Spec.Databases, v1.DatabaseSpec{Name: name})
		}
	}
	for what, test := range map[string]struct {
		modifier framework.Modifier
		words    string
	}{
		"the owner":            {framework.Initdb(v1.InitdbSpec{Owner: "postgres"}), "spec.bootstrap.initdb.owner: postgres"},
		"the first database":   {framework.Initdb(v1.InitdbSpec{Database: "postgres"}), "spec.bootstrap.initdb.database: postgres"},
		"one of the databases": {database("postgres"), "spec.databases[].name: postgres"},
		"a role": {func(c *v1.PostgresCluster) {
			c.Spec.Roles = []v1.RoleSpec{{Name: "postgres", Login: true}}
		}, "spec.roles[].name: postgres"},
	} {
		err := f.TryCreate(framework.Manifest("reserved", test.modifier, database("my-service-db")))
		if err == nil || !strings.Contains(err.Error(), test.words) {
			t.Errorf("%s: %v", what, err)
		}
	}
	c := f.Create("reserved", database("my-service-db"))
	c.AwaitReady()
	c.AwaitCondition(v1.ConditionDatabasesReady, metav1.ConditionTrue)
	const superuser = `select rolsuper, rolcreaterole, rolcreatedb, rolreplication, rolbypassrls, rolcanlogin, rolconnlimit, rolvaliduntil is null, rolpassword is null
		from pg_authid where rolname = 'postgres'`
	if got := c.SQLIn("reserved-1", superuser); got != "t|t|t|t|t|t|-1|t|t" {
		t.Errorf("the superuser is %s", got)
	}
	if got := c.SQLIn("reserved-1", "select string_agg(datname, ' ' order by datname) from pg_database where not datistemplate"); got != "app my-service-db postgres" {
		t.Errorf("databases: %s", got)
	}
	if got := c.SQL(framework.RW, "select current_user"); got != "app" {
		t.Errorf("the owner is %s", got)
	}
}

// The longest name that is accepted comes up, with what servers call by it.
func TestA12LongestName(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	c := f.Create("a"+strings.Repeat("x", 49), framework.Instances(2))
	c.AwaitReady()
	wantStreaming(t, c, 2)
	if got := c.SQL(framework.RW, "select 1"); got != "1" {
		t.Errorf("the Service answers %s", got)
	}
}

// A storage class that does not exist is named in the status, and once it is
// corrected the same cluster comes up.
func TestA26StorageClassThatDoesNotExist(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	c := f.Create("class", func(c *v1.PostgresCluster) { c.Spec.Storage.Class = "no-such-class" })
	c.AwaitCondition(v1.ConditionReady, metav1.ConditionFalse, "can't be scheduled")
	c.Edit(func(c *v1.PostgresCluster) { c.Spec.Storage.Class = "" })
	c.AwaitReady()
	if got := c.SQL(framework.RW, "select 1"); got != "1" {
		t.Errorf("it answers %s", got)
	}
}

// Parameters that are the operator's are refused on apply, by name. What only
// the operator judges leaves what runs as it is, says which key is to blame,
// and once corrected is forgotten.
func TestA27OwnedParametersAreRefusedAndConfigurationKept(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	c := f.Create("owned", framework.Parameter("work_mem", "5MB"))
	c.AwaitReady()
	pod := c.Pod("owned-1")

	for _, name := range []string{"listen_addresses", "Port", "hot_standby", "data_directory", "primary_conninfo", "archive_command"} {
		err := c.TryEdit(framework.Parameter(name, "off"))
		if want := fmt.Sprintf("spec.postgres.parameters[%s]: %s is set by the operator", name, name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := c.TryEdit(framework.Parameter("wal_level", "minimal")); err == nil || !strings.Contains(err.Error(), "replicas need replica or logical") {
		t.Errorf("wal_level: %v", err)
	}
	c.Edit(framework.Parameter("work_mem", "6MB"), framework.Parameter("max_wal_senders", "1"), framework.Parameter("Superuser_Reserved_Connections", "0"))
	message := c.AwaitCondition(v1.ConditionSpecAccepted, metav1.ConditionFalse, "parameters[max_wal_senders]", "parameters[Superuser_Reserved_Connections]")
	t.Logf("SpecAccepted says: %s", message)
	if phase := c.Live().Status.Phase; phase != v1.PhaseInvalid {
		t.Errorf("the phase is %s", phase)
	}
	f.Hold(3*time.Second, "the server keeps its configuration", func(ctx context.Context) error {
		got, err := c.TrySQL(ctx, framework.RW, "show work_mem; show max_wal_senders")
		if err != nil {
			return err
		}
		return framework.Want("work_mem, max_wal_senders", got, "5MB\n40")
	})
	c.Edit(func(c *v1.PostgresCluster) {
		delete(c.Spec.Postgres.Parameters, "max_wal_senders")
		delete(c.Spec.Postgres.Parameters, "Superuser_Reserved_Connections")
	})
	c.AwaitReady()
	c.AwaitRows(framework.RW, "show work_mem", "6MB")
	if now := c.Pod("owned-1"); now.UID != pod.UID || now.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("the pod was restarted")
	}
}
