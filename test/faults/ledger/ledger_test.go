package main

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/lib/pq"

	"github.com/pgop/postgres-operator/test/faults/history"
)

// A server that accepts a connection and then says nothing, as a frozen one
// does, costs a try and no more.
func TestTryEndsAlthoughTheServerIsSilent(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close() // the kernel accepts for it
	host, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c, err := newClient("host="+host+" port="+port+" sslmode=require user=app dbname=app", "ledger/kept", kept, newBook())
	if err != nil {
		t.Fatal(err)
	}
	e := c.try("ledger/kept/1")
	if e.Acked || e.Error == "" || !e.Connected || e.Done.Sub(e.Sent) < deadline {
		t.Errorf("the try: %+v", e)
	}
	if c.conn != nil {
		t.Error("the connection is kept after a failure")
	}
}

func TestReadLogin(t *testing.T) {
	directory := t.TempDir()
	for key, value := range map[string]string{"host": "shop-rw.ns.svc", "port": "5432", "dbname": "app", "username": "app", "password": `it's a \ b`} {
		if err := os.WriteFile(filepath.Join(directory, key), []byte(value), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	dsn, err := readLogin(directory)
	if err != nil {
		t.Fatal(err)
	}
	config, err := pq.NewConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	got := []string{config.Host, config.Database, config.User, config.Password, string(config.SSLMode), config.SSLRootCert}
	want := []string{"shop-rw.ns.svc", "app", "app", `it's a \ b`, "verify-full", filepath.Join(directory, "ca.crt")}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if err := os.Remove(filepath.Join(directory, "password")); err != nil {
		t.Fatal(err)
	}
	if _, err := readLogin(directory); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a login without password: %v", err)
	}
}

func TestHandler(t *testing.T) {
	b := newBook()
	entries := []history.Entry{
		{Client: "ledger/kept", ID: "1", Done: 10, Acked: true, By: history.Server{Instance: "shop-1", Timeline: 1}},
		{Client: "ledger/kept", ID: "2", Done: 20, Acked: true},
		{Client: "ledger/fresh", ID: "3", Done: 30, Error: "refused"},
	}
	for _, e := range entries {
		b.add(e)
	}
	b.setIdle(true)
	stopped := false
	server := httptest.NewServer(handler(b, func() { stopped = true }))
	defer server.Close()

	var status history.Status
	get(t, server.URL+"/status?since=10", &status)
	want := history.Status{Acked: map[string]int{"ledger/kept": 1, "ledger/fresh": 0}, Idle: true, LastError: "refused"}
	if diff := cmp.Diff(want, status); diff != "" {
		t.Errorf("status, -want +got:\n%s", diff)
	}
	var first history.Entry
	get(t, server.URL+"/entries", &first)
	if diff := cmp.Diff(entries[0], first); diff != "" {
		t.Errorf("the first entry, -want +got:\n%s", diff)
	}
	response, err := http.Post(server.URL+"/stop", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil || !stopped {
		t.Errorf("stopped is %v, %v", stopped, err)
	}
}

// get reads the first JSON value of an answer.
func get(t *testing.T, url string, into any) {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if err := json.NewDecoder(response.Body).Decode(into); err != nil {
		t.Fatal(err)
	}
}
