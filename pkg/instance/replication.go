package instance

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/lib/pq"
	"github.com/sirupsen/logrus"

	"github.com/pgop/postgres-operator/pkg/election"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/postgres"
	"github.com/pgop/postgres-operator/pkg/postgres/pgrun"
)

const (
	// standbysEvery is how often a primary looks at its standbys when nothing is
	// under way, and standbysSoon when a change of S is.
	standbysEvery = time.Second
	standbysSoon  = 50 * time.Millisecond
	// standbysTimeout bounds one look.
	standbysTimeout = 2 * time.Second
)

// walsender is a row of pg_stat_replication.
type walsender struct {
	pid     int
	name    string
	state   string
	address string
	flushed postgres.LSN
	began   time.Time
}

// replication looks after a primary's standbys: it tells the election core who
// streams, and carries out changes of synchronous_standby_names, S. A change is
// done only when every process has it, which SHOW does not say: the checkpointer
// alone lets commits wait, and each walsender keeps its own copy of S.
type replication struct {
	agent *Agent
	sql   *pgrun.Server
	log   *logrus.Entry

	// kicked makes run look at once.
	kicked chan struct{}

	mu sync.Mutex
	// want is what the core asks for; nil: nothing yet.
	want *election.Sync
	// installed is what the configuration on disk says.
	installed election.Sync
	// seen is what the core is told; nil while there is no primary to look at.
	seen *election.Primary

	// The rest is the goroutine's.
	change syncChange
	// startEnd is the end of WAL when the server was first seen writing.
	startEnd postgres.LSN
}

// syncChange is how far a change of S has come.
type syncChange struct {
	server *server
	// applied is S, as the server has been told.
	applied election.Sync
	// waits is true once commits have been seen to wait in this server's life.
	waits bool
	done  bool
	since postgres.LSN
	// leaving are the names of standbys that must not acknowledge any more.
	leaving []string
	// untold is true until the server has been told of applied, which was last tried
	// at toldAt.
	untold bool
	toldAt time.Time
	// marker is WAL that was written after the change, at the moment markedAt.
	marker   postgres.LSN
	markedAt time.Time
}

// ask says what S shall be.
func (r *replication) ask(want *election.Sync) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if want != nil {
		if r.want == nil || !equalSync(*r.want, *want) {
			defer r.kick()
		}
		copied := election.Sync{Need: want.Need, Standbys: slices.Clone(want.Standbys)}
		r.want = &copied
	}
}

// primary is what the core is told; nil while no server writes.
func (r *replication) primary() *election.Primary {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seen
}

// kick makes run look at once.
func (r *replication) kick() {
	select {
	case r.kicked <- struct{}{}:
	default:
	}
}

// names is synchronous_standby_names as it is installed.
func (r *replication) names() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return syncNames(r.installed)
}

// beginWith says what S a server starts with that is about to write: as many
// acknowledgements as are needed, by nobody, until waiting is known to be in
// force.
func (r *replication) beginWith(c election.Settings) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.want, r.seen, r.installed = nil, nil, election.Sync{}
	if c.Mode != election.Async {
		r.installed.Need = c.Need
	}
}

// reset forgets S, for a server that does not write.
func (r *replication) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.want, r.seen, r.installed = nil, nil, election.Sync{}
}

func syncNames(s election.Sync) string {
	var names []string
	for _, m := range s.Standbys {
		names = append(names, postgres.StandbyName(m.Instance, m.DataID))
	}
	return postgres.RenderSync(s.Need, names)
}

// run looks after the standbys until ctx ends.
func (r *replication) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	failing := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-r.kicked:
		}
		err := r.look(ctx)
		text := ""
		if err != nil {
			text = err.Error()
		}
		if text != failing && text != "" && r.agent.runningAs().answers() {
			r.log.WithError(err).Warn("looking after the standbys failed")
		}
		failing = text
		timer.Reset(r.pause())
	}
}

