package controller

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/sirupsen/logrus"
	logrustest "github.com/sirupsen/logrus/hooks/test"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/pgop/postgres-operator/deploy"
)

const (
	policies = "validatingadmissionpolicies"
	bindings = "validatingadmissionpolicybindings"
)

func TestPolicyIsInstalledUnlessANewerOneIsThere(t *testing.T) {
	cases := []struct {
		why string
		// version is that of the policy that is there; empty: none is.
		version string
		refusal error
		applied []string
		warned  bool
		err     string
	}{
		{"none is there", "", nil, []string{policies, bindings}, false, ""},
		{"an older one", "1", nil, []string{policies, bindings}, false, ""},
		{"a newer one", "999", nil, []string{bindings}, true, ""},
		{"the operator may not", "", apierrors.NewForbidden(admissionregistrationv1.Resource(policies), "x", errors.New("no")), []string{policies}, true, ""},
		{"an API server without policies", "", apierrors.NewNotFound(admissionregistrationv1.Resource(policies), "x"), []string{policies}, true, ""},
		{"the API server is away", "", errors.New("away"), []string{policies}, false, "apply ValidatingAdmissionPolicy postgresclusters.pgop.dev: away"},
	}
	for _, c := range cases {
		client := fake.NewClientset()
		if c.version != "" {
			live := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{
				Name: "postgresclusters.pgop.dev", Annotations: map[string]string{schemaVersionAnnotation: c.version},
			}}
			if err := client.Tracker().Add(live); err != nil {
				t.Fatal(err)
			}
		}
		var applied []string
		client.PrependReactor("patch", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
			applied = append(applied, a.GetResource().Resource)
			expectNumbered(t, a.(clienttesting.PatchAction).GetPatch())
			return true, &admissionregistrationv1.ValidatingAdmissionPolicy{}, c.refusal
		})
		client.PrependReactor("patch", bindings, func(a clienttesting.Action) (bool, runtime.Object, error) {
			applied = append(applied, bindings)
			return true, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}, nil
		})
		logger, logged := logrustest.NewNullLogger()
		err := InstallPolicy(context.Background(), client.AdmissionregistrationV1(), deploy.PostgresClusterPolicy, logrus.NewEntry(logger))
		got := ""
		if err != nil {
			got = err.Error()
		}
		if diff := cmp.Diff(c.err, got); diff != "" {
			t.Errorf("%s: %s", c.why, diff)
		}
		if diff := cmp.Diff(c.applied, applied); diff != "" {
			t.Errorf("%s: %s", c.why, diff)
		}
		if warned := len(logged.AllEntries()) > 0; warned != c.warned {
			t.Errorf("%s: logged %v", c.why, logged.AllEntries())
		}
	}
}

func expectNumbered(t *testing.T, patch []byte) {
	t.Helper()
	var o metav1.PartialObjectMetadata
	if err := json.Unmarshal(patch, &o); err != nil {
		t.Fatal(err)
	}
	if schemaVersionOf(&o) != schemaVersion || o.Kind == "" || o.APIVersion == "" {
		t.Errorf("applied %s", patch)
	}
}
