// Package file is a store in a directory, such as a mounted network volume.
//
// Objects are written under a temporary name, synced, and then linked to their
// own, so that what is there is whole. Directories that hold no object any more
// are removed.
package file

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/pgop/postgres-operator/pkg/backup"
)

// temporary begins the names of files that are being written. No key has a
// word that begins like that.
const temporary = ".writing-"

// Store is a directory.
type Store struct{ dir string }

var _ backup.Store = (*Store)(nil)

// New makes a store of a directory, which must exist: a volume that isn't
// mounted must not be taken for an empty one.
func New(dir string) *Store { return &Store{dir: dir} }

// String names the directory.
func (s *Store) String() string { return "directory " + s.dir }

// Create implements backup.Store.
func (s *Store) Create(ctx context.Context, key string, content io.Reader) error {
	target, err := s.path(key)
	if err != nil {
		return fmt.Errorf("write %s: %w", key, err)
	}
	if _, err := os.Stat(s.dir); err != nil {
		return fmt.Errorf("write %s: %w", key, err)
	}
	if err := create(target, &reader{ctx: ctx, from: content}); err != nil {
		return fmt.Errorf("write %s: %w", key, err)
	}
	return nil
}

func create(target string, content io.Reader) error {
	file, err := createTemporary(filepath.Dir(target))
	if err != nil {
		return err
	}
	defer os.Remove(file.Name()) // it has its own name by now, or is of no use
	if err := fill(file, content); err != nil {
		return err
	}
	// A link is refused where there is a file, unlike a rename.
	err = os.Link(file.Name(), target)
	if errors.Is(err, fs.ErrExist) {
		return backup.ErrExists
	}
	if err != nil {
		return err
	}
	return syncDirectory(filepath.Dir(target))
}

// createTemporary makes the directory as well. Somebody may remove it, being
// empty, just before the file is there.
func createTemporary(dir string) (*os.File, error) {
	const tries = 10
	var file *os.File
	var err error
	for range tries {
		if err = os.MkdirAll(dir, 0o750); err != nil {
			return nil, err
		}
		if file, err = os.CreateTemp(dir, temporary); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return file, err
}

func fill(file *os.File, content io.Reader) error {
	_, err := io.Copy(file, content)
	if err == nil {
		err = file.Sync()
	}
	return errors.Join(err, file.Close())
}

func syncDirectory(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Open implements backup.Store.
func (s *Store) Open(ctx context.Context, key string, from int64) (io.ReadCloser, error) {
	target, err := s.path(key)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", key, err)
	}
	file, err := os.Open(target)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", key, s.notFound(err))
	}
	if _, err := file.Seek(from, io.SeekStart); err != nil {
		return nil, errors.Join(fmt.Errorf("read %s: %w", key, err), file.Close())
	}
	return &body{reader: reader{ctx: ctx, from: file}, file: file}, nil
}

// Stat implements backup.Store.
func (s *Store) Stat(_ context.Context, key string) (backup.Object, error) {
	target, err := s.path(key)
	if err != nil {
		return backup.Object{}, fmt.Errorf("look at %s: %w", key, err)
	}
	info, err := os.Stat(target)
	if err != nil {
		return backup.Object{}, fmt.Errorf("look at %s: %w", key, s.notFound(err))
	}
	return backup.Object{Key: key, Size: info.Size(), Modified: info.ModTime()}, nil
}

// List implements backup.Store.
func (s *Store) List(ctx context.Context, prefix string, each func(backup.Object) error) error {
	if _, err := os.Stat(s.dir); err != nil {
		return fmt.Errorf("list %s: %w", prefix, err)
	}
	// A prefix may end within a name.
	start := filepath.Join(s.dir, filepath.FromSlash(path.Dir(prefix+"x")))
	err := filepath.WalkDir(start, func(at string, entry fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil // removed meanwhile, or never there
		case err != nil:
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !entry.Type().IsRegular() || strings.HasPrefix(entry.Name(), temporary):
			return nil
		}
		return s.tell(at, entry, prefix, each)
	})
	if err != nil {
		return fmt.Errorf("list %s: %w", prefix, err)
	}
	return nil
}

func (s *Store) tell(at string, entry fs.DirEntry, prefix string, each func(backup.Object) error) error {
	relative, err := filepath.Rel(s.dir, at)
	if err != nil {
		return err
	}
	key := filepath.ToSlash(relative)
	if !strings.HasPrefix(key, prefix) {
		return nil
	}
	info, err := entry.Info()
	if errors.Is(err, fs.ErrNotExist) {
		return nil // removed meanwhile
	}
	if err != nil {
		return err
	}
	return each(backup.Object{Key: key, Size: info.Size(), Modified: info.ModTime()})
}

// Delete implements backup.Store.
func (s *Store) Delete(_ context.Context, key string) error {
	target, err := s.path(key)
	if err != nil {
		return fmt.Errorf("delete %s: %w", key, err)
	}
	if err := s.remove(target); err != nil {
		return fmt.Errorf("delete %s: %w", key, err)
	}
	return nil
}

// remove removes a file, and the directories in which nothing is left.
func (s *Store) remove(target string) error {
	if err := os.Remove(target); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for dir := filepath.Dir(target); dir != s.dir; dir = filepath.Dir(dir) {
		if os.Remove(dir) != nil {
			break // others are in it, or it is gone
		}
	}
	return nil
}

// Sweep implements backup.Store.
func (s *Store) Sweep(ctx context.Context, prefix string, before time.Time) error {
	start := filepath.Join(s.dir, filepath.FromSlash(path.Dir(prefix+"x")))
	err := filepath.WalkDir(start, func(at string, entry fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil // removed meanwhile, or never there
		case err != nil:
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !entry.Type().IsRegular() || !strings.HasPrefix(entry.Name(), temporary):
			return nil
		}
		return s.sweep(at, entry, prefix, before)
	})
	if err != nil {
		return fmt.Errorf("sweep %s: %w", prefix, err)
	}
	return nil
}

func (s *Store) sweep(at string, entry fs.DirEntry, prefix string, before time.Time) error {
	relative, err := filepath.Rel(s.dir, at)
	if err != nil {
		return err
	}
	info, err := entry.Info()
	if errors.Is(err, fs.ErrNotExist) {
		return nil // removed meanwhile
	}
	if err != nil || !info.ModTime().Before(before) || !strings.HasPrefix(filepath.ToSlash(relative), prefix) {
		return err
	}
	return s.remove(at)
}

func (s *Store) path(key string) (string, error) {
	local := filepath.FromSlash(key)
	if key == "" || !filepath.IsLocal(local) || filepath.Clean(local) != local {
		return "", fmt.Errorf("%q can't be the name of an object", key)
	}
	return filepath.Join(s.dir, local), nil
}

// notFound makes ErrNotFound of a file that is missing, unless the whole store
// is.
func (s *Store) notFound(err error) error {
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if _, missing := os.Stat(s.dir); missing != nil {
		return missing
	}
	return backup.ErrNotFound
}

// reader ends with its context.
type reader struct {
	ctx  context.Context
	from io.Reader
}

func (r *reader) Read(p []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	return r.from.Read(p)
}

type body struct {
	reader
	file *os.File
}

func (b *body) Close() error { return b.file.Close() }
