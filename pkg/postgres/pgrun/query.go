package pgrun

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"net"
	"sync"
	"time"

	"github.com/lib/pq"

	"github.com/pgop/postgres-operator/pkg/postgres"
)

// Server is one connection to the local server, made when it is needed and
// kept. Its methods may be called from several goroutines and wait for each
// other.
type Server struct {
	db    *sql.DB
	conns connections
}

// settings are what the agent's sessions need whatever the server's
// configuration says.
var settings = map[string]string{
	"application_name":                    "pgop-agent",
	"default_transaction_read_only":       "off",
	"idle_in_transaction_session_timeout": "0",
	"idle_session_timeout":                "0",
	"lock_timeout":                        "0",
	"log_min_duration_statement":          "-1",
	"log_statement":                       "none",
	"pg_stat_statements.track_utility":    "off", // statements hold verifiers
	"search_path":                         "pg_catalog",
	"statement_timeout":                   "0",
	"synchronous_commit":                  "local",
}

// Open prepares a connection to the server that listens in the directory; it
// does not connect yet.
func Open(directory string, port int, database string) (*Server, error) {
	return open(directory, port, database, settings)
}

// OpenForScript is like Open, for SQL of users: it sees the search path and
// the like that they are used to.
func OpenForScript(directory string, port int, database string) (*Server, error) {
	options := map[string]string{}
	for _, name := range []string{"application_name", "default_transaction_read_only", "idle_session_timeout",
		"lock_timeout", "statement_timeout", "synchronous_commit"} {
		options[name] = settings[name]
	}
	return open(directory, port, database, options)
}

// OpenFor is like Open, with more settings than all of the agent's sessions have.
func OpenFor(directory string, port int, database string, more map[string]string) (*Server, error) {
	options := maps.Clone(settings)
	maps.Copy(options, more)
	return open(directory, port, database, options)
}

// OpenAs is like Open, with settings of the caller's own.
func OpenAs(directory string, port int, database string, options map[string]string) (*Server, error) {
	return open(directory, port, database, options)
}

func open(directory string, port int, database string, options map[string]string) (*Server, error) {
	info := postgres.ConnInfo{Host: directory, Port: port, DBName: database, User: postgres.Superuser, Options: map[string]string{"sslmode": "disable"}}
	config, err := pq.NewConfig(info.KeyValue())
	if err != nil {
		return nil, fmt.Errorf("configure connection to database %s: %w", database, err)
	}
	config.Runtime = options
	connector, err := pq.NewConnectorConfig(config)
	if err != nil {
		return nil, fmt.Errorf("configure connection to database %s: %w", database, err)
	}
	s := &Server{}
	connector.Dialer(&s.conns)
	s.db = sql.OpenDB(connector)
	s.db.SetMaxOpenConns(1)
	return s, nil
}

// Do runs f with the connection. When ctx ends first, the connection is cut:
// a frozen server answers neither the query nor a request to cancel it.
func (s *Server) Do(ctx context.Context, f func(ctx context.Context, db *sql.DB) error) error {
	stop := context.AfterFunc(ctx, s.conns.cut)
	defer stop()
	return f(ctx, s.db)
}

// Exec runs a statement.
func (s *Server) Exec(ctx context.Context, query string) error {
	return s.Do(ctx, func(ctx context.Context, db *sql.DB) error {
		_, err := db.ExecContext(ctx, query)
		return err
	})
}

// Row runs a query that returns one row.
func (s *Server) Row(ctx context.Context, query string, into ...any) error {
	return s.Do(ctx, func(ctx context.Context, db *sql.DB) error {
		return db.QueryRowContext(ctx, query).Scan(into...)
	})
}

// Rows runs a query and calls scan for each row.
func (s *Server) Rows(ctx context.Context, query string, scan func(scan func(into ...any) error) error) error {
	return s.Do(ctx, func(ctx context.Context, db *sql.DB) error {
		rows, err := db.QueryContext(ctx, query)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			if err := scan(rows.Scan); err != nil {
				return err
			}
		}
		return rows.Err()
	})
}

// Disconnect ends the connection; the next call makes another.
func (s *Server) Disconnect() { s.conns.cut() }

// Close ends the connection for good. Nothing is in flight any more, so there
// is nothing that could fail.
func (s *Server) Close() {
	_ = s.db.Close() // says whether the server has heard of it
	s.conns.cut()
}

// connections dials and can cut what it dialled.
type connections struct {
	mu   sync.Mutex
	open map[*connection]bool
}

type connection struct {
	net.Conn
	of *connections
}

func (c *connections) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn := range c.open {
		_ = conn.Conn.Close() // it is given up, whatever Close says
	}
	clear(c.open)
}

func (c *connections) remember(own *connection) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == nil {
		c.open = map[*connection]bool{}
	}
	c.open[own] = true
}

// Close forgets the connection, too.
func (c *connection) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// DialContext makes c a pq.DialerContext.
func (c *connections) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	own := &connection{Conn: conn, of: c}
	c.remember(own)
	// If ctx ended while this dialled, cut came too early for it.
	if err := ctx.Err(); err != nil {
		_ = own.Close() // given up
		return nil, err
	}
	return own, nil
}

// Dial is never called, since pq prefers DialContext, but is part of pq.Dialer.
func (c *connections) Dial(network, address string) (net.Conn, error) {
	return c.DialContext(context.Background(), network, address)
}

// DialTimeout is part of pq.Dialer, like Dial.
func (c *connections) DialTimeout(network, address string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return c.DialContext(ctx, network, address)
}

// ServerError is what the server said, or nil if err is of another kind.
func ServerError(err error) *pq.Error {
	var refused *pq.Error
	if errors.As(err, &refused) {
		return refused
	}
	return nil
}
