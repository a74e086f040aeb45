package instance

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// reapOrphans reaps the processes that PID 1 inherits, until ctx ends.
func (a *Agent) reapOrphans(ctx context.Context) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGCHLD)
	defer signal.Stop(signals)
	// An orphan can hide behind a child of ours that is not waited for yet, and
	// signals merge, so look from time to time, too.
	const soon, later = 20 * time.Millisecond, 5 * time.Second
	timer := time.NewTimer(later)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-signals:
		case <-timer.C:
		}
		done, err := a.children.ReapOrphans()
		if err != nil {
			a.log.WithError(err).Error("reaping orphans failed")
		}
		if done {
			timer.Reset(later)
		} else {
			timer.Reset(soon)
		}
	}
}
