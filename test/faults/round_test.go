//go:build e2e

package faults

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/test/e2e/framework"
	"github.com/pgop/postgres-operator/test/faults/history"
)

// mode is what commits wait for.
type mode string

const (
	async     mode = "async"
	required  mode = "required"
	preferred mode = "preferred"
)

func parseMode(text string) (mode, error) {
	if m := mode(text); m == async || m == required || m == preferred {
		return m, nil
	}
	return "", fmt.Errorf("mode %q is none of %s, %s, %s", text, async, required, preferred)
}

const (
	clusterName = "shop"
	instances   = 3

	// rightToWrite is how long a primary may acknowledge after the start of its
	// last renewal: the Lease's duration less the margin, by default.
	rightToWrite = 7 * time.Second

	// warmUp is how many acknowledgements each client has before a fault, and
	// again after it, so that a round has at least twice as many of each.
	warmUp = 40
	// settlePatience is how long everything may take to serve and to stream again
	// once the faults are healed: a clone on a busy machine is part of it.
	settlePatience = 5 * time.Minute
	provePatience  = 2 * time.Minute
	undoPatience   = 2 * time.Minute
)

// round is a round under way.
type round struct {
	t    *testing.T
	f    *framework.Framework
	c    *framework.Cluster
	plan Round
	mode mode

	// primary is the one that the faults strike; ledgers write from the node of
	// standbys[0], which no fault strikes.
	primary  target
	standbys []target

	ledgers []*ledger
	lease   *leaseWatch
	undosMu sync.Mutex
	undos   []undo
	// notes are proofs and other things to report.
	notes    []string
	struckAt history.Instant
	// isolatedAt is when the primary was certainly out of everybody's reach, zero
	// if it is not the fault's way; healedAt is when healing began.
	isolatedAt, healedAt history.Instant
}

// undo takes a fault away. It may be called although the fault has not struck,
// and again.
type undo struct {
	what string
	do   func(context.Context) error
	done bool
}

// target is an instance and its pod at the time of the strike.
type target struct {
	instance, node, address string
	podUID                  types.UID
	pod                     *corev1.Pod
	// started is when the server started, in PostgreSQL's words; empty unless it
	// is to be the same all the time.
	started string
}

const startOfServer = "select pg_postmaster_start_time()"

// runRound makes a cluster, strikes it, heals, waits until all is well, and
// judges what the ledgers say.
func runRound(t *testing.T, plan Round, m mode, result *Result) {
	fmt.Printf("%s %v\n", time.Now().Format(time.TimeOnly), plan)
	r := &round{t: t, plan: plan, mode: m}
	t.Cleanup(func() { result.Failed = t.Failed() }) // the last thing
	t.Cleanup(r.awaitGone)
	r.f = framework.New(t)
	r.awaitNodes()
	t.Cleanup(r.cleanUp)
	underWay.Store(r)
	r.startCluster()
	r.prepare()
	r.aim()
	r.startLedgers()
	r.f.Pause(plan.Delay)
	r.strike()
	result.Struck = true
	r.hold()
	r.heal()
	r.awaitService("after the fault")
	r.awaitSettled()
	r.judge(result)
	r.report(result)
}

// cleanUp heals what the round has not healed.
func (r *round) cleanUp() {
	ctx, cancel := context.WithTimeout(context.Background(), undoPatience)
	defer cancel()
	if r.lease != nil {
		r.lease.stop()
	}
	if err := r.undoAll(ctx); err != nil {
		r.t.Errorf("heal: %v", err)
	}
}

// awaitGone waits for the pods of the round to go with their namespace, so that
// their end does not weigh on the next round.
func (r *round) awaitGone() {
	if r.f == nil || r.t.Failed() {
		return // the namespace may stay
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		pods, err := r.f.Kube.CoreV1().Pods(r.f.Namespace).List(ctx, metav1.ListOptions{})
		if err == nil && len(pods.Items) == 0 {
			return
		}
		if framework.Sleep(ctx, time.Second) != nil {
			r.t.Logf("the round's pods are still going")
			return
		}
	}
}

// onHeal registers what takes a fault away; it comes before the fault.
func (r *round) onHeal(what string, do func(context.Context) error) {
	r.undosMu.Lock()
	defer r.undosMu.Unlock()
	r.undos = append(r.undos, undo{what: what, do: do})
}

// undoAll takes faults away, the last first, each until it has worked once.
func (r *round) undoAll(ctx context.Context) error {
	r.undosMu.Lock()
	defer r.undosMu.Unlock()
	var errs []error
	for i := len(r.undos) - 1; i >= 0; i-- {
		u := &r.undos[i]
		if u.done {
			continue
		}
		if err := u.do(ctx); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", u.what, err))
			continue
		}
		u.done = true
	}
	return errors.Join(errs...)
}

// awaitNodes waits until pods go to every node: the round before may have left
// some without a word to the API server.
func (r *round) awaitNodes() {
	r.f.Await(2*time.Minute, "every node takes pods", func(ctx context.Context) error {
		nodes, err := r.f.Kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, node := range nodes.Items {
			if len(node.Spec.Taints) > 0 || node.Spec.Unschedulable {
				return fmt.Errorf("node %s has taints %v", node.Name, node.Spec.Taints)
			}
		}
		return nil
	})
}

