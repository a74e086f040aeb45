package instance

import (
	"context"
	"sync"
	"syscall"
	"time"

	"github.com/pgop/postgres-operator/pkg/election"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/postgres"
)

// haltServer ends a primary's server in order, with nobody to hand over to: the
// cluster is stopped. The replicas still run, and the Lease is to say which of
// them have everything.
func (a *Agent) haltServer(ctx context.Context) error {
	a.log.Info("stopping with the cluster; nobody takes over")
	defer func() { a.haltedAt = time.Now() }()
	a.halt = &election.Halt{}
	const longest = 10 * time.Second
	before, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	if err := a.checkpoint(before); err != nil {
		// The shutdown makes one, too; it takes longer then.
		a.log.WithError(err).Warn("no checkpoint before the shutdown")
	}
	a.status.enter(instanceapi.PhaseStopping, "the cluster is stopped")
	if err := a.leaveSlice(ctx); err != nil {
		a.log.WithError(err).Warn("leaving the rw EndpointSlice failed")
	}
	const quick = time.Second
	orderly := a.options.StopTimeout / 4 // the rest of what leaving may take is for what follows
	if err := a.endServer(ctx, []stopStep{{syscall.SIGINT, orderly}, {syscall.SIGQUIT, quick}}); err != nil {
		return err
	}
	end, err := a.shutdownCheckpoint(ctx)
	if err != nil {
		a.log.WithError(err).Warn("members stay as they are")
		return nil // the next start recovers
	}
	a.halt = &election.Halt{Orderly: true, Whole: a.membersPast(ctx, end)}
	return nil
}

// membersPast are the members that have received the shutdown checkpoint, as
// they say themselves.
func (a *Agent) membersPast(ctx context.Context, checkpoint postgres.LSN) []election.Member {
	var mu sync.Mutex
	var past []election.Member
	var all sync.WaitGroup
	for _, member := range a.view.knownLease().Record.Members {
		all.Go(func() {
			if err := a.awaitPast(ctx, member.Instance, checkpoint); err != nil {
				a.log.WithError(err).WithField("member", member.Instance).Warn("not everything has arrived before the cluster stops")
				return
			}
			mu.Lock()
			defer mu.Unlock()
			past = append(past, member)
		})
	}
	all.Wait()
	return past
}
