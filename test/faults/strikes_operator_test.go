//go:build e2e

package faults

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/pgop/postgres-operator/test/e2e/framework"
)

// operatorMoves is how long the operator's pods may take to come, go or move.
const operatorMoves = 2 * time.Minute

// removeOperator lets no operator run until the round is healed.
func removeOperator(ctx context.Context, r *round) error {
	replicas := ptr.Deref(r.f.Operator().Spec.Replicas, 1)
	r.onHeal("bring the operator back", func(ctx context.Context) error {
		if err := r.patchOperator(ctx, fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas)); err != nil {
			return err
		}
		return r.awaitOperator(ctx, int(replicas), "")
	})
	if err := r.patchOperator(ctx, `{"spec":{"replicas":0}}`); err != nil {
		return err
	}
	return r.awaitOperator(ctx, 0, "")
}

// bringOperator moves all of the operator's pods to the primary's node, until
// the round is healed.
func bringOperator(ctx context.Context, r *round) error {
	replicas := int(ptr.Deref(r.f.Operator().Spec.Replicas, 1))
	place := func(node string) string {
		return fmt.Sprintf(`{"spec":{"template":{"spec":{"nodeSelector":{%q:%s}}}}}`, corev1.LabelHostname, node)
	}
	r.onHeal("let the operator run anywhere", func(ctx context.Context) error {
		if err := r.patchOperator(ctx, place("null")); err != nil {
			return err
		}
		return r.awaitOperator(ctx, replicas, "")
	})
	if err := r.patchOperator(ctx, place(fmt.Sprintf("%q", r.primary.node))); err != nil {
		return err
	}
	return r.awaitOperator(ctx, replicas, r.primary.node)
}

func (r *round) patchOperator(ctx context.Context, patch string) error {
	_, err := r.f.Kube.AppsV1().Deployments(framework.OperatorNamespace).
		Patch(ctx, framework.OperatorName, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("change the operator's Deployment: %w", err)
	}
	return nil
}

// awaitOperator waits until that many pods of the operator are there, all of
// them ready and, if one is named, on that node.
func (r *round) awaitOperator(ctx context.Context, want int, node string) error {
	ctx, cancel := context.WithTimeout(ctx, operatorMoves)
	defer cancel()
	for {
		err := r.operatorIs(ctx, want, node)
		if err == nil {
			return nil
		}
		if sleep := framework.Sleep(ctx, time.Second); sleep != nil {
			return fmt.Errorf("wait for the operator: %w", err)
		}
	}
}

func (r *round) operatorIs(ctx context.Context, want int, node string) error {
	d, err := r.f.Kube.AppsV1().Deployments(framework.OperatorNamespace).Get(ctx, framework.OperatorName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	pods, err := r.f.Kube.CoreV1().Pods(framework.OperatorNamespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + framework.OperatorName})
	if err != nil {
		return err
	}
	if d.Status.ObservedGeneration < d.Generation || int(d.Status.UpdatedReplicas) != want || int(d.Status.AvailableReplicas) != want || len(pods.Items) != want {
		return fmt.Errorf("%d pods, %d available, %d up to date, instead of %d", len(pods.Items), d.Status.AvailableReplicas, d.Status.UpdatedReplicas, want)
	}
	for _, pod := range pods.Items {
		if node != "" && pod.Spec.NodeName != node {
			return fmt.Errorf("pod %s is on %s", pod.Name, pod.Spec.NodeName)
		}
	}
	return nil
}

// container is the id of the container of the server, as the runtime has it.
func (t target) container() (string, error) {
	for _, s := range t.pod.Status.ContainerStatuses {
		if _, id, found := strings.Cut(s.ContainerID, "://"); s.Name == framework.Container && found {
			return id, nil
		}
	}
	return "", fmt.Errorf("pod %s has no container %s", t.instance, framework.Container)
}
