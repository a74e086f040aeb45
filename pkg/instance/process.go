package instance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/pgop/postgres-operator/pkg/instance/walcall"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/postgres"
	"github.com/pgop/postgres-operator/pkg/postgres/pgrun"
)

// server is a running postmaster that the agent has started.
type server struct {
	cmd *exec.Cmd
	// ready is closed when the server accepts connections, exited when the
	// postmaster has ended; its backends may live on.
	ready, exited chan struct{}
	// exit says how it ended; valid once exited is closed.
	exit error
	log  *pgrun.Tail
	// launched is when it was started.
	launched time.Time
	// noticed is true once the loop has seen it ready.
	noticed bool
	// settings and raised are what it was started with.
	settings settings
	raised   demands
	// credentials are those that it has read last, by their hash; shared.
	credentials atomic.Value
}

// hasExited says whether the postmaster has ended.
func (s *server) hasExited() bool { return isClosed(s.exited) }

// isReady says whether the server has accepted connections.
func (s *server) isReady() bool { return isClosed(s.ready) }

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// signal sends a signal to the postmaster; one that has ended needs none.
func (s *server) signal(sig syscall.Signal) error {
	if s.hasExited() {
		return nil
	}
	if err := s.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("send %v to the server: %w", sig, err)
	}
	return nil
}

// waitReady returns when the server accepts connections, or with an error that
// holds its last words when it has ended instead.
func (s *server) waitReady(ctx context.Context) error {
	select {
	case <-s.ready:
		return nil
	case <-s.exited:
		return s.exitError()
	case <-ctx.Done():
		return fmt.Errorf("wait for the server to start: %w", context.Cause(ctx))
	}
}

// wasKilled says whether a signal ended the postmaster: then it was somebody
// else's doing, such as the kernel's for want of memory.
func (s *server) wasKilled() bool {
	var exit *exec.ExitError
	if !errors.As(s.exit, &exit) {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled()
}

// exitError says how the server ended, in its own words where it has any.
func (s *server) exitError() error {
	if words := lastWords(s.log.String()); words != "" {
		return fmt.Errorf("the server ended: %s", words)
	}
	if s.exit != nil {
		return fmt.Errorf("the server ended: %w", s.exit)
	}
	return errors.New("the server ended")
}

// lastWords are the last FATAL or PANIC line of a server's log with what
// belongs to it, and before it what the server says against a configuration
// file: the FATAL line only tells that it could not be loaded. What it says
// before it can log begins with its name.
func lastWords(log string) string {
	words, against, previous, bare, aftermath := "", "", "", false, false
	for line := range strings.Lines(log) {
		severity, text := splitLogLine(line)
		switch severity {
		case "":
			if strings.HasPrefix(line, "postgres: ") {
				bare = true
				words = strings.TrimSpace(strings.TrimPrefix(line, "postgres: "))
			} else if words != "" && bare {
				words += " " + strings.TrimSpace(line)
			}
		case "FATAL", "PANIC":
			// A command that was running when the server ended is not why it did.
			if aftermath = words != "" && strings.HasPrefix(text, "archive command was terminated"); aftermath {
				break
			}
			bare = false
			words = severity + ": " + text
		case "DETAIL", "HINT":
			if words != "" && !aftermath {
				words += "; " + severity + ": " + text
			}
		case "LOG":
			previous = text
		case "CONTEXT":
			if strings.Contains(text, "configuration file") {
				against = previous + " (" + text + "); "
			}
		}
	}
	if words == "" {
		return ""
	}
	return strings.ToValidUTF8(against+words, "?")
}

// splitLogLine splits a line of the server's log at its severity, which two
// spaces follow; empty: it has none.
func splitLogLine(line string) (severity, text string) {
	for _, severity := range []string{"FATAL", "PANIC", "DETAIL", "HINT", "LOG", "CONTEXT"} {
		if _, text, ok := strings.Cut(line, severity+":  "); ok {
			return severity, strings.TrimSpace(text)
		}
	}
	return "", ""
}

// serverArguments are the server's. What stands here wins over configuration
// files and ALTER SYSTEM, and more over that; what must be changed while it runs is in
// instance.conf.
func serverArguments(o Options, v volume, more ...string) []string {
	settings := []string{
		"config_file=" + filepath.Join(v.config(), serverConf),
		"hba_file=" + filepath.Join(v.config(), hbaConf),
		"ident_file=" + filepath.Join(v.config(), identConf),
		fmt.Sprintf("port=%d", o.Port),
		"unix_socket_directories=" + o.RunDir,
		"unix_socket_permissions=0700",
		"cluster_name=" + o.Instance,
		"hot_standby=on",
		// A server that recovers from a crash of a backend by itself would show
		// what may not last; the agent starts it anew, closed where it must be.
		"restart_after_crash=off",
		"logging_collector=off",
		"log_destination=stderr",
	}
	if o.Alone {
		settings = append(settings, aloneSettings(o.Major)...)
	} else {
		settings = append(settings,
			"listen_addresses="+o.Listen,
			"ssl=on",
			"ssl_ca_file="+o.tls(instanceapi.CAFile),
			"ssl_cert_file="+o.shown(instanceapi.CertFile),
			"ssl_key_file="+o.shown(instanceapi.KeyFile),
		)
	}
	args := []string{"-D", v.data()}
	for _, setting := range append(settings, more...) {
		args = append(args, "-c", setting)
	}
	return args
}

// launch starts the server and returns at once. There must be no process left
// of an earlier one.
func (a *Agent) launch() (*server, error) { return a.launchWith() }

// launchWith is launch with settings that win over all others.
func (a *Agent) launchWith(settings ...string) (*server, error) {
	if err := errors.Join(a.readyDirectory(), a.linkServerFiles()); err != nil {
		return nil, err
	}
	output, input, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start the server: %w", err)
	}
	defer input.Close()
	s := &server{ready: make(chan struct{}), exited: make(chan struct{}), log: &pgrun.Tail{Size: 4096}, launched: time.Now()}
	// It outlives every context but the agent's own stop.
	s.cmd = a.programs.Command(context.Background(), "postgres", serverArguments(a.options, a.volume, settings...)...)
	s.cmd.Env = append(s.cmd.Env, walcall.Variable+"="+a.options.walSocket())
	s.cmd.Stdout, s.cmd.Stderr = input, input
	if err := a.children.Start(s.cmd); err != nil {
		_ = output.Close() // never read
		return nil, fmt.Errorf("start the server: %w", err)
	}
	said := make(chan struct{})
	go func() {
		defer close(said)
		// Ends when the last process of the server has closed its end.
		_, _ = io.Copy(io.MultiWriter(s.log, a.serverLog), output)
		_ = output.Close()
	}()
	go func() {
		s.exit = a.children.Wait(s.cmd)
		// Its last words may still be on their way; a backend that outlives it
		// says no more.
		const patience = 100 * time.Millisecond
		select {
		case <-said:
		case <-time.After(patience):
		}
		close(s.exited)
		a.wakeUp()
	}()
	go a.watchReady(s)
	return s, nil
}

