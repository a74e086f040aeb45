//go:build e2e

package api

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

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
	if got, want := readable(t, f), []string{"mine", "shop-app", "shop-role-report-user-e0f7a001", "shop-role-reporting"}; !slices.Equal(got, want) {
		t.Errorf("agents may read %v, want %v", got, want)
	}
	wantQuiet(f, op)

	c.Edit(role("taken"))
	c.AwaitCondition(v1.ConditionProgressing, metav1.ConditionFalse, "Secret shop-role-taken exists and does not belong to this cluster")
	c.AwaitCondition(v1.ConditionReady, metav1.ConditionTrue)
	c.Edit(func(c *v1.PostgresCluster) { c.Spec.Roles = nil })
	c.AwaitCondition(v1.ConditionProgressing, metav1.ConditionFalse, "")
	if got := readable(t, f); !slices.Equal(got, []string{"shop-app"}) {
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

// A password is exchanged as asked, although the operator ends in the middle: its
// successor finds the next password in the Secret, waits for the server to have it, and
// publishes it once. Another request has another one.
func TestE01PasswordsAreExchanged(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	op := f.StartOperator()
	c := f.Create("shop", role("loader"))
	c.AwaitReady()
	c.AwaitCondition(v1.ConditionDatabasesReady, metav1.ConditionTrue)
	login := func(ctx context.Context, name string) (*corev1.Secret, error) {
		return f.Kube.CoreV1().Secrets(f.Namespace).Get(ctx, name, metav1.GetOptions{})
	}
	before, err := login(t.Context(), "shop-role-loader")
	if err != nil {
		t.Fatal(err)
	}
	f.Kubelet.Script("shop-1", framework.Script{State: withoutNextPasswords}) // its server takes its time
	c.Ask(v1.RotateAnnotation, "loader")
	next := ""
	f.Await("the Secret has the next password", func(ctx context.Context) error {
		now, err := login(ctx, "shop-role-loader")
		if err != nil {
			return err
		}
		if next = string(now.Data[instanceapi.NextPasswordKey]); next == "" {
			return errors.New("it has none")
		}
		return framework.Want("its password", string(now.Data["password"]), string(before.Data["password"]))
	})
	c.AwaitCondition(v1.ConditionProgressing, metav1.ConditionTrue, "the next password of role loader comes into force when the primary's server has it")
	op.Stop()
	f.Kubelet.Script("shop-1", framework.Script{})
	second := f.StartOperator()
	published := func(ctx context.Context) error {
		now, err := login(ctx, "shop-role-loader")
		if err != nil {
			return err
		}
		if now.Data[instanceapi.NextPasswordKey] != nil || now.Annotations["pgop.dev/rotation-asked"] != "" || !strings.Contains(string(now.Data["uri"]), next) {
			return fmt.Errorf("it has the keys %v and the annotations %v", len(now.Data), now.Annotations)
		}
		return framework.Want("its password", string(now.Data["password"]), next)
	}
	f.Await("the next password is published", published)
	c.AwaitCondition(v1.ConditionProgressing, metav1.ConditionFalse, "")
	if live := c.Live(); live.Annotations[v1.RotateAnnotation] != "" || live.Status.Roles[0].LastRotation == nil {
		t.Errorf("afterwards the request is %q and the last exchange %v", live.Annotations[v1.RotateAnnotation], live.Status.Roles[0].LastRotation)
	}
	wantQuiet(f, second)

	app, err := login(t.Context(), "shop-app")
	if err != nil {
		t.Fatal(err)
	}
	c.Ask(v1.RotateAnnotation, v1.RotateAll)
	for name, old := range map[string]string{"shop-app": string(app.Data["password"]), "shop-role-loader": next} {
		f.Await("another password in "+name, func(ctx context.Context) error {
			now, err := login(ctx, name)
			if err != nil {
				return err
			}
			if now.Data[instanceapi.NextPasswordKey] != nil || string(now.Data["password"]) == old {
				return errors.New("it is yet to come")
			}
			return nil
		})
	}
	f.Await("the events", func(ctx context.Context) error {
		messages, err := c.Messages(ctx)
		if err != nil {
			return err
		}
		for _, want := range []string{"role app has a new password, which is in the Secret shop-app", "role loader has a new password, which is in the Secret shop-role-loader"} {
			if !slices.ContainsFunc(messages, func(m string) bool { return m == v1.ReasonPasswordRotated+": "+want }) {
				return fmt.Errorf("no %q in %q", want, messages)
			}
		}
		return nil
	})
	c.Ask(v1.RotateAnnotation, "nobody")
	c.AwaitAnswer(v1.RotateAnnotation, v1.ReasonRequestRefused, 1, "no role of the name has a password that the operator makes; name one of [app loader], or all")
}

// withoutNextPasswords is what an agent says whose server has none of the next passwords.
func withoutNextPasswords(s *instanceapi.State) {
	if s.Declared == nil {
		return
	}
	s.Declared = &instanceapi.DeclaredState{Hash: s.Declared.Hash, Roles: slices.Clone(s.Declared.Roles), Databases: s.Declared.Databases}
	for i := range s.Declared.Roles {
		s.Declared.Roles[i].Next = ""
	}
}

// With a grace time logins take turns: the Secret leads to the next one in every form
// once the primary has it, although the operator ends in the middle, and the status and
// an event tell until when the one before is valid. Nothing more is written until then.
// Names that are other roles' are refused.
func TestE01LoginsTakeTurns(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	op := f.StartOperator()
	graced := func(r *v1.RoleSpec) {
		r.Rotation = &v1.RotationSpec{Grace: &metav1.Duration{Duration: time.Hour}}
	}
	c := f.Create("shop", role("loader", graced))
	c.AwaitReady()
	c.AwaitCondition(v1.ConditionDatabasesReady, metav1.ConditionTrue)
	login := func(ctx context.Context) (map[string]string, error) {
		secret, err := f.Kube.CoreV1().Secrets(f.Namespace).Get(ctx, "shop-role-loader", metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		values := map[string]string{}
		for key, value := range secret.Data {
			values[key] = string(value)
		}
		return values, nil
	}
	before, err := login(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	f.Kubelet.Script("shop-1", framework.Script{State: withoutNextPasswords}) // its server takes its time
	c.Ask(v1.RotateAnnotation, "loader")
	next := ""
	f.Await("the next login is beside the present one", func(ctx context.Context) error {
		now, err := login(ctx)
		if err != nil {
			return err
		}
		next = now[instanceapi.OtherPasswordKey]
		return framework.Want("the logins", now["username"]+" "+now["password"]+" "+now[instanceapi.OtherUsernameKey], "loader "+before["password"]+" loader_1")
	})
	op.Stop()
	f.Kubelet.Script("shop-1", framework.Script{})
	second := f.StartOperator()
	f.Await("the logins have changed places", func(ctx context.Context) error {
		now, err := login(ctx)
		if err != nil {
			return err
		}
		if !strings.Contains(now["uri"], "loader_1:"+next+"@") {
			return errors.New("the uri is of another login")
		}
		return framework.Want("the logins", now["username"]+" "+now["password"]+" "+now[instanceapi.OtherUsernameKey]+" "+now[instanceapi.OtherPasswordKey], "loader_1 "+next+" loader "+before["password"])
	})
	c.AwaitCondition(v1.ConditionProgressing, metav1.ConditionFalse, "")
	row := c.Live().Status.Roles[0]
	if row.Login != "loader_1" || row.PreviousLogin != "loader" || row.PreviousLoginUntil == nil || row.LastRotation == nil {
		t.Errorf("the status says %+v", row)
	}
	f.Await("the event", func(ctx context.Context) error {
		messages, err := c.Messages(ctx)
		if err != nil {
			return err
		}
		want := v1.ReasonPasswordRotated + ": role loader has a new password, which is in the Secret shop-role-loader, for the login loader_1; the login before, loader, is valid until "
		if !slices.ContainsFunc(messages, func(m string) bool { return strings.HasPrefix(m, want) }) {
			return fmt.Errorf("no %q in %q", want, messages)
		}
		return nil
	})
	wantQuiet(f, second)
	c.Edit(role("loader_2"))
	c.AwaitCondition(v1.ConditionSpecAccepted, metav1.ConditionFalse, "spec.roles[loader].rotation.grace: clients would log in as loader_2, which is another role; rename that one, or remove grace")
}

// E-04: the owner of the application's database has a Secret of the user's own, which is
// there before the cluster: it stays as it is, agents may read it in place of the
// operator's, and that tells where the database is. Taken back, the operator makes a
// password again.
func TestE04SecretOfTheOwnersOwn(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	f.StartOperator()
	theirs, err := f.Kube.CoreV1().Secrets(f.Namespace).Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "mine"}, StringData: map[string]string{"username": "app", "password": "theirs"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	own := role("app", func(r *v1.RoleSpec) { r.PasswordSecret = &v1.SecretName{Name: "mine"} })
	c := f.Create("shop", own)
	c.AwaitReady()
	if got, want := readable(t, f), []string{"mine", "shop-app"}; !slices.Equal(got, want) {
		t.Errorf("agents may read %v, want %v", got, want)
	}
	if config, err := c.Told(t.Context()); err != nil || config.Owner.Secret != "mine" {
		t.Errorf("agents are told of the Secret %q: %v", config.Owner.Secret, err)
	}
	wantKeys := func(what, want string) {
		f.Await(what, func(ctx context.Context) error {
			now, err := f.Kube.CoreV1().Secrets(f.Namespace).Get(ctx, "shop-app", metav1.GetOptions{})
			if err != nil {
				return err
			}
			return framework.Want("the keys of shop-app", strings.Join(slices.Sorted(maps.Keys(now.Data)), " "), want)
		})
	}
	const without, with = "ca.crt dbname host jdbc-uri port provider type uri username", "ca.crt dbname host jdbc-uri password pgpass port provider type uri username"
	wantKeys("everything but the password", without)
	c.Ask(v1.RotateAnnotation, "app")
	c.AwaitAnswer(v1.RotateAnnotation, v1.ReasonRequestRefused, 1, "the password of the role is that of your Secret mine; edit it there")
	c.Edit(func(c *v1.PostgresCluster) { c.Spec.Roles = nil })
	wantKeys("a password again", with)
	c.Edit(own)
	wantKeys("everything but the password again", without)
	if now, err := f.Kube.CoreV1().Secrets(f.Namespace).Get(t.Context(), "mine", metav1.GetOptions{}); err != nil || now.ResourceVersion != theirs.ResourceVersion {
		t.Errorf("the user's Secret was touched: %v", err)
	}
}
