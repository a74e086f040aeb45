package main

import (
	"encoding/json"
	"net/http"
	"strconv"
	"sync"

	"github.com/pgop/postgres-operator/test/faults/history"
)

// book keeps every entry in memory: some megabytes for ten minutes.
type book struct {
	mu      sync.Mutex
	entries []history.Entry
	idle    bool
}

func newBook() *book { return &book{} }

func (b *book) add(e history.Entry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.entries = append(b.entries, e)
}

func (b *book) setIdle(idle bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.idle = idle
}

// all are the entries so far, of which none ever changes.
func (b *book) all() []history.Entry {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.entries[:len(b.entries):len(b.entries)]
}

func (b *book) status(since history.Instant) history.Status {
	s := history.Status{Acked: history.CountAcked(b.all(), since)}
	b.mu.Lock()
	defer b.mu.Unlock()
	s.Idle = b.idle
	for i := len(b.entries) - 1; i >= 0 && s.LastError == ""; i-- {
		s.LastError = b.entries[i].Error
	}
	return s
}

// handler serves the book; stop ends the clients.
func handler(b *book, stop func()) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, r *http.Request) {
		since, err := strconv.ParseInt(r.FormValue("since"), 10, 64)
		if err != nil {
			http.Error(w, "since: "+err.Error(), http.StatusBadRequest)
			return
		}
		_ = json.NewEncoder(w).Encode(b.status(history.Instant(since))) // who has hung up needs no answer
	})
	mux.HandleFunc("GET /entries", func(w http.ResponseWriter, _ *http.Request) {
		out := json.NewEncoder(w)
		for _, e := range b.all() {
			if out.Encode(e) != nil {
				return // hung up
			}
		}
	})
	mux.HandleFunc("POST /stop", func(http.ResponseWriter, *http.Request) { stop() })
	return mux
}