func (r *replication) pause() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen != nil && (!r.change.done || r.want != nil && !equalSync(r.change.applied, *r.want)) || r.agent.isPreparing() {
		return standbysSoon
	}
	return standbysEvery
}

func equalSync(a, b election.Sync) bool {
	return a.Need == b.Need && slices.Equal(a.Standbys, b.Standbys)
}

// look looks at the standbys once, and takes a step of a change of S.
func (r *replication) look(ctx context.Context) error {
	running := r.agent.runningAs()
	if running.Role != instanceapi.RolePrimary || !running.answers() || !running.Reigning {
		r.forget()
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, standbysTimeout)
	defer cancel()
	r.mu.Lock()
	want, installed := r.want, r.installed
	r.mu.Unlock()
	if r.change.server != running.server {
		r.change, r.startEnd = syncChange{server: running.server, applied: installed, done: installed.Need == 0}, 0
		r.sql.Disconnect()
	}
	end, timeline, err := r.endOfWAL(ctx)
	if err != nil {
		r.forget()
		return err
	}
	if err := r.noticeOthersWork(ctx); err != nil {
		return err
	}
	if r.startEnd == 0 {
		r.startEnd, r.change.since = end, end
	}
	rows, err := r.walsenders(ctx)
	if err != nil {
		return err
	}
	if want != nil {
		err = r.advance(ctx, *want, rows)
	}
	r.tell(end, timeline, rows)
	return err
}

func (r *replication) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = nil
}

// tell hands on what was seen.
func (r *replication) tell(end postgres.LSN, timeline uint32, rows []walsender) {
	c := r.change
	seen := &election.Primary{End: end, Timeline: timeline, Recovered: r.startEnd,
		Sync: election.Sync{Need: c.applied.Need, Standbys: slices.Clone(c.applied.Standbys)}, SyncDone: c.done, SyncSince: c.since}
	instances := r.agent.view.knownConfig().Config.Members
	for _, w := range newestOfEach(rows) {
		instance, dataID := postgres.ParseStandbyName(w.name)
		if dataID == "" || w.state != "streaming" || !slices.Contains(instances, instance) {
			continue // one that the operator removes is to be a member no more
		}
		standby := election.Standby{Member: election.Member{Instance: instance, DataID: dataID}, Flushed: w.flushed, Address: w.address}
		seen.Standbys = append(seen.Standbys, standby)
	}
	r.mu.Lock()
	before := r.seen
	r.seen = seen
	r.mu.Unlock()
	if before == nil || before.SyncDone != seen.SyncDone || len(before.Standbys) != len(seen.Standbys) ||
		!seen.SyncDone || r.agent.isPreparing() {
		r.agent.wakeUp()
	}
}

// newestOfEach leaves out walsenders that another of the same instance has
// replaced: they hang on a connection that is dead.
func newestOfEach(rows []walsender) []walsender {
	newest := map[string]walsender{}
	for _, w := range rows {
		instance, _ := postgres.ParseStandbyName(w.name)
		if other, found := newest[instance]; !found || w.began.After(other.began) {
			newest[instance] = w
		}
	}
	var kept []walsender
	for _, w := range newest {
		kept = append(kept, w)
	}
	slices.SortFunc(kept, func(a, b walsender) int { return cmp.Compare(a.name, b.name) })
	return kept
}

func (r *replication) endOfWAL(ctx context.Context) (postgres.LSN, uint32, error) {
	var text string
	var timeline uint32
	err := r.sql.Row(ctx, `SELECT pg_current_wal_flush_lsn()::text, ('x' || substr(pg_walfile_name(pg_current_wal_flush_lsn()), 1, 8))::bit(32)::bigint`,
		&text, &timeline)
	if err != nil {
		return 0, 0, fmt.Errorf("ask for the end of the WAL: %w", err)
	}
	end, err := postgres.ParseLSN(text)
	return end, timeline, err
}

