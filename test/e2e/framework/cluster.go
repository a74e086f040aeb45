//go:build e2e

package framework

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
)

// Labels of a cluster's objects.
const (
	ClusterLabel = "pgop.dev/cluster"
	RoleLabel    = "pgop.dev/role"
)

// Container is where the server runs in an instance's pod.
const Container = "postgres"

// Patience is enough for whatever a cluster of a few instances does by itself
// on a busy machine.
const Patience = 2 * time.Minute

// Modifier changes the manifest of a cluster.
type Modifier func(*v1.PostgresCluster)

// Instances asks for n instances.
func Instances(n int32) Modifier {
	return func(c *v1.PostgresCluster) { c.Spec.Instances = &n }
}

// Version asks for a major version of PostgreSQL.
func Version(major int32) Modifier {
	return func(c *v1.PostgresCluster) { c.Spec.Postgres.Version = major }
}

// Image asks for an image of the server.
func Image(image string) Modifier {
	return func(c *v1.PostgresCluster) { c.Spec.Postgres.Image = image }
}

// UID is the id of the server's user in the image.
func UID(uid int64) Modifier {
	return func(c *v1.PostgresCluster) { c.Spec.Postgres.UID = &uid }
}

// Parameter sets a parameter of the server.
func Parameter(name, value string) Modifier {
	return func(c *v1.PostgresCluster) {
		if c.Spec.Postgres.Parameters == nil {
			c.Spec.Postgres.Parameters = map[string]v1.ParameterValue{}
		}
		c.Spec.Postgres.Parameters[name] = v1.NewParameter(value)
	}
}

// Retain keeps the volumes when the cluster is deleted.
func Retain(c *v1.PostgresCluster) { c.Spec.Storage.Retain = v1.RetainVolumes }

// Initdb says how the database is made.
func Initdb(i v1.InitdbSpec) Modifier {
	return func(c *v1.PostgresCluster) { c.Spec.Bootstrap = &v1.BootstrapSpec{Initdb: &i} }
}

// CPU is what each instance requests.
func CPU(quantity string) Modifier {
	return func(c *v1.PostgresCluster) {
		c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(quantity)}
	}
}

// PullSecret is a Secret for pulling images.
func PullSecret(name string) Modifier {
	return func(c *v1.PostgresCluster) {
		c.Spec.Pod.ImagePullSecrets = append(c.Spec.Pod.ImagePullSecrets, corev1.LocalObjectReference{Name: name})
	}
}

// Manifest is a cluster of one instance of PostgreSQL 17 on a small volume that
// goes with it, changed by the modifiers.
func Manifest(name string, modifiers ...Modifier) *v1.PostgresCluster {
	c := &v1.PostgresCluster{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1.PostgresClusterSpec{
			Instances: ptr.To[int32](1),
			Postgres:  v1.PostgresSpec{Version: 17},
			Storage:   v1.StorageSpec{Size: resource.MustParse("512Mi"), Retain: v1.DeleteVolumes},
		},
	}
	for _, modify := range modifiers {
		modify(c)
	}
	return c
}

// Cluster is a PostgresCluster in a test's namespace.
type Cluster struct {
	f    *Framework
	Name string
}

// Create makes a cluster from Manifest.
func (f *Framework) Create(name string, modifiers ...Modifier) *Cluster {
	f.T.Helper()
	if err := f.TryCreate(Manifest(name, modifiers...)); err != nil {
		f.T.Fatalf("create cluster %s: %v", name, err)
	}
	return f.Cluster(name)
}

// TryCreate makes a cluster as kubectl does: a field that is not in the schema
// is an error.
func (f *Framework) TryCreate(c *v1.PostgresCluster) error {
	f.startClient()
	_, err := f.Postgres.PgopV1().PostgresClusters(f.Namespace).Create(f.ctx(), c, metav1.CreateOptions{FieldValidation: "Strict"})
	return err
}

// Cluster names a cluster that was made otherwise.
func (f *Framework) Cluster(name string) *Cluster { return &Cluster{f: f, Name: name} }

// Get reads the cluster.
func (c *Cluster) Get(ctx context.Context) (*v1.PostgresCluster, error) {
	return c.f.Postgres.PgopV1().PostgresClusters(c.f.Namespace).Get(ctx, c.Name, metav1.GetOptions{})
}

