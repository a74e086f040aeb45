package main

import (
	"context"
	"fmt"
	"time"
)

// measureStart creates clusters of three instances, one after the other, and
// prints how long until the first row is written and until all three serve.
func (b *bench) measureStart(ctx context.Context, rounds int) error {
	var write, ready []time.Duration
	for round := range rounds + 1 {
		w, r, err := b.startOnce(ctx, fmt.Sprintf("start-%d", round))
		if err != nil {
			return err
		}
		if round > 0 { // the first warms caches
			write, ready = append(write, w), append(ready, r)
		}
	}
	fmt.Printf("Start of a three-instance cluster, 1 Gi volumes, %d rounds after one to warm up; from the create request\n", rounds)
	printSpread("to the first row through -rw", write)
	printSpread("to the condition Ready, 3 of 3", ready)
	return nil
}

func (b *bench) startOnce(ctx context.Context, name string) (write, ready time.Duration, err error) {
	asked, err := b.apply(ctx, name, 3)
	if err != nil {
		return 0, 0, err
	}
	written := make(chan error, 1)
	go func() {
		err := b.awaitWrite(ctx, name)
		write = time.Since(asked)
		written <- err
	}()
	readyErr := b.awaitReady(ctx, name)
	ready = time.Since(asked)
	if err := <-written; err != nil {
		return 0, 0, err
	}
	if readyErr != nil {
		return 0, 0, readyErr
	}
	return write, ready, b.remove(ctx, name)
}
