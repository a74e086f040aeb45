package backup

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pgop/postgres-operator/pkg/postgres"
)

// Kind is a kind of base backup.
type Kind string

const (
	// Full can be restored by itself.
	Full Kind = "full"
	// Incremental holds what has changed since its parent, and can be restored
	// only together with it.
	Incremental Kind = "incremental"
)

// Record is what is known of a base backup. It is written when the backup is
// complete: all of its parts and all the WAL that it needs are in the store.
type Record struct {
	// Format is that of the record and of the objects beside it.
	Format int    `json:"format"`
	ID     string `json:"id"`
	Kind   Kind   `json:"kind"`
	// Parent is the backup that an incremental one goes on from.
	Parent string `json:"parent,omitempty"`
	// Name is what people call the backup.
	Name string `json:"name,omitempty"`
	// Cluster and Instance are where it was taken.
	Cluster  string `json:"cluster,omitempty"`
	Instance string `json:"instance,omitempty"`

	SystemID string `json:"systemID"`
	Major    int    `json:"major"`
	// Version is the server's.
	Version string `json:"version,omitempty"`
	// SegmentSize is that of WAL files, in bytes.
	SegmentSize uint64 `json:"segmentSize"`
	// WAL is what recovery replays until the data is consistent, oldest first; the
	// last range has the backup's timeline. It is never empty.
	WAL []WALRange `json:"wal"`

	// StartedAt and StoppedAt are by the clock of whoever took the backup. It can
	// be restored to StoppedAt and any later time.
	StartedAt time.Time `json:"startedAt"`
	StoppedAt time.Time `json:"stoppedAt"`

	// Size is that of the data, StoredSize what it takes in the store, in bytes.
	Size       int64  `json:"size"`
	StoredSize int64  `json:"storedSize"`
	Parts      []Part `json:"parts"`
	Manifest   Part   `json:"manifest"`

	// Checksum is that of the record without it.
	Checksum string `json:"checksum"`
}

// Part is an object of a base backup.
type Part struct {
	// Size is that of the content and Stored that of the object, in bytes.
	Size   int64 `json:"size"`
	Stored int64 `json:"stored"`
	// SHA256 is the content's, in hexadecimal digits.
	SHA256 string `json:"sha256"`
}

// WALRange is a piece of a timeline's WAL; End is the position after it.
type WALRange struct {
	Timeline uint32   `json:"timeline"`
	Start    Position `json:"start"`
	End      Position `json:"end"`
}

// Position is a position in the WAL that is written as the server does.
type Position postgres.LSN

// String is the form X/Y.
func (p Position) String() string { return postgres.LSN(p).String() }

// MarshalText writes the form X/Y.
func (p Position) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads the form X/Y.
func (p *Position) UnmarshalText(text []byte) error {
	position, err := postgres.ParseLSN(string(text))
	*p = Position(position)
	return err
}

// Timeline is the one that the backup ends on.
func (r Record) Timeline() uint32 { return r.WAL[len(r.WAL)-1].Timeline }

// StartLSN is where recovery begins.
func (r Record) StartLSN() postgres.LSN { return postgres.LSN(r.WAL[0].Start) }

// StopLSN is where the data is consistent.
func (r Record) StopLSN() postgres.LSN { return postgres.LSN(r.WAL[len(r.WAL)-1].End) }

// Segments are the names of the WAL segments that the backup needs. Of one in which a
// timeline was left for the next that is the next one's, which begins with a copy: under
// the old name there may be none in the archive.
func (r Record) Segments() []string {
	var names []string
	for n, w := range r.WAL {
		end := postgres.LSN(w.End)
		if n+1 < len(r.WAL) {
			end -= end % postgres.LSN(r.SegmentSize)
		}
		first := postgres.WALFileAt(w.Timeline, postgres.LSN(w.Start), r.SegmentSize)
		for file := first; file.Start < end; file.Start += postgres.LSN(r.SegmentSize) {
			names = append(names, file.Name(r.SegmentSize))
		}
	}
	return names
}

// byTimeline orders what a backup replays: the server's manifest begins with the newest.
func byTimeline(a, b WALRange) int { return cmp.Compare(a.Timeline, b.Timeline) }

// format is the one that this version writes.
const format = 1

// encode renders the record with its checksum.
func (r Record) encode() ([]byte, error) {
	sum, err := r.checksum()
	if err != nil {
		return nil, err
	}
	r.Checksum = sum
	text, err := json.MarshalIndent(r, "", "  ")
	return append(text, '\n'), err
}

func (r Record) checksum() (string, error) {
	r.Checksum = ""
	text, err := json.Marshal(r)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}

// parseRecord reads a record, and sees that it is that backup's.
func parseRecord(text []byte, layout Layout, id string) (Record, error) {
	var r Record
	if err := json.Unmarshal(text, &r); err != nil {
		return Record{}, err
	}
	if r.Format != format {
		return Record{}, fmt.Errorf("it has format %d, and this program knows %d", r.Format, format)
	}
	sum, err := r.checksum()
	switch {
	case err != nil:
		return Record{}, err
	case sum != r.Checksum:
		return Record{}, errors.New("its checksum is another")
	case r.ID != id:
		return Record{}, fmt.Errorf("it is of backup %s", r.ID)
	case r.SystemID != layout.SystemID || r.Major != layout.Major:
		return Record{}, fmt.Errorf("it is of system %s, PostgreSQL %d", r.SystemID, r.Major)
	case len(r.WAL) == 0 || r.SegmentSize == 0:
		return Record{}, errors.New("it does not say which WAL it needs")
	}
	slices.SortFunc(r.WAL, byTimeline) // earlier versions wrote them as the server does
	return r, nil
}

// Record reads a backup's record. ErrNotFound: the backup is not complete, or
// not there at all. ErrDamaged: the record is not what was once written.
func (r *Repository) Record(ctx context.Context, id string) (Record, error) {
	key := r.layout.Record(id)
	text, err := readSmall(ctx, r.store, key)
	if err != nil {
		return Record{}, fmt.Errorf("read record of backup %s: %w", id, err)
	}
	record, err := parseRecord(text, r.layout, id)
	if err != nil {
		return Record{}, fmt.Errorf("read record of backup %s: %w", id, &DamagedError{Key: key, Why: err.Error()})
	}
	return record, nil
}

// writeRecord makes a backup complete.
func (r *Repository) writeRecord(ctx context.Context, record Record) error {
	text, err := record.encode()
	if err == nil {
		err = r.store.Create(ctx, r.layout.Record(record.ID), bytes.NewReader(text))
	}
	if errors.Is(err, ErrExists) {
		// Nobody else writes it: the answer to the first request was lost.
		there, readErr := readSmall(ctx, r.store, r.layout.Record(record.ID))
		if readErr == nil && bytes.Equal(there, text) {
			return nil
		}
		err = errors.Join(err, readErr)
	}
	if err != nil {
		return fmt.Errorf("write record of backup %s: %w", record.ID, err)
	}
	return nil
}

// NewID makes an id for a backup that begins now. Ids sort by time; random,
// which should be a few letters, keeps two of the same second apart.
func NewID(now time.Time, kind Kind, random string) string {
	return now.UTC().Format(idTime) + "-" + string(kind) + "-" + random
}

const idTime = "20060102T150405Z"

// idStart is when the backup of that id began; false: it is none of ours.
func idStart(id string) (time.Time, bool) {
	if len(id) < len(idTime) {
		return time.Time{}, false
	}
	at, err := time.Parse(idTime, id[:len(idTime)])
	return at, err == nil
}