func (r *replication) walsenders(ctx context.Context) ([]walsender, error) {
	var rows []walsender
	err := r.sql.Rows(ctx, `SELECT pid, application_name, state, coalesce(host(client_addr), ''), coalesce(flush_lsn::text, '0/0'), backend_start
		FROM pg_stat_replication`,
		func(scan func(...any) error) error {
			var w walsender
			var flushed string
			if err := scan(&w.pid, &w.name, &w.state, &w.address, &flushed, &w.began); err != nil {
				return err
			}
			var err error
			w.flushed, err = postgres.ParseLSN(flushed)
			rows = append(rows, w)
			return err
		})
	if err != nil {
		return nil, fmt.Errorf("look at standbys: %w", err)
	}
	return rows, nil
}

// advance takes a step towards S as it is wanted.
func (r *replication) advance(ctx context.Context, want election.Sync, rows []walsender) error {
	c := &r.change
	switch {
	case want.Need > 0 && !c.waits && (c.applied.Need != want.Need || len(c.applied.Standbys) > 0):
		return r.install(ctx, election.Sync{Need: want.Need}, rows)
	case c.untold && time.Since(c.toldAt) < standbysEvery:
		return nil
	case c.untold:
		return r.tellServer(ctx, rows)
	case want.Need > 0 && !c.waits:
		return r.proveWaiting(ctx)
	case !equalSync(c.applied, want):
		return r.install(ctx, want, rows)
	case !c.done:
		return r.finish(ctx, rows)
	}
	return nil
}

// install begins a change of S.
func (r *replication) install(ctx context.Context, to election.Sync, rows []walsender) error {
	c := &r.change
	r.log.WithField("synchronous_standby_names", syncNames(to)).Info("changing who acknowledges commits")
	c.done, c.marker = false, 0
	for _, m := range c.applied.Standbys {
		if !slices.Contains(to.Standbys, m) {
			c.leaving = append(c.leaving, postgres.StandbyName(m.Instance, m.DataID))
		}
	}
	for _, m := range to.Standbys {
		c.leaving = slices.DeleteFunc(c.leaving, func(name string) bool { return name == postgres.StandbyName(m.Instance, m.DataID) })
	}
	r.mu.Lock()
	r.installed = to
	r.mu.Unlock()
	c.applied = to
	if to.Need == 0 {
		c.waits = false
	}
	return r.tellServer(ctx, rows)
}

// tellServer writes S and lets the server read it. The postmaster passes the
// signal on to every process, in no order; walsenders are signalled here as well,
// so that each has the signal before the marker is written. If anything fails, as
// on a full volume, all of it is done again.
func (r *replication) tellServer(ctx context.Context, rows []walsender) error {
	r.change.untold, r.change.toldAt = true, time.Now()
	if err := r.agent.installInstance(upstream{}); err != nil {
		return err
	}
	if err := reloadServer(ctx, r.sql, r.change.server); err != nil {
		return err
	}
	if err := r.mustBeInForce(ctx); err != nil {
		return err
	}
	for _, w := range rows {
		if err := syscall.Kill(w.pid, syscall.SIGHUP); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("signal walsender %d: %w", w.pid, err)
		}
	}
	return r.mark(ctx)
}

// noticeOthersWork begins the change of S anew when the server has another value
// than it was told, as a superuser can bring about.
func (r *replication) noticeOthersWork(ctx context.Context) error {
	if !r.change.done {
		return nil // it is seen when the change is made
	}
	inForce, err := r.inForce(ctx)
	if err == nil && inForce != syncNames(r.change.applied) {
		r.log.WithField("synchronous_standby_names", inForce).Warn("somebody has changed who acknowledges commits; it is changed back")
		r.change.done, r.change.untold, r.change.waits = false, true, false
	}
	return err
}

