//go:build e2e

package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/sirupsen/logrus"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/pgop/postgres-operator/deploy"
	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/controller"
	"github.com/pgop/postgres-operator/pkg/generated/clientset/versioned"
	"github.com/pgop/postgres-operator/pkg/specs"
	"github.com/pgop/postgres-operator/test/api/framework"
)

// post sends a PostgresCluster with that spec, YAML, as it is.
func post(f *framework.Framework, client versioned.Interface, name, spec, validation string) error {
	manifest, err := yaml.YAMLToJSON([]byte("apiVersion: pgop.dev/v1\nkind: PostgresCluster\nmetadata: {name: " + name + "}\nspec: " + spec))
	if err != nil {
		f.T.Fatal(err)
	}
	return client.PgopV1().RESTClient().Post().Namespace(f.Namespace).Resource("postgresclusters").
		Param("fieldValidation", validation).Body(manifest).Do(f.T.Context()).Error()
}

func expectRefusal(t *testing.T, why string, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("%s: accepted", why)
		return
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%s: refused, and the refusal does not say %q:\n%v", why, word, err)
		}
	}
}

// What needs an API server's own words is refused with them, whoever the client is.
func TestA12A13A14A20RefusedOnApply(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	const spec = "{postgres: {version: 17}, storage: {size: 1Gi}}"
	name := func(n int) string { return "a" + strings.Repeat("x", n-1) }
	for _, c := range []struct{ name, spec, want string }{
		{name(51), spec, "metadata.name: at most 50 characters"},
		{name(53), spec, "choose a shorter name"},
		{name(63), spec, "choose a shorter name"},
		{name(64), spec, "choose a shorter name"},
		{"126-demo", spec, "metadata.name: lower case letters, digits and '-' only, beginning with a letter"},
		{"my.db", spec, "metadata.name: lower case letters"},
		{"db-", spec, "metadata.name"},
		{"a", "{postgres: {version: 17}, storage: {size: 1Gi}, resources: {requests: {memory: 256Mi}, limits: {memory: 128Mi}}}", "spec.resources: the request of cpu or memory is larger than its limit"},
		{"a", "{postgres: {version: 17}, storage: {size: 1Gi}, bootstrap: {initdb: {owner: postgres}}}", "spec.bootstrap.initdb.owner: postgres"},
		{"a", "{postgres: {version: 17, hba: [\"a\\nb\"]}, storage: {size: 1Gi}}", "spec.postgres.hba: one rule an item"},
	} {
		expectRefusal(t, c.name+" "+c.spec, post(f, f.Postgres, c.name, c.spec, "Strict"), c.want)
	}
}

// A name of the greatest length gives children that the API server takes.
func TestA12LongestName(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	f.StartOperator()
	c := f.Create("a"+strings.Repeat("x", 49), framework.Instances(2))
	c.AwaitReady()
}

// A field that does not exist is refused, where the client asks for that, as
// kubectl does, and told of where not.
func TestA06UnknownFieldsAreToldOf(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	const spec = "{postgres: {version: 17, max_connections: 125}, storage: {size: 1Gi}, backups: {}}"
	expectRefusal(t, "strict", post(f, f.Postgres, "shop", spec, "Strict"), `unknown field "spec.postgres.max_connections"`, `unknown field "spec.backups"`)

	warned := &warnings{}
	config := rest.CopyConfig(f.Config)
	config.WarningHandler = warned
	client, err := versioned.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if err := post(f, client, "shop", spec, ""); err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{"spec.postgres.max_connections", "spec.backups"} {
		if !strings.Contains(warned.String(), `unknown field "`+field+`"`) {
			t.Errorf("no warning of %s: %s", field, warned)
		}
	}
}

// warnings are those that an API server sends along.
type warnings struct {
	mu    sync.Mutex
	texts []string
}

func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.texts = append(w.texts, text)
}

func (w *warnings) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return fmt.Sprint(w.texts)
}

