//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/test/e2e/framework"
)

// aLogin is one try of a client that reads its mounted Secret for each.
type aLogin struct {
	Password string
	// Failed is what the server said; empty: it let the client in.
	Failed string
}

// startMountedClient starts a pod that logs in again and again with what its mounted
// Secret says at that moment.
func startMountedClient(f *framework.Framework, name, secret string) {
	f.T.Helper()
	const script = `while :; do
		p=$(cat /login/password)
		if why=$(PGPASSWORD=$p PGCONNECT_TIMEOUT=5 psql -X -w -At -d "host=$(cat /login/host) dbname=$(cat /login/dbname) user=$(cat /login/username) sslmode=require" -c 'select 1' 2>&1)
		then echo "login $p"
		else echo "refused $p $(echo "$why" | tr '\n' ' ')"
		fi
		sleep 0.2
	done`
	_, err := f.Kube.CoreV1().Pods(f.Namespace).Create(f.T.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: ptr.To[int64](0),
			AutomountServiceAccountToken:  ptr.To(false),
			SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To[int64](999),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
			Containers: []corev1.Container{{
				Name: "client", Image: "docker.io/library/postgres:17", Command: []string{"sh", "-c", script},
				SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: ptr.To(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}},
				VolumeMounts:    []corev1.VolumeMount{{Name: "login", MountPath: "/login", ReadOnly: true}},
			}},
			Volumes: []corev1.Volume{{Name: "login", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: secret}}}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		f.T.Fatal(err)
	}
}

// loginsOf are the tries of a client so far.
func loginsOf(ctx context.Context, f *framework.Framework, name string) ([]aLogin, error) {
	text, err := f.Kube.CoreV1().Pods(f.Namespace).GetLogs(name, &corev1.PodLogOptions{}).DoRaw(ctx)
	if err != nil {
		return nil, err
	}
	var logins []aLogin
	for line := range strings.Lines(string(text)) {
		if outcome, rest, found := strings.Cut(strings.TrimSpace(line), " "); found {
			password, why, _ := strings.Cut(rest, " ")
			logins = append(logins, aLogin{Password: password, Failed: strings.TrimPrefix(outcome, "login") + why})
		}
	}
	return logins, nil
}

// lettingIn waits until a client was let in with this password, ten times in a row.
func lettingIn(f *framework.Framework, name, password string) {
	f.T.Helper()
	// The kubelet brings a Secret within a minute and a half.
	f.Await(3*time.Minute, name+" logs in", func(ctx context.Context) error {
		logins, err := loginsOf(ctx, f, name)
		if err != nil {
			return err
		}
		last := logins[max(0, len(logins)-10):]
		if len(last) < 10 || slices.ContainsFunc(last, func(l aLogin) bool { return l != aLogin{Password: password} }) {
			return fmt.Errorf("its last tries are %v", last)
		}
		return nil
	})
}

// E-01: passwords are exchanged under clients that read their mounted Secrets. In the
// window until the kubelet brings the new one the old one is refused; before and after
// it nobody is, and the new password never is. No pod is touched.
func TestE01RotationUnderClients(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	c := f.Create("rotated", framework.Instances(2), func(c *v1.PostgresCluster) {
		c.Spec.Roles = []v1.RoleSpec{{Name: "loader", Login: true}}
	})
	c.AwaitReady()
	c.AwaitCondition(v1.ConditionDatabasesReady, metav1.ConditionTrue)
	pods := c.Pods()
	secrets := map[string]string{"of-app": "rotated-app", "of-loader": "rotated-role-loader"}
	old := map[string]string{}
	for client, secret := range secrets {
		values, err := f.Secret(t.Context(), secret)
		if err != nil {
			t.Fatal(err)
		}
		old[client] = values["password"]
		startMountedClient(f, client, secret)
		lettingIn(f, client, old[client])
	}

	f.Kubectl("annotate", "pg/rotated", v1.RotateAnnotation+"="+v1.RotateAll)
	f.Await(framework.Patience, "both passwords are new and the request is gone", func(ctx context.Context) error {
		live, err := c.Get(ctx)
		if err != nil {
			return err
		}
		if asked, there := live.Annotations[v1.RotateAnnotation]; there {
			return errors.New(asked + " is still asked for")
		}
		messages, err := c.Messages(ctx)
		if err != nil {
			return err
		}
		for client, secret := range secrets {
			values, err := f.Secret(ctx, secret)
			if err != nil {
				return err
			}
			if values["password"] == old[client] || values["next-password"] != "" {
				return fmt.Errorf("%s is as before, or in between", secret)
			}
			if !slices.ContainsFunc(messages, func(m string) bool {
				return strings.HasPrefix(m, v1.ReasonPasswordRotated) && strings.Contains(m, secret)
			}) {
				return fmt.Errorf("no event tells of %s: %q", secret, messages)
			}
		}
		return nil
	})
	for client, secret := range secrets {
		values, err := f.Secret(t.Context(), secret)
		if err != nil {
			t.Fatal(err)
		}
		if err := wantForms(t.Context(), f, values, values["password"]); err != nil {
			t.Errorf("%s: %v", secret, err)
		}
		lettingIn(f, client, values["password"])
		logins, err := loginsOf(t.Context(), f, client)
		if err != nil {
			t.Fatal(err)
		}
		wantOneWindow(t, client, logins, old[client], values["password"])
	}
	for name, pod := range c.Pods() {
		if before := pods[name]; before == nil || pod.UID != before.UID || pod.Status.ContainerStatuses[0].RestartCount != 0 {
			t.Errorf("pod %s was made anew or restarted", name)
		}
	}
}

