//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/test/e2e/framework"
)

// uriOf is the uri of a Secret.
func uriOf(f *framework.Framework, secret string) string {
	f.T.Helper()
	values, err := f.Secret(f.T.Context(), secret)
	if err != nil {
		f.T.Fatal(err)
	}
	return values["uri"]
}

// wantPSQL waits until SQL by a login gives these rows.
func wantPSQL(f *framework.Framework, uri, sql, want string) {
	f.T.Helper()
	f.Await(framework.Patience, fmt.Sprintf("%s gives %q", sql, want), func(ctx context.Context) error {
		got, err := f.PSQL(ctx, uri, sql)
		if err != nil {
			return err
		}
		return framework.Want("the result", got, want)
	})
}

// The example's logins are what its comments say.
func TestRolesOfTheExample(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	f.Kubectl("apply", "-f", "../../example/roles.yaml")
	c := f.Cluster("warehouse")
	c.AwaitReady()
	c.AwaitCondition(v1.ConditionDatabasesReady, metav1.ConditionTrue)
	loader, reporting := uriOf(f, "warehouse-role-loader"), uriOf(f, "warehouse-role-reporting")
	wantPSQL(f, loader, "create table sales.orders as select 'a' as n; grant select on sales.orders to readers; select current_user, current_database()", "loader|facts")
	facts := strings.Replace(reporting, ":5432/app?", ":5432/facts?", 1)
	wantPSQL(f, facts, "select n, current_user from sales.orders", "a|reporting")
	if got, err := f.PSQL(t.Context(), facts, "create table sales.mine ()"); err == nil || !strings.Contains(got+err.Error(), "permission denied for schema sales") {
		t.Errorf("a reader makes a table: %s %v", got, err)
	}
	app := strings.Replace(c.Secret()["uri"], ":5432/app?", ":5432/facts?", 1)
	if got, err := f.PSQL(t.Context(), app, "select 1"); err == nil || !strings.Contains(got+err.Error(), "permission denied for database") {
		t.Errorf("a role without a grant: %s %v", got, err)
	}
	if got := c.SQLIn("warehouse-1", "select rolconnlimit from pg_roles where rolname = 'loader'"); got != "20" {
		t.Errorf("loader may have %s connections", got)
	}
}

