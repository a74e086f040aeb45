package pgrun

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/pgop/postgres-operator/pkg/postgres"
)

// Programs runs PostgreSQL's programs.
type Programs struct {
	// Bin is the directory that holds them; empty: they are on PATH.
	Bin string
	// Children starts them.
	Children *Children
	// Held is a descriptor that every program that touches the data inherits,
	// so that a lock on it lives as long as they do.
	Held *os.File
}

// CommandError is a program that failed.
type CommandError struct {
	Program string
	Err     error
	// Stderr is the end of what it wrote there, trimmed.
	Stderr string
}

// Error quotes what the program said, which tells more than its exit status.
func (e *CommandError) Error() string {
	if e.Stderr == "" {
		return fmt.Sprintf("%s: %v", e.Program, e.Err)
	}
	return e.Program + ": " + e.Stderr
}

// Unwrap returns what exec said.
func (e *CommandError) Unwrap() error { return e.Err }

// Version asks the server's program for its version.
func (p *Programs) Version(ctx context.Context) (postgres.Version, error) {
	out, err := p.run(ctx, "postgres", "--version")
	if err != nil {
		return postgres.Version{}, err
	}
	return postgres.ParseVersion(out)
}

// ControlData reads the control file of a data directory.
func (p *Programs) ControlData(ctx context.Context, data string) (postgres.ControlData, error) {
	out, err := p.run(ctx, "pg_controldata", "-D", data)
	if err != nil {
		return postgres.ControlData{}, err
	}
	return postgres.ParseControlData(out)
}

// CheckConfig asks the server's program whether it would start with that
// configuration file. It reads no data and runs beside a running server.
func (p *Programs) CheckConfig(ctx context.Context, data, configFile string) error {
	_, err := p.Setting(ctx, data, configFile, "shared_buffers")
	return err
}

// Setting asks the server's program for the value of a parameter in that
// configuration file, as it understands it.
func (p *Programs) Setting(ctx context.Context, data, configFile, name string) (string, error) {
	out, err := p.run(ctx, "postgres", "-D", data, "-c", "config_file="+configFile, "-C", name)
	return strings.TrimSpace(out), err
}

// InitdbOptions is how initdb makes a database cluster.
type InitdbOptions struct {
	Data string
	// WAL is the directory that pg_wal is to link to; empty: pg_wal is none.
	WAL              string
	Encoding, Locale string
	Checksums        bool
	Major            int
}

// Initdb makes a database cluster. It does not sync; the caller does.
func (p *Programs) Initdb(ctx context.Context, o InitdbOptions) error {
	args := []string{"-D", o.Data, "--username=" + postgres.Superuser, "--auth-local=peer", "--auth-host=reject",
		"--no-sync", "--no-instructions", "--encoding=" + o.Encoding, "--locale=" + o.Locale}
	const checksumsByDefault = 18
	if o.Checksums {
		args = append(args, "--data-checksums")
	} else if o.Major >= checksumsByDefault {
		args = append(args, "--no-data-checksums")
	}
	if o.WAL != "" {
		args = append(args, "--waldir="+o.WAL)
	}
	_, err := p.run(ctx, "initdb", args...)
	return err
}

// BaseBackupOptions is how pg_basebackup copies a server.
type BaseBackupOptions struct {
	Data string
	// WAL is the directory that pg_wal is to link to; empty: pg_wal is none.
	WAL      string
	ConnInfo string
	// Slot keeps the WAL that is needed; empty: none does, and the copy fails if the
	// server no longer has it.
	Slot string
	// Progress is told, about once a second, how many bytes there are, and how many
	// there will be; may be nil.
	Progress func(done, estimated int64)
}

// BaseBackup copies a server into a data directory that is empty or missing.
// It does not sync; the caller does.
func (p *Programs) BaseBackup(ctx context.Context, o BaseBackupOptions) error {
	args := []string{"-D", o.Data, "-d", o.ConnInfo, "--checkpoint=fast",
		"--wal-method=stream", "--no-sync", "--no-manifest", "--no-password"}
	if o.Slot != "" {
		args = append(args, "--slot="+o.Slot)
	} else {
		args = append(args, "--no-slot")
	}
	if o.WAL != "" {
		args = append(args, "--waldir="+o.WAL)
	}
	if o.Progress == nil {
		_, err := p.run(ctx, "pg_basebackup", args...)
		return err
	}
	stderr := &progressFilter{words: &Tail{Size: 4096}, report: o.Progress}
	_, err := p.runWith(ctx, stderr, stderr.words, "pg_basebackup", append(args, "--progress")...)
	return err
}

// Rewind makes a data directory, whose server has been shut down, one that can
// follow the server that source says how to reach. configFile is the target's
// configuration. It does not sync; the caller does.
func (p *Programs) Rewind(ctx context.Context, data, source, configFile string) error {
	_, err := p.run(ctx, "pg_rewind", "--target-pgdata="+data, "--source-server="+source, "--config-file="+configFile, "--no-sync")
	return err
}

// run runs a program to its end and returns what it printed. When ctx ends,
// the program is killed with everything that it started.
func (p *Programs) run(ctx context.Context, program string, args ...string) (string, error) {
	words := &Tail{Size: 4096}
	return p.runWith(ctx, words, words, program, args...)
}

// runWith is run with a writer for what the program says, of which words has the end.
func (p *Programs) runWith(ctx context.Context, stderr io.Writer, words *Tail, program string, args ...string) (string, error) {
	cmd := p.Command(ctx, program, args...)
	var stdout bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, stderr
	err := p.Children.Start(cmd)
	if err == nil {
		err = p.Children.Wait(cmd)
	}
	if err == nil {
		return stdout.String(), nil
	}
	if cause := context.Cause(ctx); cause != nil {
		err = errors.Join(cause, err)
	}
	return "", &CommandError{Program: program, Err: err, Stderr: words.Words()}
}

// Command prepares a program in a process group of its own, with Held as
// descriptor 3 and without the variables that libpq would obey.
func (p *Programs) Command(ctx context.Context, program string, args ...string) *exec.Cmd {
	path := program
	if p.Bin != "" {
		path = filepath.Join(p.Bin, program)
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = Environment(os.Environ())
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	// What is left of a killed group can't keep its pipes, and so Wait, open.
	cmd.WaitDelay = time.Second
	if p.Held != nil {
		cmd.ExtraFiles = []*os.File{p.Held}
	}
	return cmd
}

// Environment is env without libpq's variables, with messages in English. The
// zone is set because initdb else compares the system's with every known one.
func Environment(env []string) []string {
	var kept []string
	for _, variable := range env {
		if !strings.HasPrefix(variable, "PG") && !strings.HasPrefix(variable, "LC_") {
			kept = append(kept, variable)
		}
	}
	return append(kept, "LC_ALL=C", "TZ=UTC")
}
