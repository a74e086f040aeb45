//go:build e2e

package faults

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/pgop/postgres-operator/test/e2e/framework"
)

// proof looks whether a fault has struck, and says by what that is known.
type proof func(context.Context) (string, error)

// strike is how a kind of fault is done. What takes the fault away is registered
// with round.onHeal before it strikes.
type strike struct {
	// prepare is done before anybody writes; nil: nothing.
	prepare func(context.Context, *round) error
	hit     func(context.Context, *round) (proof, error)
	// serves means that clients must be served again before the fault is healed.
	serves bool
}

// strikes has one for each of Kinds.
var strikes = map[string]strike{
	"postmaster-kill":   {hit: killPostmaster},
	"agent-kill":        {hit: killAgent},
	"agent-interrupt":   {hit: interruptAgent},
	"container-kill":    {hit: killContainer},
	"pod-delete":        {hit: deletePod},
	"pod-force-delete":  {hit: forceDeletePod},
	"postmaster-freeze": {hit: freezePostmaster},
	"agent-freeze":      {hit: freezeAgent},

	"node-cut":               {hit: cutPrimarysNode},
	"node-cut-with-operator": {prepare: bringOperator, hit: cutPrimarysNode},
	"node-pause-15s":         {hit: pauseNode},
	"node-pause-60s":         {hit: pauseNode},
	"primary-api-cut":        {hit: cutFromAPI},
	"partition":              {hit: partitionFromStandbys},
	"api-stop-60s":           {hit: stopAPIServer},
	"api-stop-10m":           {hit: stopAPIServer},
	"dns-stop":               {hit: stopDNS},

	"disk-full":     {hit: fillDisk},
	"volume-delete": {hit: deleteVolume},

	"operator-absent":  {prepare: removeOperator, hit: deletePodForGood, serves: true},
	"all-pods":         {hit: deleteAllPods},
	"switchover":       {hit: switchOver},
	"rolling-change":   {hit: changeAll},
	"standby-kill":     {hit: killStandby},
	"standby-node-cut": {hit: cutStandbysNode},
}

// killPostmaster kills the server's first process, and no other.
func killPostmaster(_ context.Context, r *round) (proof, error) {
	p, err := r.primary.postmaster()
	if err != nil {
		return nil, err
	}
	return end(p, syscall.SIGKILL, "the postmaster")
}

func killAgent(_ context.Context, r *round) (proof, error) {
	return endAgent(r.primary, syscall.SIGKILL)
}

// interruptAgent is `kill -INT 1` in the pod.
func interruptAgent(_ context.Context, r *round) (proof, error) {
	return endAgent(r.primary, syscall.SIGINT)
}

func killStandby(_ context.Context, r *round) (proof, error) {
	return endAgent(r.spare(), syscall.SIGKILL)
}

func endAgent(t target, by syscall.Signal) (proof, error) {
	p, err := t.agent()
	if err != nil {
		return nil, err
	}
	return end(p, by, "the agent of "+t.instance)
}

func end(p processID, by syscall.Signal, what string) (proof, error) {
	if err := p.signal(by); err != nil {
		return nil, err
	}
	return func(context.Context) (string, error) {
		return fmt.Sprintf("%s, process %d, is gone", what, p.pid), p.gone()
	}, nil
}

// killContainer has the runtime kill all of the container's processes.
func killContainer(ctx context.Context, r *round) (proof, error) {
	p, err := r.primary.agent()
	if err != nil {
		return nil, err
	}
	id, err := r.primary.container()
	if err != nil {
		return nil, err
	}
	if _, err := framework.RunLocal(ctx, "node", "exec", r.primary.node, "ctr", "-n", "k8s.io", "tasks", "kill", "--all", "--signal", "SIGKILL", id); err != nil {
		return nil, err
	}
	return func(context.Context) (string, error) {
		return fmt.Sprintf("the container's process %d is gone", p.pid), p.gone()
	}, nil
}

func freezePostmaster(_ context.Context, r *round) (proof, error) {
	p, err := r.primary.postmaster()
	if err != nil {
		return nil, err
	}
	return r.freeze(p, "the postmaster")
}

