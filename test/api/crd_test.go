//go:build e2e

package api

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/test/api/framework"
)

// editCRD changes the schema of the CRD for one test, which runs alone.
func editCRD(f *framework.Framework, edit func(spec, status map[string]apiextensionsv1.JSONSchemaProps)) {
	f.T.Helper()
	crds := f.Extensions.ApiextensionsV1().CustomResourceDefinitions()
	crd, err := crds.Get(f.T.Context(), "postgresclusters.pgop.dev", metav1.GetOptions{})
	if err != nil {
		f.T.Fatal(err)
	}
	properties := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties
	edit(properties["spec"].Properties, properties["status"].Properties)
	if _, err := crds.Update(f.T.Context(), crd, metav1.UpdateOptions{}); err != nil {
		f.T.Fatal(err)
	}
	f.T.Cleanup(func() {
		if err := f.InstallCRD(context.Background()); err != nil {
			f.T.Errorf("put the CRD back: %v", err)
		}
		// The API server takes up a schema a moment later.
		for !knows(f, "spec.pod.priorityClassName") {
			continue
		}
	})
}

// knows says whether the API server knows a field of the spec.
func knows(f *framework.Framework, field string) bool {
	c, err := runtime.DefaultUnstructuredConverter.ToUnstructured(framework.Manifest("probe"))
	if err != nil {
		f.T.Error(err)
		return true
	}
	c["apiVersion"], c["kind"] = v1.SchemeGroupVersion.String(), v1.ClusterKind
	if err := unstructured.SetNestedField(c, "x", strings.Split(field, ".")...); err != nil {
		f.T.Error(err)
		return true
	}
	_, err = f.Dynamic.Resource(v1.SchemeGroupVersion.WithResource("postgresclusters")).Namespace("default").Create(context.Background(),
		&unstructured.Unstructured{Object: c}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: "Strict"})
	return err == nil || !strings.Contains(err.Error(), "unknown field")
}

// The API server's CRD is older than the operator, which may not change it: who
// uses a new field is told so, clusters are looked after, and the operator says
// once which fields of the status get lost, and does not write them for ever.
func TestB24NewOperatorOldCRD(t *testing.T) {
	f := framework.New(t)
	editCRD(f, func(spec, status map[string]apiextensionsv1.JSONSchemaProps) {
		delete(spec["pod"].Properties, "priorityClassName")
		delete(status, "timeline")
		delete(status, "members")
	})
	f.Await("the old schema is in force", func(context.Context) error {
		if knows(f, "spec.pod.priorityClassName") {
			return errors.New("the new one is")
		}
		return nil
	})
	_, err := f.Postgres.PgopV1().PostgresClusters(f.Namespace).Create(t.Context(), framework.Manifest("new", func(c *v1.PostgresCluster) {
		c.Spec.Pod.PriorityClassName = "high"
	}), metav1.CreateOptions{FieldValidation: "Strict"})
	if !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), `unknown field "spec.pod.priorityClassName"`) {
		t.Errorf("a field that the CRD does not know: %v", err)
	}

	op := f.StartOperator()
	c := f.Create("shop", framework.Instances(2))
	c.AwaitReady()
	c.Edit(framework.Instances(1))
	c.AwaitReady()
	wantQuiet(f, op)
	told := 0
	for _, line := range op.Log.Lines() {
		if strings.Contains(line, "does not know status.members") {
			told++
		}
	}
	if told != 1 {
		t.Errorf("the log tells %d times of what gets lost: %s", told, strings.Join(op.Log.Lines(), ""))
	}
	f.Await("an event tells of it, too", func(ctx context.Context) error {
		messages, err := c.Messages(ctx)
		if err != nil {
			return err
		}
		for _, m := range messages {
			if strings.HasPrefix(m, v1.ReasonSchemaOutdated+": ") && strings.Contains(m, "does not know status.members") {
				return nil
			}
		}
		return fmt.Errorf("there are %q", messages)
	})
}

// The CRD and the clusters have fields that this operator does not know: it
// leaves them as they are.
func TestB24OldOperatorNewCRD(t *testing.T) {
	f := framework.New(t)
	text := apiextensionsv1.JSONSchemaProps{Type: "string"}
	editCRD(f, func(spec, status map[string]apiextensionsv1.JSONSchemaProps) {
		spec["future"] = text
		status["future"] = text
	})
	f.Await("the new schema is in force", func(context.Context) error {
		if !knows(f, "spec.future") {
			return errors.New("the old one is")
		}
		return nil
	})
	op := f.StartOperator()
	c := f.Create("shop")
	f.Patch("postgresclusters/shop", `{"spec":{"future":"kept"}}`)
	c.AwaitReady()
	c.Edit(framework.Instances(2))
	f.Patch("postgresclusters/shop", `{"spec":{"future":"kept"}}`) // the test's own client does not know it either
	c.AwaitReady()
	f.Patch("postgresclusters/shop", `{"metadata":{"annotations":{"pgop.dev/restart":"now"}}}`) // which the operator clears
	f.Await("the request is cleared", func(ctx context.Context) error {
		live, err := c.Get(ctx)
		if err != nil {
			return err
		}
		return errors.Join(framework.Want("the request", live.Annotations["pgop.dev/restart"], ""), c.Ready(ctx))
	})
	wantQuiet(f, op)
	live, err := f.Object(t.Context(), "postgresclusters/shop")
	if err != nil {
		t.Fatal(err)
	}
	if got, _, _ := unstructured.NestedString(live.Object, "spec", "future"); got != "kept" {
		t.Errorf("spec.future is %q", got)
	}
	wantNoComplaints(t, op)
}
