package backup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// awaitWAL returns when the archive has all the WAL that the backup needs.
func (b *base) awaitWAL(ctx context.Context) error {
	const interval, switchAfter = 500 * time.Millisecond, 20
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	var switching error
	missing := b.record.Segments()
	for tick := 0; ; tick++ {
		var err error
		if missing, err = b.missing(ctx, missing); err == nil && len(missing) == 0 {
			return nil
		}
		if tick%switchAfter == 0 {
			switching = b.SwitchWAL(ctx, b.record.StopLSN())
		}
		select {
		case <-ctx.Done():
			cause := fmt.Errorf("wait until the archive has WAL segment %s, which the backup needs: %w", missing[0], context.Cause(ctx))
			return errors.Join(cause, err, switching)
		case <-ticker.C:
		}
	}
}

// missing returns those of the segments that the archive does not have.
func (r *Repository) missing(ctx context.Context, names []string) ([]string, error) {
	for n, name := range names {
		parsed, err := ParseWALName(name)
		if err != nil {
			return names[n:], err
		}
		if _, err := r.store.Stat(ctx, r.layout.WAL(parsed)); err != nil {
			if errors.Is(err, ErrNotFound) {
				err = nil
			}
			return names[n:], err
		}
	}
	return nil, nil
}

// CheckWAL says whether the archive still has all the WAL that a backup needs;
// the error names the first segment that it lacks, and is ErrNotFound.
func (r *Repository) CheckWAL(ctx context.Context, record Record) error {
	missing, err := r.missing(ctx, record.Segments())
	if err != nil {
		return fmt.Errorf("look for the WAL of backup %s: %w", record.ID, err)
	}
	if len(missing) > 0 {
		return fmt.Errorf("backup %s needs WAL segment %s: %w", record.ID, missing[0], ErrNotFound)
	}
	return nil
}

// Unusable says of those backups that can't be restored, by their ids, why not.
func Unusable(c Catalog) map[string]error {
	archived := map[string]bool{}
	for _, r := range c.Records {
		for _, name := range r.Segments() {
			archived[name] = false
		}
	}
	for _, file := range c.WAL.Files {
		if _, wanted := archived[file.Text]; wanted {
			archived[file.Text] = true
		}
	}
	why, whole := map[string]error{}, newChains(c.Records)
	for _, r := range c.Records {
		if _, err := whole.of(r.ID); err != nil {
			why[r.ID] = err
			continue
		}
		names := r.Segments()
		if n := slices.IndexFunc(names, func(name string) bool { return !archived[name] }); n >= 0 {
			why[r.ID] = fmt.Errorf("the archive lacks the WAL segment %s, which it needs", names[n])
		}
	}
	return why
}
