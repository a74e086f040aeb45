package backup

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/pgop/postgres-operator/pkg/postgres"
	"github.com/pgop/postgres-operator/pkg/postgres/pgrun"
)

// BaseOptions says how a base backup is taken.
type BaseOptions struct {
	// ID is a new one, of NewID.
	ID string
	// Name, Cluster and Instance go into the record.
	Name, Cluster, Instance string
	// Parent makes it an incremental one, which needs PostgreSQL 17 and
	// summarize_wal.
	Parent *Record

	// ConnInfo is how pg_basebackup connects to the server, and SQL how it is
	// asked about itself.
	ConnInfo string
	SQL      Asker
	// SwitchWAL makes the primary end the segment that it writes, if it has not
	// got beyond the position; 0: in any case. A replica's backup is complete only
	// when the primary has ended the last segment of it.
	SwitchWAL func(ctx context.Context, beyond postgres.LSN) error
	// MaxRate is how much is read, in bytes per second; 0: as much as can be.
	MaxRate int64
	// PartSize is about how large a part becomes, in bytes of data; 0: 256 MiB.
	PartSize int64
	// TempDir has room for a manifest.
	TempDir string
	// Progress is called now and then; it must be quick. It may be nil.
	Progress func(Progress)
	// Now is the clock.
	Now func() time.Time
}

// Asker asks a server for one row.
type Asker interface {
	Row(ctx context.Context, query string, into ...any) error
}

// Progress is how far a backup is.
type Progress struct {
	// Done and Estimated are in bytes of data. Done may end below or above.
	Done, Estimated int64
	// AwaitsWAL: the data is in the store, and not yet all the WAL it needs.
	AwaitsWAL bool
}

const defaultPartSize = 256 << 20

// base is a base backup that is being taken.
type base struct {
	*Repository
	BaseOptions
	record Record
	stream *pgrun.Stream
	// done counts the bytes of data.
	done atomic.Int64
	// copied is true once the stream has been read to its end.
	copied    atomic.Bool
	isStandby bool
}

// TakeBase takes a base backup and returns when it is complete: then the
// catalog has it. One that fails leaves nothing behind if the store lets it; the
// server is left out of backup mode in any case, since that ends with the
// connection. It ends with ctx, for instance when the archive doesn't get the
// WAL that the backup needs.
func (r *Repository) TakeBase(ctx context.Context, programs *pgrun.Programs, o BaseOptions) (Record, error) {
	b := &base{Repository: r, BaseOptions: o}
	if b.PartSize == 0 {
		b.PartSize = defaultPartSize
	}
	record, err := b.take(ctx, programs)
	if err != nil {
		return Record{}, fmt.Errorf("take backup %s: %w", o.ID, err)
	}
	return record, nil
}

func (b *base) take(ctx context.Context, programs *pgrun.Programs) (Record, error) {
	if err := b.Claim(ctx); err != nil {
		return Record{}, err
	}
	if err := b.askServer(ctx); err != nil {
		return Record{}, err
	}
	parent, err := b.fetchParent(ctx)
	if err != nil {
		return Record{}, err
	}
	if parent != "" {
		defer os.Remove(parent) // lies in a directory for such files
	}
	if err := b.send(ctx, programs, parent); err != nil {
		return Record{}, errors.Join(err, b.deleteLeftovers(ctx))
	}
	return b.record, nil
}