// Live is the cluster as it is now.
func (c *Cluster) Live() *v1.PostgresCluster {
	c.f.T.Helper()
	live, err := c.Get(c.f.ctx())
	if err != nil {
		c.f.T.Fatal(err)
	}
	return live
}

// Edit changes the cluster as kubectl edit does.
func (c *Cluster) Edit(modifiers ...Modifier) {
	c.f.T.Helper()
	if err := c.TryEdit(modifiers...); err != nil {
		c.f.T.Fatalf("edit cluster %s: %v", c.Name, err)
	}
}

// TryEdit is Edit that may be refused.
func (c *Cluster) TryEdit(modifiers ...Modifier) error {
	for {
		live, err := c.Get(c.f.ctx())
		if err != nil {
			return err
		}
		for _, modify := range modifiers {
			modify(live)
		}
		_, err = c.f.Postgres.PgopV1().PostgresClusters(c.f.Namespace).Update(c.f.ctx(), live, metav1.UpdateOptions{FieldValidation: "Strict"})
		if !apierrors.IsConflict(err) {
			return err
		}
	}
}

// Delete deletes the cluster and returns when the object is gone; what belongs
// to it may still be going.
func (c *Cluster) Delete() {
	c.f.T.Helper()
	if err := c.TryDelete(); err != nil {
		c.f.T.Fatal(err)
	}
	c.f.Await(30*time.Second, "cluster "+c.Name+" is gone", func(ctx context.Context) error {
		_, err := c.Get(ctx)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, fmt.Errorf("it is there"))
	})
}

// TryDelete asks for the cluster's deletion.
func (c *Cluster) TryDelete() error {
	return c.f.Postgres.PgopV1().PostgresClusters(c.f.Namespace).Delete(c.f.ctx(), c.Name, metav1.DeleteOptions{})
}

// AwaitReady waits until every instance asked for serves, and the status speaks
// of the present spec.
func (c *Cluster) AwaitReady() {
	c.f.T.Helper()
	c.f.Await(Patience, "cluster "+c.Name+" is ready", c.Ready)
}

// Ready looks whether the cluster is settled: healthy, with as many ready
// instances as asked for, and with a status of its present generation.
func (c *Cluster) Ready(ctx context.Context) error {
	live, err := c.Get(ctx)
	if err != nil {
		return err
	}
	s := live.Status
	if s.ObservedGeneration != live.Generation || s.Phase != v1.PhaseHealthy || s.ReadyInstances != *live.Spec.Instances ||
		s.Instances != *live.Spec.Instances || !meta.IsStatusConditionTrue(s.Conditions, v1.ConditionReady) {
		return errors.New(Summary(live))
	}
	return nil
}

// AwaitCondition waits until a condition has this status, and a message that
// contains all of the words. It returns the message.
func (c *Cluster) AwaitCondition(kind string, status metav1.ConditionStatus, words ...string) string {
	c.f.T.Helper()
	message := ""
	c.f.Await(Patience, fmt.Sprintf("condition %s of cluster %s is %s and says %q", kind, c.Name, status, words), func(ctx context.Context) error {
		live, err := c.Get(ctx)
		if err != nil {
			return err
		}
		condition := meta.FindStatusCondition(live.Status.Conditions, kind)
		if condition == nil || condition.Status != status || condition.ObservedGeneration != live.Generation {
			return errors.New(Summary(live))
		}
		for _, word := range words {
			if !strings.Contains(condition.Message, word) {
				return errors.New(Summary(live))
			}
		}
		message = condition.Message
		return nil
	})
	return message
}

// Summary is a cluster's status in a few lines.
func Summary(c *v1.PostgresCluster) string {
	var b strings.Builder
	s := c.Status
	fmt.Fprintf(&b, "%s, primary %q, %d of %d instances ready, generation %d of %d", s.Phase, s.Primary, s.ReadyInstances,
		ptr.Deref(c.Spec.Instances, 0), s.ObservedGeneration, c.Generation)
	for _, condition := range s.Conditions {
		fmt.Fprintf(&b, "\n  %s=%s %s: %s", condition.Type, condition.Status, condition.Reason, condition.Message)
	}
	for _, m := range s.Members {
		fmt.Fprintf(&b, "\n  %s role=%q ready=%v node=%s: %s", m.Name, m.Role, m.Ready, m.Node, m.Message)
	}
	return b.String()
}

