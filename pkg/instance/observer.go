package instance

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/postgres"
	"github.com/pgop/postgres-operator/pkg/postgres/pgrun"
)

const (
	// observeTimeout bounds one look at the server.
	observeTimeout = time.Second
	// observeEvery is how often readiness is looked at without being asked.
	observeEvery = time.Second
	// freshEnough is how old an observation may be that the API answers with.
	freshEnough = 200 * time.Millisecond
	// settingsEvery is how often the slower question is asked which parameters
	// wait for a restart.
	settingsEvery = 5 * time.Second
	// takenFor is how long no connection must be left before that is news, and
	// takenRest how long some must be left before it is over.
	takenFor, takenRest = 3 * time.Second, 30 * time.Second
)

// observation is what the server says of itself. Answers is false when it says
// nothing; the rest is then zero.
type observation struct {
	Answers  bool
	Recovery bool
	Version  string
	Timeline uint32
	// Written, Received and Replayed are LSNs, empty where they have no meaning.
	Written, Received, Replayed string
	Streaming                   bool
	// Taken: an ordinary user would get no connection.
	Taken    bool
	Standbys []instanceapi.Standby
	Slots    []instanceapi.Slot
	Pending  pending
}

// pending are parameters whose new value needs a restart, each list sorted.
type pending struct {
	// Configured are the configuration's, System those set by ALTER SYSTEM.
	Configured, System []string
	// Raised and Lowered are those of Configured that standbys need, too.
	Raised, Lowered []string
	// SystemSet are what standbys need, too, and ALTER SYSTEM has set.
	SystemSet []string
}

// observer asks the server how it is, over one connection that it keeps.
type observer struct {
	server *pgrun.Server
	// runs says whether there is a server to ask, so that an agent without one
	// does not try.
	runs func() bool

	mu   sync.Mutex
	last observation
	at   time.Time
	// answeredAt is when the server last answered, zero: what it said no longer
	// holds.
	answeredAt time.Time
	settingsAt time.Time
	// takenSince and takenAt are when all connections were seen taken, first and
	// last; zero: they were not of late.
	takenSince, takenAt time.Time
}

// observe returns an observation that is no older than maxAge.
func (o *observer) observe(ctx context.Context, maxAge time.Duration) observation {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.at.IsZero() && time.Since(o.at) < maxAge {
		return o.last
	}
	if !o.runs() {
		o.last, o.at, o.answeredAt = observation{}, time.Now(), time.Time{}
		return o.last
	}
	// A look that ends for its caller's sake would be a wrong answer for the next
	// one.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), observeTimeout)
	defer cancel()
	got, err := o.look(ctx)
	o.note(got, err, time.Now())
	o.noteTaken(got.Taken || isRefusedForLack(err), time.Now())
	if err == nil {
		o.lookAtSettings(ctx)
	}
	return o.last
}

// note takes note of a look. A server that gives no answer for a moment, as on a
// busy machine, counts as it was before; one that refuses, as when it shuts down,
// does not.
func (o *observer) note(got observation, err error, now time.Time) {
	silent := errors.Is(err, context.DeadlineExceeded)
	switch {
	case err == nil:
		got.Pending = o.last.Pending
		o.last, o.answeredAt = got, now
	case !silent || o.answeredAt.IsZero() || now.Sub(o.answeredAt) >= blip:
		o.last, o.answeredAt = observation{}, time.Time{}
	}
	o.at = now
}

// noteTaken takes note of whether all connections were taken.
func (o *observer) noteTaken(taken bool, now time.Time) {
	switch {
	case taken && o.takenSince.IsZero():
		o.takenSince, o.takenAt = now, now
	case taken:
		o.takenAt = now
	case now.Sub(o.takenAt) >= takenRest:
		o.takenSince, o.takenAt = time.Time{}, time.Time{}
	}
}

// connectionsTaken says whether, of late, clients get no connection.
func (o *observer) connectionsTaken() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.takenAt.Sub(o.takenSince) >= takenFor
}

