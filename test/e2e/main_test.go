//go:build e2e

// Package e2e tests the operator on a real cluster, a story a test. The names
// of tests carry the cases that they tell, such as A19.
//
// Tests run side by side, each in a namespace of its own. Those that touch what
// all share, a node or the operator, run before the others and alone: they
// don't call Parallel.
package e2e

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/pgop/postgres-operator/test/e2e/framework"
)

// TestMain ends with a look at the operator: whatever the tests did to it, it
// must not have panicked.
func TestMain(m *testing.M) {
	code := m.Run()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := framework.CheckOperator(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "FAIL: after all tests:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}
