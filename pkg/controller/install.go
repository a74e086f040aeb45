package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/sirupsen/logrus"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"
)

const (
	// FieldManager is the name under which the operator applies objects.
	FieldManager = "postgres-operator"

	// schemaVersionAnnotation numbers the schemas of the CRDs and of the policy
	// beside them, so that an older operator never puts its own over a newer one.
	schemaVersionAnnotation = "pgop.dev/schema-version"
	// schemaVersion is raised with each change of one of them.
	schemaVersion = 13
)

// manifest is an object that the operator installs, as its YAML has it.
type manifest struct{ unstructured.Unstructured }

func (m manifest) name() string   { return m.GetName() }
func (m manifest) String() string { return m.GetKind() + " " + m.GetName() }

// readManifest reads one object, YAML, and numbers it.
func readManifest(text []byte) (manifest, error) {
	var m manifest
	if err := yaml.Unmarshal(text, &m.Object); err != nil {
		return m, fmt.Errorf("read an embedded manifest: %w", err)
	}
	annotations := m.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[schemaVersionAnnotation] = strconv.Itoa(schemaVersion)
	m.SetAnnotations(annotations)
	return m, nil
}

// applier is what the clients of all kinds have in common.
type applier[T metav1.Object] interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (T, error)
	Patch(ctx context.Context, name string, pt types.PatchType, data []byte, opts metav1.PatchOptions, subresources ...string) (T, error)
}

// applyUnlessNewer applies m, unless the API server has a newer one, which is
// left and told of.
func applyUnlessNewer[T metav1.Object](ctx context.Context, client applier[T], m manifest, log *logrus.Entry) error {
	live, err := client.Get(ctx, m.name(), metav1.GetOptions{})
	switch {
	case errors.IsNotFound(err):
	case err != nil:
		return fmt.Errorf("read %s: %w", m, err)
	case schemaVersionOf(live) > schemaVersion:
		log.WithFields(logrus.Fields{"object": m.String(), "theirs": schemaVersionOf(live), "ours": schemaVersion}).
			Warn("the API server has a newer schema than this operator; leaving it")
		return nil
	}
	patch, err := json.Marshal(m.Object)
	if err != nil {
		return fmt.Errorf("marshal %s: %w", m, err)
	}
	force := true
	if _, err := client.Patch(ctx, m.name(), types.ApplyPatchType, patch, metav1.PatchOptions{FieldManager: FieldManager, Force: &force}); err != nil {
		return fmt.Errorf("apply %s: %w", m, err)
	}
	return nil
}

// schemaVersionOf is 0 for an object that no operator has numbered.
func schemaVersionOf(live metav1.Object) int {
	version, err := strconv.Atoi(live.GetAnnotations()[schemaVersionAnnotation])
	if err != nil {
		return 0
	}
	return version
}
