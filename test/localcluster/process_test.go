package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A caller's lock, as flock(1) passes it on, would be held for as long as the
// cluster runs.
func TestProcessesInheritNoFilesOfTheCaller(t *testing.T) {
	path := filepath.Join(t.TempDir(), "caller.lock")
	file, err := syscall.Open(path, syscall.O_CREAT|syscall.O_RDONLY, 0o600) // without O_CLOEXEC
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(file)
	if err := keepFilesFromChildren(); err != nil {
		t.Fatal(err)
	}
	files, err := exec.Command("ls", "-l", "/proc/self/fd").Output()
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(files), path) {
		t.Errorf("a child has the caller's file:\n%s", files)
	}
}
