package instance

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/postgres"
)

// demands are values of postgres.StandbyParameters. A standby's data demands at
// least as much as the primary had that wrote it: a server with less does not
// start, and one that runs with less stops to replay.
type demands map[string]int64

// demanded is what a standby on this data needs, as far as it has replayed.
func (a *Agent) demanded(ctx context.Context) (demands, error) {
	control, err := a.programs.ControlData(ctx, a.volume.data())
	return control.Demands, err
}

// lacking is what is demanded and s does not give.
func (a *Agent) lacking(ctx context.Context, s settings, demanded demands) (demands, error) {
	given, err := a.given(ctx, s)
	if err != nil {
		return nil, err
	}
	lacking := demands{}
	for name, demand := range demanded {
		if given[name] < demand {
			lacking[name] = demand
		}
	}
	return lacking, nil
}

// given is what s gives, as the server understands it: its defaults are its own.
func (a *Agent) given(ctx context.Context, s settings) (demands, error) {
	if a.givenBy == s {
		return a.gives, nil
	}
	file, err := a.config.stage(s, "")
	if err != nil {
		return nil, err
	}
	gives := demands{}
	for _, name := range postgres.StandbyParameters {
		text, err := a.programs.Setting(ctx, a.options.Mount, file, name)
		if err != nil {
			return nil, fmt.Errorf("ask for the value of %s: %w", name, err)
		}
		if gives[name], err = postgres.ParseInteger(text); err != nil {
			return nil, fmt.Errorf("ask for the value of %s: %w", name, err)
		}
	}
	a.givenBy, a.gives = s, gives
	return gives, nil
}

// raise lets instance.conf, when it is written next, give the server more of these
// than the configuration does.
func (a *Agent) raise(d demands) { a.raised.Store(&d) }

func (a *Agent) raisedNow() demands {
	if d := a.raised.Load(); d != nil {
		return *d
	}
	return nil
}

// raiseForStart raises what a server needs that is about to start: nothing, if it
// is a primary and recovers from no archive. What ALTER SYSTEM has set to less would win, so it goes.
func (a *Agent) raiseForStart(ctx context.Context, s settings) error {
	a.raise(nil)
	if !exists(a.volume.standby()) && !exists(a.volume.recovers()) {
		return nil
	}
	demanded, err := a.demanded(ctx)
	if err != nil {
		return err
	}
	lacking, err := a.lacking(ctx, s, demanded)
	if err != nil {
		return err
	}
	a.raise(lacking)
	return a.editAutoSettings(func(text string) string { return postgres.DropBelow(text, demanded) })
}

// editAutoSettings changes postgresql.auto.conf, if there is one, while no server
// runs.
func (a *Agent) editAutoSettings(edit func(string) string) error {
	path := a.volume.inside("postgresql.auto.conf")
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read postgresql.auto.conf: %w", err)
	}
	edited := edit(string(text))
	if edited == string(text) {
		return nil
	}
	return writeFile(path, edited, 0o600)
}

// keepDemands lets a replica have less again once it has replayed that its primary
// does, and notices when it has outgrown what it was started with: then replay has
// stopped, or will.
func (a *Agent) keepDemands(ctx context.Context, up upstream) error {
	demanded, err := a.demanded(ctx)
	if err != nil {
		return err
	}
	lacking, err := a.lacking(ctx, a.inForce, demanded)
	if err != nil {
		return err
	}
	if !maps.Equal(lacking, a.raisedNow()) {
		a.raise(lacking)
		if err := errors.Join(a.installInstance(up), a.reload(ctx)); err != nil {
			return err
		}
		a.observer.forget()
		a.noteWhetherRestartHelps()
	}
	a.outgrown, err = a.findOutgrown(ctx, demanded)
	return err
}

// findOutgrown is a parameter of which the running replica has less than its data
// demands; empty: there is none, or replay goes on all the same.
func (a *Agent) findOutgrown(ctx context.Context, demanded demands) (string, error) {
	var state string
	if err := a.sql.Row(ctx, "SELECT pg_get_wal_replay_pause_state()", &state); err != nil {
		return "", fmt.Errorf("ask whether replay is paused: %w", err)
	}
	if state == "not paused" {
		return "", nil
	}
	outgrown := ""
	err := a.sql.Rows(ctx, "SELECT name, setting::bigint FROM pg_settings WHERE name LIKE 'max\\_%' AND vartype = 'integer' ORDER BY name",
		func(scan func(...any) error) error {
			var name string
			var has int64
			err := scan(&name, &has)
			if outgrown == "" && has < demanded[name] {
				outgrown = name
			}
			return err
		})
	if err != nil {
		return "", fmt.Errorf("ask for parameters that a standby needs: %w", err)
	}
	return outgrown, nil
}

// noteWhetherRestartHelps notes what the server has more of than the configuration
// gives it, and whether another configuration is in force than it was started with.
// If not, nothing waits for a restart, whatever the server says.
func (a *Agent) noteWhetherRestartHelps() {
	kept := slices.Sorted(maps.Keys(a.raisedNow()))
	a.status.update(func(s *instanceapi.State) { s.Kept = kept })
	a.restartHelps.Store(a.server != nil && (a.server.settings != a.inForce || !maps.Equal(a.server.raised, a.raisedNow())))
}

// whyRestart says why the server should restart in its place; empty: it should not.
func (a *Agent) whyRestart(now running) string {
	asked := a.view.knownConfig().Config.Restart
	switch {
	case now.Role == instanceapi.RoleReplica && a.outgrown != "":
		return fmt.Sprintf("its primary has more of %s than it was started with", a.outgrown)
	case asked == nil || asked.Instance != a.options.Instance || asked.ConfigHash != a.inForce.hash():
		return ""
	case a.restartHelps.Load() && len(a.observer.recent().Pending.Configured) > 0:
		return "the operator asks for it, so that parameters take effect"
	}
	return ""
}

// restart ends the server in order; the loop starts it again, as what it was. The
// checkpoint before makes that quick: clients go on meanwhile.
func (a *Agent) restart(ctx context.Context, why string) error {
	now := a.runningAs()
	a.log.WithField("why", why).Info("restarting the server")
	if now.Role == instanceapi.RolePrimary {
		before, cancel := context.WithTimeout(ctx, checkpointPatience)
		defer cancel()
		if err := a.checkpoint(before); err != nil {
			a.log.WithError(err).Warn("the checkpoint before the restart failed; the shutdown makes one")
		}
	}
	a.outgrown = ""
	a.status.enter(instanceapi.PhaseStopping, why)
	return a.stopServer(ctx)
}