// askServer fills in what only SQL tells, and refuses what can't be restored.
func (b *base) askServer(ctx context.Context) error {
	var systemID, version string
	var segmentSize uint64
	var tablespaces int
	const query = `SELECT (SELECT system_identifier::text FROM pg_control_system()), current_setting('server_version'),
		(SELECT setting FROM pg_settings WHERE name = 'wal_segment_size'),
		(SELECT count(*) FROM pg_tablespace WHERE spcname NOT IN ('pg_default', 'pg_global')), pg_is_in_recovery()`
	if err := b.SQL.Row(ctx, query, &systemID, &version, &segmentSize, &tablespaces, &b.isStandby); err != nil {
		return fmt.Errorf("ask the server about itself: %w", err)
	}
	parsed, err := postgres.ParseVersion(version)
	if err != nil {
		return err
	}
	switch {
	case systemID != b.layout.SystemID || parsed.Major != b.layout.Major:
		return fmt.Errorf("the server has PostgreSQL %d and system identifier %s, and the archive is that of PostgreSQL %d and system identifier %s",
			parsed.Major, systemID, b.layout.Major, b.layout.SystemID)
	case tablespaces > 0:
		return fmt.Errorf("the server has %d tablespaces of its users, which can't be backed up: move what is in them to pg_default and drop them", tablespaces)
	case b.Parent != nil && parsed.Major < leastIncremental:
		return fmt.Errorf("incremental backups need PostgreSQL %d, and the server has %d: take a full one", leastIncremental, parsed.Major)
	}
	b.record = Record{Format: format, ID: b.ID, Kind: Full, Name: b.Name, Cluster: b.Cluster, Instance: b.Instance,
		SystemID: systemID, Major: parsed.Major, Version: parsed.Text, SegmentSize: segmentSize}
	if b.Parent != nil {
		b.record.Kind, b.record.Parent = Incremental, b.Parent.ID
	}
	return nil
}

const leastIncremental = 17

// fetchParent writes the parent's manifest into a file; empty: there is no
// parent.
func (b *base) fetchParent(ctx context.Context) (string, error) {
	if b.Parent == nil {
		return "", nil
	}
	path := filepath.Join(b.TempDir, b.ID+"-parent")
	content, err := b.open(ctx, b.layout.Manifest(b.Parent.ID))
	if err != nil {
		return "", fmt.Errorf("read manifest of backup %s: %w", b.Parent.ID, err)
	}
	err = writeNew(path, content)
	if err := errors.Join(err, content.Close()); err != nil {
		return "", fmt.Errorf("read manifest of backup %s: %w", b.Parent.ID, err)
	}
	return path, nil
}

// send sends everything, the record last.
func (b *base) send(ctx context.Context, programs *pgrun.Programs, parent string) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	var err error
	b.stream, err = programs.Stream(ctx, pgrun.StreamOptions{ConnInfo: b.ConnInfo, Label: b.ID, MaxRate: b.MaxRate, Incremental: parent})
	if err != nil {
		return err
	}
	reported := make(chan struct{})
	go func() { defer close(reported); b.report(ctx) }()
	err = b.copy(ctx)
	if err != nil && ctx.Err() == nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		end() // the program need not go on
		_ = b.stream.Wait()
	} else if waited := b.stream.Wait(); waited != nil {
		err = waited // the stream broke off because of it
	}
	if err == nil {
		err = b.awaitWAL(ctx)
	}
	end()
	<-reported
	if err != nil {
		return err
	}
	return b.writeRecord(context.WithoutCancel(ctx), b.record)
}

// copy copies the stream into the store.
func (b *base) copy(ctx context.Context) error {
	p := newParts(b.Repository, b.ID, b.PartSize)
	members := tar.NewReader(b.stream)
	for {
		header, err := members.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = b.member(ctx, p, header, members)
		}
		if err != nil {
			return p.abort(err)
		}
	}
	var err error
	if b.record.Parts, err = p.finish(); err != nil {
		return err
	}
	for _, part := range b.record.Parts {
		b.record.Size += part.Size
		b.record.StoredSize += part.Stored
	}
	if len(b.record.WAL) == 0 {
		return io.ErrUnexpectedEOF // the manifest comes last
	}
	b.copied.Store(true)
	_, err = io.Copy(io.Discard, b.stream)
	return err
}

