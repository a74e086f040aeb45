package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// runInstall copies this binary to the path named, for containers of other
// images to run. A copy that is there already is left alone.
func runInstall(_ context.Context, args []string) error {
	if len(args) != 1 {
		return errors.New("install: name the path to copy this binary to")
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("install: find this binary: %w", err)
	}
	// An empty volume is the usual case, and the binary is large.
	if _, err := os.Stat(args[0]); errors.Is(err, fs.ErrNotExist) {
		return copyProgram(self, args[0])
	}
	same, err := sameContent(self, args[0])
	if err != nil || same {
		return err
	}
	return copyProgram(self, args[0])
}

// copyProgram replaces target in one step, so that nobody runs half of it.
func copyProgram(source, target string) (err error) {
	from, err := os.Open(source)
	if err != nil {
		return fmt.Errorf("install %s: %w", target, err)
	}
	defer from.Close()
	to, err := os.CreateTemp(filepath.Dir(target), ".install-*")
	if err != nil {
		return fmt.Errorf("install %s: %w", target, err)
	}
	defer os.Remove(to.Name()) // gone once it is renamed
	const mode = 0o755
	_, err = io.Copy(to, from)
	if err = errors.Join(err, to.Chmod(mode), to.Close()); err != nil {
		return fmt.Errorf("install %s: %w", target, err)
	}
	if err := os.Rename(to.Name(), target); err != nil {
		return fmt.Errorf("install %s: %w", target, err)
	}
	return nil
}

func sameContent(a, b string) (bool, error) {
	sumA, err := sum(a)
	if err != nil {
		return false, fmt.Errorf("install: %w", err)
	}
	sumB, err := sum(b)
	if err != nil {
		return false, fmt.Errorf("install: %w", err)
	}
	return bytes.Equal(sumA, sumB), nil
}

func sum(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, file); err != nil {
		return nil, err
	}
	return hash.Sum(nil), nil
}
