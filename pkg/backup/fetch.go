package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
)

// FetchWAL writes an archived file to path, which must not exist, whole and
// verified or not at all. ErrNotFound: the archive doesn't have it, which is
// how a recovery sees the end of the archive; every other error, such as a store
// that is away, must not be taken for that end.
func (r *Repository) FetchWAL(ctx context.Context, name, path string) error {
	parsed, err := ParseWALName(name)
	if err != nil {
		return err
	}
	content, err := r.open(ctx, r.layout.WAL(parsed))
	if err != nil {
		return fmt.Errorf("fetch %s: %w", name, err)
	}
	err = writeNew(path, content)
	if err := errors.Join(err, content.Close()); err != nil {
		return fmt.Errorf("fetch %s: %w", name, err)
	}
	return nil
}

// writeNew writes a file that is not there yet; a failed one it removes.
func writeNew(path string, content io.Reader) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.CopyBuffer(justWriter{file}, content, make([]byte, 256<<10))
	if err = errors.Join(err, file.Close()); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

// justWriter hides the other methods of a file, with which io.CopyBuffer would
// use a smaller buffer than the one that it was given.
type justWriter struct{ io.Writer }
