package apischema

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	celgo "github.com/google/cel-go/cel"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"sigs.k8s.io/yaml"
)

// oldestKubernetes is the oldest version whose API server must understand a
// policy.
var oldestKubernetes = version.MajorMinor(1, 30)

// Policy is a ValidatingAdmissionPolicy.
type Policy struct {
	validations []admissionregistrationv1.Validation
	conditions  cel.ConditionEvaluator
	messages    cel.ConditionEvaluator
}

// expression is one of a policy, with the type that it must give.
type expression struct {
	name, text string
	kind       *celgo.Type
}

func (e expression) GetName() string            { return e.name }
func (e expression) GetExpression() string      { return e.text }
func (e expression) ReturnTypes() []*celgo.Type { return []*celgo.Type{e.kind} }

// NewPolicy reads the first document of manifest, YAML, and compiles it as the
// oldest API server does that must understand it.
func NewPolicy(manifest []byte) (*Policy, error) {
	first, _, _ := bytes.Cut(manifest, []byte("\n---\n"))
	var policy admissionregistrationv1.ValidatingAdmissionPolicy
	if err := yaml.UnmarshalStrict(first, &policy); err != nil {
		return nil, fmt.Errorf("read policy: %w", err)
	}
	compiler, err := cel.NewCompositedCompiler(environment.MustBaseEnvSet(oldestKubernetes))
	if err != nil {
		return nil, fmt.Errorf("compile policy %s: %w", policy.Name, err)
	}
	var errs []error
	for _, v := range policy.Spec.Variables {
		result := compiler.CompileAndStoreVariable(expression{v.Name, v.Expression, celgo.AnyType}, cel.OptionalVariableDeclarations{}, environment.NewExpressions)
		if result.Error != nil {
			errs = append(errs, fmt.Errorf("variable %s: %s", v.Name, result.Error.Detail))
		}
	}
	var conditions, messages []cel.ExpressionAccessor
	for _, v := range policy.Spec.Validations {
		conditions = append(conditions, expression{text: v.Expression, kind: celgo.BoolType})
		message := v.MessageExpression
		if message == "" {
			message = "''"
		}
		messages = append(messages, expression{text: message, kind: celgo.StringType})
	}
	p := &Policy{
		validations: policy.Spec.Validations,
		conditions:  compiler.CompileCondition(conditions, cel.OptionalVariableDeclarations{}, environment.NewExpressions),
		messages:    compiler.CompileCondition(messages, cel.OptionalVariableDeclarations{}, environment.NewExpressions),
	}
	errs = append(errs, p.conditions.CompilationErrors()...)
	errs = append(errs, p.messages.CompilationErrors()...)
	return p, errors.Join(errs...)
}

// Check says what the policy has against o, which replaces old; nil: o is new.
// An expression that can't be evaluated is an error of its own.
func (p *Policy) Check(o, old map[string]any) (refusals []string, err error) {
	object, operation := &unstructured.Unstructured{Object: o}, admission.Create
	var before runtime.Object
	if old != nil {
		before, operation = &unstructured.Unstructured{Object: old}, admission.Update
	}
	gvk := schema.FromAPIVersionAndKind(object.GetAPIVersion(), object.GetKind())
	attributes := admission.NewAttributesRecord(object, before, gvk, object.GetNamespace(), object.GetName(),
		gvk.GroupVersion().WithResource("postgresclusters"), "", operation, nil, false, nil)
	versioned := &admission.VersionedAttributes{Attributes: attributes, VersionedKind: gvk,
		VersionedObject: admission.NewLazyObject(object), VersionedOldObject: admission.NewLazyObject(before)}
	request := cel.CreateAdmissionRequest(attributes, metav1.GroupVersionResource(attributes.GetResource()), metav1.GroupVersionKind(gvk))
	evaluate := func(e cel.ConditionEvaluator) ([]cel.EvaluationResult, error) {
		results, _, err := e.ForInput(context.Background(), versioned, request, cel.OptionalVariableBindings{}, nil, celconfig.RuntimeCELCostBudget)
		return results, err
	}
	verdicts, err := evaluate(p.conditions)
	if err != nil {
		return nil, err
	}
	var errs []error
	for i, verdict := range verdicts {
		switch {
		case verdict.Error != nil:
			errs = append(errs, verdict.Error)
		case verdict.EvalResult.Value() != true:
			refusals = append(refusals, p.message(i, evaluate))
		}
	}
	return refusals, errors.Join(errs...)
}

// message is what the API server says of a validation that failed: its own
// limits make it fall back to the plain message.
func (p *Policy) message(i int, evaluate func(cel.ConditionEvaluator) ([]cel.EvaluationResult, error)) string {
	results, err := evaluate(p.messages)
	if err != nil || results[i].Error != nil {
		return p.validations[i].Message
	}
	text, _ := results[i].EvalResult.Value().(string)
	if text == "" || len(text) > celconfig.MaxEvaluatedMessageExpressionSizeBytes || strings.Contains(text, "\n") {
		return p.validations[i].Message
	}
	return text
}