// isRefusedForLack says whether the server had no connection left, even for its agent.
func isRefusedForLack(err error) bool {
	const tooManyConnections = "53300"
	refused := pgrun.ServerError(err)
	return refused != nil && refused.Code == tooManyConnections
}

// recent is the last observation.
func (o *observer) recent() observation {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.last
}

// forget makes the next observe look again.
func (o *observer) forget() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.at, o.answeredAt, o.settingsAt = time.Time{}, time.Time{}, time.Time{}
	o.takenSince, o.takenAt = time.Time{}, time.Time{}
}

// lookQuery works on a primary and in recovery: functions that belong to the
// other are never called. A receiver says that it streams from its start on, while it
// waits for the primary to let it, and while it ends because that has refused. One that
// does stream waits for more, or has got a message: until the first both times are one.
const lookQuery = `
SELECT r.recovery, current_setting('server_version'),
  CASE WHEN NOT r.recovery THEN pg_current_wal_lsn()::text END,
  CASE WHEN NOT r.recovery THEN ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::bigint
    ELSE coalesce((SELECT received_tli FROM pg_stat_wal_receiver), (SELECT timeline_id FROM pg_control_checkpoint())) END,
  CASE WHEN r.recovery THEN pg_last_wal_receive_lsn()::text END,
  CASE WHEN r.recovery THEN pg_last_wal_replay_lsn()::text END,
  EXISTS (SELECT FROM pg_stat_wal_receiver r JOIN pg_stat_activity a USING (pid)
    WHERE r.status = 'streaming' AND coalesce(a.wait_event, '') NOT ILIKE 'libpqwalreceiver%'
      AND (a.wait_event = 'WalReceiverMain' OR r.last_msg_send_time <> r.last_msg_receipt_time)),
  (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend') >= current_setting('max_connections')::int
    - current_setting('superuser_reserved_connections')::int - coalesce(current_setting('reserved_connections', true)::int, 0)
FROM (SELECT pg_is_in_recovery() AS recovery) r`

func (o *observer) look(ctx context.Context) (observation, error) {
	got := observation{Answers: true}
	var version string
	var written, received, replayed sql.NullString
	if err := o.server.Row(ctx, lookQuery, &got.Recovery, &version, &written, &got.Timeline, &received, &replayed,
		&got.Streaming, &got.Taken); err != nil {
		return observation{}, fmt.Errorf("ask the server how it is: %w", err)
	}
	parsed, err := postgres.ParseVersion(version)
	if err != nil {
		return observation{}, err
	}
	got.Version = parsed.Text
	got.Written, got.Received, got.Replayed = written.String, received.String, replayed.String
	if got.Recovery {
		return got, nil
	}
	return got, errors.Join(o.lookAtStandbys(ctx, &got), o.lookAtSlots(ctx, &got))
}

func (o *observer) lookAtStandbys(ctx context.Context, got *observation) error {
	return o.server.Rows(ctx, `SELECT application_name, state, coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), flush_lsn), -1)::bigint,
		coalesce(sync_state, 'async') <> 'async'
		FROM pg_stat_replication ORDER BY application_name, pid`,
		func(scan func(...any) error) error {
			var s instanceapi.Standby
			err := scan(&s.Name, &s.State, &s.LagBytes, &s.Sync)
			s.Name, s.DataID = postgres.ParseStandbyName(s.Name)
			got.Standbys = append(got.Standbys, s)
			return err
		})
}

func (o *observer) lookAtSlots(ctx context.Context, got *observation) error {
	return o.server.Rows(ctx, `SELECT slot_name, active, coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn), 0)::bigint
		FROM pg_replication_slots WHERE slot_type = 'physical' ORDER BY slot_name`,
		func(scan func(...any) error) error {
			var s instanceapi.Slot
			err := scan(&s.Name, &s.Active, &s.KeptBytes)
			got.Slots = append(got.Slots, s)
			return err
		})
}

