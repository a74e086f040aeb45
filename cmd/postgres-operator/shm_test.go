package main

import (
	"os"
	"path/filepath"
	"testing"
)

// C-19: what the last life of a container has left in shared memory goes.
func TestC19SharedMemoryIsCleared(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"PostgreSQL.123", "sub/ballast"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := clearShared(dir); err != nil {
			t.Fatal(err)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
			t.Errorf("%v is left, %v", left, err)
		}
	}
	if err := clearShared(filepath.Join(dir, "missing")); err != nil {
		t.Error(err)
	}
}
