package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"
)

// limitMemory keeps the agent small beside the server: what it holds is a few
// objects, so collecting often costs next to nothing.
func limitMemory() {
	const percent, limit = 30, 24 << 20
	debug.SetGCPercent(percent)
	debug.SetMemoryLimit(limit)
}

// dropProgramPages unmaps, at once and from time to time, the pages of this
// program that have been read but are not in use: most of the binary is the
// operator's, and what little the agent touches at its start brings whole
// stretches of it in. Pages in use come back from the page cache at the next
// access.
func dropProgramPages(ctx context.Context, log *logrus.Entry) {
	const soon, later = 5 * time.Second, time.Minute
	timer := time.NewTimer(0)
	defer timer.Stop()
	for next := soon; ; {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		if err := dropPages(); err != nil {
			log.WithError(err).Warn("giving memory back failed; not trying again")
			return
		}
		timer.Reset(next)
		next = later
	}
}

// dropPages unmaps the read-only pages of this program's file. A mapping with
// pages that differ from the file, as relocation would make, is left alone.
func dropPages() error {
	mappings, err := programMappings("/proc/self/smaps")
	if err != nil {
		return fmt.Errorf("read own mappings: %w", err)
	}
	for _, m := range mappings {
		if m.writable || m.changed {
			continue
		}
		// The memory is none of Go's, so there is no slice of it to pass.
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, m.start, m.end-m.start, unix.MADV_DONTNEED); errno != 0 {
			return fmt.Errorf("unmap pages: %w", errno)
		}
	}
	return nil
}

// mapping is one of this program's own mappings of its file.
type mapping struct {
	start, end uintptr
	writable   bool
	// changed is true when some page is no longer the file's.
	changed bool
}

// programMappings reads the mappings of the file that this process runs.
func programMappings(smaps string) ([]mapping, error) {
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return nil, err
	}
	file, err := os.Open(smaps)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var found []mapping
	inside := false
	for lines := bufio.NewScanner(file); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		switch {
		case len(fields) >= 5 && strings.Contains(fields[0], "-"):
			m, ok := parseMapping(fields, program)
			if inside = ok; ok {
				found = append(found, m)
			}
		case inside && len(fields) >= 2 && fields[0] == "Anonymous:" && fields[1] != "0":
			// Private_Dirty says nothing of the kind: pages of a file that has just
			// been copied are dirty until the kernel has written them.
			found[len(found)-1].changed = true
		}
	}
	return found, nil
}

func parseMapping(fields []string, program string) (mapping, bool) {
	if fields[len(fields)-1] != program {
		return mapping{}, false
	}
	first, last, _ := strings.Cut(fields[0], "-")
	start, err1 := strconv.ParseUint(first, 16, 64)
	end, err2 := strconv.ParseUint(last, 16, 64)
	if err1 != nil || err2 != nil {
		return mapping{}, false
	}
	return mapping{start: uintptr(start), end: uintptr(end), writable: strings.Contains(fields[1], "w")}, true
}
