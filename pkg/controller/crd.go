package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/sirupsen/logrus"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/yaml"
)

const (
	// FieldManager is the name under which the operator applies objects.
	FieldManager = "postgres-operator"

	// schemaVersionAnnotation numbers the schema of the CRD, so that an older
	// operator never puts its own over a newer one.
	schemaVersionAnnotation = "pgop.dev/schema-version"
	// schemaVersion is raised with each change of the schema.
	schemaVersion = 2

	establishTimeout = 30 * time.Second
)

// InstallCRD applies the CRD in manifest, YAML, unless the API server has a
// newer one, and returns once the API server serves it.
func InstallCRD(ctx context.Context, client apiextensions.CustomResourceDefinitionInterface, manifest []byte, log *logrus.Entry) error {
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(manifest, &crd); err != nil {
		return fmt.Errorf("read the embedded CRD: %w", err)
	}
	live, err := client.Get(ctx, crd.Name, metav1.GetOptions{})
	switch {
	case errors.IsNotFound(err):
	case err != nil:
		return fmt.Errorf("read CRD %s: %w", crd.Name, err)
	case schemaVersionOf(live) > schemaVersion:
		log.WithFields(logrus.Fields{"crd": crd.Name, "theirs": schemaVersionOf(live), "ours": schemaVersion}).
			Warn("the API server has a newer schema than this operator; leaving it")
		return awaitEstablished(ctx, client, crd.Name)
	}
	if err := applyCRD(ctx, client, &crd); err != nil {
		return err
	}
	return awaitEstablished(ctx, client, crd.Name)
}

func applyCRD(ctx context.Context, client apiextensions.CustomResourceDefinitionInterface, crd *apiextensionsv1.CustomResourceDefinition) error {
	if crd.Annotations == nil {
		crd.Annotations = map[string]string{}
	}
	crd.Annotations[schemaVersionAnnotation] = strconv.Itoa(schemaVersion)
	patch, err := json.Marshal(map[string]any{
		"apiVersion": apiextensionsv1.SchemeGroupVersion.String(),
		"kind":       "CustomResourceDefinition",
		"metadata":   map[string]any{"name": crd.Name, "annotations": crd.Annotations},
		"spec":       crd.Spec,
	})
	if err != nil {
		return fmt.Errorf("marshal CRD %s: %w", crd.Name, err)
	}
	force := true
	_, err = client.Patch(ctx, crd.Name, types.ApplyPatchType, patch, metav1.PatchOptions{FieldManager: FieldManager, Force: &force})
	if err != nil {
		return fmt.Errorf("apply CRD %s: %w", crd.Name, err)
	}
	return nil
}

func awaitEstablished(ctx context.Context, client apiextensions.CustomResourceDefinitionInterface, name string) error {
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, establishTimeout, true, func(ctx context.Context) (bool, error) {
		crd, err := client.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		return isEstablished(crd), nil
	})
	if err != nil {
		return fmt.Errorf("wait until CRD %s is established: %w", name, err)
	}
	return nil
}

func isEstablished(crd *apiextensionsv1.CustomResourceDefinition) bool {
	for _, c := range crd.Status.Conditions {
		if c.Type == apiextensionsv1.Established {
			return c.Status == apiextensionsv1.ConditionTrue
		}
	}
	return false
}

// schemaVersionOf is 0 for a CRD that no operator has numbered.
func schemaVersionOf(crd *apiextensionsv1.CustomResourceDefinition) int {
	version, err := strconv.Atoi(crd.Annotations[schemaVersionAnnotation])
	if err != nil {
		return 0
	}
	return version
}
