package backup_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pgop/postgres-operator/pkg/backup"
	"github.com/pgop/postgres-operator/pkg/internal/pgtest"
	"github.com/pgop/postgres-operator/pkg/postgres"
	"github.com/pgop/postgres-operator/test/s3test"
)

// The figures of docs/benchmarks.md: make bench-backup. What we do and the plain
// thing beside it, in one run.

// fetchedAtOnce is how many objects of a backup an agent reads at the same time.
const fetchedAtOnce = 4

// BenchmarkBase takes a base backup, and restores it; beside it, the same with
// the programs of the system. It reports medians, and the most memory.
func BenchmarkBase(b *testing.B) {
	// As in an agent that handles content.
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(112 << 20))
	program, err := exec.LookPath("zstd")
	if err != nil {
		b.Skip("the program zstd is not installed")
	}
	installation := pgtest.Find(b, 15)
	server := installation.New(b, nil)
	server.Start()
	systemID := server.SystemID()
	repository := backup.NewRepository(s3test.Start(b).Store(), "shop", backup.Owner{SystemID: systemID, Major: installation.Version.Major})
	pusher := backup.NewPusher(repository, filepath.Join(server.Data, "pg_wal"), 4)
	defer pusher.Close()
	server.Configure(map[string]string{"archive_mode": "on", "archive_command": pgtest.WALCommand(b, func(name, _ string) int {
		if pusher.Push(context.Background(), name) != nil {
			return 1
		}
		return 0
	})})
	server.Stop()
	server.Start()
	server.Exec(`CREATE TABLE filler AS SELECT i, md5(i::text) AS a, repeat('customer ', 5) AS b, random() AS c FROM generate_series(1, 17000000) i`)
	server.Exec("CHECKPOINT")
	bin := installation.Programs.Bin
	const rounds = 3 // in turns, since the machine changes its speed
	figures := map[string][]float64{}
	for b.Loop() {
		for range rounds {
			measure := func(what string, work func()) {
				began := time.Now()
				work()
				figures[what] = append(figures[what], time.Since(began).Seconds())
			}
			measure("plain-backup", func() {
				shell(b, fmt.Sprintf(`%s/pg_basebackup -d "%s" -D - -Ft -X none --checkpoint=fast | %s -q -T0 > /dev/null`, bin, server.ConnInfo(), program))
			})
			var record backup.Record
			peak := watchMemory()
			measure("backup", func() {
				record, err = repository.TakeBase(context.Background(), installation.Programs, backup.BaseOptions{
					ID: backup.NewID(time.Now(), backup.Full, fmt.Sprint(rand.Uint32())), ConnInfo: server.ConnInfo(), SQL: server.SQL(), TempDir: b.TempDir(), Now: time.Now,
					SwitchWAL: func(ctx context.Context, _ postgres.LSN) error {
						return server.SQL().Exec(ctx, "SELECT pg_switch_wal()")
					},
				})
				must(b, err)
			})
			figures["backup-memory"] = append(figures["backup-memory"], peak())
			measure("plain-restore", func() { plainRestore(b, repository, record, program) })
			peak = watchMemory()
			data := filepath.Join(b.TempDir(), "data")
			measure("restore", func() {
				must(b, repository.RestoreBase(context.Background(), installation.Programs, []backup.Record{record}, backup.RestoreOptions{Data: data, Parallel: fetchedAtOnce}))
			})
			figures["restore-memory"] = append(figures["restore-memory"], peak())
			must(b, os.RemoveAll(data))
			figures["MB"] = append(figures["MB"], float64(record.Size)/1e6)
		}
	}
	size := median(figures["MB"])
	b.ReportMetric(size, "MB")
	for _, what := range []string{"backup", "restore"} {
		b.ReportMetric(size/median(figures["plain-"+what]), "plain-"+what+"-MB/s")
		b.ReportMetric(size/median(figures[what]), what+"-MB/s")
		b.ReportMetric(100*median(figures["plain-"+what])/median(figures[what]), what+"-percent")
		b.ReportMetric(slices.Max(figures[what+"-memory"]), what+"-memory-MB")
	}
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// plainRestore downloads each part and pipes it through zstd and tar.
func plainRestore(b *testing.B, repository *backup.Repository, record backup.Record, program string) {
	b.Helper()
	dir := b.TempDir()
	for n := range record.Parts {
		body, err := repository.Store().Open(context.Background(), repository.Layout().Part(record.ID, n+1), 0)
		must(b, err)
		cmd := exec.Command("sh", "-c", program+" -dcq | tar -x -C "+dir)
		cmd.Stdin = body
		output, err := cmd.CombinedOutput()
		if err != nil {
			b.Fatalf("%v: %s", err, output)
		}
		must(b, body.Close())
	}
	shell(b, "sync -f "+dir)
}

func shell(b *testing.B, command string) {
	b.Helper()
	cmd := exec.Command("sh", "-c", command)
	cmd.Stderr = io.Discard
	must(b, cmd.Run())
}

// watchMemory returns what tells the most memory, in MB, that this process had meanwhile:
// what it does not share with other programs, as the kernel counts it (RssAnon). The store
// and the server are processes of their own.
func watchMemory() func() float64 {
	debug.FreeOSMemory()
	done, peak := make(chan struct{}), make(chan uint64)
	go func() {
		most := uint64(0)
		for {
			most = max(most, ownMemory())
			select {
			case <-done:
				peak <- most
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	return func() float64 {
		close(done)
		return float64(<-peak) / 1e6
	}
}

// ownMemory is RssAnon in bytes; 0: the kernel does not tell.
func ownMemory() uint64 {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if value, found := strings.CutPrefix(line, "RssAnon:"); found {
			kilobytes, _ := strconv.ParseUint(strings.Fields(value)[0], 10, 64)
			return kilobytes << 10
		}
	}
	return 0
}
