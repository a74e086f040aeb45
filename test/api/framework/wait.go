//go:build e2e

package framework

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const pollEvery = 200 * time.Millisecond

// Await looks until look returns nil, and fails the test with what was last
// seen if that takes longer than Patience.
func (f *Framework) Await(what string, look func(context.Context) error) {
	f.T.Helper()
	ctx, cancel := context.WithTimeout(f.ctx(), Patience)
	defer cancel()
	seen := errors.New("nothing was seen")
	for {
		err := look(ctx)
		if err == nil {
			return
		}
		if ctx.Err() == nil { // a look that was cut short has seen nothing
			seen = err
		}
		select {
		case <-ctx.Done():
			f.T.Fatalf("%s: not within %v: %v", what, Patience, seen)
		case <-time.After(pollEvery):
		}
	}
}

// Hold looks again and again for as long as given, and fails the test as soon
// as look returns an error.
func (f *Framework) Hold(while time.Duration, what string, look func(context.Context) error) {
	f.T.Helper()
	for end := time.Now().Add(while); time.Now().Before(end); f.Pause(pollEvery) {
		if err := look(f.ctx()); err != nil {
			f.T.Fatalf("%s: for %v it should have stayed so: %v", what, while, err)
		}
	}
}

// Pause lets time pass where the time itself is the story, such as a window
// in which nothing may happen.
func (f *Framework) Pause(d time.Duration) {
	f.T.Helper()
	select {
	case <-f.ctx().Done():
		f.T.Fatal(context.Cause(f.ctx()))
	case <-time.After(d):
	}
}

// Want compares, for looks.
func Want[T comparable](what string, got, want T) error {
	if got != want {
		return fmt.Errorf("%s is %v instead of %v", what, got, want)
	}
	return nil
}
