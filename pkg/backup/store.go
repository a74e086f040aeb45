package backup

import (
	"context"
	"errors"
	"io"
	"time"
)

// Store keeps objects under keys, which are words joined by slashes. Its
// methods may be called from several goroutines.
//
// Its errors keep the store's own words. Only what a method says about ErrExists
// and ErrNotFound may be relied on: a bucket that is missing, or a login that
// is refused, is neither.
type Store interface {
	// Create writes an object, of any length, unless there is one by that key:
	// then it returns ErrExists and leaves that one alone. It appears whole, or
	// when Create fails not at all. A store that can't tell atomically whether
	// there is one lets the last writer win.
	//
	// The memory that it takes doesn't grow with the object.
	Create(ctx context.Context, key string, content io.Reader) error

	// Open reads an object from that byte on. ErrNotFound: there is none. The
	// reader's errors are the store's; it must be closed.
	Open(ctx context.Context, key string, from int64) (io.ReadCloser, error)

	// Stat looks at an object without reading it. ErrNotFound: there is none, or
	// the place where it would be is missing.
	Stat(ctx context.Context, key string) (Object, error)

	// List calls each for every object whose key begins with prefix, in any
	// order, until it returns an error, which List returns.
	List(ctx context.Context, prefix string, each func(Object) error) error

	// Delete removes an object; one that is not there needs no removing.
	Delete(ctx context.Context, key string) error

	// Sweep removes what is left of objects below a prefix whose writing began before that
	// time and was broken off, as by a writer that was killed. Whoever calls it knows that
	// nobody still writes those.
	Sweep(ctx context.Context, prefix string, before time.Time) error

	// String names the store in messages.
	String() string
}

// Object is what a store tells of an object.
type Object struct {
	Key string
	// Size is in bytes, as stored.
	Size int64
	// Modified is when it was written, by the store's clock.
	Modified time.Time
}

var (
	// ErrNotFound: there is no such object.
	ErrNotFound = errors.New("no such object")
	// ErrExists: there is such an object already.
	ErrExists = errors.New("the object exists already")
)