// mustBeInForce returns an error unless the server has S as it was told. What
// ALTER SYSTEM has set would win over it, and is taken back.
func (r *replication) mustBeInForce(ctx context.Context) error {
	inForce, err := r.inForce(ctx)
	if err != nil || inForce == syncNames(r.change.applied) {
		return err
	}
	if err := r.sql.Exec(ctx, "ALTER SYSTEM RESET synchronous_standby_names"); err != nil {
		return fmt.Errorf("take ALTER SYSTEM SET synchronous_standby_names back: %w", err)
	}
	return fmt.Errorf("synchronous_standby_names is %q and should be %q; it is set again", inForce, syncNames(r.change.applied))
}

func (r *replication) inForce(ctx context.Context) (string, error) {
	var names string
	if err := r.sql.Row(ctx, "SELECT current_setting('synchronous_standby_names')", &names); err != nil {
		return "", fmt.Errorf("ask for synchronous_standby_names: %w", err)
	}
	return names, nil
}

// mark writes WAL, so that walsenders have something to report.
func (r *replication) mark(ctx context.Context) error {
	if err := r.sql.Exec(ctx, "SELECT pg_logical_emit_message(true, 'pgop', 'marker')"); err != nil {
		return fmt.Errorf("write a marker into the WAL: %w", err)
	}
	end, _, err := r.endOfWAL(ctx)
	if err != nil {
		return err
	}
	r.change.untold, r.change.marker, r.change.markedAt = false, end, time.Now()
	return nil
}

// finish sees whether every process has S: the walsenders of who may not
// acknowledge any more are gone, and every other has reported WAL that was
// written after the change.
func (r *replication) finish(ctx context.Context, rows []walsender) error {
	c := &r.change
	if c.marker == 0 {
		return r.tellServer(ctx, rows) // what it started with
	}
	const patience = time.Second
	behind := false
	for _, w := range rows {
		instance, dataID := postgres.ParseStandbyName(w.name)
		listed := slices.Contains(c.applied.Standbys, election.Member{Instance: instance, DataID: dataID})
		switch {
		case slices.Contains(c.leaving, w.name),
			listed && w.flushed < c.marker && time.Since(c.markedAt) > patience:
			// It comes back with the new S, if it comes back.
			behind = true
			if err := r.terminate(ctx, w.pid); err != nil {
				return err
			}
		case listed && w.flushed < c.marker:
			behind = true
		}
	}
	if behind {
		return nil
	}
	end, _, err := r.endOfWAL(ctx)
	if err != nil {
		return err
	}
	c.done, c.since, c.leaving = true, end, nil
	return nil
}

func (r *replication) terminate(ctx context.Context, pid int) error {
	if err := r.sql.Exec(ctx, fmt.Sprintf("SELECT pg_terminate_backend(%d)", pid)); err != nil {
		return fmt.Errorf("end walsender %d: %w", pid, err)
	}
	return nil
}

const canaryName = "pgop-canary"

// proveWaiting commits something, and sees whether the commit waits.
func (r *replication) proveWaiting(ctx context.Context) error {
	canary, err := pgrun.OpenAs(r.agent.options.RunDir, r.agent.options.Port, "postgres",
		map[string]string{"application_name": canaryName, "synchronous_commit": "on"})
	if err != nil {
		return err
	}
	defer canary.Close()
	ended := make(chan error, 1)
	go func() { ended <- canary.Exec(ctx, "SELECT pg_logical_emit_message(true, 'pgop', 'canary')") }()
	for {
		var pid int
		err := r.sql.Row(ctx, `SELECT pid FROM pg_stat_activity WHERE application_name = `+pq.QuoteLiteral(canaryName)+` AND wait_event = 'SyncRep'`, &pid)
		switch {
		case err == nil:
			r.change.waits = true
			return r.terminate(ctx, pid)
		case !errors.Is(err, sql.ErrNoRows):
			return fmt.Errorf("see whether commits wait: %w", err)
		}
		select {
		case err := <-ended:
			if err != nil {
				return fmt.Errorf("see whether commits wait: %w", err)
			}
			return nil // it did not: the next look tries again
		case <-time.After(10 * time.Millisecond):
		}
	}
}
