//go:build e2e

package api

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/pgop/postgres-operator/pkg/specs"
	"github.com/pgop/postgres-operator/test/api/framework"
)

// Whatever somebody deletes of a cluster is made anew, one kind and name after
// the other.
func TestB10DeletedObjectsComeBack(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	f.StartOperator()
	c := f.Create("shop", framework.Instances(2), role("reporting"))
	c.AwaitReady()
	primary := c.Live().Status.Primary
	for key, o := range f.MustObjects() {
		if key == "persistentvolumeclaims/"+primary {
			continue // the data are lost, see C-22
		}
		f.Remove(key)
		f.AwaitReplaced(key, o.GetUID())
		c.AwaitReady()
	}
	wantOwnedBy(f, c.Live())
}

// Whatever somebody edits in the objects of a cluster is put back, and once all
// is as it was nothing more is written.
func TestB10EditedObjectsArePutBack(t *testing.T) {
	t.Parallel()
	type edit struct{ why, key, patch string }
	edits := []edit{
		{"selector added to the rw Service", "services/shop-rw", `{"spec":{"selector":{"mine":"yes"}}}`},
		{"selector of the ro Service", "services/shop-ro", `{"spec":{"selector":{"pgop.dev/role":"primary"}}}`},
		{"port of the r Service", "services/shop-r", `{"spec":{"ports":[{"name":"postgres","port":6432,"targetPort":5432}]}}`},
		{"type of the r Service", "services/shop-r", `{"spec":{"type":"NodePort"}}`},
		{"addresses that are not ready", "services/shop-pods", `{"spec":{"publishNotReadyAddresses":false}}`},
		{"ports of the slice", "endpointslices/shop-rw", `{"ports":[{"name":"postgres","port":6432,"protocol":"TCP"}]}`},
		{"ports of the slice gone", "endpointslices/shop-rw", `{"ports":null}`},
		{"a key of the ConfigMap", "configmaps/shop-config", `{"data":{"pg_hba.conf":"host all all all trust"}}`},
		{"all keys of the ConfigMap", "configmaps/shop-config", `{"data":null}`},
		{"host in the application's login", "secrets/shop-app", `{"data":{"host":"bWluZQ=="}}`},
		{"host in a role's login", "secrets/shop-role-reporting", `{"data":{"host":"bWluZQ=="}}`},
		{"rules of the Role", "roles/shop-instance", `{"rules":[{"apiGroups":["*"],"resources":["*"],"verbs":["*"]}]}`},
		{"subjects of the RoleBinding", "rolebindings/shop-instance", `{"subjects":null}`},
		{"token of the ServiceAccount", "serviceaccounts/shop-instance", `{"automountServiceAccountToken":true}`},
		{"disruption budget", "poddisruptionbudgets/shop", `{"spec":{"minAvailable":0}}`},
		{"role of the primary", "pods/shop-1", `{"metadata":{"labels":{"pgop.dev/role":"replica"}}}`},
		{"role of the replica gone", "pods/shop-2", `{"metadata":{"labels":{"pgop.dev/role":null}}}`},
	}
	f := framework.New(t)
	op := f.StartOperator()
	c := f.Create("shop", framework.Instances(2), framework.Retain, role("reporting"))
	c.AwaitReady()
	objects := f.MustObjects()
	for _, key := range framework.Keys(objects) {
		if strings.HasPrefix(key, "secrets/") && key != "secrets/shop-app" && key != "secrets/shop-role-reporting" {
			continue // certificates have rules of their own
		}
		isVolume := strings.HasPrefix(key, "persistentvolumeclaims/")
		if !isVolume { // see TestB10VolumeWithoutLabelsIsFoundWhenItIsNeeded
			edits = append(edits, edit{"all labels of " + key, key, `{"metadata":{"labels":null}}`})
		}
		for label := range objects[key].GetLabels() {
			if strings.HasPrefix(label, "endpointslice.kubernetes.io/") {
				continue // it names who manages the slice; anybody else's is theirs
			}
			if isVolume && (label == specs.ManagedByLabel || label == specs.ClusterLabel) {
				continue
			}
			patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]string{label: "edited"}}})
			if err != nil {
				t.Fatal(err)
			}
			edits = append(edits, edit{"label " + label + " of " + key, key, string(patch)})
		}
	}
	// Round by round, one edit of each object: all objects are edited at once.
	rounds := [][]edit{}
	seen := map[string]int{}
	for _, e := range edits {
		n := seen[e.key]
		if seen[e.key]++; n == len(rounds) {
			rounds = append(rounds, nil)
		}
		rounds[n] = append(rounds[n], e)
	}
	for _, round := range rounds {
		before := f.MustObjects()
		for _, e := range round {
			f.Patch(e.key, e.patch)
		}
		for _, e := range round {
			f.Await(e.why+" is put back", func(ctx context.Context) error {
				after, err := f.Object(ctx, e.key)
				if err != nil {
					return err
				}
				if diff := cmp.Diff(content(before[e.key]), content(after)); diff != "" {
					return fmt.Errorf("%s differs:\n%s", e.key, diff)
				}
				return nil
			})
		}
		c.AwaitReady()
	}
	wantQuiet(f, op)
}

// A volume that lost the labels by which the operator finds it is found again
// when its pod is: it is the same volume, with its labels.
func TestB10VolumeWithoutLabelsIsFoundWhenItIsNeeded(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	f.StartOperator()
	c := f.Create("shop", framework.Instances(2), framework.Retain)
	c.AwaitReady()
	for _, instance := range []string{"shop-1", "shop-2"} {
		before, err := f.Object(t.Context(), "persistentvolumeclaims/"+instance)
		if err != nil {
			t.Fatal(err)
		}
		f.Patch("persistentvolumeclaims/"+instance, `{"metadata":{"labels":null}}`)
		pod := f.UID("pods/" + instance)
		f.Remove("pods/" + instance)
		f.AwaitReplaced("pods/"+instance, pod)
		c.AwaitReady()
		after, err := f.Object(t.Context(), "persistentvolumeclaims/"+instance)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(content(before), content(after)); diff != "" {
			t.Error(diff)
		}
	}
}

// content is an object without what every write changes.
func content(o *unstructured.Unstructured) map[string]any {
	c := o.DeepCopy()
	c.SetResourceVersion("")
	c.SetManagedFields(nil)
	c.SetGeneration(0)
	delete(c.Object, "status")
	if spec, ok := c.Object["spec"].(map[string]any); ok {
		delete(spec, "renewTime") // the holder of a Lease goes on
	}
	return c.Object
}
