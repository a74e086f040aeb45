package backup

import "sync/atomic"

// Repository is the archive of one database system: its WAL and its base
// backups below a prefix of a store. Its methods may be called from several
// goroutines.
type Repository struct {
	store   Store
	layout  Layout
	owner   Owner
	claimed atomic.Bool
}

// NewRepository makes a repository of a store's prefix. It does not reach for
// the store.
func NewRepository(store Store, prefix string, owner Owner) *Repository {
	return &Repository{store: store, owner: owner, layout: Layout{Prefix: prefix, SystemID: owner.SystemID, Major: owner.Major}}
}

// Layout says where the repository's objects lie.
func (r *Repository) Layout() Layout { return r.layout }

// Store is what the repository lies in.
func (r *Repository) Store() Store { return r.store }