// member takes one file of the stream.
func (b *base) member(ctx context.Context, p *parts, header *tar.Header, content io.Reader) error {
	content = &progressReader{from: content, count: &b.done}
	switch header.Name {
	case "backup_manifest":
		b.record.StoppedAt = b.Now().UTC()
		return b.sendManifest(ctx, content)
	case "backup_label": // comes first
		b.record.StartedAt = b.Now().UTC()
	case "global/pg_control":
		return b.sendControl(ctx, p, header, content)
	}
	return p.add(ctx, header, content)
}

// sendControl sends the control file, and sees that it is that of the right
// system.
func (b *base) sendControl(ctx context.Context, p *parts, header *tar.Header, content io.Reader) error {
	const idSize = 8
	begin := make([]byte, idSize)
	if _, err := io.ReadFull(content, begin); err != nil {
		return err
	}
	if id := strconv.FormatUint(binary.NativeEndian.Uint64(begin), 10); id != b.layout.SystemID {
		return fmt.Errorf("the data is of the system %s, not %s", id, b.layout.SystemID)
	}
	return p.add(ctx, header, io.MultiReader(bytes.NewReader(begin), content))
}

// sendManifest sends the manifest, and reads which WAL the backup needs.
func (b *base) sendManifest(ctx context.Context, content io.Reader) error {
	u := b.begin(ctx, b.layout.Manifest(b.ID))
	both := io.TeeReader(content, u)
	m, err := parseManifest(both)
	if err == nil {
		_, err = io.Copy(io.Discard, both)
	}
	if err != nil {
		return u.abort(err)
	}
	stored, err := u.finish()
	if err != nil {
		return err
	}
	b.record.WAL = m.WAL
	b.record.Manifest = Part{Size: stored.Size, Stored: stored.Stored, SHA256: stored.SHA256}
	return nil
}

// report tells of the progress, and lets the primary end its segment when a
// replica's backup waits for that.
func (b *base) report(ctx context.Context) {
	const interval, switchAfter = time.Second, 60
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	awaited := 0
	for {
		awaits := b.copied.Load() || b.serverAwaitsWAL(ctx)
		if b.Progress != nil {
			b.Progress(Progress{Done: b.done.Load(), Estimated: b.stream.Estimated(), AwaitsWAL: awaits})
		}
		if awaits && b.isStandby {
			if awaited%switchAfter == 0 {
				// It is tried again; and if the WAL never comes, awaitWAL says which.
				_ = b.SwitchWAL(ctx, 0)
			}
			awaited++
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// serverAwaitsWAL says whether the server waits until its archive_command has
// taken the WAL of the backup. What it sends last, it sends after that.
func (b *base) serverAwaitsWAL(ctx context.Context) bool {
	const query = "SELECT coalesce(bool_or(phase = 'waiting for wal archiving to finish'), false) FROM pg_stat_progress_basebackup"
	awaits := false
	return b.SQL.Row(ctx, query, &awaits) == nil && awaits // a server that can't tell is asked again
}

// deleteLeftovers deletes the objects of a backup that failed, also when it
// ended with its context. What it can't delete now, retention will.
func (b *base) deleteLeftovers(ctx context.Context) error {
	const longest = 30 * time.Second
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), longest)
	defer cancel()
	if err := b.deleteFolder(ctx, b.layout.BackupFolder(b.ID)); err != nil {
		return fmt.Errorf("delete what it has left: %w", err)
	}
	return nil
}

func (r *Repository) deleteFolder(ctx context.Context, folder string) error {
	var keys []string
	err := r.store.List(ctx, folder, func(o Object) error {
		keys = append(keys, o.Key)
		return nil
	})
	for _, key := range keys {
		err = errors.Join(err, r.store.Delete(ctx, key))
	}
	return err
}

// progressReader counts what is read.
type progressReader struct {
	from  io.Reader
	count *atomic.Int64
}

func (p *progressReader) Read(b []byte) (int, error) {
	n, err := p.from.Read(b)
	p.count.Add(int64(n))
	return n, err
}
