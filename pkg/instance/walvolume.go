package instance

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A WAL volume holds one directory for each data directory whose WAL lies there,
//
//	<walMount>/<major>/wal-<random>             what <data directory>/pg_wal links to
//	<walMount>/<major>/wal-<random>.unfinished  there until the data directory is complete
//
// and nothing else of ours. The random name is written in one place, the link in
// the data directory, so that the two can't be mistaken for those of others: a
// data directory that is moved aside keeps its WAL, and a WAL volume that belongs
// to other data has no directory of that name.
const (
	walPrefix        = "wal-"
	unfinishedSuffix = ".unfinished"
)

func (v volume) walDir() string { return filepath.Join(v.walMount, strconv.Itoa(v.major)) }
func (v volume) pgWAL() string  { return v.inside("pg_wal") }

// walAside is where pg_wal is while a link takes its place.
func (v volume) walAside() string { return filepath.Join(v.dir(), "pg_wal.moving") }

// walLink is what pg_wal of a data directory links to; empty: it is no link, or
// is not there.
func walLink(data string) (string, error) {
	target, err := os.Readlink(filepath.Join(data, "pg_wal"))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.EINVAL) { // EINVAL: it is no link
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read the link to the WAL: %w", err)
	}
	return target, nil
}

// walKind is where a data directory has its WAL.
type walKind string

const (
	// walInside means that pg_wal is a directory of the data directory, or none.
	walInside walKind = "inside"
	// walLinked means that pg_wal links to a directory that is there.
	walLinked walKind = "linked"
	// walMissing means that pg_wal links to what is not there, although the pod
	// has a WAL volume; walForeign the same, and that the volume holds the WAL of
	// other data. walUnmounted means that the pod has no WAL volume.
	walMissing   walKind = "missing"
	walForeign   walKind = "foreign"
	walUnmounted walKind = "unmounted"
)

// isWhole says whether data has its WAL.
func (k walKind) isWhole() bool { return k == walInside || k == walLinked }

// lookAtWAL tells where the data directory has its WAL.
func (v volume) lookAtWAL() (walKind, error) {
	target, err := walLink(v.data())
	if err != nil {
		return "", err
	}
	if target == "" {
		return walInside, nil
	}
	info, err := os.Stat(target)
	switch {
	case err == nil && info.IsDir():
		return walLinked, nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("look at the WAL: %w", err)
	case v.walMount == "":
		return walUnmounted, nil
	}
	other, err := v.otherWAL()
	if err != nil {
		return "", err
	}
	if other != "" {
		return walForeign, nil
	}
	return walMissing, nil
}

// walDirectories are the directories of WAL on the WAL volume that are finished,
// of every major version.
func (v volume) walDirectories() ([]string, error) {
	if v.walMount == "" {
		return nil, nil
	}
	found, err := filepath.Glob(filepath.Join(v.walMount, "*", walPrefix+"*"))
	if err != nil {
		return nil, fmt.Errorf("look at the WAL volume: %w", err)
	}
	return slices.DeleteFunc(found, func(path string) bool {
		return strings.HasSuffix(path, unfinishedSuffix) || exists(path+unfinishedSuffix)
	}), nil
}

// newWAL chooses a directory on the WAL volume for a data directory that is about
// to be made, and remembers that it is not finished; empty: there is no WAL
// volume. The directory itself is made by whoever fills it.
func (v volume) newWAL() (string, error) {
	if v.walMount == "" {
		return "", nil
	}
	if err := os.MkdirAll(v.walDir(), 0o700); err != nil {
		return "", fmt.Errorf("make directory of version %d on the WAL volume: %w", v.major, err)
	}
	random := make([]byte, 8)
	if _, err := rand.Read(random); err != nil {
		return "", fmt.Errorf("name the directory of the WAL: %w", err)
	}
	path := filepath.Join(v.walDir(), walPrefix+hex.EncodeToString(random))
	return path, writeFile(path+unfinishedSuffix, "", 0o600)
}

