package instance

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/pgop/postgres-operator/pkg/election"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/postgres"
)

// successor is the member that is to take over: the one that was asked for, or
// the one that has most of the WAL. Why says what keeps it from that.
func successor(want string, record election.Record, standbys []election.Standby) (name, why string) {
	isMember := func(s election.Standby) bool { return slices.Contains(record.Members, s.Member) }
	var best *election.Standby
	for _, s := range standbys {
		if !isMember(s) || want != "" && s.Instance != want {
			continue
		}
		if best == nil || s.Flushed > best.Flushed {
			best = &s
		}
	}
	switch {
	case best != nil:
		return best.Instance, ""
	case want != "":
		return "", want + " can't take over: it does not stream, is too far behind, or may lack what was committed"
	}
	return "", "no replica can take over: none streams and has what was committed"
}

// handoverState is what a primary knows that gives way, or may have to.
type handoverState struct {
	// resign is there once the server has stopped for another to reign, and
	// resignAt is since when.
	resign   *election.Resign
	resignAt time.Time
	// halt is there once the server has stopped for nobody to reign.
	halt     *election.Halt
	haltedAt time.Time
	// gaveIn is true while another instance is to be promoted by force.
	gaveIn bool
	// refused is a switchover that failed, and is not tried again.
	refused *instanceapi.Switchover
	// downSince is since when a primary's server has not been up, and upSince
	// since when it has; one of them is zero.
	downSince, upSince time.Time
	// roomier is a member with room on its volume while this one's is full, and
	// gaveRoomAt when this one has given way for such a member.
	roomier    string
	gaveRoomAt time.Time
}

// roomPatience is for how long a primary goes on with a full volume that has given way
// and leads again, since nobody has taken over.
const roomPatience = time.Minute

// checkpointPatience is how long the checkpoint before a shutdown may take.
const checkpointPatience = 30 * time.Second

// switchover hands over in order to a replica. Clients are without a primary
// from the shutdown on, so everything that takes time comes before.
func (a *Agent) switchover(ctx context.Context, to string) error {
	began := time.Now()
	a.log.WithField("to", to).Info("handing over")
	before, cancel := context.WithTimeout(ctx, checkpointPatience)
	defer cancel()
	if err := a.checkpoint(before); err != nil {
		return fmt.Errorf("hand over to %s: %w", to, err)
	}
	a.status.enter(instanceapi.PhaseStopping, "handing over to "+to)
	// The rw EndpointSlice is left as it is for the moment: clients are refused
	// here, and try again at once, while a Service without endpoints often lets
	// them wait.
	stopped := time.Now()
	const orderly, quick = 5 * time.Second, time.Second
	if err := a.endServer(ctx, []stopStep{{syscall.SIGINT, orderly}, {syscall.SIGQUIT, quick}}); err != nil {
		return err
	}
	if err := a.awaitWhole(ctx, to); err != nil {
		return fmt.Errorf("hand over to %s: %w", to, err) // the loop starts the server again
	}
	a.log.WithField("to", to).WithField("prepared", stopped.Sub(began).Round(time.Millisecond).String()).
		WithField("stopped", time.Since(stopped).Round(time.Millisecond).String()).Info("released the Lease")
	a.resign, a.resignAt = &election.Resign{Nominee: to}, time.Now()
	return nil
}

// awaitWhole waits until the instance has the WAL to its very end, the shutdown
// checkpoint.
func (a *Agent) awaitWhole(ctx context.Context, instance string) error {
	end, err := a.shutdownCheckpoint(ctx)
	if err != nil {
		return err
	}
	return a.awaitPast(ctx, instance, end)
}

// shutdownCheckpoint is where the server, which has ended, wrote its last record;
// an error if it has not shut down in order.
func (a *Agent) shutdownCheckpoint(ctx context.Context) (postgres.LSN, error) {
	control, err := a.programs.ControlData(ctx, a.volume.data())
	if err != nil {
		return 0, err
	}
	if control.State != "shut down" {
		return 0, fmt.Errorf("the server has not shut down in order (%s)", control.State)
	}
	return control.CheckpointLSN, nil
}

// awaitPast waits until the instance has received the shutdown checkpoint.
func (a *Agent) awaitPast(ctx context.Context, instance string, checkpoint postgres.LSN) error {
	const longest = 2 * time.Second
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	last := postgres.LSN(0)
	for {
		if peer, err := a.peers.peer(ctx, instance); err == nil {
			last = peer.Received
		}
		if last > checkpoint {
			return nil
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return fmt.Errorf("it has WAL up to %s, and the shutdown checkpoint is at %s", last, checkpoint)
		}
	}
}

// giveWay ends a primary that hurts, so that another can take over; with nobody
// who can, it is started again. One whose volume is full still serves, and so it tries to
// hand over in order first: what it has acknowledged alone goes along.
func (a *Agent) giveWay(ctx context.Context, why string) error {
	a.log.WithField("why", why).Warn("this primary gives way")
	to := a.roomier
	if a.roomier = ""; to != "" {
		a.gaveRoomAt = time.Now()
	}
	if to != "" && a.runningAs().answers() {
		err := a.switchover(ctx, to)
		if err == nil || ctx.Err() != nil {
			return err
		}
		a.log.WithError(err).Warn("handing over in order failed; ending the server")
	}
	a.status.enter(instanceapi.PhaseStopping, why)
	if err := a.killServer(ctx); err != nil {
		return err
	}
	if len(a.view.knownLease().Record.Members) > 0 {
		a.resign, a.resignAt = &election.Resign{}, time.Now()
	}
	return nil
}

