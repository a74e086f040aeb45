//go:build e2e

package framework

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/election"
	"github.com/pgop/postgres-operator/pkg/specs"
)

// Modifier changes the manifest of a cluster.
type Modifier func(*v1.PostgresCluster)

// Instances asks for n instances.
func Instances(n int32) Modifier {
	return func(c *v1.PostgresCluster) { c.Spec.Instances = &n }
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

// Manifest is a cluster of one instance of PostgreSQL 17 on a small volume that
// goes with it, changed by the modifiers.
func Manifest(name string, modifiers ...Modifier) *v1.PostgresCluster {
	c := &v1.PostgresCluster{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1.PostgresClusterSpec{
			Instances: ptr.To[int32](1),
			Postgres:  v1.PostgresSpec{Version: 17},
			Storage:   v1.StorageSpec{Size: resource.MustParse("1Gi"), Retain: v1.DeleteVolumes},
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
	_, err := f.Postgres.PgopV1().PostgresClusters(f.Namespace).Create(f.ctx(), Manifest(name, modifiers...), metav1.CreateOptions{FieldValidation: "Strict"})
	if err != nil {
		f.T.Fatalf("create cluster %s: %v", name, err)
	}
	return f.Cluster(name)
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

// Delete deletes the cluster, as kubectl does. What belongs to it goes later.
func (c *Cluster) Delete() {
	c.f.T.Helper()
	if err := c.f.Postgres.PgopV1().PostgresClusters(c.f.Namespace).Delete(c.f.ctx(), c.Name, metav1.DeleteOptions{}); err != nil {
		c.f.T.Fatal(err)
	}
}

// AwaitReady waits until every instance asked for serves, and the status speaks
// of the present spec.
func (c *Cluster) AwaitReady() {
	c.f.T.Helper()
	c.f.Await("cluster "+c.Name+" is ready", c.Ready)
}

// Ready looks whether the cluster is settled: healthy, with as many instances
// as asked for, and with a status of its present generation.
func (c *Cluster) Ready(ctx context.Context) error {
	live, err := c.Get(ctx)
	if err != nil {
		return err
	}
	s := live.Status
	want := ptr.Deref(live.Spec.Instances, 3)
	if s.ObservedGeneration != live.Generation || s.Phase != v1.PhaseHealthy || s.ReadyInstances != want ||
		s.Instances != want || !meta.IsStatusConditionTrue(s.Conditions, v1.ConditionReady) {
		return errors.New(Summary(live))
	}
	return nil
}

// AwaitCondition waits until a condition has this status, and a message that
// contains all of the words. It returns the condition.
func (c *Cluster) AwaitCondition(kind string, status metav1.ConditionStatus, words ...string) metav1.Condition {
	c.f.T.Helper()
	var found metav1.Condition
	c.f.Await(fmt.Sprintf("condition %s of cluster %s is %s and says %q", kind, c.Name, status, words), func(ctx context.Context) error {
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
		found = *condition
		return nil
	})
	return found
}

// Summary is a cluster's status in a few lines.
func Summary(c *v1.PostgresCluster) string {
	var b strings.Builder
	s := c.Status
	fmt.Fprintf(&b, "%s, primary %q, %d instances of which %d are ready, generation %d of %d", s.Phase, s.Primary, s.Instances, s.ReadyInstances,
		s.ObservedGeneration, c.Generation)
	for _, condition := range s.Conditions {
		fmt.Fprintf(&b, "\n  %s=%s %s: %s", condition.Type, condition.Status, condition.Reason, condition.Message)
	}
	for _, m := range s.Members {
		fmt.Fprintf(&b, "\n  %s role=%q ready=%v: %s", m.Name, m.Role, m.Ready, m.Message)
	}
	return b.String()
}

// Pods are the cluster's pods by name.
func (c *Cluster) Pods(ctx context.Context) (map[string]*corev1.Pod, error) {
	list, err := c.f.Kube.CoreV1().Pods(c.f.Namespace).List(ctx, metav1.ListOptions{LabelSelector: specs.ClusterLabel + "=" + c.Name})
	if err != nil {
		return nil, err
	}
	pods := map[string]*corev1.Pod{}
	for _, pod := range list.Items {
		pods[pod.Name] = &pod
	}
	return pods, nil
}

// Messages are the events about the cluster, as "Reason: message", once for
// each time that they happened.
func (c *Cluster) Messages(ctx context.Context) ([]string, error) {
	list, err := c.f.Kube.EventsV1().Events(c.f.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(list.Items, eventOrder)
	var messages []string
	for _, event := range list.Items {
		if event.Regarding.Kind != v1.ClusterKind || event.Regarding.Name != c.Name {
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

func eventOrder(a, b eventsv1.Event) int { return a.EventTime.Compare(b.EventTime.Time) }

// Renew renews a cluster's Lease, as its primary's agent does.
func (f *Framework) Renew(cluster string) {
	f.T.Helper()
	f.Await("the Lease is renewed", func(ctx context.Context) error { // the agent writes it, too
		lease, err := f.Kube.CoordinationV1().Leases(f.Namespace).Get(ctx, cluster, metav1.GetOptions{})
		if err != nil {
			return err
		}
		now := metav1.NowMicro()
		lease.Spec.RenewTime = &now
		_, err = f.Kube.CoordinationV1().Leases(f.Namespace).Update(ctx, lease, metav1.UpdateOptions{})
		return err
	})
}

// MembersOf are the instances that can take over in a cluster, as its Lease says.
func (f *Framework) MembersOf(ctx context.Context, cluster string) ([]election.Member, error) {
	lease, err := f.Kube.CoordinationV1().Leases(f.Namespace).Get(ctx, cluster, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	record, err := election.ParseRecord(lease.Annotations[election.RecordAnnotation])
	return record.Members, err
}

// Ask puts an annotation on the cluster, as kubectl annotate does.
func (c *Cluster) Ask(annotation, value string) {
	c.f.T.Helper()
	c.Edit(func(live *v1.PostgresCluster) { metav1.SetMetaDataAnnotation(&live.ObjectMeta, annotation, value) })
}

// AwaitAnswer waits until an annotation is gone, and there is as many an event of
// that reason, whose last has all of the words.
func (c *Cluster) AwaitAnswer(annotation, reason string, times int, words ...string) {
	c.f.T.Helper()
	c.f.Await(fmt.Sprintf("%s is answered by %s %q", annotation, reason, words), func(ctx context.Context) error {
		live, err := c.Get(ctx)
		if err != nil {
			return err
		}
		if value, there := live.Annotations[annotation]; there {
			return fmt.Errorf("%s=%s is still there; %s", annotation, value, Summary(live))
		}
		messages, err := c.Messages(ctx)
		if err != nil {
			return err
		}
		told := slices.DeleteFunc(slices.Clone(messages), func(m string) bool { return !strings.HasPrefix(m, reason+": ") })
		if len(told) != times {
			return fmt.Errorf("told %d times: %q", len(told), messages)
		}
		for _, word := range words {
			if !strings.Contains(told[times-1], word) {
				return fmt.Errorf("told %q", told)
			}
		}
		return nil
	})
}

// AwaitPrimary waits until the named instance is the primary, in the status and
// by the labels of the pods, and no other is.
func (c *Cluster) AwaitPrimary(name string) {
	c.f.T.Helper()
	c.f.Await(name+" is the primary", func(ctx context.Context) error {
		live, err := c.Get(ctx)
		if err != nil {
			return err
		}
		pods, err := c.Pods(ctx)
		if err != nil {
			return err
		}
		for _, pod := range pods {
			if isPrimary := pod.Labels[specs.RoleLabel] == "primary"; isPrimary != (pod.Name == name) {
				return fmt.Errorf("%s has the role %q", pod.Name, pod.Labels[specs.RoleLabel])
			}
		}
		return Want("primary", live.Status.Primary, name)
	})
}
