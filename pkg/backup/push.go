package backup

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/pgop/postgres-operator/pkg/postgres"
)

// PushWAL archives a file of pg_wal, and returns when the store has it. That
// the archive has the same content already is a success: with
// archive_mode = always every instance archives every segment. Other content
// under the same name is ErrOtherContent, and stays as it is; but where it can't be
// needed, since the timeline was left in that segment, it is a success, too. An
// OwnerError says that the archive is somebody else's.
func (r *Repository) PushWAL(ctx context.Context, path string) error {
	name, err := ParseWALName(filepath.Base(path))
	if err != nil {
		return err
	}
	if unused, err := isUnused(path, name); unused || err != nil {
		return err
	}
	if err := r.Claim(ctx); err != nil {
		return fmt.Errorf("archive %s: %w", name.Text, err)
	}
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("archive %s: %w", name.Text, err)
	}
	err = r.pushFile(ctx, name, file)
	if errors.Is(err, ErrOtherContent) {
		err = excuse(err, name, file)
	}
	if err := errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("archive %s: %w", name.Text, err)
	}
	return nil
}

// isUnused says whether a file is the history of no timeline, which only takes the
// number. With archive_mode = always those who stream it want it archived, and the
// place is that of a real one.
func isUnused(path string, name WALName) (bool, error) {
	if name.Kind != History {
		return false, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return false, fmt.Errorf("archive %s: %w", name.Text, err)
	}
	return string(text) == postgres.UnusedHistory, nil
}

// excuse drops an error about content that nobody can need. No recovery reads a
// partial segment by itself.
func excuse(other error, name WALName, file *os.File) error {
	if name.Kind == Partial {
		return nil
	}
	info, err := file.Stat()
	if err != nil {
		return errors.Join(other, err)
	}
	left, err := isLeftBehind(filepath.Dir(file.Name()), name, uint64(info.Size()))
	if err != nil || !left {
		return errors.Join(other, err)
	}
	return nil
}

func (r *Repository) pushFile(ctx context.Context, name WALName, file *os.File) error {
	if err := checkWhole(name, file); err != nil {
		return err
	}
	key := r.layout.WAL(name)
	// To ask first costs a request, and saves sending what another instance has
	// sent already.
	object, err := r.store.Stat(ctx, key)
	if errors.Is(err, ErrNotFound) {
		if _, err = r.create(ctx, key, file); !errors.Is(err, ErrExists) {
			return err
		}
		object, err = r.store.Stat(ctx, key) // another instance was faster
	}
	if err != nil {
		return err
	}
	return r.compare(ctx, object, file)
}

// checkWhole refuses a segment that can't be whole.
func checkWhole(name WALName, file *os.File) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	const least, most = 1 << 20, 1 << 30
	size := info.Size()
	isSegment := name.Kind == Segment || name.Kind == Partial
	if isSegment && (size < least || size > most || size&(size-1) != 0) {
		return fmt.Errorf("it has %d bytes, which no segment has", size)
	}
	return nil
}

// compare says whether an object in the store holds what the file does.
func (r *Repository) compare(ctx context.Context, object Object, file *os.File) error {
	seal, err := r.readSeal(ctx, object)
	if err != nil {
		return err
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	sum := sha256.New()
	size, err := io.CopyBuffer(sum, file, make([]byte, 256<<10))
	if err != nil {
		return err
	}
	if seal.check(r.layout.name(object.Key), r.layout.SystemID, size, sum) != nil {
		return fmt.Errorf("object %s: %w", object.Key, ErrOtherContent)
	}
	return nil
}
