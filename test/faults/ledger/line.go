package main

import (
	"context"
	"net"
	"sync"
	"time"
)

// line is the way to the server of one session. Whatever is done over it ends
// by its deadline.
type line struct {
	mu    sync.Mutex
	until time.Time
	conn  net.Conn
	// addr is the server's, once it is known.
	addr string
}

// allow lets everything over the line take until d from now.
func (l *line) allow(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.until = time.Now().Add(d)
	if l.conn != nil {
		_ = l.conn.SetDeadline(l.until) // a closed one needs none
	}
}

// Dial, DialTimeout and DialContext are what lib/pq may ask for.
func (l *line) Dial(network, address string) (net.Conn, error) {
	return l.DialContext(context.Background(), network, address)
}

func (l *line) DialTimeout(network, address string, _ time.Duration) (net.Conn, error) {
	return l.DialContext(context.Background(), network, address)
}

func (l *line) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	l.mu.Lock()
	until := l.until
	l.mu.Unlock()
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	target, err := l.resolve(ctx, address)
	if err != nil {
		return nil, err
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, network, target)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conn = conn
	return conn, conn.SetDeadline(until)
}

// resolve asks for the address of a Service once, and again only while none is
// known: it never changes, and what is measured is the cluster and not its DNS.
func (l *line) resolve(ctx context.Context, address string) (string, error) {
	l.mu.Lock()
	known := l.addr
	l.mu.Unlock()
	if known != "" {
		return known, nil
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", err
	}
	found, err := net.DefaultResolver.LookupHost(ctx, host)
	if err != nil {
		return "", err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.addr = net.JoinHostPort(found[0], port)
	return l.addr, nil
}

// awaitEnd returns when ctx ends or the server ends the connection. Nothing else
// may use the line meanwhile.
func (l *line) awaitEnd(ctx context.Context) {
	l.mu.Lock()
	conn := l.conn
	l.mu.Unlock()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })
	defer stop()
	_ = conn.SetDeadline(time.Time{})
	_, _ = conn.Read(make([]byte, 1)) // whatever comes is the end: nothing was asked
}
