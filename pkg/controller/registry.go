package controller

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/pgop/postgres-operator/pkg/cluster"
)

// registry holds the running loops, one for each cluster in its present life.
type registry struct {
	newLoop func(key cache.ObjectName, uid types.UID) *cluster.Loop

	mu      sync.Mutex
	running map[cache.ObjectName]*entry
	all     sync.WaitGroup
}

type entry struct {
	loop *cluster.Loop
	stop context.CancelFunc
}

func newRegistry(newLoop func(cache.ObjectName, types.UID) *cluster.Loop) *registry {
	return &registry{newLoop: newLoop, running: map[cache.ObjectName]*entry{}}
}

// ensure returns the loop of the cluster with this very UID, starting it if it
// does not run. The loop of an earlier cluster of the name is stopped.
func (r *registry) ensure(ctx context.Context, key cache.ObjectName, uid types.UID) *cluster.Loop {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.running[key]; e != nil {
		if e.loop.UID() == uid {
			return e.loop
		}
		e.stop()
	}
	ctx, stop := context.WithCancel(ctx)
	e := &entry{loop: r.newLoop(key, uid), stop: stop}
	r.running[key] = e
	r.all.Go(func() { e.loop.Run(ctx) })
	return e.loop
}

// stop ends the loop of a cluster that is gone.
func (r *registry) stop(key cache.ObjectName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.running[key]; e != nil {
		e.stop()
		delete(r.running, key)
	}
}

// drain asks every loop to end after the pass under way.
func (r *registry) drain() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.running {
		e.loop.Drain()
	}
}

// wait returns when every loop has ended: their context must have, or they are
// drained.
func (r *registry) wait() { r.all.Wait() }
