//go:build e2e

package api

import (
	"testing"

	"github.com/pgop/postgres-operator/test/api/framework"
)

func TestClusterBecomesReady(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	f.StartOperator()
	c := f.Create("shop", framework.Instances(3))
	c.AwaitReady()
	c.Edit(framework.Instances(1))
	c.AwaitReady()
}
