//go:build e2e

package api

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/test/api/framework"
)

// A pod that fits no node: never called ready, the scheduler's words in the
// condition, and a spec that fits heals.
func TestF01UnschedulablePod(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	f.StartOperator()
	const words = "0/3 nodes are available: 3 Insufficient cpu."
	f.Kubelet.Script("shop-1", framework.Script{Unschedulable: words})
	c := f.Create("shop")
	ready := c.AwaitCondition(v1.ConditionReady, metav1.ConditionFalse, words)
	if ready.Reason != v1.ReasonUnschedulable {
		t.Errorf("reason %s", ready.Reason)
	}
	f.Hold(3*time.Second, "it is not called ready", func(ctx context.Context) error {
		live, err := c.Get(ctx)
		if err != nil {
			return err
		}
		return errors.Join(framework.Want("phase", live.Status.Phase, v1.PhaseCreating), framework.Want("ready instances", live.Status.ReadyInstances, 0))
	})
	old := f.UID("pods/shop-1")
	f.Kubelet.Script("shop-1", framework.Script{})
	c.Edit(memory("512Mi")) // another template, by which the pod is made anew
	c.AwaitReady()
	if f.UID("pods/shop-1") == old {
		t.Log("the pod that waited was given a node before it was replaced")
	}
}

