//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/pgop/postgres-operator/test/e2e/framework"
)

// B-19: of two replicas one leads. When it is killed in the middle of work, the
// other finishes the work: no pod too many, and no server restarts. When it
// stops in order, the other takes over at once.
func TestB19LeaderKilledAndStopped(t *testing.T) {
	framework.LocalOnly(t) // it kills a process on a node
	f := framework.New(t)
	var clusters []*framework.Cluster
	for n := range 5 {
		clusters = append(clusters, f.Create(fmt.Sprintf("many-%d", n)))
	}
	before := map[string]map[string]string{}
	for _, c := range clusters {
		c.AwaitReady()
		before[c.Name] = lives(t, c)
	}

	grown := clusters[0]
	grown.Edit(framework.Instances(3))
	killed := leaderPod(t, f)
	identity, err := leaderIdentity(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	killContainer(t, f, killed)
	began := time.Now()
	// The other replica, or the next life of this one: both wait for the Lease.
	f.Await(framework.Patience, "another leads", func(ctx context.Context) error {
		leader, err := leaderIdentity(ctx, f)
		if err == nil && leader == identity {
			return errors.New("the killed one leads")
		}
		return err
	})
	t.Logf("killed: %.1f s until another leads", time.Since(began).Seconds())
	grown.AwaitReady()
	f.Hold(3*time.Second, "there is no pod too many", func(context.Context) error {
		return framework.Want("pods", len(grown.Pods()), 3)
	})
	for name, life := range lives(t, grown) {
		if _, old := before[grown.Name][name]; !old {
			before[grown.Name][name] = life
		}
	}
	for _, c := range clusters {
		wantSameLives(t, f, c, before[c.Name], "after another has taken over")
	}
	// Its container was started again, which the last look at the operator would
	// take for a crash.
	deleteOperatorPod(t, f, killed)
	f.AwaitOperator()

	stopped := leaderPod(t, f)
	deleteOperatorPod(t, f, stopped)
	began = time.Now()
	f.Await(framework.Patience, "the other replica leads", func(ctx context.Context) error {
		leader, err := leaderIdentity(ctx, f)
		if err == nil && strings.HasPrefix(leader, stopped+"_") {
			return errors.New("the stopped one leads")
		}
		return err
	})
	t.Logf("stopped: %.1f s until another leads", time.Since(began).Seconds())
	clusters[1].Edit(framework.Parameter("work_mem", "7MB")) // it is at work
	clusters[1].AwaitRows(framework.RW, "show work_mem", "7MB")
	f.AwaitOperator()
}

// deleteOperatorPod deletes one of the operator's pods.
func deleteOperatorPod(t *testing.T, f *framework.Framework, name string) {
	t.Helper()
	if err := f.Kube.CoreV1().Pods(framework.OperatorNamespace).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// leaderIdentity is who holds the operator's Lease: <pod>_<process>.
func leaderIdentity(ctx context.Context, f *framework.Framework) (string, error) {
	lease, err := f.Kube.CoordinationV1().Leases(framework.OperatorNamespace).Get(ctx, framework.OperatorName, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	if holder := ptr.Deref(lease.Spec.HolderIdentity, ""); holder != "" {
		return holder, nil
	}
	return "", errors.New("nobody leads")
}

// leaderPod is the pod of the operator that leads.
func leaderPod(t *testing.T, f *framework.Framework) string {
	t.Helper()
	identity, err := leaderIdentity(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	pod, _, _ := strings.Cut(identity, "_")
	return pod
}

// killContainer kills every process of the operator's pod.
func killContainer(t *testing.T, f *framework.Framework, name string) {
	t.Helper()
	pod, err := f.Kube.CoreV1().Pods(framework.OperatorNamespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	processes, err := framework.Processes(string(pod.UID))
	if err != nil {
		t.Fatal(err)
	}
	killed := 0
	for _, p := range processes {
		if p.Command != "pause" {
			if err := syscall.Kill(p.PID, syscall.SIGKILL); err != nil {
				t.Fatalf("kill %+v: %v", p, err)
			}
			killed++
		}
	}
	if killed == 0 {
		t.Fatalf("no process of %s to kill among %+v", name, processes)
	}
}
