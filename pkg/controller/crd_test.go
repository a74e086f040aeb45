package controller

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/sirupsen/logrus"
	logrustest "github.com/sirupsen/logrus/hooks/test"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/fake"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	"github.com/pgop/postgres-operator/deploy"
)

// installed is the CRD as an API server holds it, of that schema version.
func installed(version string) *apiextensionsv1.CustomResourceDefinition {
	crd := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "postgresclusters.pgop.dev"},
		Status: apiextensionsv1.CustomResourceDefinitionStatus{
			Conditions: []apiextensionsv1.CustomResourceDefinitionCondition{{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue}},
		},
	}
	if version != "" {
		crd.Annotations = map[string]string{schemaVersionAnnotation: version}
	}
	return crd
}

func TestCRDIsInstalledUnlessANewerOneIsThere(t *testing.T) {
	cases := []struct {
		why  string
		live *apiextensionsv1.CustomResourceDefinition
		// applied says whether ours is applied, warned whether the log tells why not.
		applied, warned bool
	}{
		{"none is there", nil, true, false},
		{"one without a number, as kubectl applies it", installed(""), true, false},
		{"an older one", installed("0"), true, false},
		{"the same one", installed("2"), true, false},
		{"a number that is none", installed("x"), true, false},
		{"a newer one", installed("999"), false, true},
	}
	for _, c := range cases {
		objects := []runtime.Object{}
		if c.live != nil {
			objects = append(objects, c.live)
		}
		client := fake.NewSimpleClientset(objects...)
		var patch clienttesting.PatchAction
		client.PrependReactor("patch", "customresourcedefinitions", func(a clienttesting.Action) (bool, runtime.Object, error) {
			patch = a.(clienttesting.PatchAction)
			if c.live == nil {
				if err := client.Tracker().Add(installed("1")); err != nil {
					return true, nil, err
				}
			}
			return true, installed("1"), nil
		})
		logger, logged := logrustest.NewNullLogger()
		err := InstallCRD(context.Background(), client.ApiextensionsV1().CustomResourceDefinitions(), deploy.PostgresClusterCRD, logrus.NewEntry(logger))
		if err != nil {
			t.Errorf("%s: %v", c.why, err)
		}
		if (patch != nil) != c.applied || (len(logged.AllEntries()) > 0) != c.warned {
			t.Errorf("%s: applied %v, logged %v", c.why, patch != nil, logged.AllEntries())
		}
		if patch != nil {
			expectWholeCRD(t, patch)
		}
	}
}

// Every kind of the group has its CRD, and is installed under its own name.
func TestEachKindIsInstalled(t *testing.T) {
	for name, text := range map[string][]byte{"postgresclusters.pgop.dev": deploy.PostgresClusterCRD, "postgresbackups.pgop.dev": deploy.PostgresBackupCRD} {
		crd, err := readManifest(text)
		if err != nil {
			t.Fatal(err)
		}
		if crd.name() != name || schemaVersionOf(&crd) != schemaVersion {
			t.Errorf("%s is named %s and has schema %d", name, crd.name(), schemaVersionOf(&crd))
		}
	}
}

func expectWholeCRD(t *testing.T, patch clienttesting.PatchAction) {
	t.Helper()
	if patch.GetPatchType() != types.ApplyPatchType || patch.GetName() != "postgresclusters.pgop.dev" {
		t.Errorf("patched %s by %s", patch.GetName(), patch.GetPatchType())
	}
	var applied apiextensionsv1.CustomResourceDefinition
	if err := json.Unmarshal(patch.GetPatch(), &applied); err != nil {
		t.Fatal(err)
	}
	if schemaVersionOf(&applied) != schemaVersion || len(applied.Spec.Versions) != 1 || applied.Kind != "CustomResourceDefinition" {
		t.Errorf("applied %s", patch.GetPatch())
	}
}

func TestCRDThatCantBeInstalledIsAnError(t *testing.T) {
	away := errors.New("the API server is away")
	for _, c := range []struct{ why, verb, want string }{
		{"can't be read", "get", "read CustomResourceDefinition postgresclusters.pgop.dev: the API server is away"},
		{"can't be applied", "patch", "apply CustomResourceDefinition postgresclusters.pgop.dev: the API server is away"},
	} {
		client := fake.NewSimpleClientset()
		client.PrependReactor(c.verb, "customresourcedefinitions", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, away })
		logger, _ := logrustest.NewNullLogger()
		err := InstallCRD(context.Background(), client.ApiextensionsV1().CustomResourceDefinitions(), deploy.PostgresClusterCRD, logrus.NewEntry(logger))
		if err == nil {
			t.Errorf("%s: no error", c.why)
			continue
		}
		if diff := cmp.Diff(c.want, err.Error()); diff != "" {
			t.Errorf("%s: %s", c.why, diff)
		}
	}
}

func TestInstallationEndsWithItsContext(t *testing.T) {
	pending := installed("1")
	pending.Status.Conditions = nil
	client := fake.NewSimpleClientset(pending)
	client.PrependReactor("patch", "customresourcedefinitions", func(clienttesting.Action) (bool, runtime.Object, error) { return true, pending, nil })
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	logger, _ := logrustest.NewNullLogger()
	err := InstallCRD(ctx, client.ApiextensionsV1().CustomResourceDefinitions(), deploy.PostgresClusterCRD, logrus.NewEntry(logger))
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "is established") {
		t.Errorf("got %v", err)
	}
}