func freezeAgent(_ context.Context, r *round) (proof, error) {
	p, err := r.primary.agent()
	if err != nil {
		return nil, err
	}
	return r.freeze(p, "the agent")
}

// freeze stops one process, and no other of its pod.
func (r *round) freeze(p processID, what string) (proof, error) {
	r.onHeal("let "+what+" go on", func(context.Context) error { return p.signal(syscall.SIGCONT) })
	if err := p.signal(syscall.SIGSTOP); err != nil {
		return nil, err
	}
	return func(context.Context) (string, error) {
		return fmt.Sprintf("%s, process %d, is stopped", what, p.pid), framework.Want("its state", p.state(), "T")
	}, nil
}

// deletePod deletes the pod as kubectl does. The ledger's idle session is open.
func deletePod(ctx context.Context, r *round) (proof, error) {
	return r.deletePod(ctx, r.primary, metav1.DeleteOptions{}, true)
}

func forceDeletePod(ctx context.Context, r *round) (proof, error) {
	return r.deletePod(ctx, r.primary, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}, true)
}

// deletePodForGood deletes a pod that nobody makes anew.
func deletePodForGood(ctx context.Context, r *round) (proof, error) {
	return r.deletePod(ctx, r.primary, metav1.DeleteOptions{}, false)
}

func (r *round) deletePod(ctx context.Context, t target, options metav1.DeleteOptions, replaced bool) (proof, error) {
	pods := r.f.Kube.CoreV1().Pods(r.f.Namespace)
	options.Preconditions = &metav1.Preconditions{UID: &t.podUID}
	if err := pods.Delete(ctx, t.instance, options); err != nil {
		return nil, fmt.Errorf("delete pod %s: %w", t.instance, err)
	}
	return func(ctx context.Context) (string, error) {
		pod, err := pods.Get(ctx, t.instance, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err) && replaced:
			return "", errors.New("there is no new pod yet")
		case apierrors.IsNotFound(err):
			return "pod " + t.instance + " is gone", nil
		case err != nil:
			return "", err
		case pod.UID == t.podUID:
			return "", errors.New("the old pod is still there")
		}
		return "pod " + t.instance + " is another", nil
	}, nil
}

// deleteAllPods deletes every instance's pod at once.
func deleteAllPods(ctx context.Context, r *round) (proof, error) {
	var proofs []proof
	for _, t := range append([]target{r.primary}, r.standbys...) {
		p, err := r.deletePod(ctx, t, metav1.DeleteOptions{}, true)
		if err != nil {
			return nil, err
		}
		proofs = append(proofs, p)
	}
	return func(ctx context.Context) (string, error) {
		for _, p := range proofs {
			if _, err := p(ctx); err != nil {
				return "", err
			}
		}
		return "all pods are others", nil
	}, nil
}

// switchOver asks for another primary, as a user does.
func switchOver(ctx context.Context, r *round) (proof, error) {
	to := r.spare().instance
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"pgop.dev/switchover-to":%q}}}`, to)
	_, err := r.f.Postgres.PgopV1().PostgresClusters(r.f.Namespace).Patch(ctx, clusterName, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return nil, fmt.Errorf("ask for a switchover: %w", err)
	}
	return func(context.Context) (string, error) {
		return to + " holds the Lease", framework.Want("the holder of the Lease", r.lease.holder(), to)
	}, nil
}

// changeAll makes a change for which every instance has to restart, the primary
// last.
func changeAll(ctx context.Context, r *round) (proof, error) {
	const patch = `{"spec":{"resources":{"requests":{"memory":"96Mi"}},"postgres":{"parameters":{"max_connections":120}}}}`
	_, err := r.f.Postgres.PgopV1().PostgresClusters(r.f.Namespace).Patch(ctx, clusterName, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		return nil, fmt.Errorf("change the cluster: %w", err)
	}
	before := append([]target{r.primary}, r.standbys...)
	return func(context.Context) (string, error) {
		pods := r.c.Pods()
		for _, t := range before {
			if pod := pods[t.instance]; pod == nil || pod.UID == t.podUID {
				return "", fmt.Errorf("%s has no new pod yet", t.instance)
			}
		}
		return "every instance has a new pod, and " + r.lease.holder() + " holds the Lease", nil
	}, nil
}
