package pgtest

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pgop/postgres-operator/pkg/postgres"
	"github.com/pgop/postgres-operator/pkg/postgres/pgrun"
)

// BinVariable names a directory with PostgreSQL's programs, besides those where
// Debian has them.
const BinVariable = "PGOP_TEST_POSTGRES_BIN"

// Installation is one version of PostgreSQL.
type Installation struct {
	Programs *pgrun.Programs
	Version  postgres.Version
}

// Find finds the newest PostgreSQL, of at least that major version. Without one
// the test is skipped, unless any would do.
func Find(t testing.TB, least int) Installation {
	t.Helper()
	var found []Installation
	dirs, err := filepath.Glob("/usr/lib/postgresql/*/bin")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range append(dirs, os.Getenv(BinVariable)) {
		programs := &pgrun.Programs{Bin: dir, Children: &pgrun.Children{}}
		if _, err := os.Stat(filepath.Join(dir, "postgres")); dir == "" || err != nil {
			continue
		}
		version, err := programs.Version(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, Installation{programs, version})
	}
	if len(found) == 0 {
		t.Fatal("no PostgreSQL in /usr/lib/postgresql: install the Debian package postgresql-15 (or a newer one)")
	}
	newest := slices.MaxFunc(found, func(a, b Installation) int { return a.Version.Major - b.Version.Major })
	if newest.Version.Major < least {
		t.Skipf("needs PostgreSQL %d; name the directory of its programs in %s", least, BinVariable)
	}
	return newest
}

// Server is a server that lives as long as the test.
type Server struct {
	Installation
	// Data is the data directory, Run that of the socket.
	Data, Run string
	Port      int

	t       testing.TB
	log     *pgrun.Tail
	running *exec.Cmd
	sql     *pgrun.Server
}

// At makes a server of a data directory that is there, or will be.
func (i Installation) At(t testing.TB, data string) *Server {
	t.Helper()
	run, err := os.MkdirTemp("", "r") // paths of sockets must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(run) })
	const port = 5432 // of the socket's name only
	return &Server{Installation: i, Data: data, Run: run, Port: port, t: t, log: &pgrun.Tail{Size: 64 << 10}}
}

// New makes a server with a new database and those parameters. It does not
// start it.
func (i Installation) New(t testing.TB, parameters map[string]string) *Server {
	t.Helper()
	s := i.At(t, filepath.Join(t.TempDir(), "data"))
	err := i.Programs.Initdb(context.Background(), pgrun.InitdbOptions{Data: s.Data, Encoding: "UTF8", Locale: "C", Checksums: true, Major: i.Version.Major})
	if err != nil {
		t.Fatal(err)
	}
	s.Configure(parameters)
	return s
}

// Configure writes the server's configuration.
func (s *Server) Configure(parameters map[string]string) {
	s.t.Helper()
	all := map[string]string{
		"listen_addresses": "", "unix_socket_directories": s.Run, "port": strconv.Itoa(s.Port), "fsync": "off",
		"shared_buffers": "16MB", "max_wal_size": "256MB", "wal_level": "replica", "max_wal_senders": "10", "log_timezone": "UTC", "timezone": "UTC",
	}
	maps.Copy(all, parameters)
	s.write("postgresql.conf", postgres.RenderConf(all))
	s.write("pg_hba.conf", "local all all trust\nlocal replication all trust\n")
}

func (s *Server) write(name, text string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.Data, name), []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// Start starts the server, and returns when it can be asked.
func (s *Server) Start() {
	s.t.Helper()
	s.Launch()
	const longest = time.Minute
	for deadline := time.Now().Add(longest); ; time.Sleep(20 * time.Millisecond) {
		var one int
		if s.SQL().Row(context.Background(), "SELECT 1", &one) == nil {
			return
		}
		if s.running.ProcessState != nil || time.Now().After(deadline) || s.hasEnded() {
			s.t.Fatalf("the server does not start: %s", s.log)
		}
	}
}

// Launch starts the server and returns at once.
func (s *Server) Launch() {
	s.t.Helper()
	s.running = s.Programs.Command(context.Background(), "postgres", "-D", s.Data)
	s.running.Stdout, s.running.Stderr = s.log, s.log
	if err := s.Programs.Children.Start(s.running); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(s.Kill)
}

// hasEnded says whether the postmaster is a zombie.
func (s *Server) hasEnded() bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.running.Process.Pid))
	return err != nil || strings.Contains(string(stat), ") Z ")
}

// AwaitEnd waits until the server has ended by itself.
func (s *Server) AwaitEnd() {
	s.t.Helper()
	const longest = time.Minute
	for deadline := time.Now().Add(longest); !s.hasEnded(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatalf("the server does not end: %s", s.log)
		}
	}
	s.end(syscall.SIGKILL)
}

// Stop stops the server in order.
func (s *Server) Stop() { s.end(syscall.SIGINT) }

// Kill ends the server at once, as far as it gives back its shared memory.
func (s *Server) Kill() { s.end(syscall.SIGQUIT) }

func (s *Server) end(signal syscall.Signal) {
	if s.sql != nil {
		s.sql.Close()
		s.sql = nil
	}
	if s.running == nil {
		return
	}
	_ = s.running.Process.Signal(signal) // it may have ended
	_ = s.Programs.Children.Wait(s.running)
	s.running = nil
}

// Log is the end of what the server has logged.
func (s *Server) Log() string { return s.log.String() }

// SQL asks the server, as its superuser.
func (s *Server) SQL() *pgrun.Server {
	s.t.Helper()
	if s.sql == nil {
		sql, err := pgrun.OpenForScript(s.Run, s.Port, "postgres")
		if err != nil {
			s.t.Fatal(err)
		}
		s.sql = sql
	}
	return s.sql
}

// Exec runs a statement.
func (s *Server) Exec(query string) {
	s.t.Helper()
	if err := s.SQL().Exec(context.Background(), query); err != nil {
		s.t.Fatalf("%s: %v", query, err)
	}
}

// Text is the one value that a query returns.
func (s *Server) Text(query string) string {
	s.t.Helper()
	var text string
	if err := s.SQL().Row(context.Background(), "SELECT ("+query+")::text", &text); err != nil {
		s.t.Fatalf("%s: %v", query, err)
	}
	return text
}

// ConnInfo is how a program connects to the server.
func (s *Server) ConnInfo() string {
	return postgres.ConnInfo{Host: s.Run, Port: s.Port, User: postgres.Superuser, DBName: "postgres"}.KeyValue()
}

// SystemID is the identifier of the server's database system.
func (s *Server) SystemID() string {
	s.t.Helper()
	return s.Text("SELECT system_identifier FROM pg_control_system()")
}
