package main

import (
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
)

// A reaper takes every child of its process, so this test runs beside no other.
func TestReaperReportsItsProgramsEnd(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	died := make(chan os.Signal, 1)
	signal.Notify(died, syscall.SIGCHLD)
	defer signal.Stop(died)
	r := newReaper(died)
	for range 50 { // the end may come before the start has returned
		status, err := r.run(nodeProgram{Path: "/bin/sh", Argv: []string{"sh", "-c", "echo x; exit 3"}, Log: log})
		if err != nil || status.ExitStatus() != 3 {
			t.Fatalf("status %v, error %v", status, err)
		}
	}
	content, err := os.ReadFile(log)
	if err != nil || len(content) != 100 {
		t.Errorf("log has %d bytes, error %v", len(content), err)
	}
}
