package main

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestSourceKey(t *testing.T) {
	ctx := context.Background()
	key := func(files map[string]string) string {
		t.Helper()
		s := source{name: "x", dir: t.TempDir(), pkg: "."}
		for name, content := range files {
			if err := writeFile(filepath.Join(s.dir, name), []byte(content), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		k, err := s.key(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	base := map[string]string{"go.mod": "module x\n", "main.go": "package main\n"}
	with := func(name, content string) map[string]string {
		files := map[string]string{name: content}
		for n, c := range base {
			if n != name {
				files[n] = c
			}
		}
		return files
	}
	tests := map[string]struct {
		files map[string]string
		same  bool
	}{
		"the same files elsewhere": {base, true},
		"another test":             {with("main_test.go", "package main\n"), true},
		"another document":         {with("README.md", "x"), true},
		"another source":           {with("main.go", "package main // changed\n"), false},
		"another dependency":       {with("go.sum", "x\n"), false},
		"another embedded file":    {with("data/x.txt", "x"), false},
	}
	want := key(base)
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := key(test.files); (got == want) != test.same {
				t.Errorf("key %s, unchanged it is %s", got, want)
			}
		})
	}
}

func TestRemoveUnusedKeepsWhatIsUsed(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"used", "unused"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	old := time.Now().Add(-2 * unusedFor)
	for _, name := range []string{"used", "unused"} {
		if err := os.Chtimes(filepath.Join(dir, name), old, old); err != nil {
			t.Fatal(err)
		}
	}
	if !used(filepath.Join(dir, "used")) || used(filepath.Join(dir, "absent")) {
		t.Error("used does not tell what exists")
	}
	removeUnused(dir)
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	if len(left) != 1 || filepath.Base(left[0]) != "used" {
		t.Errorf("left: %q", left)
	}
}
