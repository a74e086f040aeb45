package instance

import (
	"errors"
	"reflect"
	"sync"

	"github.com/pgop/postgres-operator/pkg/backup"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
)

// deposits is where this instance's WAL and base backups go, as the configuration
// has it now.
type deposits struct {
	options Options
	kube    secretReader
	// dir is the server's pg_wal.
	dir string

	mu   sync.Mutex
	open *deposit
}

// deposit is the archive of this cluster's database in one store.
type deposit struct {
	in       instanceapi.Store
	systemID string

	repository *backup.Repository
	pusher     *backup.Pusher
}

// pushedAtOnce is how many WAL files are sent at the same time.
const pushedAtOnce = 4

var errNoSystem = errors.New("the database's system identifier is not known yet")

// deposit is the one in that store. Another store, or another database, makes
// another of it, and ends what is on its way to the one before.
func (d *deposits) deposit(in instanceapi.Store, systemID string) (*deposit, error) {
	if systemID == "" {
		return nil, errNoSystem
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open != nil && d.open.systemID == systemID && reflect.DeepEqual(d.open.in, in) {
		return d.open, nil
	}
	store, prefix, err := newStore(d.kube, d.options.BackupMounts, in)
	if err != nil {
		return nil, err
	}
	d.closeLocked()
	repository := backup.NewRepository(store, prefix, backup.Owner{SystemID: systemID, Major: d.options.Major, Cluster: d.options.owner()})
	d.open = &deposit{in: in, systemID: systemID, repository: repository, pusher: backup.NewPusher(repository, d.dir, pushedAtOnce)}
	return d.open, nil
}

// close ends what is on its way.
func (d *deposits) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closeLocked()
}

func (d *deposits) closeLocked() {
	if d.open == nil {
		return
	}
	// It returns when nothing is on its way any more, which nobody needs to see.
	go d.open.pusher.Close()
	d.open = nil
}
