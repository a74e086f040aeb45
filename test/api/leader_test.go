//go:build e2e

package api

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/pgop/postgres-operator/pkg/controller"
	"github.com/pgop/postgres-operator/test/api/framework"
)

// B-19: of two replicas one works at a time, whatever happens. One that stops
// hands over after its work has ended, and not before. One that is cut off ends
// its work before the other begins, and stands by when it is back.
func TestB19OneReplicaWorksAtATime(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	floor := &floor{t: t}
	first, second := newReplica(t, f, floor, "first"), newReplica(t, f, floor, "second")

	first.start()
	f.Await("the first works", floor.worker("first"))
	second.start()
	f.Hold(2*time.Second, "the second stands by", floor.worker("first"))

	first.holdWork() // its passes take their time to end
	first.cancel()
	f.Hold(3*time.Second, "the first still works", floor.worker("first"))
	first.letGo()
	f.Await("the second works", floor.worker("second"))
	<-first.ended

	third := newReplica(t, f, floor, "third")
	third.start()
	second.proxy.Refuse(true)
	f.Await("the third works, and the second has ended before", floor.worker("third"))
	second.proxy.Refuse(false)
	f.Hold(3*time.Second, "the second stands by", floor.worker("third"))
	third.cancel()
	f.Await("the second works again", floor.worker("second"))
}

// A leader that stops ends the passes under way, up to their report, and begins
// no other. Only then does it release its Lease.
func TestStopEndsThePassUnderWay(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	op := f.StartOperator()
	midway := atMidway(op)
	c := f.Create("midway")
	<-midway.reached
	op.Drain()
	f.Await("it begins nothing more", func(context.Context) error {
		if !strings.Contains(strings.Join(op.Log.Lines(), "\n"), "nothing more is begun") {
			return errors.New("it has not said so")
		}
		return nil
	})
	f.Create("late") // no pass is begun for it
	close(midway.goOn)
	op.AwaitEnd()
	if s := c.Live().Status; s.Phase == "" || s.ObservedGeneration == 0 {
		t.Errorf("the pass was cut short; the status is %+v", s)
	}
	if s := f.Cluster("late").Live().Status; s.Phase != "" {
		t.Errorf("a pass was begun; the status is %+v", s)
	}
	for _, line := range op.Log.Lines() {
		if strings.Contains(line, "canceled") {
			t.Errorf("logged: %s", line)
		}
	}
}

// A pass that doesn't end in time is cut short, so that the Lease is released
// before the kubelet loses patience.
func TestStopCutsAPassThatHangs(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	op := f.StartOperator()
	midway := atMidway(op)
	defer close(midway.goOn)
	f.Create("hangs")
	<-midway.reached
	op.Drain()
	op.AwaitEnd()
}

// point is one in the middle of a pass.
type point struct{ reached, goOn chan struct{} }

// atMidway stops the operator's writes in the middle of its first pass.
func atMidway(op *framework.Operator) point {
	p := point{make(chan struct{}), make(chan struct{})}
	var first sync.Once
	op.Proxy.Before(func(r framework.Request) {
		if r.IsWrite() && r.Resource == "secrets" {
			first.Do(func() { close(p.reached) })
			<-p.goOn
		}
	})
	return p
}

// floor is where replicas work. It must never see two.
type floor struct {
	t  *testing.T
	mu sync.Mutex
	at string
}

func (f *floor) enter(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.at != "" {
		f.t.Errorf("%s begins to work while %s works", name, f.at)
	}
	f.at = name
}

func (f *floor) leave(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.at == name {
		f.at = ""
	}
}

func (f *floor) worker(name string) func(context.Context) error {
	return func(context.Context) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		return framework.Want("who works", f.at, name)
	}
}

type replica struct {
	proxy   *framework.Proxy
	contest *controller.Contest
	floor   *floor
	ctx     context.Context
	cancel  context.CancelFunc
	ended   chan struct{}
	mayEnd  chan struct{}
}

func newReplica(t *testing.T, f *framework.Framework, floor *floor, name string) *replica {
	t.Helper()
	proxy, config := f.StartProxy()
	leases, err := coordinationclient.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	log := logrus.New()
	log.SetOutput(io.Discard)
	r := &replica{proxy: proxy, floor: floor, ended: make(chan struct{}), mayEnd: make(chan struct{})}
	close(r.mayEnd)
	r.contest = &controller.Contest{
		Leases: leases, Namespace: f.Namespace, Name: "postgres-operator", Identity: name,
		Log: logrus.NewEntry(log), Leads: func(bool) {},
	}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	t.Cleanup(func() {
		r.cancel()
		<-r.ended
	})
	return r
}

func (r *replica) start() {
	go func() {
		defer close(r.ended)
		err := r.contest.Run(r.ctx, func(ctx, stopping context.Context) error {
			r.floor.enter(r.contest.Identity)
			defer r.floor.leave(r.contest.Identity)
			select {
			case <-ctx.Done(): // the Lease is lost
				return nil
			case <-stopping.Done():
			}
			if ctx.Err() != nil {
				r.floor.t.Errorf("%s: cut short when it was to end in order", r.contest.Identity)
			}
			<-r.mayEnd
			return nil
		})
		if errors.Is(err, context.DeadlineExceeded) {
			r.floor.t.Logf("%s: %v", r.contest.Identity, err) // a busy machine; the Lease runs out
		} else if err != nil {
			r.floor.t.Errorf("%s: %v", r.contest.Identity, err)
		}
	}()
}

// holdWork lets the work go on after it was asked to end, until letGo.
func (r *replica) holdWork() { r.mayEnd = make(chan struct{}) }
func (r *replica) letGo()    { close(r.mayEnd) }
