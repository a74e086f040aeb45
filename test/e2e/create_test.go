//go:build e2e

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/pgop/postgres-operator/test/e2e/framework"
)

// The example is applied as it is, and gives what README promises.
func TestCreateThreeFromExample(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	for _, name := range []string{"postgrescluster", "synchronous", "wal-volume", "load-balancer"} {
		f.Kubectl("apply", "-f", "../../example/"+name+".yaml")
	}
	c := f.Cluster("shop")
	c.AwaitReady()

	primary := c.Primary()
	if primary != "shop-1" {
		t.Errorf("the primary is %s instead of the first instance", primary)
	}
	roles := map[string][]string{}
	for name, pod := range c.Pods() {
		role := pod.Labels[framework.RoleLabel]
		roles[role] = append(roles[role], name)
		if pod.Spec.Containers[0].Image != "docker.io/library/postgres:17" {
			t.Errorf("pod %s runs %s", name, pod.Spec.Containers[0].Image)
		}
	}
	if len(roles["primary"]) != 1 || len(roles["replica"]) != 2 {
		t.Errorf("roles of pods: %v", roles)
	}
	wantColumns(t, f, primary)
	wantStreaming(t, c, 3)

	c.SQL(framework.RW, "create table visits (at timestamptz default now()); insert into visits default values")
	c.AwaitRows(framework.RO, "select count(*), pg_is_in_recovery() from visits", "1|t")
	c.AwaitRows(framework.R, "select count(*) from visits", "1")
	if got := c.SQL(framework.RW, "select pg_is_in_recovery()"); got != "f" {
		t.Errorf("the rw Service leads to a replica")
	}
	wantSecret(t, f, c)
	synchronous := f.Cluster("ledger")
	synchronous.AwaitReady()
	synchronous.SQL(framework.RW, "create table entries as select 1 as n")
	f.Cluster("outside").AwaitReady()
	apart := f.Cluster("journal")
	apart.AwaitReady()
	apart.SQL(framework.RW, "create table entries as select 1 as n")
	wantWALApart(t, apart, "journal-1", "journal-2")
	if got := c.SQLIn(primary, "show max_connections"); got != "200" {
		t.Errorf("max_connections is %s instead of 200 as in the example", got)
	}
}

func wantColumns(t *testing.T, f *framework.Framework, primary string) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(f.Kubectl("get", "pg", "shop")), "\n")
	if len(lines) != 2 {
		t.Fatalf("kubectl get pg prints %q", lines)
	}
	header, row := strings.Fields(lines[0]), strings.Fields(lines[1])
	if want := []string{"NAME", "VERSION", "INSTANCES", "READY", "PRIMARY", "STATUS", "BACKUP", "AGE"}; !slices.Equal(header, want) {
		t.Errorf("columns are %v instead of %v", header, want)
	}
	if !strings.HasPrefix(row[1], "17.") {
		t.Errorf("VERSION is %s", row[1])
	}
	row[1] = "17"
	if want := []string{"shop", "17", "3", "3", primary, "Healthy"}; !slices.Equal(row[:6], want) {
		t.Errorf("the row is %v instead of %v", row[:6], want)
	}
}

// wantStreaming checks that the primary has a slot for each replica, and that
// each streams through its own.
func wantStreaming(t *testing.T, c *framework.Cluster, instances int) {
	t.Helper()
	if err := streams(c, instances); err != nil {
		t.Error(err)
	}
	n := instances - 1
	if got := c.SQLIn(c.Primary(), "select count(*) from pg_replication_slots"); got != fmt.Sprint(n) {
		t.Errorf("the primary has %s slots instead of %d", got, n)
	}
}

func streams(c *framework.Cluster, instances int) error {
	got := c.SQLIn(c.Primary(), `select count(*), count(distinct r.application_name), count(distinct s.slot_name)
		from pg_stat_replication r join pg_replication_slots s on s.active_pid = r.pid
		where r.state = 'streaming' and s.slot_type = 'physical'`)
	n := instances - 1
	if want := fmt.Sprintf("%d|%d|%d", n, n, n); got != want {
		return fmt.Errorf("streaming replicas, their names, their slots: %s instead of %s", got, want)
	}
	return nil
}

// wantSecret checks the published login, key by key.
func wantSecret(t *testing.T, f *framework.Framework, c *framework.Cluster) {
	t.Helper()
	secret := c.Secret()
	host := c.Name + "-rw." + f.Namespace + ".svc"
	for key, want := range map[string]string{
		"type": "postgresql", "provider": "pgop.dev", "host": host, "port": "5432", "dbname": "app", "username": "app",
		"uri":      fmt.Sprintf("postgresql://app:%s@%s:5432/app?sslmode=require", secret["password"], host),
		"pgpass":   fmt.Sprintf("%s:5432:app:app:%s", host, secret["password"]),
		"jdbc-uri": fmt.Sprintf("jdbc:postgresql://%s:5432/app?password=%s&sslmode=require&user=app", host, secret["password"]),
	} {
		if secret[key] != want {
			t.Errorf("key %s of the Secret is %q instead of %q", key, secret[key], want)
		}
	}
	if len(secret["password"]) < 20 {
		t.Errorf("the password has %d characters", len(secret["password"]))
	}
	// The CA that is published is the one that the server's certificate is of.
	const verify = `umask 077; cat >/tmp/ca.crt; PGSSLROOTCERT=/tmp/ca.crt exec timeout 20 psql -X -At -d "$1" -c 'select 1'`
	verified := strings.Replace(secret["uri"], "sslmode=require", "sslmode=verify-full", 1)
	if _, err := f.InClient(t.Context(), secret["ca.crt"], verify, verified); err != nil {
		t.Errorf("log in with the published CA and sslmode=verify-full: %v", err)
	}
}

