package instance

import (
	"context"
	"errors"
	"time"
)

// job is a move under way, in a goroutine of its own. Its fields are set
// before it starts.
type job struct {
	name string
	// config and lease are what was known when it began.
	config knownConfig
	lease  knownLease
	cancel context.CancelCauseFunc
	// done is closed after err is set.
	done chan struct{}
	err  error
}

// start runs f as the job. There must be none.
func (a *Agent) start(ctx context.Context, name string, f func(ctx context.Context) error) {
	ctx, cancel := context.WithCancelCause(ctx)
	j := &job{name: name, config: a.view.knownConfig(), lease: a.view.knownLease(), cancel: cancel, done: make(chan struct{})}
	a.job = j
	go func() {
		defer a.wakeUp()
		defer close(j.done)
		defer cancel(nil)
		j.err = f(ctx)
		// Whatever a cancelled job says went wrong, it is why it was cancelled.
		if cause := context.Cause(ctx); cause != nil && j.err != nil {
			j.err = errors.Join(cause, j.err)
		}
	}()
}

// backoff is how long to wait after so many failures in a row.
func backoff(failures int) time.Duration {
	const first, longest = 250 * time.Millisecond, 15 * time.Second
	d := first
	for range failures - 1 {
		if d *= 2; d >= longest {
			return longest
		}
	}
	return d
}

// postpone notes a failure: the next try waits.
func (a *Agent) postpone() {
	a.failures++
	wait := backoff(a.failures)
	a.retry = time.Now().Add(wait)
	time.AfterFunc(wait, a.wakeUp)
}

// tryAgainNow forgets failures, because what may have caused them has changed.
func (a *Agent) tryAgainNow() {
	a.failures, a.retry = 0, time.Time{}
}