// Primary is the name of the instance that takes writes.
func (c *Cluster) Primary() string {
	c.f.T.Helper()
	primary := c.Live().Status.Primary
	if primary == "" {
		c.f.T.Fatalf("cluster %s has no primary: %s", c.Name, Summary(c.Live()))
	}
	return primary
}

// Instance is the name of the n-th instance, its pod and its volume.
func (c *Cluster) Instance(n int) string { return fmt.Sprintf("%s-%d", c.Name, n) }

// Pods are the cluster's pods by name.
func (c *Cluster) Pods() map[string]*corev1.Pod {
	c.f.T.Helper()
	list, err := c.f.Kube.CoreV1().Pods(c.f.Namespace).List(c.f.ctx(), metav1.ListOptions{LabelSelector: ClusterLabel + "=" + c.Name})
	if err != nil {
		c.f.T.Fatal(err)
	}
	pods := map[string]*corev1.Pod{}
	for _, pod := range list.Items {
		pods[pod.Name] = &pod
	}
	return pods
}

// Pod is an instance's pod.
func (c *Cluster) Pod(instance string) *corev1.Pod {
	c.f.T.Helper()
	pod, err := c.f.Kube.CoreV1().Pods(c.f.Namespace).Get(c.f.ctx(), instance, metav1.GetOptions{})
	if err != nil {
		c.f.T.Fatal(err)
	}
	return pod
}

// Volume is an instance's claim.
func (c *Cluster) Volume(instance string) *corev1.PersistentVolumeClaim {
	c.f.T.Helper()
	claim, err := c.f.Kube.CoreV1().PersistentVolumeClaims(c.f.Namespace).Get(c.f.ctx(), instance, metav1.GetOptions{})
	if err != nil {
		c.f.T.Fatal(err)
	}
	return claim
}

// Volumes are the UIDs of the cluster's claims by name.
func (c *Cluster) Volumes(ctx context.Context) (map[string]types.UID, error) {
	list, err := c.f.Kube.CoreV1().PersistentVolumeClaims(c.f.Namespace).List(ctx, metav1.ListOptions{LabelSelector: ClusterLabel + "=" + c.Name})
	if err != nil {
		return nil, err
	}
	uids := map[string]types.UID{}
	for _, claim := range list.Items {
		uids[claim.Name] = claim.UID
	}
	return uids, nil
}

// DeletePod deletes an instance's pod as kubectl does.
func (c *Cluster) DeletePod(instance string) {
	c.f.T.Helper()
	c.deletePod(instance, metav1.DeleteOptions{})
}

// ForceDeletePod deletes the pod's object without waiting for its containers.
func (c *Cluster) ForceDeletePod(instance string) {
	c.f.T.Helper()
	c.deletePod(instance, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)})
}

func (c *Cluster) deletePod(instance string, options metav1.DeleteOptions) {
	c.f.T.Helper()
	if err := c.f.Kube.CoreV1().Pods(c.f.Namespace).Delete(c.f.ctx(), instance, options); err != nil {
		c.f.T.Fatal(err)
	}
}

// DeleteVolume asks for a claim's deletion; it goes once no pod uses it.
func (c *Cluster) DeleteVolume(instance string) {
	c.f.T.Helper()
	if err := c.f.Kube.CoreV1().PersistentVolumeClaims(c.f.Namespace).Delete(c.f.ctx(), instance, metav1.DeleteOptions{}); err != nil {
		c.f.T.Fatal(err)
	}
}

// AwaitNewPod waits until the instance has another pod than old, and the
// cluster is ready with it.
func (c *Cluster) AwaitNewPod(instance string, old types.UID) {
	c.f.T.Helper()
	c.f.Await(Patience, "a new pod "+instance+" serves", func(ctx context.Context) error {
		pod, err := c.f.Kube.CoreV1().Pods(c.f.Namespace).Get(ctx, instance, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if pod.UID == old {
			return errors.New("the old pod is still there")
		}
		if !isReady(pod) {
			return fmt.Errorf("the new pod is not ready: %s", podSummary(pod))
		}
		return c.Ready(ctx)
	})
}

func isReady(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue && pod.DeletionTimestamp == nil
		}
	}
	return false
}