// enforcePolicy lets the admission policy apply to the test's namespace alone,
// and returns when it does.
func enforcePolicy(f *framework.Framework) {
	f.T.Helper()
	first, _, _ := strings.Cut(string(deploy.PostgresClusterPolicy), "\n---\n")
	var policy admissionregistrationv1.ValidatingAdmissionPolicy
	if err := yaml.UnmarshalStrict([]byte(first), &policy); err != nil {
		f.T.Fatal(err)
	}
	policy.Name = f.Namespace
	client := f.Kube.AdmissionregistrationV1()
	if _, err := client.ValidatingAdmissionPolicies().Create(f.T.Context(), &policy, metav1.CreateOptions{}); err != nil {
		f.T.Fatal(err)
	}
	f.T.Cleanup(func() { removePolicy(f, f.Namespace) })
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: f.Namespace},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: f.Namespace, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
			MatchResources: &admissionregistrationv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{
				MatchLabels: map[string]string{corev1.LabelMetadataName: f.Namespace},
			}},
		},
	}
	if _, err := client.ValidatingAdmissionPolicyBindings().Create(f.T.Context(), binding, metav1.CreateOptions{}); err != nil {
		f.T.Fatal(err)
	}
	awaitPolicy(f)
}

// awaitPolicy waits until the API server, which learns of policies from a watch
// of its own, refuses what the policy refuses.
func awaitPolicy(f *framework.Framework) {
	f.T.Helper()
	f.Await("the policy is in force", func(ctx context.Context) error {
		c := framework.Manifest("probe", framework.Parameter("port", "1"))
		_, err := f.Postgres.PgopV1().PostgresClusters(f.Namespace).Create(ctx, c, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		switch {
		case err == nil:
			return errors.New("it lets everything pass")
		case !strings.Contains(err.Error(), "port is set by the operator"):
			return err
		}
		return nil
	})
}

func removePolicy(f *framework.Framework, name string) {
	ctx, cancel := context.WithTimeout(context.Background(), framework.Patience)
	defer cancel()
	client := f.Kube.AdmissionregistrationV1()
	err := errors.Join(client.ValidatingAdmissionPolicyBindings().Delete(ctx, name, metav1.DeleteOptions{}),
		client.ValidatingAdmissionPolicies().Delete(ctx, name, metav1.DeleteOptions{}))
	if err != nil && !apierrors.IsNotFound(err) {
		f.T.Errorf("remove policy %s: %v", name, err)
	}
}

// The policy that the operator installs is one that the API server takes and
// enforces; a newer one is left. It applies to all namespaces, so this test is
// alone.
func TestPolicyIsInstalled(t *testing.T) {
	f := framework.New(t)
	logger := logrus.New()
	logger.SetOutput(t.Output())
	install := func() {
		t.Helper()
		if err := controller.InstallPolicy(t.Context(), f.Kube.AdmissionregistrationV1(), deploy.PostgresClusterPolicy, logrus.NewEntry(logger)); err != nil {
			t.Fatal(err)
		}
	}
	const name = "postgresclusters.pgop.dev"
	install()
	t.Cleanup(func() { removePolicy(f, name) }) // if the test ends early
	awaitPolicy(f)

	policies := f.Kube.AdmissionregistrationV1().ValidatingAdmissionPolicies()
	before, err := policies.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	install()
	again, err := policies.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if again.ResourceVersion != before.ResourceVersion {
		t.Error("the same policy was written again")
	}
	newer := []byte(`{"metadata": {"annotations": {"pgop.dev/schema-version": "999"}}, "spec": {"failurePolicy": "Fail"}}`)
	if _, err := policies.Patch(t.Context(), name, types.MergePatchType, newer, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	install()
	live, err := policies.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if *live.Spec.FailurePolicy != admissionregistrationv1.Fail {
		t.Error("a newer policy was overwritten")
	}
	removePolicy(f, name)
	f.Await("the policy has ended", func(ctx context.Context) error {
		c := framework.Manifest("probe", framework.Parameter("port", "1"))
		_, err := f.Postgres.PgopV1().PostgresClusters(f.Namespace).Create(ctx, c, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	})
}

// What the schema can't see is refused on apply all the same, by name.
func TestA04A27PolicyRefusesParametersAndHBA(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	enforcePolicy(f)
	for server, want := range map[string]string{
		`parameters: {"log_disconnections=": "off"}`:            "spec.postgres.parameters[log_disconnections=]: \"log_disconnections=\" is not the name of a parameter",
		`parameters: {"1work_mem": 4MB}`:                        "is not the name of a parameter",
		`parameters: {work-mem: 4MB}`:                           "is not the name of a parameter",
		`parameters: {Listen_Addresses: "*"}`:                   "spec.postgres.parameters[Listen_Addresses]: Listen_Addresses is set by the operator; restrict who may connect by spec.postgres.hba",
		`parameters: {hot_standby: off}`:                        "hot_standby is set by the operator; replicas always answer queries",
		`parameters: {data_directory: /x, primary_conninfo: x}`: "data_directory is set by the operator; remove it",
		`parameters: {archive_command: "true"}`:                 "archive_command is set by the operator",
		`parameters: {recovery_target_time: x}`:                 "recovery_target_time is set by the operator",
		`parameters: {wal_level: minimal}`:                      "wal_level: replicas need replica or logical",
		`parameters: {jit: [on]}`:                               "spec.postgres.parameters[jit]: must be a string, a number or a boolean; quote it",
		`parameters: {jit: null}`:                               "spec.postgres.parameters[jit]: must be a string",
		`parameters: {Work_Mem: 1MB, work_mem: 2MB}`:            "given twice, as Work_Mem and as work_mem",
		`hba: ["host all all all md5", "include other.conf"]`:   `spec.postgres.hba: hba line 2, "include other.conf": begin it with one of local, host,`,
	} {
		err := post(f, f.Postgres, "shop", "{postgres: {version: 17, "+server+"}, storage: {size: 1Gi}}", "Strict")
		expectRefusal(t, server, err, want)
	}
	err := post(f, f.Postgres, "shop", `{postgres: {version: 17, hba: ["# mine", "host all all 10.0.0.0/8 md5"], parameters:
		{max_connections: 150, autovacuum: on, random_page_cost: 1.1, log_statement: ddl, pg_stat_statements.max: 5000, wal_level: logical}}, storage: {size: 1Gi}}`, "Strict")
	if err != nil {
		t.Errorf("what is right is refused: %v", err)
	}
}

// An object from before the policy can be looked after, edited otherwise,
// corrected and deleted.
func TestPolicyLeavesWhatIsStored(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	c := f.Create("shop", framework.Parameter("port", "1"), func(c *v1.PostgresCluster) { c.Finalizers = []string{"example.com/wait"} })
	enforcePolicy(f)
	f.StartOperator()
	c.AwaitCondition(v1.ConditionSpecAccepted, metav1.ConditionFalse, "port is set by the operator")
	c.Edit(framework.Instances(2))
	expectRefusal(t, "another bad one", c.TryEdit(framework.Parameter("ssl", "off")), "ssl is set by the operator")
	c.Edit(func(c *v1.PostgresCluster) { c.Spec.Postgres.Parameters = nil })
	c.AwaitReady()
	expectRefusal(t, "the bad one again", c.TryEdit(framework.Parameter("port", "1")), "port is set by the operator")
	c.Delete()
	c.Edit(func(c *v1.PostgresCluster) { c.Finalizers = nil })
	f.Await("the cluster is gone", func(ctx context.Context) error {
		if _, err := c.Get(ctx); !apierrors.IsNotFound(err) {
			return fmt.Errorf("still there: %v", err)
		}
		return nil
	})
}

// What only the operator sees ends in a condition and an event, is kept from
// the servers, and is forgotten when it is corrected.
func TestA08A15A27SpecThatTheOperatorRefuses(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	f.StartOperator()
	fresh := f.Create("fresh", framework.Parameter("max_wal_senders", "0"))
	running := f.Create("running", framework.Parameter("work_mem", "5MB"))
	running.AwaitReady()
	before := configuration(f, "running")
	for _, bad := range []struct {
		modify framework.Modifier
		want   string
	}{
		{framework.Parameter("listen_addresses", "localhost"), "spec.postgres.parameters[listen_addresses]: listen_addresses is set by the operator"},
		{framework.Parameter("max_wal_senders", "1"), "spec.postgres.parameters[max_wal_senders]: max_wal_senders: the operator needs at least 10"},
		{func(c *v1.PostgresCluster) {
			c.Spec.Postgres.HBA = []string{"local all all peer", "host all all all md5x"}
		}, `spec.postgres.hba: hba line 2, "host all all all md5x"`},
		{func(c *v1.PostgresCluster) {
			framework.Parameter("shared_buffers", "512MB")(c)
			c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("256Mi")}
		}, "spec.postgres.parameters[shared_buffers]: 512MB is more than the memory of 256Mi"},
	} {
		running.Edit(bad.modify, framework.Parameter("work_mem", "6MB"))
		running.AwaitCondition(v1.ConditionSpecAccepted, metav1.ConditionFalse, bad.want)
		if phase := running.Live().Status.Phase; phase != v1.PhaseInvalid {
			t.Errorf("%s: the phase is %s", bad.want, phase)
		}
		if now := configuration(f, "running"); now != before {
			t.Errorf("%s: the configuration has changed to\n%s", bad.want, now)
		}
		f.Await("an event says why", func(ctx context.Context) error {
			messages, err := running.Messages(ctx)
			if err == nil && !strings.Contains(strings.Join(messages, "\n"), bad.want) {
				err = fmt.Errorf("events are %q", messages)
			}
			return err
		})
		running.Edit(func(c *v1.PostgresCluster) {
			c.Spec.Postgres.Parameters, c.Spec.Postgres.HBA, c.Spec.Resources = nil, nil, v1.ResourceRequirements{}
			framework.Parameter("work_mem", "5MB")(c)
		})
		running.AwaitReady()
	}
	fresh.AwaitCondition(v1.ConditionSpecAccepted, metav1.ConditionFalse, "max_wal_senders")
	fresh.AwaitCondition(v1.ConditionReady, metav1.ConditionFalse, "nothing is made before the spec is corrected")
	fresh.Edit(framework.Parameter("max_wal_senders", "12"))
	fresh.AwaitReady()
}

func configuration(f *framework.Framework, cluster string) string {
	f.T.Helper()
	configMap, err := f.Kube.CoreV1().ConfigMaps(f.Namespace).Get(f.T.Context(), specs.ConfigMap(cluster), metav1.GetOptions{})
	if err != nil {
		f.T.Fatal(err)
	}
	return fmt.Sprint(configMap.Data)
}

// A pod that the API server refuses is no pod to wait for: its words are in the
// status, and the fix works on the same cluster.
func TestA14PodThatTheAPIServerRefuses(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	f.StartOperator()
	c := f.Create("shop", func(c *v1.PostgresCluster) {
		c.Spec.Resources.Requests = corev1.ResourceList{"mem": resource.MustParse("256Mi")}
	})
	condition := c.AwaitCondition(v1.ConditionReady, metav1.ConditionFalse, "create Pod shop-1", "must be a standard resource for containers")
	if condition.Reason != v1.ReasonCreateFailed {
		t.Errorf("the reason is %s", condition.Reason)
	}
	c.Edit(func(c *v1.PostgresCluster) {
		c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("256Mi")}
	})
	c.AwaitReady()
}

// size asks for volumes of that size.
func size(text string) framework.Modifier {
	return func(c *v1.PostgresCluster) { c.Spec.Storage.Size = resource.MustParse(text) }
}

// class asks for volumes of that class.
func class(name string) framework.Modifier {
	return func(c *v1.PostgresCluster) { c.Spec.Storage.Class = name }
}

// storageClass makes a class of the test's own.
func storageClass(f *framework.Framework, suffix string, expands bool) string {
	f.T.Helper()
	name := f.Namespace + "-" + suffix
	client := f.Kube.StorageV1().StorageClasses()
	_, err := client.Create(f.T.Context(), &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: "example.com/none", AllowVolumeExpansion: &expands,
	}, metav1.CreateOptions{})
	if err != nil {
		f.T.Fatal(err)
	}
	f.T.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), framework.Patience)
		defer cancel()
		if err := client.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			f.T.Error(err)
		}
	})
	return name
}

