package backup

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/pgop/postgres-operator/pkg/postgres/pgrun"
)

// RestoreOptions says where a base backup is restored to.
type RestoreOptions struct {
	// Data is the data directory. It must be missing or empty.
	Data string
	// Work is a directory on the same volume, used for backups that are
	// incremental. It must not exist, and is deleted.
	Work string
	// Parallel is how many parts are fetched at once.
	Parallel int
	// Progress is called after each file with the bytes of data that are done; it
	// must be quick, and may be called from several goroutines. It may be nil.
	Progress func(done, total int64)
}

// CheckBackup says whether all objects of a chain of backups are in the store
// with the sizes that they had, and the WAL that the last one needs. The error
// names what is missing or damaged. Contents are verified when they are read.
func (r *Repository) CheckBackup(ctx context.Context, chain []Record) error {
	for _, record := range chain {
		for number, part := range record.Parts {
			if err := r.checkSize(ctx, r.layout.Part(record.ID, number+1), part); err != nil {
				return fmt.Errorf("check backup %s: %w", record.ID, err)
			}
		}
		if err := r.checkSize(ctx, r.layout.Manifest(record.ID), record.Manifest); err != nil {
			return fmt.Errorf("check backup %s: %w", record.ID, err)
		}
	}
	return r.CheckWAL(ctx, chain[len(chain)-1])
}

func (r *Repository) checkSize(ctx context.Context, key string, part Part) error {
	object, err := r.store.Stat(ctx, key)
	if err != nil {
		return err
	}
	if object.Size != part.Stored {
		return &DamagedError{Key: key, Why: fmt.Sprintf("it has %d bytes, and once had %d", object.Size, part.Stored)}
	}
	return nil
}

// RestoreBase restores a chain of backups, the full one first, as Chain returns
// it. It checks that the chain is there before it writes anything, and verifies
// all that it reads. When it returns, the data directory is complete, on disk,
// and marked for recovery, which has to replay the WAL. When it fails, what it
// has written is of no use.
func (r *Repository) RestoreBase(ctx context.Context, programs *pgrun.Programs, chain []Record, o RestoreOptions) error {
	last := chain[len(chain)-1]
	if err := r.restore(ctx, programs, chain, o); err != nil {
		return fmt.Errorf("restore backup %s: %w", last.ID, err)
	}
	return nil
}

func (r *Repository) restore(ctx context.Context, programs *pgrun.Programs, chain []Record, o RestoreOptions) error {
	if err := r.CheckBackup(ctx, chain); err != nil {
		return err
	}
	if err := makeEmpty(o.Data); err != nil {
		return err
	}
	if len(chain) == 1 {
		if err := r.unpack(ctx, chain, []string{o.Data}, o); err != nil {
			return err
		}
	} else if err := r.restoreChain(ctx, programs, chain, o); err != nil {
		return err
	}
	if err := MarkForRecovery(o.Data); err != nil {
		return err
	}
	return syncVolume(o.Data)
}

