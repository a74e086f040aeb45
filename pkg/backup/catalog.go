package backup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pgop/postgres-operator/pkg/postgres"
)

// Catalog is what an archive holds.
type Catalog struct {
	// Records are those of the complete backups, in the order of their ends.
	Records []Record
	// Incomplete are the ids of backups that have objects and no record: they are
	// being taken, or failed, or are being deleted.
	Incomplete []string
	// Damaged are backups whose record can't be read.
	Damaged []DamagedBackup
	WAL     ArchivedWAL
	// Present is the timeline that the cluster is on, or was on last: the newest of which
	// the archive has anything, unless somebody knows better. 0: the archive is empty.
	Present uint32
}

// DamagedBackup is a backup with a record that can't be read.
type DamagedBackup struct {
	ID  string
	Err error
}

// ArchivedWAL is the WAL in an archive.
type ArchivedWAL struct {
	// Files are those that belong to segments, in order: segments, and their
	// partial and label files.
	Files []ArchivedFile
	// Histories are those of the timelines that have one.
	Histories map[uint32][]postgres.Switch
}

// ArchivedFile is a file in an archive.
type ArchivedFile struct {
	WALName
	// ArchivedAt is when, by the store's clock.
	ArchivedAt time.Time
}

// ReadCatalog reads what the archive holds: the records of its backups and the
// names of its WAL. One backup that can't be read doesn't hide the others.
func (r *Repository) ReadCatalog(ctx context.Context) (Catalog, error) {
	var c Catalog
	if err := r.readBackups(ctx, &c); err != nil {
		return Catalog{}, fmt.Errorf("read catalog: %w", err)
	}
	if err := r.readWAL(ctx, &c.WAL); err != nil {
		return Catalog{}, fmt.Errorf("read catalog: %w", err)
	}
	c.Present = c.newest()
	return c, nil
}

// atOnce is how many objects are read or deleted at the same time.
const atOnce = 8

func (r *Repository) readBackups(ctx context.Context, c *Catalog) error {
	complete := map[string]bool{}
	err := r.store.List(ctx, r.layout.BaseFolder(), func(o Object) error {
		if id, name, ok := r.layout.ParseBase(o.Key); ok {
			complete[id] = complete[id] || name == recordName
		}
		return nil
	})
	if err != nil {
		return err
	}
	ids := slices.Sorted(maps.Keys(complete))
	records, errs := make([]Record, len(ids)), make([]error, len(ids))
	group, reading := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for n, id := range ids {
		if complete[id] {
			group.Go(func() error {
				records[n], errs[n] = r.Record(reading, id)
				if errors.Is(errs[n], ErrDamaged) {
					return nil
				}
				if errors.Is(errs[n], ErrNotFound) {
					// To take it for gone could cost the WAL that it needs. The next look will tell.
					return fmt.Errorf("the store lists the record of backup %s and does not find it: it is being removed, or the store errs", id)
				}
				return errs[n]
			})
		}
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for n, id := range ids {
		switch {
		case !complete[id]:
			c.Incomplete = append(c.Incomplete, id)
		case errs[n] != nil:
			c.Damaged = append(c.Damaged, DamagedBackup{ID: id, Err: errs[n]})
		default:
			c.Records = append(c.Records, records[n])
		}
	}
	slices.SortFunc(c.Records, byEnd)
	return nil
}

func (r *Repository) readWAL(ctx context.Context, w *ArchivedWAL) error {
	var histories []WALName
	err := r.store.List(ctx, r.layout.WALFolder(), func(o Object) error {
		name, ok := r.layout.ParseWAL(o.Key)
		switch {
		case !ok: // somebody else's, and none of our business
		case name.Kind == History:
			histories = append(histories, name)
		default:
			w.Files = append(w.Files, ArchivedFile{WALName: name, ArchivedAt: o.Modified})
		}
		return nil
	})
	if err != nil {
		return err
	}
	slices.SortFunc(w.Files, func(a, b ArchivedFile) int { return cmp.Compare(a.Text, b.Text) })
	w.Histories = map[uint32][]postgres.Switch{}
	for _, name := range histories {
		history, err := r.readHistory(ctx, name)
		if err != nil {
			return err
		}
		w.Histories[name.Timeline] = history
	}
	return nil
}

func (r *Repository) readHistory(ctx context.Context, name WALName) ([]postgres.Switch, error) {
	key := r.layout.WAL(name)
	content, err := r.open(ctx, key)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(content)
	if err := errors.Join(err, content.Close()); err != nil {
		return nil, err
	}
	history, err := postgres.ParseHistory(string(text))
	if err != nil {
		return nil, &DamagedError{Key: key, Why: err.Error()}
	}
	return history, nil
}
