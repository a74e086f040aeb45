package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// clearShared removes what the container's last life has left in a directory of
// memory, such as /dev/shm: it goes with the pod, not with the container. Where
// want of memory has ended that life, the next would end in the same way. It must
// be called before anything runs that uses the directory.
func clearShared(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("clear %s: %w", dir, err)
	}
	var problems []error
	for _, entry := range entries {
		if err := os.RemoveAll(filepath.Join(dir, entry.Name())); err != nil {
			problems = append(problems, fmt.Errorf("clear %s: %w", dir, err))
		}
	}
	return errors.Join(problems...)
}