// A shrink in an edit with more instances: the whole edit is refused, and the
// cluster goes on as it was.
func TestA22ShrinkIsRefused(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	f.StartOperator()
	c := f.Create("shop", size("2Gi"), framework.Instances(2))
	c.AwaitReady()
	expectRefusal(t, "1Gi and three instances", c.TryEdit(size("1Gi"), framework.Instances(3)),
		"spec.storage.size: a volume can't shrink; ask for at least what status.volumeSize says the volumes have")
	c.Edit(framework.Instances(3))
	c.AwaitReady()
}

// The same size in other units is no change to anything.
func TestA23SameSizeInOtherUnits(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	operator := f.StartOperator()
	c := f.Create("shop", size("1Gi"))
	c.AwaitReady()
	wantQuiet(f, operator) // the events of its creation are written
	mark := operator.Proxy.Mark()
	for _, units := range []string{"1024Mi", "1073741824"} {
		c.Edit(size(units))
		c.AwaitReady()
	}
	expectRefusal(t, "1G", c.TryEdit(size("1G")), "a volume can't shrink")
	for _, r := range operator.Proxy.Since(mark) {
		// Events of the beginning may come late.
		if r.IsWrite() && r.Resource != "postgresclusters/status" && r.Resource != "events" {
			t.Errorf("the operator has made a request: %s", r)
		}
	}
}

