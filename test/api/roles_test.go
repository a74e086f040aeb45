//go:build e2e

package api

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/test/api/framework"
)

// role declares a role that logs in, changed by each of with.
func role(name string, with ...func(*v1.RoleSpec)) framework.Modifier {
	return func(c *v1.PostgresCluster) {
		r := v1.RoleSpec{Name: name, Login: true}
		for _, change := range with {
			change(&r)
		}
		c.Spec.Roles = append(c.Spec.Roles, r)
	}
}

func readable(t *testing.T, f *framework.Framework) []string {
	t.Helper()
	live, err := f.Kube.RbacV1().Roles(f.Namespace).Get(t.Context(), "shop-instance", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, rule := range live.Rules {
		if slices.Contains(rule.Resources, "secrets") {
			names = append(names, rule.ResourceNames...)
			if !slices.Equal(rule.Verbs, []string{"get", "list", "watch"}) {
				t.Errorf("agents may %v Secrets", rule.Verbs)
			}
		}
	}
	return names
}

// E-04, E-12: Secrets that are there before the cluster stay as they are, and the agents
// may read those that the spec names and no others. An entry that is removed takes
// nothing away; ensure: absent does.
func TestE04E12SecretsOfRoles(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	op := f.StartOperator()
	theirs := map[string]*corev1.Secret{}
	for _, name := range []string{"mine", "shop-role-taken"} {
		made, err := f.Kube.CoreV1().Secrets(f.Namespace).Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: map[string]string{"password": "theirs"}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		theirs[name] = made
	}
	c := f.Create("shop", role("reporting"), role("Report_User"), role("group", func(r *v1.RoleSpec) { r.Login = false }),
		role("own", func(r *v1.RoleSpec) { r.PasswordSecret = &v1.SecretName{Name: "mine"} }))
	c.AwaitReady()
	c.AwaitCondition(v1.ConditionDatabasesReady, metav1.ConditionTrue)
	want := []v1.RoleStatus{{Name: "reporting", Ready: true, Secret: "shop-role-reporting"}, {Name: "Report_User", Ready: true, Secret: "shop-role-report-user-e0f7a001"},
		{Name: "group", Ready: true}, {Name: "own", Ready: true, Secret: "mine"}}
	if diff := cmp.Diff(want, c.Live().Status.Roles); diff != "" {
		t.Errorf("status.roles: %s", diff)
	}
	if got, want := readable(t, f), []string{"mine", "shop-role-report-user-e0f7a001", "shop-role-reporting"}; !slices.Equal(got, want) {
		t.Errorf("agents may read %v, want %v", got, want)
	}
	wantQuiet(f, op)

	c.Edit(role("taken"))
	c.AwaitCondition(v1.ConditionProgressing, metav1.ConditionFalse, "Secret shop-role-taken exists and does not belong to this cluster")
	c.AwaitCondition(v1.ConditionReady, metav1.ConditionTrue)
	c.Edit(func(c *v1.PostgresCluster) { c.Spec.Roles = nil })
	c.AwaitCondition(v1.ConditionProgressing, metav1.ConditionFalse, "")
	if got := readable(t, f); len(got) > 0 {
		t.Errorf("without roles, agents may read %v", got)
	}
	kept := f.UID("secrets/shop-role-reporting")
	c.Edit(role("reporting"), role("Report_User", func(r *v1.RoleSpec) { r.Ensure = v1.EnsureAbsent }))
	f.Await("the login of a role that is dropped goes", func(ctx context.Context) error {
		objects, err := f.Objects(ctx)
		if err != nil {
			return err
		}
		if objects["secrets/shop-role-report-user-e0f7a001"] != nil {
			return errors.New("it is there")
		}
		return nil
	})
	if f.UID("secrets/shop-role-reporting") != kept {
		t.Error("the login of a role whose entry was away is another")
	}
	for name, before := range theirs {
		now, err := f.Kube.CoreV1().Secrets(f.Namespace).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil || now.ResourceVersion != before.ResourceVersion {
			t.Errorf("Secret %s of somebody else was touched: %v", name, err)
		}
	}
}

// What the primary says of a role is in the status, and told once.
func TestTroubleWithARoleIsToldOnce(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	f.StartOperator()
	const words = `make it a member of nowhere: ERROR: role "nowhere" does not exist`
	f.Kubelet.Script("shop-1", framework.Script{State: func(s *instanceapi.State) {
		for i := range 2 {
			if s.Declared != nil && len(s.Declared.Roles) > i {
				s.Declared.Roles[i].Problem = words
			}
		}
	}})
	c := f.Create("shop", role("bad"), role("too"), role("good"))
	c.AwaitReady()
	c.AwaitCondition(v1.ConditionDatabasesReady, metav1.ConditionFalse, "role bad: "+words, "role too: "+words)
	f.Kubelet.Script("shop-1", framework.Script{})
	c.AwaitCondition(v1.ConditionDatabasesReady, metav1.ConditionTrue)
	f.Await("the events", func(ctx context.Context) error {
		messages, err := c.Messages(ctx)
		if err != nil {
			return err
		}
		messages = slices.DeleteFunc(messages, func(m string) bool {
			return !strings.HasPrefix(m, v1.ReasonDeclaredRefused) && !strings.HasPrefix(m, v1.ReasonAsDeclared)
		})
		slices.Sort(messages) // those of a moment have no order
		want := []string{v1.ReasonAsDeclared + ": role bad is as declared", v1.ReasonAsDeclared + ": role too is as declared",
			v1.ReasonDeclaredRefused + ": role bad: " + words, v1.ReasonDeclaredRefused + ": role too: " + words}
		return framework.Want("events", fmt.Sprint(messages), fmt.Sprint(want))
	})
}