// MarkForRecovery lets a server recover that starts on data from a base backup. A backup of a
// replica holds the mark of one, with which the server would wait for more WAL
// for ever; without any it would take the data for those of a crash.
func MarkForRecovery(data string) error {
	err := os.Remove(filepath.Join(data, "standby.signal"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.WriteFile(filepath.Join(data, "recovery.signal"), nil, 0o600)
}

// makeEmpty makes a directory that nobody else can read.
func makeEmpty(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	if len(entries) > 0 {
		return fmt.Errorf("directory %s is not empty", dir)
	}
	return os.Chmod(dir, 0o700)
}

// restoreChain restores each backup in a directory of its own, and combines
// them.
func (r *Repository) restoreChain(ctx context.Context, programs *pgrun.Programs, chain []Record, o RestoreOptions) error {
	if err := os.Mkdir(o.Work, 0o700); err != nil {
		return err
	}
	defer os.RemoveAll(o.Work) // a second failure would say no more than the first
	var dirs []string
	for n := range chain {
		dir := filepath.Join(o.Work, strconv.Itoa(n))
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
		dirs = append(dirs, dir)
	}
	if err := r.unpack(ctx, chain, dirs, o); err != nil {
		return err
	}
	for n, record := range chain {
		if err := r.fetchManifest(ctx, record, dirs[n]); err != nil {
			return err
		}
	}
	return programs.CombineBackups(ctx, dirs, o.Data)
}

// fetchManifest writes a backup's manifest where pg_combinebackup looks for it.
func (r *Repository) fetchManifest(ctx context.Context, record Record, dir string) error {
	content, err := r.open(ctx, r.layout.Manifest(record.ID))
	if err != nil {
		return err
	}
	err = writeNew(filepath.Join(dir, manifestName), content)
	return errors.Join(err, content.Close(), content.expect(record.Manifest))
}

// unpack unpacks the parts of each backup into its directory.
func (r *Repository) unpack(ctx context.Context, chain []Record, dirs []string, o RestoreOptions) error {
	progress := counted(chain, o.Progress)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(max(o.Parallel, 1))
	for n, record := range chain {
		for number, part := range record.Parts {
			group.Go(func() error {
				return r.unpackPart(ctx, r.layout.Part(record.ID, number+1), part, dirs[n], progress)
			})
		}
	}
	return group.Wait()
}

// counted adds up the bytes that it is told.
func counted(chain []Record, progress func(done, total int64)) func(int64) {
	var done atomic.Int64
	total := int64(0)
	for _, record := range chain {
		total += record.Size
	}
	return func(bytes int64) {
		if now := done.Add(bytes); progress != nil {
			progress(now, total)
		}
	}
}

func (r *Repository) unpackPart(ctx context.Context, key string, part Part, dir string, progress func(int64)) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	content, err := r.open(ctx, key)
	if err != nil {
		return err
	}
	err = untar(content, dir, progress)
	if err == nil {
		err = content.expect(part)
	}
	return errors.Join(err, content.Close())
}

// untar reads the content to its end, where it is verified.
func untar(content *download, dir string, progress func(int64)) error {
	members, buffer := tar.NewReader(content), make([]byte, 256<<10)
	for {
		header, err := members.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return content.blame(err)
		}
		if err := writeMember(content, members, header, dir, buffer); err != nil {
			return err
		}
		progress(header.Size)
	}
	_, err := io.Copy(io.Discard, content)
	return err
}

func writeMember(content *download, members io.Reader, header *tar.Header, dir string, buffer []byte) error {
	if !filepath.IsLocal(header.Name) {
		return content.damaged(fmt.Errorf("it names the file %q", header.Name))
	}
	path := filepath.Join(dir, header.Name)
	switch header.Typeflag {
	case tar.TypeDir:
		return os.MkdirAll(path, 0o700)
	case tar.TypeReg:
	default:
		return content.damaged(fmt.Errorf("%s is neither a file nor a directory", header.Name))
	}
	file, err := openNew(path, header.FileInfo().Mode().Perm())
	if err != nil {
		return err
	}
	_, err = io.CopyBuffer(justWriter{file}, members, buffer)
	if err != nil {
		err = content.blame(err)
	}
	return errors.Join(err, file.Close())
}

// openNew makes the file's directory, too, which may be in another part.
func openNew(path string, mode fs.FileMode) (*os.File, error) {
	const flags = os.O_CREATE | os.O_EXCL | os.O_WRONLY
	file, err := os.OpenFile(path, flags, mode)
	if !errors.Is(err, fs.ErrNotExist) {
		return file, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	return os.OpenFile(path, flags, mode)
}

// syncVolume returns when everything that was written to the volume is on disk.
func syncVolume(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	err = unix.Syncfs(int(dir.Fd()))
	if err != nil {
		err = fmt.Errorf("sync the volume of %s: %w", path, err)
	}
	return errors.Join(err, dir.Close())
}