// Growth that a class does not allow is said with the API server's words, and
// can be taken back; growth that has begun can't.
func TestA24GrowthRefusedAndTakenBack(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	f.StartOperator()
	fixed, growing := storageClass(f, "fixed", false), storageClass(f, "growing", true)

	c := f.Create("fixed", class(fixed))
	c.AwaitReady()
	c.Edit(size("2Gi"))
	condition := c.AwaitCondition(v1.ConditionUpToDate, metav1.ConditionFalse, "storageclass that provisions the pvc must support resize", "put spec.storage.size back to 1Gi")
	if condition.Reason != v1.ReasonVolumeRefused {
		t.Errorf("the reason is %s", condition.Reason)
	}
	c.Edit(size("1Gi"))
	c.AwaitReady()
	c.AwaitCondition(v1.ConditionUpToDate, metav1.ConditionTrue)

	c = f.Create("growing", class(growing))
	c.AwaitReady()
	c.Edit(size("2Gi"))
	c.AwaitReady()
	f.Await("the volume has grown, and the status says so", func(ctx context.Context) error {
		live, err := c.Get(ctx)
		if err != nil {
			return err
		}
		if live.Status.VolumeSize == nil {
			return errors.New("no volumeSize")
		}
		return framework.Want("volumeSize", live.Status.VolumeSize.String(), "2Gi")
	})
	claim, err := f.Kube.CoreV1().PersistentVolumeClaims(f.Namespace).Get(t.Context(), "growing-1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := claim.Spec.Resources.Requests.Storage().String(); got != "2Gi" {
		t.Errorf("the claim asks for %s", got)
	}
	expectRefusal(t, "back to 1Gi", c.TryEdit(size("1Gi")), "spec.storage.size: a volume can't shrink")
}

