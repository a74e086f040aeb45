package instance

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// writeFile replaces a file so that after a crash either the old or the new
// content is there. A file that already says so is left alone.
func writeFile(path, content string, mode fs.FileMode) error {
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, []byte(content)) {
		return nil
	}
	temporary := path + ".new"
	if err := writeAndSync(temporary, content, mode); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.Rename(temporary, path); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return syncDir(filepath.Dir(path))
}

func writeAndSync(path, content string, mode fs.FileMode) (err error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if _, err := file.WriteString(content); err != nil {
		return err
	}
	return file.Sync()
}

// removeFile removes a file, if it is there, for good.
func removeFile(path string) error {
	err := os.Remove(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // as wanted
	}
	if err != nil {
		return fmt.Errorf("remove file: %w", err)
	}
	return syncDir(filepath.Dir(path))
}

// syncDir makes names in a directory last.
func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("sync directory: %w", err)
	}
	defer dir.Close()
	if err := dir.Sync(); err != nil {
		return fmt.Errorf("sync directory %s: %w", path, err)
	}
	return nil
}

// syncVolume makes everything on the volume that holds path last: one call
// instead of one for each of a thousand files.
func syncVolume(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("sync volume: %w", err)
	}
	defer dir.Close()
	if err := unix.Syncfs(int(dir.Fd())); err != nil {
		return fmt.Errorf("sync volume of %s: %w", path, err)
	}
	return nil
}

// exists says whether there is something at path; what can't be told counts
// as something.
func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}