// A quota without room: the API server's refusal is in the condition and in one
// event, and room is all that it takes.
func TestF02QuotaWithoutRoom(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	f.StartOperator()
	quotas := f.Kube.CoreV1().ResourceQuotas(f.Namespace)
	pods := func(n string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourcePods: resource.MustParse(n)}
	}
	quota, err := quotas.Create(t.Context(), &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "few"}, Spec: corev1.ResourceQuotaSpec{Hard: pods("1")}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	set := func(hard, used string) { // what the quota's controller does
		quota.Status = corev1.ResourceQuotaStatus{Hard: pods(hard), Used: pods(used)}
		live, err := quotas.Get(t.Context(), "few", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		live.Spec.Hard = pods(hard)
		if live, err = quotas.Update(t.Context(), live, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		live.Status = quota.Status
		if _, err := quotas.UpdateStatus(t.Context(), live, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	set("1", "1")
	c := f.Create("shop")
	ready := c.AwaitCondition(v1.ConditionReady, metav1.ConditionFalse, "create Pod shop-1", "exceeded quota: few")
	if ready.Reason != v1.ReasonCreateFailed {
		t.Errorf("reason %s", ready.Reason)
	}
	f.Pause(5 * time.Second) // while it is tried again
	messages, err := c.Messages(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	told := 0
	for _, m := range messages {
		if strings.Contains(m, "exceeded quota") {
			told++
		}
	}
	if told != 1 {
		t.Errorf("%d events tell of the quota: %q", told, messages)
	}
	set("5", "1")
	c.AwaitReady()
}

// Through creation, scaling, failures and healing every status that is ever
// written agrees with itself.
func TestF03EveryStatusAgreesWithItself(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	f.StartOperator()
	done := watchStatuses(f, func(c *v1.PostgresCluster) error { return contradiction(c) })
	c := f.Create("shop", framework.Instances(3))
	c.AwaitReady()
	f.Kubelet.Script("shop-2", framework.Script{Failed: "Evicted"})
	c.AwaitCondition(v1.ConditionReady, metav1.ConditionFalse)
	f.Kubelet.Script("shop-2", framework.Script{})
	c.AwaitReady()
	c.Edit(framework.Instances(1))
	c.AwaitReady()
	f.Kubelet.Script("shop-1", framework.Script{Failed: "Evicted"})
	c.AwaitCondition(v1.ConditionPrimaryAvailable, metav1.ConditionFalse)
	f.Kubelet.Script("shop-1", framework.Script{})
	c.AwaitReady()
	f.Kubelet.Script("shop-2", framework.Script{Waiting: "ErrImagePull"})
	c.Edit(framework.Instances(2), framework.Parameter("work_mem", "8MB"))
	c.AwaitCondition(v1.ConditionReady, metav1.ConditionFalse, "ErrImagePull")
	f.Kubelet.Script("shop-2", framework.Script{})
	c.AwaitReady()
	c.Edit(framework.Parameter("listen_addresses", "nowhere"))
	c.AwaitCondition(v1.ConditionSpecAccepted, metav1.ConditionFalse, "listen_addresses")
	c.Edit(func(c *v1.PostgresCluster) { delete(c.Spec.Postgres.Parameters, "listen_addresses") })
	c.AwaitReady()
	c.Edit(pause(true))
	c.AwaitCondition(v1.ConditionProgressing, metav1.ConditionFalse, "spec.paused")
	c.Edit(framework.Instances(0))
	c.Edit(pause(false))
	awaitPhase(f, c, v1.PhaseStopped)
	c.Edit(framework.Instances(2))
	c.AwaitReady()
	if n := done(); n < 10 {
		t.Errorf("only %d statuses were seen", n)
	}
}

// contradiction is what in a status does not go together.
func contradiction(c *v1.PostgresCluster) error {
	s := c.Status
	is := func(kind string) bool { return meta.IsStatusConditionTrue(s.Conditions, kind) }
	ready := int32(0)
	for _, m := range s.Members {
		if m.Ready {
			ready++
		}
	}
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if s.ReadyInstances != ready {
		wrong("readyInstances is %d, and %d members are ready", s.ReadyInstances, ready)
	}
	current := s.ObservedGeneration == c.Generation
	if current && is(v1.ConditionReady) && s.ReadyInstances < ptr.Deref(c.Spec.Instances, 3) {
		wrong("Ready, and %d of %d instances are", s.ReadyInstances, *c.Spec.Instances)
	}
	if is(v1.ConditionReady) && !is(v1.ConditionPrimaryAvailable) {
		wrong("Ready, without a primary")
	}
	if s.Phase == v1.PhaseHealthy && (!is(v1.ConditionReady) || !is(v1.ConditionPrimaryAvailable) || is(v1.ConditionProgressing) || !is(v1.ConditionSpecAccepted)) {
		wrong("Healthy")
	}
	if (s.Phase == v1.PhaseUnavailable || s.Phase == v1.PhaseCreating) && is(v1.ConditionPrimaryAvailable) {
		wrong("%s, with a primary", s.Phase)
	}
	if s.Phase == v1.PhaseStopped && (s.Instances != 0 || s.ReadyInstances != 0 || is(v1.ConditionPrimaryAvailable) || is(v1.ConditionReplicating)) {
		wrong("Stopped, with %d instances, of which %d are ready", s.Instances, s.ReadyInstances)
	}
	if (s.Phase == v1.PhaseInvalid) == is(v1.ConditionSpecAccepted) {
		wrong("%s, and SpecAccepted is %v", s.Phase, is(v1.ConditionSpecAccepted))
	}
	for _, kind := range []string{v1.ConditionReady, v1.ConditionPrimaryAvailable, v1.ConditionReplicating, v1.ConditionFailoverReady, v1.ConditionProgressing, v1.ConditionUpToDate, v1.ConditionSpecAccepted} {
		condition := meta.FindStatusCondition(s.Conditions, kind)
		switch {
		case condition == nil:
			wrong("%s is missing", kind)
		case condition.Reason == "":
			wrong("%s has no reason", kind)
		case condition.Status == metav1.ConditionFalse && condition.Message == "" && kind != v1.ConditionProgressing:
			wrong("%s is False and says nothing", kind)
		case condition.ObservedGeneration != s.ObservedGeneration:
			wrong("%s is of generation %d, the status of %d", kind, condition.ObservedGeneration, s.ObservedGeneration)
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("%w in %s", errors.Join(errs...), framework.Summary(c))
}

// watchStatuses checks each status that is written until done is called, which
// returns how many there were.
func watchStatuses(f *framework.Framework, check func(*v1.PostgresCluster) error) (done func() int) {
	f.T.Helper()
	w, err := f.Postgres.PgopV1().PostgresClusters(f.Namespace).Watch(f.T.Context(), metav1.ListOptions{})
	if err != nil {
		f.T.Fatal(err)
	}
	var all sync.WaitGroup
	n := 0
	all.Go(func() {
		for event := range w.ResultChan() {
			c, ok := event.Object.(*v1.PostgresCluster)
			if !ok || event.Type == watch.Deleted || c.Status.Phase == "" {
				continue
			}
			n++
			if err := check(c); err != nil {
				f.T.Errorf("contradiction: %v", err)
			}
		}
	})
	return func() int {
		w.Stop()
		all.Wait()
		return n
	}
}

// A settled cluster costs nothing: no write and no read, whatever a Lease that is
// renewed, a list that is read anew in another order, or an operator that starts
// again would give occasion to.
func TestF04SettledClusterCostsNothing(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	op := f.StartOperator()
	names := []string{"a", "b"}
	for n, name := range names {
		f.Create(name, framework.Instances(int32(n+2))).AwaitReady()
	}
	wantQuiet(f, op)
	late := lateAgents(f)
	rest := func(op *framework.Operator) (problems []string) {
		before, mark := framework.Versions(f.MustObjects()), op.Proxy.Mark()
		statuses := map[string]string{}
		for _, name := range names {
			statuses[name] = f.Cluster(name).Live().ResourceVersion
		}
		for range 10 {
			for _, name := range names {
				f.Renew(name)
			}
			f.Pause(time.Second)
		}
		for what := range framework.Count(op.Proxy.Since(mark), func(r framework.Request) bool { return r.Verb != "watch" }) {
			problems = append(problems, what)
		}
		after := framework.Versions(f.MustObjects())
		for key, version := range after {
			if before[key] != version && !strings.HasPrefix(key, "leases/") {
				problems = append(problems, key+" was written")
			}
		}
		for _, name := range names {
			if f.Cluster(name).Live().ResourceVersion != statuses[name] {
				problems = append(problems, "the status of "+name+" was written")
			}
		}
		return problems
	}
	f.Await("a settled cluster costs nothing", func(context.Context) error {
		before := late()
		problems := rest(op)
		if len(problems) > 0 && late() == before {
			t.Fatalf("at rest: %q", problems)
		}
		return framework.Want("what happened while agents did not answer in time", len(problems), 0)
	})
	before := framework.Versions(f.MustObjects())
	op.Stop()
	lateBefore := late()
	second := f.StartOperator()
	wantQuiet(f, second)
	if writes := framework.Writes(second.Proxy.Since(0)); len(writes) > 0 && late() == lateBefore {
		t.Errorf("an operator that starts in a settled namespace wrote %v", writes)
	}
	second.Proxy.Expire(true) // lists are read anew, by maps in any order
	second.Proxy.CutWatches()
	f.Pause(3 * time.Second)
	second.Proxy.Expire(false)
	if writes := framework.Writes(second.Proxy.Since(0)); len(writes) > 0 && late() == lateBefore {
		t.Errorf("after lists were read anew the operator wrote %v", writes)
	}
	if err := unchanged(f, before)(t.Context()); err != nil {
		t.Error(err)
	}
}

// lateAgents counts the statuses that tell of an agent that did not answer in
// time. On a machine that is too busy for that an operator has something to
// report, and the test no answer.
func lateAgents(f *framework.Framework) func() int64 {
	f.T.Helper()
	var n atomic.Int64
	watchStatuses(f, func(c *v1.PostgresCluster) error {
		if strings.Contains(framework.Summary(c), "does not answer") {
			n.Add(1)
		}
		return nil
	})
	return n.Load
}

// A webhook that rewrites the registry, adds a sidecar, labels and annotations
// to every pod: nobody replaces pods for that, ever.
func TestF05MutatingWebhook(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	mutatePods(f, func(pod *corev1.Pod) []map[string]any {
		return []map[string]any{
			{"op": "replace", "path": "/spec/containers/0/image", "value": "mirror.example.com/library/postgres:17"},
			{"op": "add", "path": "/spec/containers/-", "value": map[string]any{
				"name": "proxy", "image": "mirror.example.com/proxy:1",
				"securityContext": pod.Spec.Containers[0].SecurityContext,
			}},
			{"op": "add", "path": "/metadata/annotations/mesh.example.com~1status", "value": "injected"},
			{"op": "add", "path": "/metadata/labels/mesh.example.com~1rev", "value": "1"},
			{"op": "add", "path": "/spec/tolerations", "value": []corev1.Toleration{{Key: "spot", Operator: corev1.TolerationOpExists}}},
		}
	})
	op := f.StartOperator()
	c := f.Create("shop", framework.Instances(2))
	c.AwaitReady()
	pods, err := c.Pods(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for name, pod := range pods {
		if len(pod.Spec.Containers) != 2 || !strings.HasPrefix(pod.Spec.Containers[0].Image, "mirror.") {
			t.Fatalf("pod %s was not changed by the webhook: %v", name, pod.Spec)
		}
	}
	c.AwaitCondition(v1.ConditionUpToDate, metav1.ConditionTrue)
	wantQuiet(f, op)
	uids := podUIDs(f)
	op.Stop()
	op = f.StartOperator()
	wantQuiet(f, op)
	wantSamePods(f, uids)
	if now := podUIDs(f); len(now) != 2 {
		t.Errorf("%d pods", len(now))
	}
}

// mutatePods lets the API server ask a webhook of the test about each new pod of
// its namespace.
func mutatePods(f *framework.Framework, patch func(*corev1.Pod) []map[string]any) {
	f.T.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		var pod corev1.Pod
		body, err := io.ReadAll(r.Body)
		err = errors.Join(err, json.Unmarshal(body, &review))
		if err == nil {
			err = json.Unmarshal(review.Request.Object.Raw, &pod)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		text, _ := json.Marshal(patch(&pod)) // plain data
		review.Response = &admissionv1.AdmissionResponse{
			UID: review.Request.UID, Allowed: true, Patch: text, PatchType: ptr.To(admissionv1.PatchTypeJSONPatch),
		}
		_ = json.NewEncoder(w).Encode(review) // an error means that the client has gone
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	server.StartTLS()
	f.T.Cleanup(server.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	hooks := f.Kube.AdmissionregistrationV1().MutatingWebhookConfigurations()
	_, err := hooks.Create(f.T.Context(), &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: f.Namespace},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name:                    "pods.example.com",
			ClientConfig:            admissionregistrationv1.WebhookClientConfig{URL: ptr.To(server.URL), CABundle: ca},
			NamespaceSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: f.Namespace}},
			AdmissionReviewVersions: []string{"v1"},
			SideEffects:             ptr.To(admissionregistrationv1.SideEffectClassNone),
			FailurePolicy:           ptr.To(admissionregistrationv1.Fail),
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
			}},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		f.T.Fatal(err)
	}
	f.T.Cleanup(func() {
		if err := hooks.Delete(context.Background(), f.Namespace, metav1.DeleteOptions{}); err != nil {
			f.T.Errorf("delete the webhook: %v", err)
		}
	})
	f.Await("the webhook is in force", func(ctx context.Context) error {
		probe, err := f.Kube.CoreV1().Pods(f.Namespace).Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "probe", Labels: map[string]string{"probe": "yes"}, Annotations: map[string]string{"probe": "yes"}},
			Spec: corev1.PodSpec{
				SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: ptr.To(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
				Containers: []corev1.Container{{Name: "probe", Image: "probe", SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: ptr.To(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				}}},
			},
		}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			return err
		}
		return framework.Want("number of containers", len(probe.Spec.Containers), 2)
	})
}
