package pgrun

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"github.com/pgop/postgres-operator/pkg/postgres"
)

// AmcheckOptions is how pg_amcheck reaches a server: by the directory of its socket.
type AmcheckOptions struct {
	Host string
	Port int
}

// Amcheck reads every table and every btree index of every database to which one can
// connect, and returns what it finds wrong, in pg_amcheck's words. It makes the
// extension amcheck where it is missing, so that it is no tool for data that is kept.
func (p *Programs) Amcheck(ctx context.Context, o AmcheckOptions) error {
	cmd := p.Command(ctx, "pg_amcheck", "--all", "--install-missing", "--no-password",
		"--host="+o.Host, fmt.Sprintf("--port=%d", o.Port), "--username="+postgres.Superuser)
	// Whatever databases and roles are set to, it must not be cut short.
	cmd.Env = append(cmd.Env, "PGOPTIONS=-c statement_timeout=0 -c lock_timeout=0 -c idle_in_transaction_session_timeout=0 -c default_transaction_read_only=off", "PGSSLMODE=disable")
	found, stderr := &start{size: 1 << 10}, &Tail{Size: 4096}
	cmd.Stdout, cmd.Stderr = found, stderr
	err := p.Children.Start(cmd)
	if err == nil {
		err = p.Children.Wait(cmd)
	}
	if err == nil {
		return nil
	}
	if cause := context.Cause(ctx); cause != nil {
		err = errors.Join(cause, err)
	}
	if errors.Is(err, exec.ErrNotFound) {
		return fmt.Errorf("the image has no program pg_amcheck, which belongs to PostgreSQL's contrib modules: %w", err)
	}
	// What is damaged it says on its standard output, and why it could not look on the
	// other.
	words := strings.TrimSpace(strings.Join(strings.Fields(found.text()), " ") + " " + stderr.Words())
	return &CommandError{Program: "pg_amcheck", Err: err, Stderr: words}
}

// start keeps the beginning of what is written to it: a damaged table may have
// millions of lines.
type start struct {
	size int
	kept []byte
	more bool
}

func (s *start) Write(p []byte) (int, error) {
	room := min(s.size-len(s.kept), len(p))
	s.kept = append(s.kept, p[:room]...)
	s.more = s.more || room < len(p)
	return len(p), nil
}

func (s *start) text() string {
	text := strings.ToValidUTF8(string(s.kept), "")
	if s.more {
		text += "…"
	}
	return text
}
