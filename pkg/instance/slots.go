package instance

import (
	"context"
	"fmt"
	"slices"

	"github.com/lib/pq"

	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/postgres"
	"github.com/pgop/postgres-operator/pkg/postgres/pgrun"
)

// slot is one row of pg_replication_slots.
type slot struct {
	Name   string
	Active bool
	// Lost is true when WAL that the slot should have kept is gone: it serves
	// nobody any more.
	Lost bool
}

// planSlots says which physical slots a primary has to drop and to create, for
// the cluster's members other than itself. Slots of users are left alone, and
// an active one is dropped once its user has gone.
func planSlots(cluster, me string, members []string, have []slot) (drop, create []string) {
	want := map[string]bool{}
	for _, member := range members {
		if member != me {
			want[postgres.SlotName(member)] = true
		}
	}
	for _, s := range have {
		if !postgres.IsInstanceSlot(s.Name, cluster) {
			continue
		}
		if !s.Active && (s.Lost || !want[s.Name]) {
			drop = append(drop, s.Name)
			continue // and created again if wanted
		}
		delete(want, s.Name)
	}
	for name := range want {
		create = append(create, name)
	}
	slices.Sort(drop)
	slices.Sort(create)
	return drop, create
}

// keepSlotsLikePrimary keeps on a replica, for every other instance, a slot at
// the place where the primary keeps it, so that after a failover nobody lacks
// WAL. The primary itself gets one where this replica is.
func (a *Agent) keepSlotsLikePrimary(ctx context.Context, up upstream) error {
	if up.isZero() {
		return nil
	}
	asking, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	primary, err := a.peers.peer(asking, up.Instance)
	if err != nil || primary.Role != instanceapi.RolePrimary {
		return nil // another time
	}
	if err := a.keepOwnSlots(ctx); err != nil {
		return err
	}
	for _, member := range a.view.knownConfig().Config.Members {
		name := postgres.SlotName(member)
		where := "least(pg_last_wal_replay_lsn(), " + pq.QuoteLiteral(primary.Slots[name].String()) + "::pg_lsn)"
		switch {
		case member == a.options.Instance:
			continue
		case member == up.Instance:
			where = "pg_last_wal_replay_lsn()"
		case primary.Slots[name] == 0:
			continue
		}
		query := "SELECT pg_replication_slot_advance(slot_name, " + where + ") FROM pg_replication_slots WHERE slot_name = " +
			pq.QuoteLiteral(name) + " AND NOT active AND restart_lsn < " + where
		if err := a.sql.Exec(ctx, query); err != nil {
			return fmt.Errorf("advance replication slot %s: %w", name, err)
		}
	}
	return nil
}

// keepOwnSlots keeps a slot for every other member.
func (a *Agent) keepOwnSlots(ctx context.Context) error {
	return keepSlots(ctx, a.sql, a.options.Cluster, a.options.Instance, a.view.knownConfig().Config.Members)
}

// keepSlots makes the primary's physical slots those of the members.
func keepSlots(ctx context.Context, server *pgrun.Server, cluster, me string, members []string) error {
	var have []slot
	if err := server.Rows(ctx, `SELECT slot_name, active, coalesce(wal_status = 'lost', false)
		FROM pg_replication_slots WHERE slot_type = 'physical'`,
		func(scan func(...any) error) error {
			var s slot
			err := scan(&s.Name, &s.Active, &s.Lost)
			have = append(have, s)
			return err
		}); err != nil {
		return fmt.Errorf("read replication slots: %w", err)
	}
	drop, create := planSlots(cluster, me, members, have)
	for _, name := range drop {
		if err := server.Exec(ctx, "SELECT pg_drop_replication_slot("+pq.QuoteLiteral(name)+")"); err != nil {
			return fmt.Errorf("drop replication slot %s: %w", name, err)
		}
	}
	for _, name := range create {
		// It keeps WAL at once: a checkpoint of one replica's clone would else
		// recycle what the clone of another is about to stream.
		if err := server.Exec(ctx, "SELECT pg_create_physical_replication_slot("+pq.QuoteLiteral(name)+", true)"); err != nil {
			return fmt.Errorf("create replication slot %s: %w", name, err)
		}
	}
	return nil
}
