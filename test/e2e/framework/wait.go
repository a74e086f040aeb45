//go:build e2e

package framework

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// look is one look at something: nil when all is as it should be, else an error
// that says what is there instead.
type look = func(context.Context) error

const pollEvery = 200 * time.Millisecond

// Await looks until all is as it should be, and fails the test with what was
// last seen if that takes longer than limit.
func (f *Framework) Await(limit time.Duration, what string, look look) {
	f.T.Helper()
	if err := poll(f.ctx(), limit, look); err != nil {
		f.T.Fatalf("%s: not within %v: %v", what, limit, err)
	}
}

// poll looks until look returns nil, and returns what was last seen if it never
// does.
func poll(ctx context.Context, limit time.Duration, look look) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var seen error
	for {
		err := look(ctx)
		if err == nil {
			return nil
		}
		// A look that the deadline cut short has seen nothing.
		if ctx.Err() == nil || seen == nil {
			seen = err
		}
		select {
		case <-ctx.Done():
			return seen
		case <-time.After(pollEvery):
		}
	}
}

// Hold looks again and again for as long as given, and fails the test as soon
// as something is not as it should be.
func (f *Framework) Hold(while time.Duration, what string, look look) {
	f.T.Helper()
	end := time.Now().Add(while)
	for time.Now().Before(end) {
		ctx, cancel := context.WithTimeout(f.ctx(), 10*time.Second)
		err := look(ctx)
		cancel()
		if err != nil {
			f.T.Fatalf("%s: for %v it should have stayed so: %v", what, while, err)
		}
		f.Pause(pollEvery)
	}
}

// Pause lets time pass where the time itself is the story, such as a delay
// before a fault.
func (f *Framework) Pause(d time.Duration) {
	f.T.Helper()
	if err := Sleep(f.ctx(), d); err != nil {
		f.T.Fatal(err)
	}
}

// Sleep is Pause for functions that must not end the test.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// Together runs functions at the same time and returns when all have returned.
// They must not end the test; what they return does.
func (f *Framework) Together(functions ...func() error) {
	f.T.Helper()
	results := make(chan error, len(functions))
	for _, function := range functions {
		go func() { results <- function() }()
	}
	var errs []error
	for range functions {
		errs = append(errs, <-results)
	}
	if err := errors.Join(errs...); err != nil {
		f.T.Fatal(err)
	}
}

// Want compares, for looks.
func Want[T comparable](what string, got, want T) error {
	if got != want {
		return fmt.Errorf("%s is %v instead of %v", what, got, want)
	}
	return nil
}
