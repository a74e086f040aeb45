package instance

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/pgop/postgres-operator/pkg/backup"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
)

const (
	// catalogEvery is how often a primary reads what the store holds, and
	// catalogSoon how soon it tries again after that has failed.
	catalogEvery = 5 * time.Minute
	catalogSoon  = 15 * time.Second
	// sweepEvery is how often what is half written is looked for.
	sweepEvery = 6 * time.Hour
)

// cataloguer reads what the store holds, and removes what is kept no longer, for the
// primary: others would do it at the same time.
type cataloguer struct {
	agent  *Agent
	kicked chan struct{}
	// sweptAt is when what is half written was looked for last.
	sweptAt time.Time

	mu      sync.Mutex
	reason  catalogReason
	catalog *instanceapi.Catalog
	// problem is why the last look has failed.
	problem string
}

// catalogReason is what a look at the store is for: another calls for another look.
// Zero: there is nothing to look at.
type catalogReason struct {
	Term      uint64
	Backups   instanceapi.Backups
	SystemID  string
	Asked     string
	Completed string
}

// tend makes the cataloguer look at once when there is reason to, and forget what it
// knows when there is none any more. It never blocks.
func (c *cataloguer) tend() {
	reason := c.reasonNow()
	c.mu.Lock()
	defer c.mu.Unlock()
	if reflect.DeepEqual(reason, c.reason) {
		return
	}
	if reason.SystemID == "" || !reflect.DeepEqual(reason.Backups.Store, c.reason.Backups.Store) {
		c.catalog, c.problem = nil, ""
	}
	c.reason = reason
	select {
	case c.kicked <- struct{}{}:
	default:
	}
}

func (c *cataloguer) reasonNow() catalogReason {
	known, now := c.agent.view.knownConfig(), c.agent.runningAs()
	if !now.Open || !now.Reigning || !known.Known || known.Config.Backups == nil {
		return catalogReason{}
	}
	reason := catalogReason{Term: now.Term, Backups: *known.Config.Backups, SystemID: c.agent.status.snapshot().SystemID}
	// A backup that is no longer asked for has ended.
	if asked := known.Config.TakeBackup; asked != nil {
		reason.Asked = asked.ID
	}
	if own := c.agent.backups.report(); own != nil && own.Complete != nil {
		reason.Completed = own.ID
	}
	return reason
}

// run looks until ctx ends.
func (c *cataloguer) run(ctx context.Context) {
	timer := time.NewTimer(catalogEvery)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.kicked:
		case <-timer.C:
		}
		c.mu.Lock()
		reason := c.reason
		c.mu.Unlock()
		next := catalogEvery
		if reason.SystemID != "" && c.look(ctx, reason) != nil {
			next = catalogSoon
		}
		timer.Reset(next)
	}
}

// look looks at the store once.
func (c *cataloguer) look(ctx context.Context, reason catalogReason) error {
	const longest = 10 * time.Minute
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	catalog, err := c.read(ctx, reason)
	c.mu.Lock()
	defer c.mu.Unlock()
	if !reflect.DeepEqual(c.reason.Backups.Store, reason.Backups.Store) || c.reason.Term != reason.Term {
		return nil // it is of no use any more, and the next look is under way
	}
	if err != nil {
		if c.problem != err.Error() {
			c.agent.log.WithError(err).Error("reading what the store holds failed")
		}
		c.problem = err.Error()
		return err
	}
	c.catalog, c.problem = &catalog, ""
	return nil
}

// read reads the catalog, after what is kept no longer has been removed.
func (c *cataloguer) read(ctx context.Context, reason catalogReason) (instanceapi.Catalog, error) {
	// What is wrong with the store is told as archiving that fails, too: the first
	// segment may come much later.
	if err := c.agent.archiver.claim(ctx, reason.Backups.Store); err != nil {
		return instanceapi.Catalog{}, err
	}
	d, err := c.agent.deposits.deposit(reason.Backups.Store, reason.SystemID)
	if err != nil {
		return instanceapi.Catalog{}, err
	}
	now := time.Now()
	found, err := d.repository.ReadCatalog(ctx)
	if err != nil {
		return instanceapi.Catalog{}, err
	}
	retention := backup.Retention{Keep: reason.Backups.Retention.Keep, Within: reason.Backups.Retention.Within.Duration}
	if now.Sub(c.sweptAt) >= sweepEvery {
		c.sweptAt = now
		if err := d.repository.Sweep(ctx, now); err != nil {
			// It costs room, and nothing else; a login may lack the right to it.
			c.agent.log.WithError(err).Warn("looking in the store for what is half written failed")
		}
	}
	present := c.agent.observer.observe(ctx, freshEnough).Timeline
	if present == 0 {
		return instanceapi.Catalog{}, errors.New("the server does not tell its timeline, and so not which backups lead there")
	}
	found.Present = present
	removal := backup.Expire(found, retention, now, runningBackups(reason))
	if len(removal.Backups)+len(removal.WAL) > 0 {
		c.agent.log.WithField("backups", removal.Backups).WithField("segments", len(removal.WAL)).Info("removing from the store what is kept no longer")
		if err := d.repository.Remove(ctx, removal); err != nil {
			return instanceapi.Catalog{}, err
		}
		if found, err = d.repository.ReadCatalog(ctx); err != nil {
			return instanceapi.Catalog{}, err
		}
		found.Present = present
	}
	return describeCatalog(found, now)
}

func runningBackups(reason catalogReason) []string {
	if reason.Asked == "" {
		return nil
	}
	return []string{reason.Asked}
}

// describeCatalog says what people are told of an archive.
func describeCatalog(found backup.Catalog, now time.Time) (instanceapi.Catalog, error) {
	var told instanceapi.Catalog
	unusable := backup.Unusable(found)
	usable := backup.Catalog{WAL: found.WAL, Present: found.Present}
	for n, window := range backup.Windows(found) {
		record := found.Records[n]
		info := backupInfo(record)
		info.LeftBehind, info.Until = found.IsLeftBehind(record), window.Last
		if why := unusable[record.ID]; why != nil {
			info.Unusable, info.Until = why.Error(), time.Time{}
		} else {
			usable.Records = append(usable.Records, record)
		}
		told.Backups = append(told.Backups, info)
	}
	for _, damaged := range found.Damaged {
		if told.Damaged == nil {
			told.Damaged = map[string]string{}
		}
		told.Damaged[damaged.ID] = damaged.Err.Error()
	}
	if window, ok := backup.RestoreWindow(usable); ok {
		told.First, told.Last, told.Gap = window.First.UTC(), window.Last.UTC(), window.Gap
	}
	text, err := json.Marshal(told)
	if err != nil {
		return instanceapi.Catalog{}, fmt.Errorf("describe the catalog: %w", err)
	}
	sum := sha256.Sum256(text)
	told.Version, told.ReadAt = hex.EncodeToString(sum[:8]), now.UTC()
	return told, nil
}

// last is the catalog as it was read last, and why a later look has failed.
func (c *cataloguer) last() (catalog *instanceapi.Catalog, problem string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.catalog, c.problem
}

// into tells of the catalog in a state.
func (c *cataloguer) into(s *instanceapi.State) {
	catalog, problem := c.last()
	s.CatalogError = problem
	if catalog != nil {
		s.CatalogVersion = catalog.Version
	}
}
