//go:build e2e

package api

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/pgop/postgres-operator/test/api/framework"
)

// Two operators that know nothing of each other, with different images of their
// own, on the same clusters: exactly the pods asked for, and no fight.
func TestB20TwoInstallationsOnTheSameClusters(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	ops := []*framework.Operator{
		f.StartOperator(framework.WithImage("docker.io/pgop/postgres-operator:one")),
		f.StartOperator(framework.WithImage("docker.io/pgop/postgres-operator:two")),
	}
	names := []string{"a", "b", "c"}
	for _, name := range names {
		f.Create(name)
	}
	for _, name := range names {
		f.Cluster(name).AwaitReady()
	}
	uids := podUIDs(f)
	f.Cluster("b").Edit(framework.Instances(3))
	f.Cluster("b").AwaitReady()
	wantSamePods(f, uids)
	wantInstances(f, 5)
	wantQuiet(f, ops...)
	// Each change is made once more or less, never back and forth.
	f.Patch("services/b-rw", `{"spec":{"selector":{"mine":"yes"}}}`)
	wantQuiet(f, ops...)
}

// The second operator goes on where the first one ended, in the middle of its
// work: no pod is made twice or again.
func TestB19AnotherOperatorGoesOn(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	first := f.StartOperator()
	names := []string{"a", "b", "c", "d", "e"}
	for _, name := range names {
		f.Create(name).AwaitReady()
	}
	uids := podUIDs(f)
	f.Cluster("c").Edit(framework.Instances(3))
	first.Proxy.Refuse(true) // it dies without a word
	first.Stop()
	second := f.StartOperator()
	for _, name := range names {
		f.Cluster(name).AwaitReady()
	}
	wantSamePods(f, uids)
	wantInstances(f, 7)
	wantQuiet(f, second)
}

// podUIDs are the UIDs of the namespace's pods by name.
func podUIDs(f *framework.Framework) map[string]string {
	f.T.Helper()
	uids := map[string]string{}
	for key, o := range f.MustObjects() {
		if o.GetKind() == "Pod" {
			uids[key] = string(o.GetUID())
		}
	}
	return uids
}

// wantSamePods checks that every pod in uids is still there.
func wantSamePods(f *framework.Framework, uids map[string]string) {
	f.T.Helper()
	now := podUIDs(f)
	for key, uid := range uids {
		if now[key] != uid {
			f.T.Errorf("%s was replaced", key)
		}
	}
}

// wantQuiet waits until the operators write nothing for some seconds. Operators
// that undo each other's work never come to that.
func wantQuiet(f *framework.Framework, ops ...*framework.Operator) {
	f.T.Helper()
	writes := func(window time.Duration) string {
		var marks []int
		for _, op := range ops {
			marks = append(marks, op.Proxy.Mark())
		}
		f.Pause(window)
		all := map[string]int{}
		for n, op := range ops {
			for what, count := range framework.Writes(op.Proxy.Since(marks[n])) {
				all[what] += count
			}
		}
		return fmt.Sprint(all)
	}
	f.Await("the operators come to rest", func(context.Context) error {
		return framework.Want("what they wrote in 4 s", writes(4*time.Second), "map[]")
	})
}