// Existing volumes keep their class, and the status says so; new ones are of
// the new class.
func TestA25StorageClassChanged(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	f.StartOperator()
	slow, fast := storageClass(f, "slow", false), storageClass(f, "fast", false)
	c := f.Create("shop", class(slow), framework.Instances(2))
	c.AwaitReady()
	c.Edit(class(fast))
	c.AwaitCondition(v1.ConditionUpToDate, metav1.ConditionFalse, "existing volumes keep their storage class: shop-1 ("+slow+"), shop-2 ("+slow+")")
	claims, pods := f.Kube.CoreV1().PersistentVolumeClaims(f.Namespace), f.Kube.CoreV1().Pods(f.Namespace)
	if err := errors.Join(claims.Delete(t.Context(), "shop-2", metav1.DeleteOptions{}), pods.Delete(t.Context(), "shop-2", metav1.DeleteOptions{})); err != nil {
		t.Fatal(err)
	}
	f.Await("the replica has a volume of the new class", func(ctx context.Context) error {
		claim, err := claims.Get(ctx, "shop-2", metav1.GetOptions{})
		if err != nil {
			return err
		}
		return framework.Want("the class", ptr.Deref(claim.Spec.StorageClassName, ""), fast)
	})
	c.AwaitReady()
	c.AwaitCondition(v1.ConditionUpToDate, metav1.ConditionFalse, "existing volumes keep their storage class: shop-1 ("+slow+");")
}

