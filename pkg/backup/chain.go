package backup

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Chain returns what must be restored for a backup: the full one that it goes
// back to, those between them, and itself, in this order. The error names what
// is missing.
func Chain(records []Record, id string) ([]Record, error) {
	return newChains(records).of(id)
}

// chains finds the chains of many backups.
type chains struct {
	records []Record
	byID    map[string]int
}

func newChains(records []Record) chains {
	c := chains{records: records, byID: make(map[string]int, len(records))}
	for n := range records {
		c.byID[records[n].ID] = n
	}
	return c
}

func (c chains) of(id string) ([]Record, error) {
	var chain []Record
	for wanted := id; ; {
		n, found := c.byID[wanted]
		switch {
		case !found && wanted == id:
			return nil, fmt.Errorf("backup %s: %w", id, ErrNotFound)
		case !found:
			return nil, fmt.Errorf("backup %s needs backup %s: %w", id, wanted, ErrNotFound)
		case len(chain) > len(c.records):
			return nil, fmt.Errorf("backup %s goes back to itself", id)
		}
		chain = append(chain, c.records[n])
		if c.records[n].Kind == Full {
			slices.Reverse(chain)
			return chain, nil
		}
		wanted = c.records[n].Parent
	}
}

// isWhole says whether all is there that a backup goes back to.
func (c chains) isWhole(r Record) bool {
	_, err := c.of(r.ID)
	return err == nil
}

// ErrNoBackup: no backup can be restored to the target.
var ErrNoBackup = errors.New("no backup can be restored to the target")

// Choose returns the backup from which a target is reached soonest: the newest
// that was complete by then. ErrNoBackup: there is none; the error tells from
// when on there is. Backups whose chain is not whole are passed over, and so are those
// that were left behind: what comes after them is not what the cluster had last. A target
// that no backup can be told from, such as a name, needs the user to choose.
func Choose(c Catalog, target Target) (Record, error) {
	var fit, usable, behind []Record
	whole := newChains(c.Records)
	for _, r := range c.Records {
		switch {
		case !whole.isWhole(r):
			continue
		case c.IsLeftBehind(r):
			behind = append(behind, r)
			continue
		}
		usable = append(usable, r)
		if target.allows(r) {
			fit = append(fit, r)
		}
	}
	switch {
	case target.needsChoice():
		return Record{}, fmt.Errorf("%w: it can't be told which backup comes before target %s; name one", ErrNoBackup, target)
	case len(usable) == 0 && len(behind) > 0:
		newest := slices.MaxFunc(behind, byEnd)
		return Record{}, fmt.Errorf("%w: none leads to timeline %d, on which the cluster was last; name one to restore along an older timeline, such as %s of timeline %d",
			ErrNoBackup, c.Present, newest.ID, newest.Timeline())
	case len(usable) == 0:
		return Record{}, fmt.Errorf("%w: there is no complete backup", ErrNoBackup)
	case len(fit) == 0:
		oldest := slices.MinFunc(usable, byEnd)
		return Record{}, fmt.Errorf("%w: target %s is before the end of the oldest one, %s, which can be restored from %s (WAL position %s) on",
			ErrNoBackup, target, oldest.ID, oldest.StoppedAt.Format(time.RFC3339), oldest.StopLSN())
	}
	return slices.MaxFunc(fit, byEnd), nil
}

// CheckTarget says whether a target can be reached from a backup that the user
// has chosen, as far as that can be told beforehand.
func CheckTarget(r Record, target Target) error {
	if !target.allows(r) {
		return fmt.Errorf("%w: target %s is before the end of backup %s, which can be restored from %s (WAL position %s) on",
			ErrNoBackup, target, r.ID, r.StoppedAt.Format(time.RFC3339), r.StopLSN())
	}
	return nil
}

// byEnd orders backups by when they were complete.
func byEnd(a, b Record) int {
	if c := a.StoppedAt.Compare(b.StoppedAt); c != 0 {
		return c
	}
	if a.ID < b.ID {
		return -1
	}
	return 1
}

// CheckMajor refuses a backup of another major version than the cluster is to
// have.
func CheckMajor(r Record, major int) error {
	if r.Major != major {
		return fmt.Errorf("backup %s is of PostgreSQL %d and can't be restored by PostgreSQL %d; set spec.postgres.version to %d", r.ID, r.Major, major, r.Major)
	}
	return nil
}