// AwaitGone waits until nothing that belongs to the cluster is left but the
// named objects, as Kind/name.
func (c *Cluster) AwaitGone(but ...string) {
	c.f.T.Helper()
	c.f.Await(Patience, "everything of cluster "+c.Name+" is gone", func(ctx context.Context) error {
		return c.OnlyLeft(ctx, but...)
	})
}

// OnlyLeft looks whether nothing of the cluster is left but the named objects.
func (c *Cluster) OnlyLeft(ctx context.Context, but ...string) error {
	objects, err := c.f.Objects(ctx)
	if err != nil {
		return err
	}
	var wrong []string
	left := map[string]bool{}
	for name, object := range objects {
		if object.Labels[ClusterLabel] != c.Name && !strings.HasPrefix(object.Name, c.Name+"-") && object.Name != c.Name {
			continue
		}
		left[name] = true
	}
	for _, name := range but {
		if !left[name] {
			wrong = append(wrong, "missing "+name)
		}
		delete(left, name)
	}
	for name := range left {
		wrong = append(wrong, "left over "+name)
	}
	if len(wrong) > 0 {
		return errors.New(strings.Join(wrong, ", "))
	}
	return nil
}

// Secret is the login that the cluster publishes.
func (c *Cluster) Secret() map[string]string {
	c.f.T.Helper()
	secret, err := c.secret(c.f.ctx())
	if err != nil {
		c.f.T.Fatal(err)
	}
	return secret
}

func (c *Cluster) secret(ctx context.Context) (map[string]string, error) {
	return c.f.Secret(ctx, c.Name+"-app")
}

// Secret is what a Secret holds.
func (f *Framework) Secret(ctx context.Context, name string) (map[string]string, error) {
	secret, err := f.Kube.CoreV1().Secrets(f.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	values := map[string]string{}
	for key, value := range secret.Data {
		values[key] = string(value)
	}
	return values, nil
}

// SetPassword edits the password in the published Secret.
func (c *Cluster) SetPassword(password string) {
	c.f.T.Helper()
	c.f.SetPassword(c.Name+"-app", password)
}

// SetPassword edits the password in a Secret.
func (f *Framework) SetPassword(secret, password string) {
	f.T.Helper()
	patch, err := json.Marshal(map[string]any{"data": map[string][]byte{"password": []byte(password)}})
	if err != nil {
		f.T.Fatal(err)
	}
	if _, err := f.Kube.CoreV1().Secrets(f.Namespace).Patch(f.ctx(), secret, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		f.T.Fatal(err)
	}
}

// CreateSecret makes a Secret of somebody else's.
func (f *Framework) CreateSecret(name string, data map[string]string) {
	f.T.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: data}
	if _, err := f.Kube.CoreV1().Secrets(f.Namespace).Create(f.ctx(), secret, metav1.CreateOptions{}); err != nil {
		f.T.Fatal(err)
	}
}

// Messages are the events about the cluster, as "Reason: message", once for
// each time that they happened.
func (c *Cluster) Messages(ctx context.Context) ([]string, error) {
	list, err := c.f.Kube.EventsV1().Events(c.f.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var messages []string
	for _, event := range list.Items {
		if event.Regarding.Kind != "PostgresCluster" || event.Regarding.Name != c.Name {
			continue
		}
		times := 1
		if event.Series != nil {
			times = int(event.Series.Count)
		}
		for range times {
			messages = append(messages, event.Reason+": "+event.Note)
		}
	}
	return messages, nil
}

// Lease is the version of a Lease.
func (f *Framework) Lease(name string) string {
	f.T.Helper()
	lease, err := f.Kube.CoordinationV1().Leases(f.Namespace).Get(f.ctx(), name, metav1.GetOptions{})
	if err != nil {
		f.T.Fatal(err)
	}
	return lease.ResourceVersion
}
