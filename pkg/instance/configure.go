package instance

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/postgres"
	"github.com/pgop/postgres-operator/pkg/postgres/pgrun"
)

// configState is what is known of configurations, and which is in force.
type configState struct {
	// confMu is held while configuration files are rendered and written.
	confMu sync.Mutex
	// applied is the version of the ConfigMap that was last acted on, and
	// inForce what the server runs with.
	applied int
	inForce settings
	// raised is what instance.conf gives a standby more of than the configuration;
	// shared. givenBy and gives are what was last asked of a configuration.
	raised  atomic.Pointer[demands]
	givenBy settings
	gives   demands
	// outgrown is a parameter of which a replica has less than its data demands.
	outgrown string
	// restartHelps is true while another configuration is in force than the server
	// was started with; shared.
	restartHelps atomic.Bool
	// untriedMaps is true while the ConfigMap's part of pg_ident.conf waits for a server
	// that can say what it thinks of it.
	untriedMaps bool
	// rejected are configurations that the server did not start with, and why.
	rejected map[settings]string
	// blameless is true once a configuration that was good did not start either.
	blameless bool
}

// untried is the version of no ConfigMap.
const untried = 0

// installConfig puts the configuration in force with which the server starts
// next: the ConfigMap's, or one that was in force before if the server refuses
// that.
func (a *Agent) installConfig(ctx context.Context, up upstream) error {
	known := a.view.knownConfig()
	chosen, problem, err := a.chooseConfig(ctx, known.Settings, up)
	if err != nil {
		return err
	}
	if problem == "" {
		problem = known.Problem
	}
	if err := a.raiseForStart(ctx, chosen); err != nil {
		return err
	}
	if err := a.installSettings(chosen, up); err != nil {
		return err
	}
	a.inUse(chosen, known.Version, problem)
	a.untriedMaps = problem == "" && chosen.Ident != known.Settings.Ident
	return nil
}

// chooseConfig returns the newest configuration that the server doesn't
// refuse, and why it refuses newest if it does. A zero newest is not known.
func (a *Agent) chooseConfig(ctx context.Context, newest settings, up upstream) (chosen settings, problem string, err error) {
	accepted, err := a.config.kept(acceptedDir)
	if err != nil {
		return settings{}, "", err
	}
	good, err := a.config.kept(goodDir)
	if err != nil {
		return settings{}, "", err
	}
	newest.Ident = provenMaps(newest.Ident, accepted, good)
	candidates := slices.DeleteFunc([]settings{newest, accepted, good}, settings.isZero)
	untried := func(s settings) bool { return a.rejected[s] == "" }
	if !slices.ContainsFunc(candidates, untried) {
		// No start worked, so configuration is not why; each gets its chance again.
		clear(a.rejected)
	}
	for _, candidate := range candidates {
		refused := a.rejected[candidate]
		if refused == "" && candidate != good {
			refused = a.refusal(ctx, candidate, up)
		}
		if refused == "" {
			return candidate, problem, nil
		}
		if problem == "" {
			problem = refused
		}
	}
	if problem == "" {
		return settings{}, "", errors.New("no configuration is known yet")
	}
	return settings{}, "", fmt.Errorf("the server refuses its configuration: %s", problem)
}

// provenMaps is the user's part of pg_ident.conf that a server which is not ready may be
// given: maps if a server had them before. With one that it can't read it would run, and
// nobody could log in by a map any more, the agent included.
func provenMaps(maps string, accepted, good settings) string {
	if maps == "" || maps == accepted.Ident || maps == good.Ident {
		return maps
	}
	return accepted.Ident
}

// startable is s with the maps that a server may be given which is not ready.
func (a *Agent) startable(s settings) (settings, error) {
	accepted, err := a.config.kept(acceptedDir)
	if err != nil {
		return settings{}, err
	}
	good, err := a.config.kept(goodDir)
	if err != nil {
		return settings{}, err
	}
	s.Ident = provenMaps(s.Ident, accepted, good)
	return s, nil
}

