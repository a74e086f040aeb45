package main

import (
	"fmt"
	"io"
	"time"
)

// progress tells a person what takes so long.
type progress struct {
	out io.Writer
}

// step announces what is done, and how long it took.
func (p progress) step(what string, do func() error) error {
	start := time.Now()
	fmt.Fprintf(p.out, "%s … ", what)
	if err := do(); err != nil {
		fmt.Fprintf(p.out, "failed after %s\n", elapsed(start))
		return err
	}
	fmt.Fprintf(p.out, "done in %s\n", elapsed(start))
	return nil
}

func (p progress) say(format string, args ...any) { fmt.Fprintf(p.out, format+"\n", args...) }

func elapsed(start time.Time) time.Duration {
	d := time.Since(start)
	if d < 10*time.Second {
		return d.Round(100 * time.Millisecond)
	}
	return d.Round(time.Second)
}