// A class that does not exist is corrected, and the same cluster comes up.
func TestA26StorageClassThatDoesNotExist(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	f.StartOperator()
	c := f.Create("shop", class(framework.NoSuchClass), framework.Instances(2), framework.Retain)
	c.AwaitCondition(v1.ConditionReady, metav1.ConditionFalse, "shop-1: its pod can't be scheduled", "volume")
	// A size that was asked for too high is corrected likewise.
	c.Edit(size("512Mi"))
	f.Await("the claim is made anew", func(ctx context.Context) error {
		claim, err := f.Kube.CoreV1().PersistentVolumeClaims(f.Namespace).Get(ctx, "shop-1", metav1.GetOptions{})
		if err != nil {
			return err
		}
		return framework.Want("its size", claim.Spec.Resources.Requests.Storage().String(), "512Mi")
	})
	c.Edit(class(""))
	c.AwaitReady()
}

// whatever the API server accepts, the operator reads, and no cluster
// keeps another waiting, however strange it is.
func TestA02StrangeClustersDelayNobody(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	f.StartOperator()
	const storage = "storage: {size: 1Gi}"
	accepted := 0
	for n, spec := range []string{
		"{postgres: {version: 17, parameters: {a: null, b: [], c: {d: [1, null]}, d: 1e400, e: .5, f: 0x10, g: yes, h: \"\", i: 9223372036854775807, j: -0.0}}, " + storage + "}",
		"{postgres: {version: 17, parameters: {\"\": x, \" \": y, \"a\\tb\": z}}, " + storage + "}",
		"{postgres: {version: 17, hba: [\"\", \"#\", \"\\\"\", \"include x\"]}, " + storage + "}",
		"{postgres: {version: 17}, storage: {size: 1073741824}}",
		"{postgres: {version: 17}, storage: {size: \"1e9\"}}",
		"{postgres: {version: 17}, storage: {size: 1E}}",
		"{postgres: {version: 17}, storage: {size: .5Gi}}",
		"{postgres: {version: 17}, storage: {size: 1e1.5}}",
		"{postgres: {version: 17}, " + storage + ", resources: {requests: {cpu: 1, memory: 1e8}, limits: {cpu: 1.0, x: 1}}}",
		"{postgres: {version: 17}, " + storage + ", resources: null, bootstrap: null, pod: null}",
		"{postgres: {version: 17.0}, instances: 2.0, " + storage + "}",
		"{postgres: {version: 17}, " + storage + ", bootstrap: {initdb: {dataChecksums: no, sql: [\"\"], locale: \"\", encoding: \"\"}}}",
		"{postgres: {version: 17}, " + storage + ", bootstrap: {initdb: {dataChecksums: \"no\"}}}",
		"{postgres: {version: 17, uid: 65534, image: \"\"}, " + storage + ", instances: 1}",
		"{postgres: {version: 17}, " + storage + ", pod: {affinity: {}, tolerations: [{}], nodeSelector: {}, labels: {a: \"\"}, topologySpreadConstraints: [], imagePullSecrets: [{}]}}",
		"{postgres: {version: 17}, " + storage + ", pod: {tolerations: [{tolerationSeconds: 9223372036854775807}], topologySpreadConstraints: [{maxSkew: 2147483648, topologyKey: a, whenUnsatisfiable: b}]}}",
	} {
		if err := post(f, f.Postgres, fmt.Sprintf("strange-%d", n), spec, ""); err == nil {
			accepted++
		} else if !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err) {
			t.Fatalf("%s: %v", spec, err)
		}
	}
	t.Logf("%d are accepted", accepted)
	good := f.Create("good", framework.Instances(2))
	good.AwaitReady()
	good.Edit(framework.Instances(1))
	good.AwaitReady()

	list, err := f.Postgres.PgopV1().PostgresClusters(f.Namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatalf("the list can't be read: %v", err)
	}
	if len(list.Items) != accepted+1 {
		t.Errorf("%d clusters are read of %d", len(list.Items), accepted+1)
	}
	for _, c := range list.Items {
		f.Await(c.Name+" has a status", func(ctx context.Context) error {
			live, err := f.Cluster(c.Name).Get(ctx)
			if err == nil && live.Status.ObservedGeneration != live.Generation {
				err = errors.New(framework.Summary(live))
			}
			return err
		})
	}
}

