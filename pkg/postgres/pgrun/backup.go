package pgrun

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/pgop/postgres-operator/pkg/postgres"
)

// StreamOptions is how pg_basebackup streams a server.
type StreamOptions struct {
	ConnInfo string
	// Label is what the server calls the backup.
	Label string
	// MaxRate is how much it may read, in bytes per second; 0: as much as it can.
	MaxRate int64
	// Incremental is the file with the manifest of the backup before; empty: a
	// full one.
	Incremental string
}

// Stream is a base backup that is being streamed: a tar of the data directory
// with the manifest as its last file. It must be read to its end, and then
// waited for.
type Stream struct {
	*os.File
	programs  *Programs
	ctx       context.Context
	cmd       *exec.Cmd
	stderr    *Tail
	estimated atomic.Int64
}

// Stream begins a base backup. It ends with ctx. The server's WAL is not in it.
func (p *Programs) Stream(ctx context.Context, o StreamOptions) (*Stream, error) {
	args := []string{"-d", o.ConnInfo, "-D", "-", "-Ft", "--wal-method=none", "--checkpoint=fast", "--label=" + o.Label, "--progress", "--no-password"}
	if o.MaxRate > 0 {
		args = append(args, fmt.Sprintf("--max-rate=%d", maxRateKB(o.MaxRate)))
	}
	if o.Incremental != "" {
		args = append(args, "--incremental="+o.Incremental)
	}
	output, input, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("pg_basebackup: %w", err)
	}
	defer input.Close()
	// A larger pipe saves changing back and forth; a smaller one works, too.
	const pipeSize = 1 << 20
	_, _ = unix.FcntlInt(input.Fd(), unix.F_SETPIPE_SZ, pipeSize)
	s := &Stream{File: output, programs: p, ctx: ctx, stderr: &Tail{Size: 4096}}
	s.cmd = p.Command(ctx, "pg_basebackup", args...)
	s.cmd.Stdout, s.cmd.Stderr = input, &progressFilter{words: s.stderr, report: func(_, estimated int64) { s.estimated.Store(estimated) }}
	if err := p.Children.Start(s.cmd); err != nil {
		return nil, errors.Join(&CommandError{Program: "pg_basebackup", Err: err}, output.Close())
	}
	return s, nil
}

// maxRateKB is the rate in the program's unit, within its bounds.
func maxRateKB(bytes int64) int64 {
	const least, most = 32, 1 << 20
	return min(max(bytes>>10, least), most)
}

// Estimated is how many bytes the server thinks the stream will have; 0: it has
// not said so yet. An incremental backup may have far fewer.
func (s *Stream) Estimated() int64 { return s.estimated.Load() }

// Wait returns how the program ended, and frees what the stream holds. If the
// stream was not read to its end, the program fails.
func (s *Stream) Wait() error {
	closing := s.File.Close()
	err := s.programs.Children.Wait(s.cmd)
	if err == nil {
		return closing
	}
	if cause := context.Cause(s.ctx); cause != nil {
		err = errors.Join(cause, err)
	}
	return &CommandError{Program: "pg_basebackup", Err: err, Stderr: s.stderr.Words()}
}

// progressFilter takes the program's reports of progress out of what it says.
type progressFilter struct {
	// words gets the rest, and report what the program has done and thinks it will
	// have done, in bytes.
	words  *Tail
	report func(done, estimated int64)
	line   []byte
}

// progressLine is "done/estimated kB (percent%), tablespaces".
var progressLine = regexp.MustCompile(`^\s*(\d+)/(\d+) kB \(`)

func (f *progressFilter) Write(p []byte) (int, error) {
	for _, b := range p {
		f.line = append(f.line, b)
		if b == '\n' || b == '\r' {
			f.say(string(f.line))
			f.line = f.line[:0]
		}
	}
	return len(p), nil
}

func (f *progressFilter) say(line string) {
	match := progressLine.FindStringSubmatch(line)
	if match == nil && strings.TrimSpace(line) == "waiting for checkpoint" {
		return
	}
	if match == nil {
		_, _ = f.words.Write([]byte(strings.TrimRight(line, "\r\n") + "\n")) // it never fails
		return
	}
	done, doneErr := strconv.ParseInt(match[1], 10, 64)
	estimated, err := strconv.ParseInt(match[2], 10, 64)
	if doneErr == nil && err == nil {
		f.report(done<<10, estimated<<10)
	}
}

// CombineBackups makes a data directory of a full backup and the incremental
// ones that follow it, oldest first, each in a directory of its own. It does
// not sync; the caller does.
func (p *Programs) CombineBackups(ctx context.Context, backups []string, data string) error {
	_, err := p.run(ctx, "pg_combinebackup", append([]string{"--no-sync", "-o", data}, backups...)...)
	return err
}

// RecoveryNeeds reads the parameters that a server needs to recover a data
// directory, with the least values that will do.
func (p *Programs) RecoveryNeeds(ctx context.Context, data string) (map[string]int, error) {
	out, err := p.run(ctx, "pg_controldata", "-D", data)
	if err != nil {
		return nil, err
	}
	return postgres.ParseRecoveryNeeds(out)
}
