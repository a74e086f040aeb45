package instance

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/pgop/postgres-operator/pkg/election"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
)

// volume is the data volume as laid out for one major version, and the WAL volume
// that belongs to it.
type volume struct {
	mount string
	major int
	// walMount is where the WAL volume is mounted; empty: there is none, and WAL
	// lies in the data directory.
	walMount string
}

func (v volume) lockFile() string       { return filepath.Join(v.mount, "lock") }
func (v volume) dir() string            { return filepath.Join(v.mount, strconv.Itoa(v.major)) }
func (v volume) data() string           { return filepath.Join(v.dir(), "data") }
func (v volume) idFile() string         { return filepath.Join(v.dir(), "data-id") }
func (v volume) sealedFile() string     { return filepath.Join(v.dir(), "sealed") }
func (v volume) reignFile() string      { return filepath.Join(v.dir(), "reign.json") }
func (v volume) marker() string         { return filepath.Join(v.dir(), "unfinished") }
func (v volume) config() string         { return filepath.Join(v.dir(), "config") }
func (v volume) standby() string        { return filepath.Join(v.data(), "standby.signal") }
func (v volume) recovers() string       { return v.inside("recovery.signal") }
func (v volume) inside(p string) string { return filepath.Join(v.data(), p) }

// origin is how a data directory was made.
type origin string

const (
	byInitdb origin = "initdb"
	byClone  origin = "clone"
	byRewind origin = "rewind"
	// byRestore is a first database, as by initdb, but made of a backup or of another
	// cluster.
	byRestore origin = "restore"
)

// dataKind is what there is at the place of the data directory.
type dataKind string

const (
	// dataNone is nothing, or an empty directory.
	dataNone dataKind = "none"
	// dataUnfinished is what an initdb or clone of ours has left behind, and
	// never served: it may be deleted.
	dataUnfinished dataKind = "unfinished"
	// dataComplete has a data id and a control file.
	dataComplete dataKind = "complete"
	// dataWithoutWAL is complete, but for the WAL, which was on a WAL volume.
	dataWithoutWAL dataKind = "without its WAL"
	// dataDamaged has a data id, but no control file that can be read.
	dataDamaged dataKind = "damaged"
	// dataForeign is something that this agent did not make.
	dataForeign dataKind = "foreign"
)

// identity is the content of the file data-id.
type identity struct {
	// ID is random, and new each time that the data directory is made.
	ID     string `json:"id"`
	Origin origin `json:"origin"`
	// Recovered is where recovery ended, of data byRestore.
	Recovered *instanceapi.Recovered `json:"recovered,omitempty"`
}

// reignMemory is the content of the file reign.json: the last record of the
// Lease that this volume has seen, and who held it.
type reignMemory struct {
	Holder string          `json:"holder"`
	Record election.Record `json:"record"`
}

// lookAtData tells what kind of data the volume holds; a complete one still has
// to show a control file that can be read.
func (v volume) lookAtData() (dataKind, identity, error) {
	id, err := v.readIdentity()
	if err != nil {
		return "", identity{}, err
	}
	empty, err := isEmpty(v.data())
	switch {
	case err != nil:
		return "", identity{}, err
	case id.ID == "" && exists(v.marker()):
		return dataUnfinished, identity{}, nil
	case empty:
		return dataNone, identity{}, nil
	case id.ID == "":
		return dataForeign, identity{}, nil
	case !exists(v.inside("PG_VERSION")) || !exists(v.inside("global/pg_control")):
		return dataDamaged, id, nil
	}
	wal, err := v.lookAtWAL()
	if err == nil && !wal.isWhole() {
		return dataWithoutWAL, id, nil
	}
	return dataComplete, id, err
}

func (v volume) readIdentity() (identity, error) {
	var id identity
	return id, readJSON(v.idFile(), &id)
}

// begin readies the place of the data directory for initdb or a clone, and returns
// the directory for its WAL; empty: that lies in the data directory. What an
// unfinished one left there is deleted; anything else there is an error.
//
// The data id goes first and the marker comes second: a crash at any point
// leaves either the old data with its id, or data of which nobody believes
// that it is complete.
func (v volume) begin(by origin) (wal string, err error) {
	kind, _, err := v.lookAtData()
	if err != nil {
		return "", err
	}
	if kind != dataNone && kind != dataUnfinished {
		return "", fmt.Errorf("make data directory %s: the place is taken (%s)", v.data(), kind)
	}
	if err := os.MkdirAll(v.dir(), 0o700); err != nil {
		return "", fmt.Errorf("make directory of version %d: %w", v.major, err)
	}
	if err := removeFile(v.idFile()); err != nil {
		return "", err
	}
	if err := writeFile(v.marker(), string(by)+"\n", 0o600); err != nil {
		return "", err
	}
	if err := errors.Join(v.removeData(v.data()), v.sweepWAL()); err != nil {
		return "", err
	}
	if err := os.Mkdir(v.data(), 0o700); err != nil {
		return "", fmt.Errorf("make data directory: %w", err)
	}
	if err := syncDir(v.dir()); err != nil {
		return "", err
	}
	return v.newWAL()
}