// Manifests that can't be meant are refused at once, by the name of the field.
func TestBrokenManifestsAreRefusedByFieldName(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	for name, test := range map[string]struct{ patch, field string }{
		"no version":               {`{"spec": {"storage": {"size": "1Gi"}, "postgres": {}}}`, "spec.postgres.version"},
		"unknown version":          {`{"spec": {"storage": {"size": "1Gi"}, "postgres": {"version": 9}}}`, "spec.postgres.version"},
		"no storage":               {`{"spec": {"postgres": {"version": 17}}}`, "spec.storage"},
		"no size":                  {`{"spec": {"storage": {}, "postgres": {"version": 17}}}`, "spec.storage.size"},
		"tiny size":                {`{"spec": {"storage": {"size": "1Mi"}, "postgres": {"version": 17}}}`, "spec.storage.size"},
		"size that is no number":   {`{"spec": {"storage": {"size": "big"}, "postgres": {"version": 17}}}`, "spec.storage.size"},
		"no instances at all":      {`{"spec": {"instances": -1, "storage": {"size": "1Gi"}, "postgres": {"version": 17}}}`, "spec.instances"},
		"unknown retain":           {`{"spec": {"storage": {"size": "1Gi", "retain": "Never"}, "postgres": {"version": 17}}}`, "spec.storage.retain"},
		"A-06: one level too high": {`{"spec": {"storage": {"size": "1Gi"}, "postgres": {"version": 17, "max_connections": 5}}}`, "spec.postgres.max_connections"},
		"a field of the future":    {`{"spec": {"storage": {"size": "1Gi"}, "postgres": {"version": 17}, "backup": {}}}`, "spec.backup"},
		"a reserved owner":         {`{"spec": {"storage": {"size": "1Gi"}, "postgres": {"version": 17}, "bootstrap": {"initdb": {"owner": "postgres"}}}}`, "spec.bootstrap.initdb.owner"},
		"white space in image":     {`{"spec": {"storage": {"size": "1Gi"}, "postgres": {"version": 17, "image": "a b"}}}`, "spec.postgres.image"},
	} {
		t.Run(name, func(t *testing.T) {
			manifest := `{"apiVersion": "pgop.dev/v1", "kind": "PostgresCluster", "metadata": {"name": "broken"}, ` + test.patch[1:]
			output, err := f.TryKubectl(manifest, "create", "-f", "-")
			if err == nil {
				t.Fatalf("was accepted: %s", output)
			}
			if !strings.Contains(output, test.field) {
				t.Errorf("the refusal does not name %s:\n%s", test.field, output)
			}
		})
	}
	t.Run("a name that is too long", func(t *testing.T) {
		err := f.TryCreate(framework.Manifest(strings.Repeat("a", 51)))
		if err == nil || !strings.Contains(err.Error(), "metadata.name") || !strings.Contains(err.Error(), "50") {
			t.Errorf("refusal: %v", err)
		}
	})
}

// Every optional block may be left out, be null or be empty.
func TestA07OptionalBlocksLeftOut(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	for name, spec := range map[string]string{
		"absent": `{"postgres": {"version": 17}, "storage": {"size": "512Mi"}}`,
		"nulls": `{"instances": null, "resources": null, "bootstrap": null, "pod": null,
			"postgres": {"version": 17, "image": null, "uid": null, "parameters": null, "hba": null},
			"storage": {"size": "512Mi", "class": null, "retain": null}}`,
		"empty": `{"resources": {"limits": {}, "requests": {}}, "bootstrap": {"initdb": {"sql": []}},
			"pod": {"labels": {}, "annotations": {}, "affinity": {}, "nodeSelector": {}, "tolerations": [],
				"topologySpreadConstraints": [], "priorityClassName": "", "imagePullSecrets": []},
			"postgres": {"version": 17, "image": "", "parameters": {}, "hba": []},
			"storage": {"size": "512Mi", "class": ""}}`,
	} {
		manifest := `{"apiVersion": "pgop.dev/v1", "kind": "PostgresCluster", "metadata": {"name": "` + name + `"}, "spec": ` + spec + `}`
		if _, err := f.TryKubectl(manifest, "create", "-f", "-"); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"absent", "nulls", "empty"} {
		c := f.Cluster(name)
		c.AwaitReady()
		if got := c.SQL(framework.RW, "select current_user, current_database(), 1"); got != "app|app|1" {
			t.Errorf("%s: user, database: %s", name, got)
		}
	}
}
