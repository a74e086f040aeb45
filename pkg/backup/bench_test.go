package backup_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/pgop/postgres-operator/pkg/backup"
	"github.com/pgop/postgres-operator/pkg/internal/pgtest"
	"github.com/pgop/postgres-operator/pkg/postgres"
	"github.com/pgop/postgres-operator/test/s3test"
)

// The figures of docs/benchmarks.md: make bench-backup. Each measures what we
// do and the plain thing beside it, in one run.

const usualSegment = 16 << 20

// pageLike is data that compresses about as WAL does: rows with random and with
// repeated parts.
func pageLike(size int) []byte {
	var b bytes.Buffer
	for b.Len() < size {
		fmt.Fprintf(&b, "%016x|%s|%08x|2026-11-28 12:00:00|", rand.Uint64(), strings.Repeat("customer ", 3), rand.Uint32())
	}
	return b.Bytes()[:size]
}

// benchSegments makes segments that are ready.
func benchSegments(b *testing.B, count int) (dir string, names []string) {
	b.Helper()
	dir = b.TempDir()
	must(b, os.Mkdir(filepath.Join(dir, "archive_status"), 0o700))
	contents := [][]byte{pageLike(usualSegment), pageLike(usualSegment), pageLike(usualSegment)}
	for n := range count {
		name := postgres.WALFile{Timeline: 1, Start: postgres.LSN((n + 1) * usualSegment)}.Name(usualSegment)
		must(b, os.WriteFile(filepath.Join(dir, name), contents[n%len(contents)], 0o600))
		must(b, os.WriteFile(filepath.Join(dir, "archive_status", name+".ready"), nil, 0o600))
		names = append(names, name)
	}
	return dir, names
}

// BenchmarkSegment archives one segment after the other, as a server does that
// has none waiting.
func BenchmarkSegment(b *testing.B) {
	dir, names := benchSegments(b, 40)
	var took []time.Duration
	for b.Loop() {
		took = took[:0]
		repository := backup.NewRepository(s3test.Start(b).Store(), "shop", shop)
		for _, name := range names {
			began := time.Now()
			must(b, repository.PushWAL(context.Background(), filepath.Join(dir, name)))
			took = append(took, time.Since(began))
		}
	}
	slices.Sort(took)
	b.ReportMetric(took[len(took)/2].Seconds()*1000, "ms-median")
	b.ReportMetric(took[len(took)*9/10].Seconds()*1000, "ms-p90")
}

// BenchmarkDrain archives segments that are waiting, and beside it puts as many
// objects of the compressed size into the store, as many at once.
func BenchmarkDrain(b *testing.B) {
	const count, parallel = 200, 4
	dir, names := benchSegments(b, count)
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest))
	must(b, err)
	compressed := encoder.EncodeAll(pageLike(usualSegment), nil)
	var ours, plain time.Duration
	for b.Loop() {
		store := s3test.Start(b).Store()
		pusher := backup.NewPusher(backup.NewRepository(store, "shop", shop), dir, parallel)
		began := time.Now()
		for _, name := range names {
			must(b, pusher.Push(context.Background(), name))
		}
		ours = time.Since(began)
		pusher.Close()

		began = time.Now()
		var group sync.WaitGroup
		var next atomic.Int32
		for range parallel {
			group.Go(func() {
				for n := next.Add(1); n <= count; n = next.Add(1) {
					if err := store.Create(context.Background(), fmt.Sprint("plain/", n), bytes.NewReader(compressed)); err != nil {
						b.Error(err)
					}
				}
			})
		}
		group.Wait()
		plain = time.Since(began)
	}
	b.ReportMetric(count/ours.Seconds(), "segments/s")
	b.ReportMetric(count/plain.Seconds(), "plain-puts/s")
	b.ReportMetric(float64(len(compressed))/usualSegment, "compressed")
}

// BenchmarkBase takes a base backup, and restores it; beside it, the same with
// the programs of the system.
func BenchmarkBase(b *testing.B) {
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
	for b.Loop() {
		began := time.Now()
		shell(b, fmt.Sprintf(`%s/pg_basebackup -d "%s" -D - -Ft -X none --checkpoint=fast | %s -q -T0 > /dev/null`, bin, server.ConnInfo(), program))
		plain := time.Since(began)

		peak := watchHeap()
		began = time.Now()
		record, err := repository.TakeBase(context.Background(), installation.Programs, backup.BaseOptions{
			ID: backup.NewID(time.Now(), backup.Full, fmt.Sprint(rand.Uint32())), ConnInfo: server.ConnInfo(), SQL: server.SQL(), TempDir: b.TempDir(), Now: time.Now,
			SwitchWAL: func(ctx context.Context, _ postgres.LSN) error {
				return server.SQL().Exec(ctx, "SELECT pg_switch_wal()")
			},
		})
		must(b, err)
		ours := time.Since(began)
		b.ReportMetric(float64(record.Size)/1e6/plain.Seconds(), "plain-backup-MB/s")
		b.ReportMetric(float64(record.Size)/1e6/ours.Seconds(), "backup-MB/s")
		b.ReportMetric(float64(record.Size)/1e6, "MB")
		b.ReportMetric(peak(), "backup-heap-MB")

		began = time.Now()
		plainRestore(b, repository, record, program)
		plain = time.Since(began)
		peak = watchHeap()
		began = time.Now()
		data := filepath.Join(b.TempDir(), "data")
		must(b, repository.RestoreBase(context.Background(), installation.Programs, []backup.Record{record}, backup.RestoreOptions{Data: data, Parallel: 2}))
		ours = time.Since(began)
		b.ReportMetric(float64(record.Size)/1e6/plain.Seconds(), "plain-restore-MB/s")
		b.ReportMetric(float64(record.Size)/1e6/ours.Seconds(), "restore-MB/s")
		b.ReportMetric(peak(), "restore-heap-MB")
	}
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

// watchHeap returns what tells the most memory, in MB, that this process had
// from the system for its heap, and has not given back, meanwhile.
func watchHeap() func() float64 {
	runtime.GC()
	done, peak := make(chan struct{}), make(chan uint64)
	go func() {
		most := uint64(0)
		for {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			most = max(most, m.HeapInuse+m.StackInuse)
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
