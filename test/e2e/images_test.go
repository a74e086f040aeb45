//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/test/e2e/framework"
)

const (
	postgres15 = "docker.io/library/postgres:15"
	postgres17 = "docker.io/library/postgres:17"
)

// Every legal image reference is taken as it is: the version comes from the
// field and from the server, never from the tag.
func TestA16TagsDigestsAndPorts(t *testing.T) {
	framework.LocalOnly(t) // the nodes have to have the image under these names
	t.Parallel()
	f := framework.New(t)
	digest := f.ImageDigest(postgres17)
	f.TagImage(postgres17, "docker.io/library/postgres:latest-debian")
	f.TagImage(postgres17, "docker.io/library/postgres@"+digest)

	images := map[string]string{
		"tag":    "docker.io/library/postgres:latest-debian",
		"digest": "docker.io/library/postgres@" + digest,
		"both":   "docker.io/library/postgres:16.4@" + digest,
		// No registry is there, so this one is corrected later.
		"port": "localhost:5000/postgres",
	}
	for name, image := range images {
		f.Create(name, framework.Image(image))
	}
	for name, image := range images {
		c := f.Cluster(name)
		if name == "port" {
			message := c.AwaitCondition(v1.ConditionReady, metav1.ConditionFalse, "Image", image)
			t.Logf("no such registry: %s", message)
			if !meta.IsStatusConditionTrue(c.Live().Status.Conditions, v1.ConditionSpecAccepted) {
				t.Errorf("%s is not accepted", image)
			}
			c.Edit(framework.Image(""))
			image = postgres17
		}
		c.AwaitReady()
		if got := c.Pod(c.Instance(1)).Spec.Containers[0].Image; got != image {
			t.Errorf("%s: the pod runs %s instead of %s", name, got, image)
		}
		if got := c.Live().Status.Version; !strings.HasPrefix(got, "17.") {
			t.Errorf("%s: the version is %q", name, got)
		}
	}
}

// An image of another major version is refused before it touches the data, with
// both numbers.
func TestA16ImageOfAnotherMajorVersion(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	c := f.Create("major", framework.Image(postgres15))
	message := c.AwaitCondition(v1.ConditionReady, metav1.ConditionFalse, "PostgreSQL 15", "spec.postgres.version says 17")
	t.Logf("an image of 15 for version 17: %s", message)
	if n := c.Pod("major-1").Status.ContainerStatuses[0].RestartCount; n != 0 {
		t.Errorf("the container restarts: %d times", n)
	}
	c.Edit(framework.Image(""))
	c.AwaitReady()
	c.SQL(framework.RW, "create table kept as select 1 as n")

	// The same on data that exists: the instance restarts with the image, and
	// the data is left alone.
	c.Edit(framework.Image(postgres15))
	c.AwaitCondition(v1.ConditionReady, metav1.ConditionFalse, "PostgreSQL 15", "spec.postgres.version says 17")
	c.Edit(framework.Image(""))
	c.AwaitReady()
	c.AwaitRows(framework.RW, "select count(*) from kept", "1")
}

// Every pod of a cluster, whatever it is for, is pulled with the given Secret
// and has the given image.
func TestA17PullSecretReachesEveryPod(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	if _, err := f.Kube.CoreV1().Secrets(f.Namespace).Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "registry-login"},
		Type:       corev1.SecretTypeDockerConfigJson,
		Data:       map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths": {"registry.example": {"auth": "dXNlcjpwYXNz"}}}`)},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	operatorImage := f.Operator().Spec.Template.Spec.Containers[0].Image
	pods := watchPods(f, "pull")
	c := f.Create("pull", framework.Instances(2), framework.PullSecret("registry-login"), framework.Image(postgres17))
	c.AwaitReady() // initdb and clone
	old := c.Pod("pull-2").UID
	c.DeletePod("pull-2")
	c.AwaitNewPod("pull-2", old)

	seen := pods()
	for _, pod := range seen {
		if secrets := pod.Spec.ImagePullSecrets; len(secrets) != 1 || secrets[0].Name != "registry-login" {
			t.Errorf("pod %s is pulled with %v", pod.Name, secrets)
		}
		for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
			if container.Image != postgres17 && container.Image != operatorImage {
				t.Errorf("container %s of pod %s has image %s", container.Name, pod.Name, container.Image)
			}
		}
	}
	if len(seen) < 3 {
		t.Errorf("only %d pods were seen", len(seen))
	}
}

// watchPods notes a cluster's pods from now on; the function returned stops that
// and tells which there have been.
func watchPods(f *framework.Framework, cluster string) func() map[types.UID]*corev1.Pod {
	watch, err := f.Kube.CoreV1().Pods(f.Namespace).Watch(f.T.Context(), metav1.ListOptions{LabelSelector: framework.ClusterLabel + "=" + cluster})
	if err != nil {
		f.T.Fatal(err)
	}
	seen := map[types.UID]*corev1.Pod{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for event := range watch.ResultChan() {
			if pod, ok := event.Object.(*corev1.Pod); ok {
				seen[pod.UID] = pod
			}
		}
	}()
	return func() map[types.UID]*corev1.Pod {
		watch.Stop()
		<-done
		return seen
	}
}

// An image whose user has another id: one clear message with the field to set,
// and no crash loop; set, it works.
func TestA18ImageWithAnotherUserID(t *testing.T) {
	framework.LocalOnly(t) // the image is made by test/localcluster
	t.Parallel()
	f := framework.New(t)
	image := f.LoadUIDImage(70)
	c := f.Create("user", framework.Image(image))
	message := c.AwaitCondition(v1.ConditionReady, metav1.ConditionFalse, "999", "spec.postgres.uid: 70")
	t.Logf("uid 999 in an image of uid 70: %s", message)
	f.Hold(5*time.Second, "it waits without a crash loop", func(ctx context.Context) error {
		live, err := c.Get(ctx)
		if err != nil {
			return err
		}
		if got := conditionOf(live, v1.ConditionReady).Message; got != message {
			return fmt.Errorf("another message: %s", got)
		}
		pod, err := f.Kube.CoreV1().Pods(f.Namespace).Get(ctx, "user-1", metav1.GetOptions{})
		if err != nil {
			return err
		}
		return framework.Want("restarts", pod.Status.ContainerStatuses[0].RestartCount, 0)
	})
	c.Edit(framework.UID(70))
	c.AwaitReady()
	if got := c.Shell("user-1", `id -u; stat -c %u "$PGDATA"`); got != "70\n70" {
		t.Errorf("server and data belong to %q", got)
	}
	c.AwaitRows(framework.RW, "select 1", "1")
	// A replica's key is of use to whoever the server runs as.
	c.Edit(framework.Instances(2))
	c.AwaitReady()
	wantStreaming(t, c, 2)
}

// A password that people have put into the Secret reaches the server, and every
// published form of it logs in.
func TestA21AwkwardPasswords(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	passwords := map[string]string{
		"awkward": `a:b@c/d#e%f g-é'"\`,
		"spaced":  `: @ / # % space ' " \ é`,
		"long":    strings.Repeat("0123456789abcdef-._~", 6),
	}
	for name := range passwords {
		f.Create(name)
	}
	for name, password := range passwords {
		c := f.Cluster(name)
		c.AwaitReady()
		c.SetPassword(password)
	}
	for name, password := range passwords {
		c := f.Cluster(name)
		f.Await(framework.Patience, "every form of "+name+"'s password logs in", func(ctx context.Context) error {
			return wantLogins(ctx, f, c, password)
		})
	}
}
