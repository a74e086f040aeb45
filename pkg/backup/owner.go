package backup

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Owner says whose a prefix of a store is. The first who archives there writes
// it; from then on nobody else may.
type Owner struct {
	// SystemID is the server's identifier of its database system.
	SystemID string `json:"systemID"`
	Major    int    `json:"major"`
	// Cluster tells clusters apart that come from the same database system, as
	// one does that was restored from a backup of another.
	Cluster string `json:"cluster"`
}

// OwnerError is a prefix that belongs to somebody else.
type OwnerError struct {
	// Store and Prefix name the place.
	Store, Prefix string
	Found, Wanted Owner
}

// Error says whose it is, and the way out.
func (e *OwnerError) Error() string {
	return fmt.Sprintf("prefix %q of %s holds the archive of cluster %s (PostgreSQL %d, system identifier %s), which cluster %s (PostgreSQL %d, system identifier %s) must not write to; set another prefix",
		e.Prefix, e.Store, e.Found.Cluster, e.Found.Major, e.Found.SystemID, e.Wanted.Cluster, e.Wanted.Major, e.Wanted.SystemID)
}

// ReadOwner says whose archive a prefix holds. ErrNotFound: nobody's.
func ReadOwner(ctx context.Context, store Store, prefix string) (Owner, error) {
	key := Layout{Prefix: prefix}.Owner()
	text, err := readSmall(ctx, store, key)
	if err != nil {
		return Owner{}, err
	}
	var owner Owner
	if err := json.Unmarshal(text, &owner); err != nil {
		return Owner{}, &DamagedError{Key: key, Why: err.Error()}
	}
	if owner.SystemID == "" || owner.Major == 0 {
		return Owner{}, &DamagedError{Key: key, Why: "it names no database system"}
	}
	return owner, nil
}

// readSmall reads an object that is not compressed.
func readSmall(ctx context.Context, store Store, key string) ([]byte, error) {
	body, err := store.Open(ctx, key, 0)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(body)
	if err := errors.Join(err, body.Close()); err != nil {
		return nil, fmt.Errorf("read %s: %w", key, err)
	}
	return text, nil
}

// Claim makes the prefix this cluster's, or sees that it is already. Everything
// that writes calls it first; it asks the store only until it has succeeded once.
// OwnerError: the prefix is somebody else's.
func (r *Repository) Claim(ctx context.Context) error {
	if r.claimed.Load() {
		return nil
	}
	if err := r.claim(ctx); err != nil {
		return err
	}
	r.claimed.Store(true)
	return nil
}

func (r *Repository) claim(ctx context.Context) error {
	found, err := ReadOwner(ctx, r.store, r.layout.Prefix)
	if errors.Is(err, ErrNotFound) {
		if err := r.writeOwner(ctx); err != nil {
			return err
		}
		// Somebody may have been faster, in a store that lets the last one win.
		found, err = ReadOwner(ctx, r.store, r.layout.Prefix)
	}
	if err != nil {
		return err
	}
	if found != r.owner {
		return &OwnerError{Store: r.store.String(), Prefix: r.layout.Prefix, Found: found, Wanted: r.owner}
	}
	return nil
}

func (r *Repository) writeOwner(ctx context.Context) error {
	text, err := json.MarshalIndent(r.owner, "", "  ")
	if err != nil {
		return err
	}
	err = r.store.Create(ctx, r.layout.Owner(), bytes.NewReader(append(text, '\n')))
	if errors.Is(err, ErrExists) {
		return nil // somebody was faster; whose it is now, reading tells
	}
	return err
}