// readyDirectory makes the data directory fit for a start: its mode may have
// been changed when the volume was mounted (fsGroup), and lock files of an
// earlier life name process ids that are somebody else's now. They may go: the
// volume's lock is ours, and no process of the server is left.
func (a *Agent) readyDirectory() error {
	if err := os.Chmod(a.volume.data(), 0o700); err != nil {
		return fmt.Errorf("set the mode of the data directory to 0700: %w", err)
	}
	socket := filepath.Join(a.options.RunDir, fmt.Sprintf(".s.PGSQL.%d", a.options.Port))
	for _, path := range []string{a.volume.inside("postmaster.pid"), socket, socket + ".lock"} {
		if err := removeFile(path); err != nil {
			return err
		}
	}
	return a.dropOwnedAutoSettings()
}

// dropOwnedAutoSettings takes out of postgresql.auto.conf, which wins over the
// agent's file, what only the operator may set.
func (a *Agent) dropOwnedAutoSettings() error {
	return a.editAutoSettings(postgres.DropOwned)
}

// watchReady closes s.ready once the server's own status says so. It reads
// postmaster.pid, as pg_ctl does: trying to connect would fill the log.
func (a *Agent) watchReady(s *server) {
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-s.exited:
			return
		case <-ticker.C:
		}
		if postmasterStatus(a.volume.inside("postmaster.pid"), s.cmd.Process.Pid) == "ready" {
			close(s.ready)
			a.wakeUp()
			return
		}
		if time.Since(s.launched) > 5*time.Second {
			ticker.Reset(200 * time.Millisecond) // a long recovery
		}
	}
}

// postmasterStatus is the eighth line of postmaster.pid, if the file is that
// process's; empty while it is not there yet.
func postmasterStatus(path string, pid int) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	lines := strings.Split(string(text), "\n")
	const statusLine = 8
	if len(lines) < statusLine || lines[0] != fmt.Sprint(pid) {
		return ""
	}
	return strings.TrimSpace(lines[statusLine-1])
}

// stopServer stops the server in order and returns when no process of it is
// left. It may take StopTimeout; what does not stop by then is killed, and
// when ctx ends everything is killed at once.
func (a *Agent) stopServer(ctx context.Context) error {
	// The last segment is archived on the way, if the store has it soon.
	const lastSegment = 5 * time.Second
	a.archiver.allow(min(lastSegment, a.options.StopTimeout/5))
	quit := a.options.StopTimeout / 5
	return a.endServer(ctx, []stopStep{{syscall.SIGINT, a.options.StopTimeout - quit}, {syscall.SIGQUIT, quit}})
}

// abandonServer stops a server whose data is of no use any more: it writes
// nothing, but still gives its shared memory back.
func (a *Agent) abandonServer(ctx context.Context) error {
	const longest = 2 * time.Second
	return a.endServer(ctx, []stopStep{{syscall.SIGQUIT, longest}})
}

// stopStep is a signal to the postmaster, and how long it has to end.
type stopStep struct {
	signal syscall.Signal
	wait   time.Duration
}

func (a *Agent) endServer(ctx context.Context, steps []stopStep) error {
	s := a.server
	a.runs(running{})
	a.sql.Disconnect()
	for _, step := range steps {
		if s == nil || s.endsBy(ctx, step) {
			break
		}
	}
	// Killing must go on when ctx has ended: nothing may outlive the agent.
	const longest = 10 * time.Second
	kill, cancel := context.WithTimeout(context.WithoutCancel(ctx), longest)
	defer cancel()
	if err := killHolders(kill, a.lock); err != nil {
		return err
	}
	if s != nil {
		<-s.exited
	}
	a.server = nil
	return nil
}

// endsBy says whether the postmaster ends by the step. A signal that can't be
// sent does nothing, and what comes next is stronger.
func (s *server) endsBy(ctx context.Context, step stopStep) bool {
	if err := s.signal(step.signal); err != nil {
		return false
	}
	timer := time.NewTimer(step.wait)
	defer timer.Stop()
	select {
	case <-s.exited:
		return true
	case <-ctx.Done():
	case <-timer.C:
	}
	return false
}