// refusal is why the server would not start with s; empty: it would.
func (a *Agent) refusal(ctx context.Context, s settings, up upstream) string {
	file, err := a.config.stage(s, a.renderInstance(up))
	if err == nil {
		// Any directory will do: the check reads no data.
		err = a.programs.CheckConfig(ctx, a.options.Mount, file)
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

// inUse notes what is in force, and why it is not the newest if it isn't.
func (a *Agent) inUse(s settings, version int, problem string) {
	a.inForce, a.applied = s, version
	a.noteWhetherRestartHelps()
	a.status.configError(problem)
	a.status.update(func(state *instanceapi.State) { state.ConfigHash = s.hash() })
}

// configure brings a running server to the newest configuration. One that the
// server refuses, or did not start with, is held back: the one in force stays, on
// disk, too.
func (a *Agent) configure(ctx context.Context) error {
	known := a.view.knownConfig()
	a.tended = time.Time{} // the members may have changed
	wanted := known.Settings
	startable, err := a.startable(wanted)
	if err != nil {
		return err
	}
	if !a.server.isReady() {
		wanted = startable
	}
	a.untriedMaps = wanted.Ident != known.Settings.Ident
	if known.Problem != "" || wanted == a.inForce {
		a.inUse(a.inForce, known.Version, known.Problem)
		return nil
	}
	now := a.runningAs()
	up := now.Upstream
	refused := a.rejected[startable]
	if refused == "" {
		refused = a.refusal(ctx, wanted, up)
	}
	if refused != "" {
		a.inUse(a.inForce, known.Version, refused)
		return nil
	}
	before := a.raisedNow()
	if now.Role == instanceapi.RoleReplica {
		demanded, err := a.demanded(ctx)
		if err != nil {
			return err
		}
		lacking, err := a.lacking(ctx, wanted, demanded)
		if err != nil {
			return err
		}
		a.raise(lacking)
	}
	if err := a.installSettings(wanted, up); err != nil {
		return err
	}
	refused, err = a.rulesRefusal(ctx, wanted)
	if err != nil || refused != "" {
		a.raise(before)
		if err == nil {
			a.inUse(a.inForce, known.Version, refused)
		}
		return errors.Join(err, a.installSettings(a.inForce, up))
	}
	if err := a.reload(ctx); err != nil {
		return err
	}
	a.observer.forget() // what it says of the configuration before must not be told with the new hash
	a.inUse(wanted, known.Version, "")
	return errors.Join(a.config.keep(a.inForce, acceptedDir), a.keepIfProven(ctx))
}

func (a *Agent) installSettings(s settings, up upstream) error {
	a.confMu.Lock()
	defer a.confMu.Unlock()
	return a.config.install(s, a.renderInstance(up), a.osUser)
}

// installInstance puts another upstream in force, or synchronous_standby_names.
func (a *Agent) installInstance(up upstream) error {
	a.confMu.Lock()
	defer a.confMu.Unlock()
	return a.config.installInstance(a.renderInstance(up))
}

func (a *Agent) renderInstance(up upstream) string {
	return renderInstance(a.options, a.serverFiles(), up, postgres.StandbyName(a.options.Instance, a.identity.ID), a.replication.names(), a.raisedNow(), a.recoveryNow())
}

// rulesRefusal is what the server says against the pg_hba.conf and pg_ident.conf on
// disk, which are of s; empty: nothing. It reads them without using them. A server that
// is not ready says nothing: it refuses to start with a bad pg_hba.conf, and is then
// started with the last good one, and its pg_ident.conf is one that it had before.
func (a *Agent) rulesRefusal(ctx context.Context, s settings) (string, error) {
	if !a.server.isReady() {
		return "", nil
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	for _, file := range []struct {
		view string
		name func(line int) string
	}{
		{"pg_hba_file_rules", func(line int) string { return postgres.NameHBALine(s.HBA, line) }},
		{"pg_ident_file_mappings", func(line int) string {
			return postgres.NameIdentLine(postgres.RenderIdent(a.osUser, s.Ident), line)
		}},
	} {
		var line int
		var problem string
		err := a.sql.Row(ctx, "SELECT line_number, error FROM "+file.view+" WHERE error IS NOT NULL ORDER BY line_number LIMIT 1", &line, &problem)
		switch {
		case errors.Is(err, sql.ErrNoRows):
		case err != nil:
			return "", fmt.Errorf("ask the server for errors of its %s: %w", file.view, err)
		default:
			return file.name(line) + ": " + problem, nil
		}
	}
	return "", nil
}

// keepIfProven remembers the configuration in force as good, unless a part
// of it is only tried at the next start.
func (a *Agent) keepIfProven(ctx context.Context) error {
	if !a.server.isReady() {
		return nil // done when it is
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	pending, err := askPending(ctx, a.sql)
	if err != nil {
		return err
	}
	if len(pending.Configured) > 0 {
		return nil
	}
	return a.config.keep(a.inForce, goodDir)
}

// reload lets the server read its files again, and returns when it has.
func (a *Agent) reload(ctx context.Context) error { return reloadServer(ctx, a.sql, a.server) }

func reloadServer(ctx context.Context, connection *pgrun.Server, s *server) error {
	if !s.isReady() {
		return s.signal(syscall.SIGHUP)
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	const loaded = "SELECT pg_conf_load_time()"
	var before, after sql.NullTime
	if err := connection.Row(ctx, loaded, &before); err != nil {
		return fmt.Errorf("reload the configuration: %w", err)
	}
	if err := s.signal(syscall.SIGHUP); err != nil {
		return err
	}
	for {
		if err := connection.Row(ctx, loaded, &after); err != nil {
			return fmt.Errorf("reload the configuration: %w", err)
		}
		if after != before {
			return nil
		}
		if err := pause(ctx, 5*time.Millisecond); err != nil {
			return fmt.Errorf("reload the configuration: %w", err)
		}
	}
}