// linkNewWAL lets pg_wal of a data directory, which holds no WAL yet, be a directory on
// the WAL volume; empty: it stays in the data directory.
func (v volume) linkNewWAL(wal string) error {
	if wal == "" {
		return nil
	}
	if err := os.MkdirAll(filepath.Join(wal, "archive_status"), 0o700); err != nil {
		return fmt.Errorf("make directory of WAL: %w", err)
	}
	if err := os.RemoveAll(v.pgWAL()); err != nil {
		return fmt.Errorf("make room for the link to the WAL: %w", err)
	}
	if err := os.Symlink(wal, v.pgWAL()); err != nil {
		return fmt.Errorf("link to the WAL: %w", err)
	}
	return errors.Join(syncDir(wal), syncDir(v.walDir()), syncDir(v.data()))
}

// finishWAL says that the WAL which the data directory links to is complete. The
// data id must be on disk.
func (v volume) finishWAL() error {
	target, err := v.linkedWAL(v.data())
	if err != nil || target == "" {
		return err
	}
	return removeFile(target + unfinishedSuffix)
}

// linkedWAL is the directory on the WAL volume that a data directory has its WAL
// in; empty: there is none.
func (v volume) linkedWAL(data string) (string, error) {
	target, err := walLink(data)
	if err != nil || target == "" || v.walMount == "" {
		return "", err
	}
	inside, err := filepath.Rel(v.walMount, target)
	if err != nil || strings.HasPrefix(inside, "..") || !strings.HasPrefix(filepath.Base(target), walPrefix) {
		return "", nil // none of our making
	}
	return target, nil
}