// Once the database is there, how it was made can't be changed any more; before,
// it can. The API server keeps the status through an edit of the spec, and the
// rules see it.
func TestA20BootstrapCanBeCorrectedUntilTheDatabaseIsThere(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	locale := func(name string) framework.Modifier {
		return func(c *v1.PostgresCluster) {
			c.Spec.Bootstrap = &v1.BootstrapSpec{Initdb: &v1.InitdbSpec{Locale: name}}
		}
	}
	f.Kubelet.Script("shop-1", framework.Script{Unschedulable: "no node"})
	f.StartOperator()
	c := f.Create("shop", locale("nope"))
	c.AwaitCondition(v1.ConditionReady, metav1.ConditionFalse, "no node")
	c.Edit(locale("C"))
	f.Kubelet.Script("shop-1", framework.Script{})
	c.AwaitReady()
	expectRefusal(t, "another locale", c.TryEdit(locale("C.UTF-8")), "spec.bootstrap: used at creation only")
	expectRefusal(t, "no bootstrap", c.TryEdit(func(c *v1.PostgresCluster) { c.Spec.Bootstrap = nil }), "put the old value back")
	for version, want := range map[int32]string{16: "spec.postgres.version: a running cluster keeps its major version", 18: "pg_dump and pg_restore"} {
		expectRefusal(t, fmt.Sprint("version ", version), c.TryEdit(func(c *v1.PostgresCluster) { c.Spec.Postgres.Version = version }), want)
	}
	// A status that names no database any more does not open the door, since
	// a client that edits the spec can't write it.
	forged := c.Live()
	forged.Status.SystemID = ""
	forged.Spec.Bootstrap.Initdb.Locale = "C.UTF-8"
	_, err := f.Postgres.PgopV1().PostgresClusters(f.Namespace).Update(t.Context(), forged, metav1.UpdateOptions{})
	expectRefusal(t, "a forged status", err, "spec.bootstrap: used at creation only")
	text, _ := json.Marshal(c.Live().Status)
	if !strings.Contains(string(text), "volumeSize") {
		t.Errorf("the status has no volumeSize: %s", text)
	}
}
