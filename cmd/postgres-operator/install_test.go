package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestInstallCopiesOnceAndReplacesInOneStep(t *testing.T) {
	target := t.TempDir() + "/postgres-operator"
	stat := func() os.FileInfo {
		t.Helper()
		if err := runInstall(t.Context(), []string{target}); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(target)
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	first, second := stat(), stat()
	if !os.SameFile(first, second) {
		t.Error("the same program was copied again")
	}
	if first.Mode().Perm() != 0o755 {
		t.Errorf("mode %v", first.Mode())
	}
	if err := os.WriteFile(target, []byte("old"), 0o755); err != nil {
		t.Fatal(err)
	}
	if third := stat(); os.SameFile(second, third) || third.Size() != first.Size() {
		t.Error("an old program was not replaced")
	}
	entries, err := os.ReadDir(filepath.Dir(target))
	if err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
	if err := runInstall(t.Context(), nil); err == nil {
		t.Error("install without a path succeeds")
	}
}
