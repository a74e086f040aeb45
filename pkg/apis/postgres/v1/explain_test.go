package v1_test

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"

	"github.com/pgop/postgres-operator/pkg/internal/apischema"
)

// upstream are the fields whose types are Kubernetes' own.
var upstream = []string{"spec.pod.affinity.", "spec.pod.tolerations.", "spec.pod.topologySpreadConstraints.", "spec.pod.imagePullSecrets.",
	"spec.pod.env.[].valueFrom.", "spec.pod.sidecars.[].env.[].valueFrom.", "spec.pod.sidecars.[].envFrom.", "spec.pod.sidecars.[].ports.",
	"spec.pod.sidecars.[].securityContext.", "status.conditions."}

func isUpstream(name string) bool {
	for _, prefix := range upstream {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// everyField visits the fields of spec and status by name, a.b.c; elements of
// lists and maps are called [].
func everyField(t *testing.T, visit func(name string, field *schema.Structural)) {
	t.Helper()
	for _, s := range []*apischema.Schema{loadSchema(t), loadBackupSchema(t)} {
		everyFieldOf(s, visit)
	}
}

func everyFieldOf(s *apischema.Schema, visit func(name string, field *schema.Structural)) {
	for _, part := range []string{"spec", "status"} {
		field := s.Structural().Properties[part]
		walk(&field, []any{part}, func(path []any, field *schema.Structural) {
			var steps []string
			for _, step := range path {
				if _, isElement := step.(each); isElement {
					step = "[]"
				}
				steps = append(steps, fmt.Sprint(step))
			}
			visit(strings.Join(steps, "."), field)
		})
	}
}

// The API server bounds the cost of rules by these, and etcd the size of objects.
func TestEveryListMapAndTextIsBounded(t *testing.T) {
	everyField(t, func(name string, field *schema.Structural) {
		limits := field.ValueValidation
		if limits == nil {
			limits = &schema.ValueValidation{}
		}
		isMap := field.AdditionalProperties != nil
		isText := field.Type == "string" && strings.HasPrefix(name, "spec.") && !strings.Contains(name, "[]")
		switch {
		case isUpstream(name):
		case field.Type == "array" && limits.MaxItems == nil:
			t.Errorf("%s: no maxItems", name)
		case isMap && limits.MaxProperties == nil:
			t.Errorf("%s: no maxProperties", name)
		case isText && limits.MaxLength == nil && len(limits.Enum) == 0:
			t.Errorf("%s: no maxLength", name)
		}
	})
}

// kubectl explain is the reference manual: every field says what it is, what it
// counts in and what it is if it is left out.
func TestEveryFieldIsExplained(t *testing.T) {
	everyField(t, func(name string, field *schema.Structural) {
		if strings.HasSuffix(name, "[]") || isUpstream(name) && field.Description != "" {
			return
		}
		if len(field.Description) < 10 || !strings.HasSuffix(strings.TrimSpace(field.Description), ".") {
			t.Errorf("%s: description %q", name, field.Description)
		}
		if value := field.Default.Object; value != nil && !strings.Contains(field.Description, "Default "+fmt.Sprint(value)) {
			t.Errorf("%s: the description does not tell the default, %v", name, value)
		}
		if field.XIntOrString && !strings.Contains(field.Description, "bytes") {
			t.Errorf("%s: the description does not tell the unit", name)
		}
	})
}
