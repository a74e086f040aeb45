// Package apischema admits custom resources as an API server with our CRD
// does, in process: pruning, defaults, structural schema, CEL rules.
package apischema

import (
	"context"
	"fmt"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"
)

// Schema is that of a CRD's only version.
type Schema struct {
	crd        *apiextensions.CustomResourceDefinition
	structural *schema.Structural
	validator  validation.SchemaValidator
	rules      *cel.Validator
}

// New reads a CRD of one version, YAML.
func New(manifest []byte) (*Schema, error) {
	var external apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(manifest, &external); err != nil {
		return nil, fmt.Errorf("read CRD: %w", err)
	}
	scheme := runtime.NewScheme()
	if err := apiextensions.AddToScheme(scheme); err != nil {
		return nil, err
	}
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	scheme.Default(&external)
	crd := &apiextensions.CustomResourceDefinition{}
	if err := scheme.Convert(&external, crd, nil); err != nil {
		return nil, fmt.Errorf("convert CRD %s: %w", external.Name, err)
	}
	props := crd.Spec.Validation
	if props == nil {
		props = crd.Spec.Versions[0].Schema
	}
	structural, err := schema.NewStructural(props.OpenAPIV3Schema)
	if err != nil {
		return nil, fmt.Errorf("structural schema of CRD %s: %w", crd.Name, err)
	}
	validator, _, err := validation.NewSchemaValidator(props.OpenAPIV3Schema)
	if err != nil {
		return nil, fmt.Errorf("validator of CRD %s: %w", crd.Name, err)
	}
	return &Schema{
		crd:        crd,
		structural: structural,
		validator:  validator,
		rules:      cel.NewValidator(structural, true, celconfig.PerCallLimit),
	}, nil
}

// Check says what an API server finds wrong with the CRD itself, such as a
// rule that does not compile or may cost too much.
func (s *Schema) Check() error {
	crd := s.crd.DeepCopy()
	crd.Status.StoredVersions = []string{crd.Spec.Versions[0].Name}
	return apiextensionsvalidation.ValidateCustomResourceDefinition(context.Background(), crd).ToAggregate()
}

// Structural is the schema itself.
func (s *Schema) Structural() *schema.Structural { return s.structural }

// Create returns o as an API server would store it, or the error with which it
// refuses o. Fields that it would drop are named by Unknown.
func (s *Schema) Create(o map[string]any) (map[string]any, error) {
	stored := s.decode(o)
	return stored, s.validate(stored, nil).ToAggregate()
}

// Update is Create for an object of which old is stored. As in the main
// resource of one with a status, the status stays.
func (s *Schema) Update(old, o map[string]any) (map[string]any, error) {
	stored := s.decode(o)
	delete(stored, "status")
	if status, found := old["status"]; found {
		stored["status"] = runtime.DeepCopyJSONValue(status)
	}
	return stored, s.validate(stored, old).ToAggregate()
}

// Unknown are the fields of o that the schema does not know and drops.
func (s *Schema) Unknown(o map[string]any) []string {
	return pruning.PruneWithOptions(runtime.DeepCopyJSON(o), s.structural, true, schema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
}

func (s *Schema) decode(o map[string]any) map[string]any {
	stored := runtime.DeepCopyJSON(o)
	pruning.Prune(stored, s.structural, true)
	defaulting.PruneNonNullableNullsWithoutDefaults(stored, s.structural)
	defaulting.Default(stored, s.structural)
	return stored
}

func (s *Schema) validate(o, old map[string]any) field.ErrorList {
	var errs field.ErrorList
	if old == nil {
		errs = validation.ValidateCustomResource(nil, o, s.validator)
	} else {
		errs = validation.ValidateCustomResourceUpdate(nil, o, old, s.validator)
	}
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, s.structural, o)...)
	if len(errs) > 0 {
		return errs // as in an API server, rules see only what fits the schema
	}
	var before any
	if old != nil {
		before = old
	}
	errs, _ = s.rules.Validate(context.Background(), nil, s.structural, o, before, celconfig.RuntimeCELCostBudget)
	return errs
}
