package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/lib/pq"

	"github.com/pgop/postgres-operator/test/faults/history"
)

const (
	every    = 50 * time.Millisecond
	deadline = time.Second
)

// kind says what a client does with its connection.
type kind string

const (
	kept  kind = "kept"
	fresh kind = "fresh"
)

// insert returns what the server says of itself. It is sent as a simple query,
// one message, and is committed before the server reports its completion.
const insert = `insert into ledger values (%s) returning current_setting('cluster_name'), host(inet_server_addr()), ` +
	`pg_postmaster_start_time()::text, ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::int`

// readLogin makes a connection string of a mounted login. The server's
// certificate is verified.
func readLogin(directory string) (string, error) {
	var b strings.Builder
	for _, key := range []string{"host", "port", "dbname", "username", "password"} {
		value, err := os.ReadFile(filepath.Join(directory, key))
		if err != nil {
			return "", fmt.Errorf("read login: %w", err)
		}
		if key == "username" {
			key = "user"
		}
		quoted := strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(string(value))
		fmt.Fprintf(&b, "%s='%s' ", key, quoted)
	}
	fmt.Fprintf(&b, "sslmode=verify-full sslrootcert='%s'", filepath.Join(directory, "ca.crt"))
	return b.String(), nil
}

// session is at most one connection, with hard deadlines: lib/pq's own would
// wait for the server's consent.
type session struct {
	database *sql.DB
	line     *line
	conn     *sql.Conn
}

func newSession(dsn string) (*session, error) {
	connector, err := pq.NewConnector(dsn)
	if err != nil {
		return nil, fmt.Errorf("read connection string: %w", err)
	}
	s := &session{line: &line{}}
	connector.Dialer(s.line)
	s.database = sql.OpenDB(connector)
	s.database.SetMaxIdleConns(-1) // a connection that is closed is closed
	return s, nil
}

// connect makes the connection unless there is one.
func (s *session) connect() (made bool, err error) {
	if s.conn != nil {
		return false, nil
	}
	s.line.allow(deadline)
	s.conn, err = s.database.Conn(context.Background())
	if err != nil {
		s.conn = nil
		return true, fmt.Errorf("connect: %w", err)
	}
	return true, nil
}

// close closes the connection if there is one, without waiting for the server.
func (s *session) close() {
	if s.conn == nil {
		return
	}
	s.line.allow(100 * time.Millisecond)
	_ = s.conn.Close() // it may be broken, which is why it is closed
	s.conn = nil
}

// client writes rows.
type client struct {
	*session
	name string
	kind kind
	book *book
}

func newClient(dsn, name string, kind kind, book *book) (*client, error) {
	s, err := newSession(dsn)
	if err != nil {
		return nil, err
	}
	return &client{session: s, name: name, kind: kind, book: book}, nil
}

// write tries to write a row every 50 ms, until ctx ends. A try that takes
// longer delays the next one.
func (c *client) write(ctx context.Context) {
	defer c.close()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		c.book.add(c.try(fmt.Sprintf("%s/%d", c.name, n)))
	}
}

// try writes one row. After a failure, of whatever kind, the connection is
// given up.
func (c *client) try(id string) history.Entry {
	e := history.Entry{Client: c.name, ID: id, Sent: history.Now()}
	var err error
	e.Connected, err = c.connect()
	if err == nil {
		e.By, err = c.insert(id)
	}
	e.Done, e.Wall = history.Now(), time.Now()
	e.Acked = err == nil
	if err != nil {
		e.Error = err.Error()
	}
	if err != nil || c.kind == fresh {
		c.close()
	}
	return e
}

// insert returns only when the server has said that the row is committed: the
// row's values come before that.
func (c *client) insert(id string) (by history.Server, err error) {
	c.line.allow(deadline)
	rows, err := c.conn.QueryContext(context.Background(), fmt.Sprintf(insert, pq.QuoteLiteral(id)))
	if err != nil {
		return by, fmt.Errorf("write: %w", err)
	}
	defer rows.Close()
	n := 0
	for ; rows.Next(); n++ {
		if err := rows.Scan(&by.Instance, &by.Address, &by.Started, &by.Timeline); err != nil {
			return by, fmt.Errorf("write: %w", err)
		}
	}
	if err := rows.Err(); err != nil {
		return by, fmt.Errorf("write: %w", err)
	}
	if n != 1 {
		return by, errors.New("write: no row came back")
	}
	return by, nil
}

// sleeper has a session that is idle, and makes another when that is gone.
type sleeper struct {
	*session
	book *book
}

func newSleeper(dsn string, book *book) (*sleeper, error) {
	s, err := newSession(dsn)
	if err != nil {
		return nil, err
	}
	return &sleeper{session: s, book: book}, nil
}

func (s *sleeper) sleep(ctx context.Context) {
	defer s.close()
	for ctx.Err() == nil {
		_, err := s.connect()
		s.book.setIdle(err == nil)
		if err == nil {
			s.line.awaitEnd(ctx)
			s.close()
		}
		s.book.setIdle(false)
		select {
		case <-ctx.Done():
		case <-time.After(every):
		}
	}
}
