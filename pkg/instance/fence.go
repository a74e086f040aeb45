package instance

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pgop/postgres-operator/pkg/instanceapi"
)

// errFenced means that this instance may not write any more.
var errFenced = errors.New("this instance reigns no more")

// fenceState is what keeps a server from writing that may not.
type fenceState struct {
	// leading is the term in which this instance reigns, 0: it does not; shared,
	// changed under fenceMu, as is the alarm. fenced is true from a fence on
	// until the server has been taken out of service.
	leading atomic.Uint64
	fenced  atomic.Bool
	fenceMu sync.Mutex
	alarm   *time.Timer
	// killMu is held while a fence kills.
	killMu sync.Mutex
}

// mayLead says whether this instance reigns, as of the core's last step.
func (a *Agent) mayLead() bool { return a.leading.Load() != 0 }

// lead takes note that this instance reigns in that term, and sets the alarm
// that ends the server if the loop does not come round in time.
func (a *Agent) lead(term uint64) {
	a.fenceMu.Lock()
	defer a.fenceMu.Unlock()
	a.leading.Store(term)
	if a.alarm != nil {
		a.alarm.Stop()
		a.alarm = nil
	}
	if until, ends := a.elector.state.MustStopAt(); ends {
		a.alarm = time.AfterFunc(until-a.elector.now(), func() { a.fence("the right to write has ended") })
	}
}

// fence ends the server at once if it writes or may come to write: every
// process of it, since a postmaster may be frozen and its backends outlive it.
// After it nothing starts a primary until this instance reigns again.
func (a *Agent) fence(why string) {
	if !a.abdicate() && a.runningAs().Role != instanceapi.RolePrimary {
		return
	}
	a.log.WithField("why", why).Warn("stopping the server at once: this instance reigns no more")
	a.fenced.Store(true)
	go a.killFenced()
}

// abdicate notes that this instance reigns no more, and says whether it did.
func (a *Agent) abdicate() bool {
	a.fenceMu.Lock()
	defer a.fenceMu.Unlock()
	if a.alarm != nil {
		a.alarm.Stop()
		a.alarm = nil
	}
	return a.leading.Swap(0) != 0
}

// killFenced kills the server's processes, unless that has been done meanwhile.
func (a *Agent) killFenced() {
	a.killMu.Lock()
	defer a.killMu.Unlock()
	defer a.wakeUp()
	if !a.fenced.Load() {
		return
	}
	const longest = time.Minute
	ctx, cancel := context.WithTimeout(context.Background(), longest)
	defer cancel()
	if err := killHolders(ctx, a.lock); err != nil {
		a.log.WithError(err).Error("stopping the server at once failed")
	}
}

// launchPrimary launches a server that writes, unless this instance has been
// fenced.
func (a *Agent) launchPrimary() (*server, error) {
	a.fenceMu.Lock()
	defer a.fenceMu.Unlock()
	if !a.mayLead() {
		return nil, errFenced
	}
	return a.launch()
}

// retire takes a primary that reigns no more out of service.
func (a *Agent) retire(ctx context.Context) error {
	a.status.enter(instanceapi.PhaseStopping, "it reigns no more")
	a.killMu.Lock()
	err := a.killServer(ctx)
	a.fenced.Store(false)
	a.killMu.Unlock()
	if sliceErr := a.leaveSlice(ctx); sliceErr != nil {
		a.log.WithError(sliceErr).Warn("leaving the rw EndpointSlice failed")
	}
	return err
}

// killServer ends every process of the server without waiting for any.
func (a *Agent) killServer(ctx context.Context) error { return a.endServer(ctx, nil) }