// pendingQuery finds the parameters that wait for a restart, with the value that
// a start would give them and whether that is from ALTER SYSTEM. What the
// configuration no longer names goes back to its default, and the server says that
// it waits even if it has the default.
const pendingQuery = `
SELECT s.name, s.setting, coalesce(f.setting, s.boot_val, ''), coalesce(f.sourcefile LIKE '%postgresql.auto.conf', false)
FROM pg_settings s LEFT JOIN LATERAL (SELECT setting, sourcefile FROM pg_file_settings
  WHERE lower(name) = lower(s.name) ORDER BY seqno DESC LIMIT 1) f ON true
WHERE s.pending_restart AND (f.setting IS NOT NULL OR s.setting IS DISTINCT FROM s.boot_val) ORDER BY lower(s.name)`

func (o *observer) lookAtSettings(ctx context.Context) {
	if time.Since(o.settingsAt) < settingsEvery {
		return
	}
	got, err := askPending(ctx, o.server)
	if err != nil {
		return // the next look asks again
	}
	o.last.Pending, o.settingsAt = got, time.Now()
}

func askPending(ctx context.Context, server *pgrun.Server) (pending, error) {
	var got pending
	err := server.Rows(ctx, pendingQuery, func(scan func(...any) error) error {
		var name, now, next string
		var bySQL bool
		if err := scan(&name, &now, &next, &bySQL); err != nil {
			return err
		}
		got.add(name, now, next, bySQL)
		return nil
	})
	if err != nil {
		return pending{}, fmt.Errorf("ask for parameters that wait for a restart: %w", err)
	}
	err = server.Rows(ctx, "SELECT name FROM pg_settings WHERE sourcefile LIKE '%postgresql.auto.conf' ORDER BY name", func(scan func(...any) error) error {
		var name string
		err := scan(&name)
		if slices.Contains(postgres.StandbyParameters, name) {
			got.SystemSet = append(got.SystemSet, name)
		}
		return err
	})
	if err != nil {
		return pending{}, fmt.Errorf("ask for parameters that ALTER SYSTEM has set: %w", err)
	}
	return got, nil
}

// add takes note of a parameter that has the value now, and would have next after
// a restart.
func (p *pending) add(name, now, next string, bySQL bool) {
	if bySQL {
		p.System = append(p.System, name)
		return
	}
	p.Configured = append(p.Configured, name)
	if !slices.Contains(postgres.StandbyParameters, name) {
		return
	}
	before, err := postgres.ParseInteger(now)
	after, errAfter := postgres.ParseInteger(next)
	switch {
	case err != nil || errAfter != nil: // then the server has not accepted it either
	case after > before:
		p.Raised = append(p.Raised, name)
	case after < before:
		p.Lowered = append(p.Lowered, name)
	}
}

// into puts what the server says into a state. A replica that streamed a moment ago
// counts as streaming as long as its server answers.
func (o observation) into(s *instanceapi.State) {
	s.Streaming = o.Streaming || o.Recovery && s.Streaming
	s.ServerVersion, s.Timeline = o.Version, o.Timeline
	s.WrittenLSN, s.ReceivedLSN, s.ReplayedLSN = o.Written, o.Received, o.Replayed
	s.Standbys, s.Slots = o.Standbys, o.Slots
	s.SystemSet = o.Pending.SystemSet
	s.PendingRestart, s.Raised, s.Lowered, s.PendingSystem = o.Pending.Configured, o.Pending.Raised, o.Pending.Lowered, o.Pending.System
}

// volumeSize is the size of the filesystem that holds path, and what of it is
// free to us, in bytes.
func volumeSize(path string) (size, free uint64, err error) {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(path, &fs); err != nil {
		return 0, 0, fmt.Errorf("ask for the size of the volume: %w", err)
	}
	return fs.Blocks * uint64(fs.Bsize), fs.Bavail * uint64(fs.Bsize), nil
}

// leastFree is what is free, in bytes, on the fuller of the data volume and the
// WAL volume. Without room on either a primary can't work.
func (v volume) leastFree() (uint64, error) {
	_, free, err := volumeSize(v.mount)
	if err != nil || v.walMount == "" {
		return free, err
	}
	_, wal, err := volumeSize(v.walMount)
	return min(free, wal), err
}