// sync makes the data directory last, with its WAL.
func (v volume) sync() error {
	err := syncVolume(v.data())
	if target, linkErr := walLink(v.data()); target != "" || linkErr != nil {
		err = errors.Join(err, linkErr, syncVolume(v.pgWAL()))
	}
	return err
}

// finish says that the data directory is complete, and gives what was made its ID. All
// of it must be on disk.
func (v volume) finish(made identity) (identity, error) {
	random := make([]byte, 4) // it is a part of a name that holds 63 bytes
	if _, err := rand.Read(random); err != nil {
		return identity{}, fmt.Errorf("make data id: %w", err)
	}
	made.ID = hex.EncodeToString(random)
	if err := writeJSON(v.idFile(), made); err != nil {
		return identity{}, err
	}
	return made, errors.Join(v.finishWAL(), removeFile(v.marker()))
}

// beginRewind says that the data directory is being rewound, and is not to be
// used until that has succeeded.
func (v volume) beginRewind() error {
	if err := removeFile(v.idFile()); err != nil {
		return err
	}
	return writeFile(v.marker(), string(byRewind)+"\n", 0o600)
}

// isHalfRewound says whether a rewind began and did not end. What it left is
// none of our making alone, so it is not deleted.
func (v volume) isHalfRewound() bool {
	text, err := os.ReadFile(v.marker())
	return err == nil && strings.TrimSpace(string(text)) == string(byRewind)
}

// giveUp moves the data directory aside, to be cloned again, and returns its
// new path. One that was given up before makes room for it. Its WAL stays with it.
func (v volume) giveUp(now time.Time) (string, error) {
	if err := removeFile(v.idFile()); err != nil {
		return "", err
	}
	former, err := filepath.Glob(v.data() + ".former-*")
	if err != nil {
		return "", fmt.Errorf("look for former data: %w", err)
	}
	for _, path := range former {
		if err := v.removeData(path); err != nil {
			return "", err
		}
	}
	path := v.data() + ".former-" + now.UTC().Format("20060102T150405Z")
	if err := os.Rename(v.data(), path); err != nil {
		return "", fmt.Errorf("move data directory aside: %w", err)
	}
	return path, errors.Join(removeFile(v.marker()), syncDir(v.dir()))
}

// writeSealed remembers the highest term that this instance has voted for. It
// is on disk when this returns.
func (v volume) writeSealed(term uint64) error { return writeJSON(v.sealedFile(), term) }

func (v volume) readSealed() (uint64, error) {
	var term uint64
	return term, readJSON(v.sealedFile(), &term)
}

// wipeUnfinished deletes what begin began.
func (v volume) wipeUnfinished() error {
	kind, _, err := v.lookAtData()
	if err != nil || kind != dataUnfinished {
		return err
	}
	if err := errors.Join(v.removeData(v.data()), v.sweepWAL()); err != nil {
		return err
	}
	return removeFile(v.marker())
}

// moveAside renames the data directory, with the time, and returns its new
// path. Nothing ever deletes it.
func (v volume) moveAside(now time.Time) (string, error) {
	path := v.data() + ".moved-" + now.UTC().Format("20060102T150405Z")
	for n := 2; exists(path); n++ {
		path = fmt.Sprintf("%s.moved-%s-%d", v.data(), now.UTC().Format("20060102T150405Z"), n)
	}
	if err := os.Rename(v.data(), path); err != nil {
		return "", fmt.Errorf("move data directory aside: %w", err)
	}
	return path, syncDir(v.dir())
}

// otherData is the path of a data directory elsewhere on the volume, such as
// another major version's or another program's, or that of WAL to which no data on
// the volume links; empty: there is none.
func (v volume) otherData() (string, error) {
	for _, pattern := range []string{"PG_VERSION", "*/PG_VERSION", "*/*/PG_VERSION"} {
		paths, err := filepath.Glob(filepath.Join(v.mount, pattern))
		if err != nil {
			return "", fmt.Errorf("look for data on the volume: %w", err)
		}
		for _, path := range paths {
			if dir := filepath.Dir(path); dir != v.data() && !strings.HasPrefix(dir, v.data()+".former-") {
				return dir, nil
			}
		}
	}
	return v.otherWAL()
}

func (v volume) readReign() (reignMemory, error) {
	var m reignMemory
	return m, readJSON(v.reignFile(), &m)
}

func (v volume) writeReign(m reignMemory) error {
	if err := os.MkdirAll(v.dir(), 0o700); err != nil {
		return fmt.Errorf("make directory of version %d: %w", v.major, err)
	}
	return writeJSON(v.reignFile(), m)
}

// isEmpty says whether a directory is missing or has nothing in it.
func isEmpty(path string) (bool, error) {
	entries, err := os.ReadDir(path)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("look at data directory: %w", err)
	}
	return len(entries) == 0, nil
}

// readJSON reads a file into value, and leaves it as it is if there is none.
func readJSON(path string, value any) error {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // not written yet
	}
	if err != nil {
		return fmt.Errorf("read file of the volume: %w", err)
	}
	if err := json.Unmarshal(text, value); err != nil {
		return fmt.Errorf("parse %s: %w", path, err)
	}
	return nil
}

func writeJSON(path string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return writeFile(path, string(text)+"\n", 0o600)
}
