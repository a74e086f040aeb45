package controller

import (
	"bytes"
	"context"
	"fmt"

	"github.com/sirupsen/logrus"
	"k8s.io/apimachinery/pkg/api/errors"
	admissionregistration "k8s.io/client-go/kubernetes/typed/admissionregistration/v1"
)

// InstallPolicy applies the ValidatingAdmissionPolicy and its binding in
// manifests, two documents of YAML, unless the API server has newer ones. An
// operator that may not do so, or meets an API server that knows no policies,
// says so and goes on: it checks every spec itself.
func InstallPolicy(ctx context.Context, client admissionregistration.AdmissionregistrationV1Interface, manifests []byte, log *logrus.Entry) error {
	first, second, found := bytes.Cut(manifests, []byte("\n---\n"))
	if !found {
		return fmt.Errorf("read the embedded policy: it has no binding")
	}
	policy, err := readManifest(first)
	if err != nil {
		return err
	}
	binding, err := readManifest(second)
	if err != nil {
		return err
	}
	// A policy without a binding does nothing, a binding without a policy fails.
	err = applyUnlessNewer(ctx, client.ValidatingAdmissionPolicies(), policy, log)
	if err == nil {
		err = applyUnlessNewer(ctx, client.ValidatingAdmissionPolicyBindings(), binding, log)
	}
	if errors.IsForbidden(err) || errors.IsNotFound(err) {
		log.WithError(err).Warn("can't install the admission policy; the operator alone checks parameters and hba, in the condition SpecAccepted")
		return nil
	}
	return err
}
