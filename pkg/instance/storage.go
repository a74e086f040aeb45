package instance

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/pgop/postgres-operator/pkg/backup"
	"github.com/pgop/postgres-operator/pkg/backup/file"
	"github.com/pgop/postgres-operator/pkg/backup/s3"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
)

// secretReader reads a Secret of the cluster's namespace.
type secretReader interface {
	Secret(ctx context.Context, name string) (map[string][]byte, error)
}

// newStore makes a store as the configuration names it, and says which part of it
// is the cluster's. It does not reach for it. Volumes are mounted at one of mounts.
func newStore(kube secretReader, mounts []string, of instanceapi.Store) (store backup.Store, prefix string, err error) {
	switch {
	case of.S3 != nil:
		return &bucket{kube: kube, of: *of.S3, now: time.Now}, of.S3.Prefix, nil
	case of.Volume != nil:
		for _, mount := range mounts {
			inside, err := filepath.Rel(mount, of.Volume.Dir)
			if err == nil && inside != "." && filepath.IsLocal(inside) {
				// The store is the whole volume: one that isn't mounted is told from an
				// empty one by its directory.
				return file.New(mount), filepath.ToSlash(inside), nil
			}
		}
		return nil, "", fmt.Errorf("the directory %s for backups is on none of the volumes at %s", of.Volume.Dir, strings.Join(mounts, ", "))
	}
	return nil, "", errors.New("the configuration names no store for backups that this agent knows")
}

// bucket is an S3 store whose login and authorities are in Secrets, which it reads
// from the API server, at first and after each failure, and keeps in memory alone.
type bucket struct {
	kube secretReader
	of   instanceapi.S3Store
	now  func() time.Time

	mu sync.Mutex
	// store is nil until the Secrets were read.
	store *s3.Store
	login s3.Login
	ca    []byte
	// readAt is when the Secrets were read last; failed is true when a request has
	// failed since.
	readAt time.Time
	failed bool
}

var _ backup.Store = (*bucket)(nil)

// rereadAfter bounds how often Secrets are read again.
const rereadAfter = time.Second

// ready returns the store with the login that is to be used now.
func (b *bucket) ready(ctx context.Context) (*s3.Store, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.store != nil && (!b.failed || b.now().Sub(b.readAt) < rereadAfter) {
		return b.store, nil
	}
	err := b.read(ctx)
	if b.store == nil {
		return nil, err
	}
	if err == nil {
		b.readAt, b.failed = b.now(), false
	}
	// What was read before may still do when the API server is away.
	return b.store, nil
}

// read reads the Secrets, and makes a store with what they hold.
func (b *bucket) read(ctx context.Context) error {
	login, err := b.readLogin(ctx)
	if err != nil {
		return err
	}
	ca, err := b.readCA(ctx)
	if err != nil {
		return err
	}
	b.login = login
	if b.store != nil && bytes.Equal(ca, b.ca) {
		return nil
	}
	config := s3.Config{Bucket: b.of.Bucket, Endpoint: b.of.Endpoint, Region: b.of.Region}
	if b.of.CredentialsSecret != "" {
		config.Login = b.currentLogin
	}
	if len(ca) > 0 {
		config.CA = x509.NewCertPool()
		if !config.CA.AppendCertsFromPEM(ca) {
			return fmt.Errorf("secret %s: key %s holds no certificate", b.of.CASecret, instanceapi.S3CA)
		}
	}
	store, err := s3.New(config)
	if err != nil {
		return err
	}
	b.store, b.ca = store, ca
	return nil
}

func (b *bucket) readLogin(ctx context.Context) (s3.Login, error) {
	if b.of.CredentialsSecret == "" {
		return s3.Login{}, nil
	}
	secret, err := b.readSecret(ctx, b.of.CredentialsSecret, instanceapi.S3KeyID, instanceapi.S3Key)
	if err != nil {
		return s3.Login{}, err
	}
	text := func(key string) string { return strings.TrimSpace(string(secret[key])) }
	return s3.Login{KeyID: text(instanceapi.S3KeyID), Secret: text(instanceapi.S3Key), Token: text(instanceapi.S3SessionToken)}, nil
}

func (b *bucket) readCA(ctx context.Context) ([]byte, error) {
	if b.of.CASecret == "" {
		return nil, nil
	}
	secret, err := b.readSecret(ctx, b.of.CASecret, instanceapi.S3CA)
	return secret[instanceapi.S3CA], err
}

// readSecret reads a Secret that must have those keys.
func (b *bucket) readSecret(ctx context.Context, name string, keys ...string) (map[string][]byte, error) {
	const longest = 5 * time.Second
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	secret, err := b.kube.Secret(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("read Secret %s for the backups' store: %w", name, err)
	}
	for _, key := range keys {
		if len(secret[key]) == 0 {
			return nil, fmt.Errorf("secret %s for the backups' store has no key %s", name, key)
		}
	}
	return secret, nil
}

// currentLogin is what the store asks for at each request.
func (b *bucket) currentLogin() (s3.Login, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.login, nil
}

// note takes note of how a request has ended, and returns its error.
func (b *bucket) note(err error) error {
	if err == nil || errors.Is(err, backup.ErrNotFound) || errors.Is(err, backup.ErrExists) {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failed = true
	return err
}

// Create implements backup.Store.
func (b *bucket) Create(ctx context.Context, key string, content io.Reader) error {
	store, err := b.ready(ctx)
	if err != nil {
		return err
	}
	return b.note(store.Create(ctx, key, content))
}

// Open implements backup.Store.
func (b *bucket) Open(ctx context.Context, key string, from int64) (io.ReadCloser, error) {
	store, err := b.ready(ctx)
	if err != nil {
		return nil, err
	}
	body, err := store.Open(ctx, key, from)
	return body, b.note(err)
}

// Stat implements backup.Store.
func (b *bucket) Stat(ctx context.Context, key string) (backup.Object, error) {
	store, err := b.ready(ctx)
	if err != nil {
		return backup.Object{}, err
	}
	object, err := store.Stat(ctx, key)
	return object, b.note(err)
}

// List implements backup.Store.
func (b *bucket) List(ctx context.Context, prefix string, each func(backup.Object) error) error {
	store, err := b.ready(ctx)
	if err != nil {
		return err
	}
	return b.note(store.List(ctx, prefix, each))
}

// Sweep implements backup.Store.
func (b *bucket) Sweep(ctx context.Context, prefix string, before time.Time) error {
	store, err := b.ready(ctx)
	if err != nil {
		return err
	}
	return b.note(store.Sweep(ctx, prefix, before))
}

// Delete implements backup.Store.
func (b *bucket) Delete(ctx context.Context, key string) error {
	store, err := b.ready(ctx)
	if err != nil {
		return err
	}
	return b.note(store.Delete(ctx, key))
}

// String implements backup.Store.
func (b *bucket) String() string {
	if b.of.Endpoint == "" {
		return "S3 bucket " + b.of.Bucket
	}
	return fmt.Sprintf("S3 bucket %s at %s", b.of.Bucket, b.of.Endpoint)
}