// findRoom is a member that has room on its volumes while one of this primary's
// has none for another segment of WAL; empty: there is no need, or no such member, or
// none has taken over lately.
func (a *Agent) findRoom(ctx context.Context) string {
	if !a.gaveRoomAt.IsZero() && time.Since(a.gaveRoomAt) < roomPatience {
		return ""
	}
	free, err := a.volume.leastFree()
	if err != nil || free >= a.segmentSize {
		return ""
	}
	for _, member := range a.view.knownLease().Record.Members {
		const plenty = 4 // else the next one is full in a moment
		if peer, err := a.peers.peer(ctx, member.Instance); err == nil && peer.VolumeFree >= plenty*a.segmentSize {
			return member.Instance
		}
	}
	return ""
}

// checkpoint makes one over a connection of its own, since it may take long.
func (a *Agent) checkpoint(ctx context.Context) error {
	server, err := a.openServer()
	if err != nil {
		return err
	}
	defer server.Close()
	if err := server.Exec(ctx, "CHECKPOINT"); err != nil {
		return fmt.Errorf("make a checkpoint: %w", err)
	}
	return nil
}

// whyGiveWay says why a primary should give way; empty: it should not.
func (a *Agent) whyGiveWay(now running) string {
	ha := a.view.knownConfig().Config.HA
	restart, unresponsive := orDefault(ha.RestartTimeout.Duration), orDefault(ha.UnresponsiveTimeout.Duration)
	canTakeOver := len(a.view.knownLease().Record.Members) > 0
	if a.roomier != "" {
		return fmt.Sprintf("a volume of it is full, and %s has room", a.roomier)
	}
	if now.answers() {
		if !a.downSince.IsZero() || a.upSince.IsZero() {
			a.downSince, a.upSince = time.Time{}, time.Now()
		}
		answered := a.prober.answeredAt()
		if answered.Before(a.upSince) {
			answered = a.upSince // it is asked in a moment
		}
		if silent := time.Since(answered); silent > unresponsive {
			return fmt.Sprintf("the server has answered no new connection for %s", silent.Round(time.Second))
		}
		return ""
	}
	if a.downSince.IsZero() {
		a.downSince, a.upSince = time.Now(), time.Time{}
	}
	if down := time.Since(a.downSince); down > restart && canTakeOver {
		return fmt.Sprintf("the server has not come up within %s", down.Round(time.Second))
	}
	return ""
}

func orDefault(d time.Duration) time.Duration {
	const usual = 15 * time.Second
	if d == 0 {
		return usual
	}
	return d
}

// giveUpResigning goes on as the primary when the Lease can't be written.
func (a *Agent) giveUpResigning() {
	const longest = 5 * time.Second
	if a.resign != nil && time.Since(a.resignAt) > longest {
		a.log.Warn("the Lease could not be released; going on as the primary")
		a.resign = nil
	}
}

// wantedSwitchover is who shall take over as a user asks; empty: nobody.
func (a *Agent) wantedSwitchover(now running) string {
	asked, lease := a.view.knownConfig().Config.Switchover, a.view.knownLease()
	say := func(text string) { a.status.update(func(s *instanceapi.State) { s.Request = text }) }
	switch {
	case asked == nil || asked.From != a.options.Instance || asked.Term != lease.Record.Term:
		say("")
		return ""
	case a.refused != nil && *a.refused == *asked || !now.Open:
		return ""
	}
	to, why := a.successor(asked.To)
	if to == "" {
		say(why)
		return ""
	}
	a.refused = asked // it is tried once
	say("")
	return to
}

func (a *Agent) successor(want string) (name, why string) {
	seen := a.replication.primary()
	if seen == nil {
		return "", "the primary does not know its standbys yet"
	}
	return successor(want, a.view.knownLease().Record, seen.Standbys)
}

// leaveState is how far the end of this pod has come.
type leaveState struct {
	// leaving is true once the pod is to end, and left when nothing keeps it;
	// handedOver and halted say that a primary has been ended for that.
	leaving, left, handedOver, halted bool
}

// leave ends this instance in order: a primary hands over first, if it can and
// the cluster goes on.
func (a *Agent) leave(ctx context.Context, now running) {
	switch {
	case a.resign != nil && time.Since(a.resignAt) < leaseTimeout*2:
		return // the Lease is being released
	case a.halt != nil && a.elector.state.Reigns() && time.Since(a.haltedAt) < leaseTimeout*2:
		return // the record is being written
	case a.halted:
	case a.view.knownConfig().Config.Stop && now.Role == instanceapi.RolePrimary && now.Reigning && a.mayLead():
		a.halted = true
		a.start(ctx, "halt", a.haltServer)
		return
	case now.Open && a.mayLead() && !a.handedOver:
		a.handedOver = true
		if to, why := a.successor(""); to != "" {
			a.start(ctx, "switchover", func(ctx context.Context) error { return a.switchover(ctx, to) })
			return
		} else {
			a.log.WithField("why", why).Warn("stopping without handing over")
		}
	}
	a.left = true
}