// Names and passwords of every kind; Secrets of the user's own, which were there before
// the cluster and stay as they are; and what becomes of edits, deletions and a change of
// the primary. No pod is touched by any of it.
func TestA09A10A21E02E04E12RolesOfTheSpec(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	const awkward, verifier = "a:b@c/d#e%f g-é", "SCRAM-SHA-256$4096:MDEyMzQ1Njc4OWFiY2RlZg==$F9DTjBKKuSdZ/5iHJ9QXfyNxVSUn72+uu4PWXdm4xRI=:euUNEpRRxdQgD9Ti242uwFqr3uNi2CKv963ZL+/guYs="
	f.CreateSecret("typed", map[string]string{"username": "Typed", "password": awkward})
	f.CreateSecret("hashed", map[string]string{"password": verifier})
	c := f.Create("people", framework.Instances(2), func(c *v1.PostgresCluster) {
		c.Spec.Roles = []v1.RoleSpec{
			{Name: "app-new-reader", Login: true, MemberOf: []string{"_group"}},
			{Name: "Typed", Login: true, PasswordSecret: &v1.SecretName{Name: "typed"}},
			{Name: "hashed", Login: true, CreateRole: true, PasswordSecret: &v1.SecretName{Name: "hashed"}},
			{Name: "_group"},
		}
		c.Spec.Databases = []v1.DatabaseSpec{{Name: "example-db", Owner: "app-new-reader"}, {Name: "AppDB", Owner: "Typed"}}
	})
	c.AwaitReady()
	c.AwaitCondition(v1.ConditionDatabasesReady, metav1.ConditionTrue)
	pods := c.Pods()
	uri := func(user, password, database string) string {
		return fmt.Sprintf("host=people-rw.%s.svc user=%s password=%s dbname=%s sslmode=require", f.Namespace, quoted(user), quoted(password), quoted(database))
	}
	const own = "people-role-app-new-reader"
	wantPSQL(f, uriOf(f, own), "select current_user, current_database()", "app-new-reader|example-db")
	wantPSQL(f, uri("Typed", awkward, "AppDB"), "select current_user, current_database()", "Typed|AppDB")
	wantPSQL(f, uri("hashed", "known to its owner", "app"), "create role made; select current_user", "hashed")

	// A-21, E-02.
	for _, password := range []string{awkward, `: @ / # % space ' " \ é`, strings.Repeat("0123456789", 12)} {
		f.SetPassword(own, password)
		f.Await(framework.Patience, "every form logs in with the new password", func(ctx context.Context) error {
			secret, err := f.Secret(ctx, own)
			if err != nil {
				return err
			}
			return wantForms(ctx, f, secret, password)
		})
	}
	f.SetPassword("typed", "another")
	wantPSQL(f, uri("Typed", "another", "AppDB"), "select current_user", "Typed")
	f.Kubectl("delete", "secret", own)
	f.Await(framework.Patience, "the deleted Secret is back and logs in", func(ctx context.Context) error {
		secret, err := f.Secret(ctx, own)
		if err != nil {
			return err
		}
		return wantForms(ctx, f, secret, secret["password"])
	})
	for name, want := range map[string]map[string]string{"typed": {"username": "Typed", "password": "another"}, "hashed": {"password": verifier}} {
		if got, err := f.Secret(t.Context(), name); err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("the user's Secret %s was touched: %v %v", name, got, err)
		}
	}

	// What is done by hand is put right by the next look, which an edit brings about;
	// but who has created a role administers it (from version 16 on).
	c.SQLIn(c.Primary(), `grant pg_monitor to "app-new-reader"; revoke "_group" from "app-new-reader"; alter role "Typed" createdb`)
	f.SetPassword("typed", "third")
	const memberships = `select m.rolname, r.rolname, admin_option, inherit_option, set_option from pg_auth_members g join pg_roles m on m.oid = member join pg_roles r on r.oid = roleid
		where m.rolname in ('app-new-reader', 'hashed', 'Typed') order by 1, 2`
	f.Await(framework.Patience, "memberships as declared", func(ctx context.Context) error {
		got, err := c.TrySQLIn(ctx, c.Primary(), memberships)
		if err != nil {
			return err
		}
		return framework.Want("memberships", got, "app-new-reader|_group|f|t|t\nhashed|made|t|f|f")
	})

	// E-12, and a failure that stands alone.
	c.Edit(func(c *v1.PostgresCluster) {
		c.Spec.Roles = slices.DeleteFunc(c.Spec.Roles, func(r v1.RoleSpec) bool { return r.Name == "app-new-reader" })
		c.Spec.Roles[0].Ensure = v1.EnsureAbsent
		c.Spec.Databases = []v1.DatabaseSpec{{Name: "late", Extensions: []v1.ExtensionSpec{{Name: "no_such_extension"}, {Name: "pg_trgm"}}}}
	})
	c.AwaitCondition(v1.ConditionDatabasesReady, metav1.ConditionFalse, "role Typed: drop it: ERROR:", "owner of database AppDB", "database late: create extension no_such_extension: ERROR:")
	f.Await(framework.Patience, "an event for each", func(ctx context.Context) error {
		messages, err := c.Messages(ctx)
		if err != nil {
			return err
		}
		for _, want := range []string{v1.ReasonDeclaredRefused + ": role Typed: drop it", v1.ReasonDeclaredRefused + ": database late: create extension"} {
			if !slices.ContainsFunc(messages, func(m string) bool { return strings.HasPrefix(m, want) }) {
				return fmt.Errorf("no event %q in %q", want, messages)
			}
		}
		return nil
	})
	wantPSQL(f, uriOf(f, own), "select current_user, current_database()", "app-new-reader|example-db")
	c.Edit(func(c *v1.PostgresCluster) {
		c.Spec.Databases = []v1.DatabaseSpec{{Name: "AppDB", Ensure: v1.EnsureAbsent}, {Name: "late", Extensions: []v1.ExtensionSpec{{Name: "pg_trgm"}}}}
	})
	c.AwaitCondition(v1.ConditionDatabasesReady, metav1.ConditionTrue)
	if got := c.SQLIn(c.Primary(), "select string_agg(datname, ',' order by datname) from pg_database where datname in ('example-db', 'AppDB', 'late')"); got != "example-db,late" {
		t.Errorf("databases: %s", got)
	}
	if got := c.SQLIn(c.Primary(), "select count(*) from pg_roles where rolname = 'Typed'"); got != "0" {
		t.Error("a role that is to be absent is still there")
	}

	// Another primary goes on.
	former := c.Primary()
	f.Kubectl("annotate", "pg/people", v1.SwitchoverAnnotation+"="+map[string]string{"people-1": "people-2", "people-2": "people-1"}[former])
	f.Await(framework.Patience, "the other instance is the primary", func(ctx context.Context) error {
		live, err := c.Get(ctx)
		if err != nil {
			return err
		}
		if live.Status.Primary == former {
			return errors.New(framework.Summary(live))
		}
		return nil
	})
	c.Edit(func(c *v1.PostgresCluster) {
		c.Spec.Roles = append(c.Spec.Roles, v1.RoleSpec{Name: "late", Login: true})
	})
	c.AwaitCondition(v1.ConditionDatabasesReady, metav1.ConditionTrue)
	wantPSQL(f, uriOf(f, "people-role-late"), "select current_user", "late")
	for name, pod := range c.Pods() {
		if before := pods[name]; before == nil || pod.UID != before.UID || pod.Status.ContainerStatuses[0].RestartCount != 0 {
			t.Errorf("pod %s was made anew or restarted", name)
		}
	}
}
