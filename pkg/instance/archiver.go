package instance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/pgop/postgres-operator/pkg/instance/walcall"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
)

const (
	// retryEvery is how often a file is tried again that could not be archived. The
	// server itself may wait for a minute.
	retryEvery = 5 * time.Second
	// slowAfter is from when on a store that has neither taken a file nor refused it
	// counts as failing: a connection may hang for many minutes.
	slowAfter = 30 * time.Second
	// countEvery bounds how often the files are counted that wait.
	countEvery = 2 * time.Second
)

// errHeld is why requests end while nothing may be archived.
var errHeld = errors.New("the server is stopping, or not in service yet")

// archiver answers the server's archive_command with what has really become of the
// file, and remembers how it goes.
type archiver struct {
	view     *view
	log      *logrus.Entry
	deposits *deposits
	// systemID is the database's, empty: it is not known.
	systemID func() string
	room     *room
	now      func() time.Time
	// patience is slowAfter, but in tests.
	patience time.Duration

	mu    sync.Mutex
	state instanceapi.ArchiveState
	// service ends when nothing may be archived any more; nil: nothing may be now.
	// It ends by end, which a timer may call.
	service context.Context
	end     context.CancelCauseFunc
	// grace is how much longer service lasts when it is to end.
	grace     time.Duration
	countedAt time.Time
}

// serve lets files be archived: the server is in service.
func (a *archiver) serve() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.service != nil && a.service.Err() == nil && a.grace == 0 {
		return
	}
	a.service, a.end = context.WithCancelCause(context.Background())
	a.grace = 0
}

// hold ends what is being archived, and lets nothing be until serve: a server does
// not stop before its archive_command has answered for the last segment. A server
// that is about to stop in order may have been given a little time for that.
func (a *archiver) hold() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.service == nil {
		return
	}
	end := a.end
	if a.grace == 0 {
		end(errHeld)
		a.service = nil
		return
	}
	time.AfterFunc(a.grace, func() { end(errHeld) })
}

// allow gives what is being archived that much longer when hold is called next.
func (a *archiver) allow(grace time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.grace = grace
}

// inService is the context that ends with service; nil: there is none.
func (a *archiver) inService() context.Context {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.service == nil || a.service.Err() != nil {
		return nil
	}
	return a.service
}

// archive answers for a file.
func (a *archiver) archive(ctx context.Context, name string) (exit int, words string) {
	known := a.view.knownConfig()
	service := a.inService()
	switch {
	case known.Known && known.Config.Backups == nil:
		return walcall.Done, "" // there is no archive that could need it
	case service == nil:
		return walcall.Abort, errHeld.Error()
	case !known.Known:
		return walcall.Failed, "the cluster's configuration is not known yet"
	}
	err := a.push(service, ctx, known.Config.Backups.Store, name)
	switch {
	case err == nil:
		return walcall.Done, ""
	case errors.Is(err, errHeld):
		return walcall.Abort, errHeld.Error()
	}
	return walcall.Failed, err.Error()
}

// push archives a file, unless either context ends first.
func (a *archiver) push(service, ctx context.Context, in instanceapi.Store, name string) error {
	defer a.room.enter()()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(service, func() { cancel(context.Cause(service)) })
	defer stop()
	pushing, pushed := context.WithCancel(ctx)
	defer time.AfterFunc(a.patience, func() { a.noteSlow(pushing, name) }).Stop()
	d, err := a.deposits.deposit(in, a.systemID())
	if err == nil {
		err = d.pusher.Push(ctx, name)
	}
	pushed() // what is noted from here on is how it has ended
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return cause // it says nothing about the archive
	}
	a.note(name, err)
	return err
}

// note takes note of how archiving a file has ended.
func (a *archiver) note(name string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now, before := a.now().UTC(), a.state.Failing
	if err == nil {
		a.state.Archived, a.state.ArchivedAt = name, now
		a.state.Failing, a.state.FailingSince = "", time.Time{}
		if before != "" {
			a.log.WithField("file", name).Info("archiving works again")
		}
		return
	}
	a.failLocked(err, now)
}

// noteSlow takes note that a file is still on its way, unless pushing has ended.
func (a *archiver) noteSlow(pushing context.Context, name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if pushing.Err() == nil {
		a.failLocked(fmt.Errorf("archive %s: the store has neither taken nor refused it for %s; it is still being tried", name, a.patience), a.now().UTC())
	}
}

func (a *archiver) failLocked(err error, now time.Time) {
	text := err.Error()
	if a.state.Failing != text {
		a.log.WithError(err).Error("archiving fails")
	}
	if a.state.Failing == "" {
		a.state.FailingSince = now
	}
	a.state.Failing, a.state.Failed, a.state.FailedAt = text, text, now
}

// report is how archiving goes; nil: there are no backups, or there is nothing to
// tell.
func (a *archiver) report() *instanceapi.ArchiveState {
	known := a.view.knownConfig()
	a.mu.Lock()
	defer a.mu.Unlock()
	if !known.Known || known.Config.Backups == nil {
		a.state = instanceapi.ArchiveState{} // what comes later is another matter
		return nil
	}
	if now := a.now(); now.Sub(a.countedAt) >= countEvery {
		a.countedAt = now
		if waiting, err := a.waiting(); err == nil { // else it is not known
			a.state.Waiting = len(waiting)
		}
	}
	if (a.state == instanceapi.ArchiveState{}) {
		return nil
	}
	report := a.state
	return &report
}

// waiting are the files that the server wants archived, in order.
func (a *archiver) waiting() ([]string, error) {
	entries, err := os.ReadDir(a.deposits.dir + "/archive_status")
	if err != nil {
		return nil, fmt.Errorf("look for WAL that waits to be archived: %w", err)
	}
	var names []string
	for _, entry := range entries {
		if name, ready := strings.CutSuffix(entry.Name(), ".ready"); ready {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// run tries again what has failed, until ctx ends: the server does so, too, but
// waits for up to a minute.
func (a *archiver) run(ctx context.Context) {
	ticker := time.NewTicker(retryEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			a.retry(ctx)
		}
	}
}

func (a *archiver) retry(ctx context.Context) {
	known, service := a.view.knownConfig(), a.inService()
	a.mu.Lock()
	failing := a.state.Failing != ""
	a.mu.Unlock()
	if !failing || service == nil || !known.Known || known.Config.Backups == nil {
		return
	}
	waiting, err := a.waiting()
	switch {
	case err != nil:
		return // the server will ask
	case len(waiting) > 0:
		_ = a.push(service, ctx, known.Config.Backups.Store, waiting[0]) // it has been noted
	default:
		_ = a.claim(ctx, known.Config.Backups.Store)
	}
}

// claim sees that the archive is this cluster's, or makes it so. What is wrong with
// the store shows before the first file is to go there. While a file waits, only the
// archiving of that shows that all is well: a claim that came about once is remembered.
func (a *archiver) claim(ctx context.Context, in instanceapi.Store) error {
	const longest = 30 * time.Second
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	d, err := a.deposits.deposit(in, a.systemID())
	if err == nil {
		err = d.repository.Claim(ctx)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil {
		a.failLocked(err, a.now().UTC())
		return err
	}
	if waiting, err := a.waiting(); a.state.Failing != "" && err == nil && len(waiting) == 0 {
		a.state.Failing, a.state.FailingSince = "", time.Time{}
		a.log.Info("the store for WAL is there again")
	}
	return nil
}