// removeData deletes a data directory with its WAL. The WAL goes first: what
// remains after a crash still names it.
func (v volume) removeData(data string) error {
	target, err := v.linkedWAL(data)
	if err != nil {
		return err
	}
	if target != "" {
		if err := v.removeWAL(target); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(data); err != nil {
		return fmt.Errorf("remove data directory: %w", err)
	}
	return nil
}

func (v volume) removeWAL(path string) error {
	if err := os.RemoveAll(path); err != nil {
		return fmt.Errorf("remove WAL: %w", err)
	}
	return removeFile(path + unfinishedSuffix)
}

// sweepWAL deletes from the WAL volume what was begun and never finished: WAL to
// which no data directory of the volume links. Any other WAL stays.
func (v volume) sweepWAL() error {
	marks, err := filepath.Glob(filepath.Join(v.walMount, "*", walPrefix+"*"+unfinishedSuffix))
	if err != nil || v.walMount == "" {
		return err
	}
	inUse, err := v.walInUse()
	if err != nil {
		return err
	}
	for _, mark := range marks {
		path := strings.TrimSuffix(mark, unfinishedSuffix)
		if inUse[path] {
			continue
		}
		if err := v.removeWAL(path); err != nil {
			return err
		}
	}
	return nil
}

// walInUse are the directories of WAL that data directories on the data volume
// link to, those that were moved aside among them.
func (v volume) walInUse() (map[string]bool, error) {
	inUse := map[string]bool{}
	for _, pattern := range []string{"data", "data.*"} {
		directories, err := filepath.Glob(filepath.Join(v.mount, "*", pattern))
		if err != nil {
			return nil, fmt.Errorf("look for data directories: %w", err)
		}
		for _, data := range directories {
			target, err := walLink(data)
			if err != nil {
				return nil, err
			}
			inUse[target] = true
		}
	}
	return inUse, nil
}

// otherWAL is WAL on the WAL volume to which no data directory of the data volume
// links; empty: there is none.
func (v volume) otherWAL() (string, error) {
	found, err := v.walDirectories()
	if err != nil {
		return "", err
	}
	inUse, err := v.walInUse()
	if err != nil {
		return "", err
	}
	for _, path := range found {
		if !inUse[path] {
			return path, nil
		}
	}
	return "", nil
}

// needsWALMoved says whether the pod has a WAL volume and the data directory
// still has its WAL inside.
func (v volume) needsWALMoved() bool {
	info, err := os.Lstat(v.pgWAL())
	return v.walMount != "" && err == nil && info.IsDir()
}

// moveWAL moves pg_wal to the WAL volume and leaves a link to it. No process may
// use the data directory. Until the link is in its place the WAL in the data
// directory is whole, and settleWAL brings any state between to one of the two.
func (v volume) moveWAL(ctx context.Context) error {
	if err := v.sweepWAL(); err != nil {
		return err
	}
	if err := v.wantRoomForWAL(); err != nil {
		return err
	}
	target, err := v.newWAL()
	if err != nil {
		return err
	}
	if err := copyTree(ctx, v.pgWAL(), target); err != nil {
		return errors.Join(err, v.removeWAL(target))
	}
	if err := syncVolume(target); err != nil {
		return err
	}
	return v.linkWAL(target)
}

// linkWAL lets pg_wal link to target, which holds all that is in pg_wal.
func (v volume) linkWAL(target string) error {
	if err := os.Rename(v.pgWAL(), v.walAside()); err != nil {
		return fmt.Errorf("move pg_wal aside: %w", err)
	}
	if err := errors.Join(syncDir(v.dir()), syncDir(v.data())); err != nil {
		return err
	}
	if err := os.Symlink(target, v.pgWAL()); err != nil {
		return fmt.Errorf("link pg_wal to the WAL volume: %w", err)
	}
	if err := syncDir(v.data()); err != nil {
		return err
	}
	return v.settleWAL()
}

// settleWAL ends a move of pg_wal that was interrupted: with the link in its place
// what was moved aside is deleted, without it that takes its place again.
func (v volume) settleWAL() error {
	if !exists(v.walAside()) {
		return nil
	}
	if !exists(v.pgWAL()) {
		if err := os.Rename(v.walAside(), v.pgWAL()); err != nil {
			return fmt.Errorf("put pg_wal back: %w", err)
		}
		return errors.Join(syncDir(v.dir()), syncDir(v.data()))
	}
	if err := v.finishWAL(); err != nil {
		return err
	}
	if err := os.RemoveAll(v.walAside()); err != nil {
		return fmt.Errorf("remove the WAL that was copied to the WAL volume: %w", err)
	}
	return syncDir(v.dir())
}

// wantRoomForWAL refuses to move WAL to a volume that it would fill: the server
// needs room for a new segment at once.
func (v volume) wantRoomForWAL() error {
	const spare = 32 << 20 // for segments of the usual 16 MB
	needed, err := sizeOfTree(v.pgWAL())
	if err != nil {
		return err
	}
	_, free, err := volumeSize(v.walMount)
	if err != nil {
		return err
	}
	if free < needed+spare {
		return fmt.Errorf("pg_wal holds %d MiB, and the WAL volume has room for %d MiB: raise spec.storage.wal.size", needed>>20, free>>20)
	}
	return nil
}

func sizeOfTree(path string) (uint64, error) {
	var size uint64
	err := filepath.WalkDir(path, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		info, err := entry.Info()
		if err == nil {
			size += uint64(info.Size())
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("measure the WAL: %w", err)
	}
	return size, nil
}

// copyTree copies directories and files, without syncing them.
func copyTree(ctx context.Context, from, to string) error {
	err := filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		relative, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		copied := filepath.Join(to, relative)
		switch {
		case entry.IsDir():
			return os.Mkdir(copied, 0o700)
		case entry.Type().IsRegular():
			return copyContent(path, copied)
		}
		return fmt.Errorf("%s is neither a file nor a directory", path)
	})
	if err != nil {
		return fmt.Errorf("copy the WAL to the WAL volume: %w", err)
	}
	return nil
}

func copyContent(from, to string) (err error) {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, target.Close()) }()
	_, err = io.Copy(target, source)
	return err
}
