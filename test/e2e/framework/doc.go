//go:build e2e

// Package framework is what the end-to-end tests have in common: namespaces of
// their own, clusters, SQL, faults, and waiting that says what it has last seen.
//
//	f := framework.New(t)                     a namespace, removed at the end
//	c := f.Create("shop", framework.Instances(3))
//	c.AwaitReady()
//	c.SQL(framework.RW, "create table t (n int)")
//
// It is built with the tag e2e only. Everything goes through the Kubernetes API,
// so that the tests run on any cluster; faults of the machine need the one of
// test/localcluster, and tests that want them begin with LocalOnly.
package framework
