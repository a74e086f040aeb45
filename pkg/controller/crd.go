package controller

import (
	"context"
	"fmt"
	"time"

	"github.com/sirupsen/logrus"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
)

const establishTimeout = 30 * time.Second

// InstallCRD applies the CRD in manifest, YAML, unless the API server has a
// newer one, and returns once the API server serves it.
func InstallCRD(ctx context.Context, client apiextensions.CustomResourceDefinitionInterface, manifest []byte, log *logrus.Entry) error {
	crd, err := readManifest(manifest)
	if err != nil {
		return err
	}
	if err := applyUnlessNewer(ctx, client, crd, log); err != nil {
		return err
	}
	return awaitEstablished(ctx, client, crd.name())
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
