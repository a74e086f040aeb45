package backup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
)

// Retention says which backups are kept. One that either rule wants is kept,
// with the backups and the WAL that it needs. Neither rule: all are.
type Retention struct {
	// Keep is how many of the newest backups are kept; 0: the rule is not set.
	Keep int
	// Within is how far back it must be possible to restore to any time; 0: the
	// rule is not set.
	Within time.Duration
}

// Removal is what an archive can do without.
type Removal struct {
	// Backups are the ids of backups, dependent ones first.
	Backups []string
	// WAL are files that no kept backup needs.
	WAL []WALName
}

// abandoned is how old a backup without a record, or an object that is half written, must
// be to be none that is under way.
const abandoned = 48 * time.Hour

// Expire decides what an archive can do without at that time. It never gives up
// the newest backup that can be restored to the present, nor what a kept one needs, nor
// anything where a record can't be read: what that backup needs isn't known.
// Backups that are running, by their ids, are left alone.
//
// It goes by the time when the archive got its last WAL, if that is before now: a machine
// whose clock runs ahead must not make everything old.
// As long as the archive has nothing of the present timeline, it can't be told which
// backups lead there, and nothing goes.
func Expire(c Catalog, retention Retention, now time.Time, running []string) Removal {
	if !c.knowsPresent() {
		return Removal{}
	}
	now = c.notAfterStore(now)
	var removal Removal
	kept := keep(c, retention, now)
	for _, r := range slices.Backward(c.Records) {
		if !kept[r.ID] {
			removal.Backups = append(removal.Backups, r.ID)
		}
	}
	for _, id := range c.Incomplete {
		began, known := idStart(id)
		if known && now.Sub(began) > abandoned && !slices.Contains(running, id) {
			removal.Backups = append(removal.Backups, id)
		}
	}
	if len(c.Damaged) > 0 {
		// The damaged one may be the parent of one that seems to be of no use, or
		// need any WAL.
		return Removal{}
	}
	removal.WAL = unneeded(c, kept)
	return removal
}

// notAfterStore is now, or when the archive got its last WAL by the store's own clock.
func (c Catalog) notAfterStore(now time.Time) time.Time {
	var last time.Time
	for _, file := range c.WAL.Files {
		if file.ArchivedAt.After(last) {
			last = file.ArchivedAt
		}
	}
	if last.IsZero() || last.After(now) {
		return now
	}
	return last
}

// keep says which backups are kept. Those that were left behind do not count, and stay as
// long as those do that are as old.
func keep(c Catalog, retention Retention, now time.Time) map[string]bool {
	kept, whole := map[string]bool{}, newChains(c.Records)
	newestFirst := slices.SortedFunc(slices.Values(c.Records), func(a, b Record) int { return byEnd(b, a) })
	since := now.Add(-retention.Within)
	count, covered := 0, false
	for _, r := range newestFirst {
		chain, err := whole.of(r.ID)
		if err != nil {
			continue // its parent is gone, and it can't be restored any more
		}
		byNumber := retention.Keep > 0 && count < retention.Keep
		// The newest one from before the window is needed for its beginning.
		byTime := retention.Within > 0 && !covered
		unset := retention.Keep == 0 && retention.Within == 0
		if byNumber || byTime || unset || count == 0 {
			for _, needed := range chain {
				kept[needed.ID] = true
			}
		}
		if c.IsLeftBehind(r) {
			continue
		}
		if r.StoppedAt.Before(since) {
			covered = true
		}
		count++
	}
	if retention.Keep == 0 && retention.Within == 0 {
		for _, r := range c.Records {
			kept[r.ID] = true
		}
	}
	return kept
}

// unneeded are the files that come before all WAL that a kept backup needs.
// Timelines don't matter: positions grow along each way from one to the next.
func unneeded(c Catalog, kept map[string]bool) []WALName {
	oldest, segmentSize := uint64(0), uint64(0)
	for _, r := range c.Records {
		if !kept[r.ID] {
			continue
		}
		start := uint64(r.StartLSN()) / r.SegmentSize
		if segmentSize == 0 || start < oldest {
			oldest, segmentSize = start, r.SegmentSize
		}
	}
	if segmentSize == 0 {
		return nil // without a backup WAL may yet be of use
	}
	var names []WALName
	for _, file := range c.WAL.Files {
		if number, ok := file.number(segmentSize); ok && number < oldest {
			names = append(names, file.WALName)
		}
	}
	return names
}

// Remove removes from the archive what Expire has decided. Each backup's record
// goes first, so that one that is partly deleted is never taken for complete. It
// goes on after an error, and can be called again.
func (r *Repository) Remove(ctx context.Context, removal Removal) error {
	if err := r.Claim(ctx); err != nil {
		return fmt.Errorf("remove expired backups: %w", err)
	}
	for _, id := range removal.Backups {
		err := r.store.Delete(ctx, r.layout.Record(id))
		if err == nil {
			err = r.deleteFolder(ctx, r.layout.BackupFolder(id))
		}
		if err != nil {
			// The WAL of what is still there must stay, too.
			return fmt.Errorf("remove backup %s: %w", id, err)
		}
	}
	var group errgroup.Group
	group.SetLimit(atOnce)
	failures := make([]error, len(removal.WAL))
	for n, name := range removal.WAL {
		group.Go(func() error {
			failures[n] = r.store.Delete(ctx, r.layout.WAL(name))
			return nil
		})
	}
	_ = group.Wait() // the errors are in failures
	if err := errors.Join(failures...); err != nil {
		return fmt.Errorf("remove WAL: %w", err)
	}
	return nil
}

// Sweep removes what was left of objects by writers that were killed, once it is too old
// to be anything that is still being written.
func (r *Repository) Sweep(ctx context.Context, now time.Time) error {
	if err := r.Claim(ctx); err != nil {
		return fmt.Errorf("remove what was left half written: %w", err)
	}
	if err := r.store.Sweep(ctx, r.layout.root()+"/", now.Add(-abandoned)); err != nil {
		return fmt.Errorf("remove what was left half written: %w", err)
	}
	return nil
}