// wantOneWindow wants a client to have been let in with the old password, then perhaps
// refused with it, and from the first try with the new one on let in.
func wantOneWindow(t *testing.T, client string, logins []aLogin, old, fresh string) {
	t.Helper()
	state := 0
	for n, l := range logins {
		was := state
		switch {
		case l.Password == fresh:
			state = 2
		case l.Failed != "":
			state = max(state, 1)
		}
		switch {
		case l.Password != old && l.Password != fresh:
			t.Errorf("%s: try %d is with a password of nobody", client, n)
		case l.Password == fresh && l.Failed != "":
			t.Errorf("%s: try %d: the new password is refused: %s", client, n, l.Failed)
		case l.Password == old && was == 2:
			t.Errorf("%s: try %d: the old password after the new one", client, n)
		case l.Password == old && l.Failed == "" && was == 1:
			t.Errorf("%s: try %d: the old password, which was refused before, lets in", client, n)
		case l.Failed != "" && !strings.Contains(l.Failed, "password authentication failed"):
			t.Errorf("%s: try %d failed otherwise: %s", client, n, l.Failed)
		}
	}
	if state != 2 {
		t.Errorf("%s has never had the new password", client)
	}
}

// E-01: with a grace time no login fails AT ALL, since the one before is valid until
// every client has read the next one, and a session that was there stays. Afterwards
// nobody logs in as before.
func TestE01RotationWithAGraceTime(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	const grace = 3 * time.Minute
	c := f.Create("turns", func(c *v1.PostgresCluster) {
		c.Spec.Roles = []v1.RoleSpec{{Name: "loader", Login: true, Rotation: &v1.RotationSpec{Grace: &metav1.Duration{Duration: grace}}}}
		c.Spec.Databases = []v1.DatabaseSpec{{Name: "facts", Owner: "loader"}}
	})
	c.AwaitReady()
	c.AwaitCondition(v1.ConditionDatabasesReady, metav1.ConditionTrue)
	const secret = "turns-role-loader"
	old, err := f.Secret(t.Context(), secret)
	if err != nil {
		t.Fatal(err)
	}
	startMountedClient(f, "mounted", secret)
	lettingIn(f, "mounted", old["password"])

	f.Kubectl("annotate", "pg/turns", v1.RotateAnnotation+"=loader")
	var fresh map[string]string
	f.Await(framework.Patience, "the Secret has the next login", func(ctx context.Context) error {
		if fresh, err = f.Secret(ctx, secret); err != nil {
			return err
		}
		return framework.Want("the logins", fresh["username"]+" "+fresh["other-username"], "loader_1 loader")
	})
	if err := wantForms(t.Context(), f, fresh, fresh["password"]); err != nil {
		t.Error(err)
	}
	wantPSQL(f, fresh["uri"], "create table t(); discard all; select session_user, current_user, tableowner from pg_tables where tablename = 't'", "loader_1|loader|loader")
	wantPSQL(f, old["uri"], "select current_user", "loader")
	lettingIn(f, "mounted", fresh["password"])
	logins, err := loginsOf(t.Context(), f, "mounted")
	if err != nil {
		t.Fatal(err)
	}
	for n, l := range logins {
		if l.Failed != "" {
			t.Errorf("try %d of %d failed: %s", n, len(logins), l.Failed)
		}
	}
	f.Await(grace+framework.Patience, "the login before is valid no more", func(ctx context.Context) error {
		if _, err := f.PSQL(ctx, old["uri"], "select 1"); err == nil {
			return errors.New("it is")
		}
		now, err := f.Secret(ctx, secret)
		if err != nil {
			return err
		}
		return framework.Want("the logins", now["username"]+" "+now["other-username"], "loader_1 ")
	})
	wantPSQL(f, fresh["uri"], "select session_user", "loader_1")
}
