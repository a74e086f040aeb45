//go:build e2e

// Package api tests operators against an API server that has no nodes: the
// life and death of clusters, faults of the API server and of the caches, what
// others do to the objects of a cluster. The names of tests carry the cases
// that they tell, such as B03.
//
// Tests run side by side, each in a namespace of its own. Those that touch what
// all share, such as the CRD, run before the others and alone: they don't call
// Parallel.
package api

import (
	"testing"

	"github.com/pgop/postgres-operator/test/api/framework"
)

func TestMain(m *testing.M) { framework.Main(m) }