// startCluster makes the cluster and waits until it is whole.
func (r *round) startCluster() {
	manifest, err := r.manifest()
	if err != nil {
		r.t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(r.f.Config)
	if err != nil {
		r.t.Fatal(err)
	}
	_, err = client.Resource(v1.SchemeGroupVersion.WithResource("postgresclusters")).Namespace(r.f.Namespace).
		Create(r.t.Context(), manifest, metav1.CreateOptions{FieldValidation: "Strict"})
	if err != nil {
		r.t.Fatalf("create cluster: %v", err)
	}
	r.c = r.f.Cluster(clusterName)
	r.c.AwaitReady()
	if r.mode != async {
		r.f.Await(time.Minute, "commits wait for a standby", func(ctx context.Context) error {
			n, err := r.c.TrySQLIn(ctx, r.c.Primary(), "select count(*) > 0 from pg_stat_replication where sync_state in ('sync', 'quorum')")
			if err != nil {
				return err
			}
			return framework.Want("a standby that commits wait for", n, "t")
		})
	}
}

// manifest is a cluster of three with the defaults, in the mode asked for.
func (r *round) manifest() (*unstructured.Unstructured, error) {
	typed := framework.Manifest(clusterName, framework.Instances(instances))
	typed.TypeMeta = metav1.TypeMeta{APIVersion: v1.SchemeGroupVersion.String(), Kind: "PostgresCluster"}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
	if err != nil {
		return nil, fmt.Errorf("make manifest: %w", err)
	}
	delete(object, "status")
	if r.mode != async {
		replication := map[string]any{"mode": "sync", "durability": string(r.mode)}
		if err := unstructured.SetNestedMap(object, replication, "spec", "replication"); err != nil {
			return nil, fmt.Errorf("make manifest: %w", err)
		}
	}
	return &unstructured.Unstructured{Object: object}, nil
}

// prepare does what faults need before anybody writes.
func (r *round) prepare() {
	r.aim()
	for _, k := range r.plan.Faults {
		if prepare := strikes[k.Name].prepare; prepare != nil {
			if err := prepare(r.t.Context(), r); err != nil {
				r.t.Fatalf("prepare %s: %v", k.Name, err)
			}
		}
	}
}

// aim finds out who is who.
func (r *round) aim() {
	primary := r.c.Primary()
	r.standbys = nil
	nodes := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(r.c.Pods())) {
		pod := r.c.Pod(name)
		t := target{instance: name, node: pod.Spec.NodeName, address: pod.Status.PodIP, podUID: pod.UID, pod: pod}
		if r.plan.Undisturbed() {
			t.started = r.c.SQLIn(name, startOfServer)
		}
		nodes[t.node] = true
		if name == primary {
			r.primary = t
		} else {
			r.standbys = append(r.standbys, t)
		}
	}
	if len(nodes) != instances || len(r.standbys) != instances-1 {
		r.t.Fatalf("%d instances on %d nodes, want %d, each on its own", len(r.standbys)+1, len(nodes), instances)
	}
}

// spare is the standby that faults may strike.
func (r *round) spare() target { return r.standbys[1] }

// strike strikes all faults, each with its proof.
func (r *round) strike() {
	r.lease = watchLease(r.f)
	r.struckAt = history.Now()
	for i, k := range r.plan.Faults {
		if i > 0 {
			r.f.Pause(r.plan.Apart)
		}
		prove, err := strikes[k.Name].hit(r.t.Context(), r)
		if err != nil {
			r.t.Fatalf("strike %s: %v", k.Name, err)
		}
		r.f.Await(provePatience, "a proof that "+k.Name+" struck", func(ctx context.Context) error {
			proof, err := prove(ctx)
			if err == nil {
				r.note("%s struck: %s", k.Name, proof)
			}
			return err
		})
	}
}

// hold lets the faults last.
func (r *round) hold() {
	proved := history.Now()
	r.f.Pause(r.plan.Hold)
	for _, k := range r.plan.Faults {
		if strikes[k.Name].serves {
			r.awaitServiceSince(proved, "while "+k.Name+" lasts")
		}
	}
}

// heal takes all faults away.
func (r *round) heal() {
	r.healedAt = history.Now()
	ctx, cancel := context.WithTimeout(r.t.Context(), undoPatience)
	defer cancel()
	if err := r.undoAll(ctx); err != nil {
		r.t.Fatalf("heal: %v", err)
	}
}

// awaitService waits until both clients have written for a while.
func (r *round) awaitService(when string) { r.awaitServiceSince(history.Now(), when) }

func (r *round) awaitServiceSince(since history.Instant, when string) {
	r.f.Await(settlePatience, "writes are acknowledged "+when, func(ctx context.Context) error {
		return r.ledgers[0].served(ctx, since, warmUp)
	})
}

// awaitSettled waits until there is one primary and all others stream from it,
// by what the servers say, and the operator is content, too. Nobody is looked
// at before clients are served, since looking takes the machine's time.
func (r *round) awaitSettled() {
	r.f.Await(settlePatience, "one primary, and all others stream from it", r.settled)
	r.f.Await(settlePatience, "the operator finds the cluster healthy", r.c.Ready)
}

func (r *round) settled(ctx context.Context) error {
	const look = `select case when pg_is_in_recovery() then 'replica ' || coalesce((select status from pg_stat_wal_receiver), 'alone')
		else 'primary of ' || (select count(*) from pg_stat_replication where state = 'streaming') end`
	var seen []string
	for n := range instances {
		is, err := r.c.TrySQLIn(ctx, r.c.Instance(n+1), look)
		if err != nil {
			return err
		}
		seen = append(seen, is)
	}
	slices.Sort(seen)
	want := []string{"primary of 2", "replica streaming", "replica streaming"}
	return framework.Want("the instances", strings.Join(seen, ", "), strings.Join(want, ", "))
}

func (r *round) note(format string, args ...any) {
	r.notes = append(r.notes, fmt.Sprintf(format, args...))
}
