//go:build e2e

package faults

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pgop/postgres-operator/test/e2e/framework"
)

var (
	roundsFlag = flag.Int("rounds", 0, "how many random rounds; 0: one of each kind")
	seedFlag   = flag.Uint64("seed", 1, "of the random rounds")
	modeFlag   = flag.String("mode", string(async), "async, required or preferred: what commits wait for")
	triesFlag  = flag.Bool("tries", false, "print what the clients tried around each outage")
	faultsFlag = flag.String("faults", "", "pattern of the names of the faults; empty: all but those on demand")
)

// TestFaults runs rounds, and prints what came of them.
func TestFaults(t *testing.T) {
	framework.LocalOnly(t)
	mode, err := parseMode(*modeFlag)
	if err != nil {
		t.Fatal(err)
	}
	rounds, err := schedule()
	if err != nil {
		t.Fatal(err)
	}
	healWhenStopped()
	replay := fmt.Sprintf("make faults ROUNDS=%d SEED=%d MODE=%s FAULTS='%s'", *roundsFlag, *seedFlag, mode, *faultsFlag)
	fmt.Printf("%d rounds; again: %s\n", len(rounds), replay)
	var results []Result
	for _, plan := range rounds {
		result := Result{Round: plan, Failed: true}
		t.Run(fmt.Sprintf("%d/%s", plan.Number, plan.Title()), func(t *testing.T) {
			runRound(t, plan, mode, &result)
		})
		results = append(results, result)
		if t.Context().Err() != nil {
			break
		}
	}
	// Faults may restart the operator's containers; that is no failure of a round.
	if err := framework.CheckOperator(t.Context()); err != nil {
		fmt.Printf("after all rounds: %v\n", err)
	}
	fmt.Printf("\n%s; again: %s\n\n%s\n", mode, replay, Table(results))
}

// underWay is the round that has begun last.
var underWay atomic.Pointer[round]

// healWhenStopped heals the round under way when the suite is interrupted: the
// test's own clean-up does not run then. What is only the local cluster's, the
// next run's `make cluster-up` would heal; the operator's Deployment it would not.
func healWhenStopped() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		s := <-signals
		fmt.Printf("%v: healing\n", s)
		if r := underWay.Load(); r != nil {
			ctx, cancel := context.WithTimeout(context.Background(), undoPatience)
			defer cancel()
			if err := r.undoAll(ctx); err != nil {
				fmt.Println("heal:", err)
			}
			if err := r.f.Kube.CoreV1().Namespaces().Delete(ctx, r.f.Namespace, metav1.DeleteOptions{}); err != nil {
				fmt.Println(err)
			}
		}
		os.Exit(1)
	}()
}

func schedule() ([]Round, error) {
	if *roundsFlag == 0 {
		return Fixed(*faultsFlag)
	}
	return Random(*seedFlag, *roundsFlag, *faultsFlag)
}

// Every kind can be struck.
func TestKindsHaveStrikes(t *testing.T) {
	for _, k := range Kinds {
		if strikes[k.Name].hit == nil {
			t.Errorf("%s can't be struck", k.Name)
		}
	}
}
