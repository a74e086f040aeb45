package instance

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/sirupsen/logrus"

	"github.com/pgop/postgres-operator/pkg/instance/walcall"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/internal/pgtest"
	"github.com/pgop/postgres-operator/pkg/postgres"
	"github.com/pgop/postgres-operator/test/s3test"
)

// The figures of docs/benchmarks.md: make bench-backup.

const usualSegment = 16 << 20

// ofPgbench are the segments that a server writes while pgbench fills its tables and
// then works on them.
func ofPgbench(b *testing.B) [][]byte {
	b.Helper()
	installation, kept := pgtest.Find(b, 15), b.TempDir()
	server := installation.New(b, map[string]string{"archive_mode": "on", "archive_command": "cp %p " + kept + "/%f", "max_wal_size": "4GB"})
	must(b, os.Chmod(kept, 0o777))
	server.Start()
	for _, work := range [][]string{{"--initialize", "--scale=20", "--quiet"}, {"--client=8", "--jobs=2", "--time=20"}} {
		cmd := exec.Command(filepath.Join(installation.Programs.Bin, "pgbench"), append(work, server.ConnInfo())...)
		if output, err := cmd.CombinedOutput(); err != nil {
			b.Fatalf("pgbench %v: %v: %s", work, err, output)
		}
	}
	server.Stop() // when everything is archived
	files, err := filepath.Glob(filepath.Join(kept, "0*"))
	must(b, err)
	var segments [][]byte
	for _, file := range files {
		content, err := os.ReadFile(file)
		must(b, err)
		if len(content) == usualSegment {
			segments = append(segments, content)
		}
	}
	if len(segments) < 10 {
		b.Fatalf("pgbench made %d segments", len(segments))
	}
	return segments
}

// hard are segments that take longer to compress than a server's: rows with random
// and with repeated parts, and no pages with room.
func hard(*testing.B) [][]byte {
	var b bytes.Buffer
	for b.Len() < usualSegment {
		fmt.Fprintf(&b, "%016x|%s|%08x|2026-11-28 12:00:00|", rand.Uint64(), strings.Repeat("customer ", 3), rand.Uint32())
	}
	return [][]byte{b.Bytes()[:usualSegment]}
}

// kindsOfWAL name what is archived.
var kindsOfWAL = []struct {
	name     string
	segments func(*testing.B) [][]byte
}{{"pgbench", ofPgbench}, {"hard", hard}}

// archiving is the part of an agent that archives, and the pg_wal of its server.
type archiving struct {
	*testing.B
	agent *Agent
	dir   string
	begun int
}

// newArchiving makes an agent that archives into a real S3 server.
func newArchiving(b *testing.B) *archiving {
	b.Helper()
	server := s3test.Start(b)
	run, err := os.MkdirTemp("", "r") // paths of sockets must be short
	must(b, err)
	b.Cleanup(func() { _ = os.RemoveAll(run) })
	dir := b.TempDir()
	must(b, os.Mkdir(filepath.Join(dir, "archive_status"), 0o700))
	kube := newFakeKubernetes()
	kube.setSecret("s3-login", false, map[string]string{instanceapi.S3KeyID: server.Login.KeyID, instanceapi.S3Key: server.Login.Secret})
	log := logrus.New()
	log.SetOutput(io.Discard)
	a := &Agent{options: Options{Cluster: "shop", Namespace: "test", Major: 17, RunDir: run}, log: logrus.NewEntry(log)}
	a.view = &view{wake: func() {}, log: a.log, config: knownConfig{Known: true}}
	a.view.config.Config.Backups = &instanceapi.Backups{Store: instanceapi.Store{S3: &instanceapi.S3Store{Bucket: server.Bucket, Prefix: "shop",
		Endpoint: server.Endpoint, Region: "us-east-1", CredentialsSecret: "s3-login"}}}
	a.archiver = &archiver{view: a.view, log: a.log, deposits: &deposits{options: a.options, kube: kube, dir: dir}, room: &room{}, now: time.Now, patience: slowAfter,
		systemID: func() string { return "7000000000000000001" }}
	a.archiver.serve()
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	must(b, a.listenForWAL(ctx, &group))
	b.Cleanup(func() { cancel(); a.archiver.deposits.close(); group.Wait() })
	return &archiving{B: b, agent: a, dir: dir}
}

// ready makes a segment that is ready, and returns its name.
func (a *archiving) ready(content []byte) string {
	a.Helper()
	a.begun++
	name := postgres.WALFile{Timeline: 1, Start: postgres.LSN(a.begun * usualSegment)}.Name(usualSegment)
	must(a.B, os.WriteFile(filepath.Join(a.dir, name), content, 0o600))
	must(a.B, os.WriteFile(filepath.Join(a.dir, "archive_status", name+".ready"), nil, 0o600))
	return name
}

// archive runs archive_command as the server does, and returns how long it took.
func (a *archiving) archive(program, name string) time.Duration {
	a.Helper()
	began := time.Now()
	cmd := exec.Command("sh", "-c", program+" archive "+name)
	cmd.Env = append(os.Environ(), walcall.Variable+"="+a.agent.options.walSocket())
	if output, err := cmd.CombinedOutput(); err != nil {
		a.Fatalf("archive %s: %v: %s", name, err, output)
	}
	took := time.Since(began)
	must(a.B, os.Remove(filepath.Join(a.dir, "archive_status", name+".ready")))
	return took
}

// BenchmarkArchiveCommand archives one segment after the other, as a server does
// that has none waiting: the command, the agent, and the store.
func BenchmarkArchiveCommand(b *testing.B) {
	program, err := os.Executable()
	must(b, err)
	const count = 60
	for _, kind := range kindsOfWAL {
		b.Run(kind.name, func(b *testing.B) {
			segments := kind.segments(b)
			var took []time.Duration
			for b.Loop() {
				took = took[:0]
				a := newArchiving(b)
				a.archive(program, a.ready(segments[0])) // claims the archive, once for all
				for n := range count {
					took = append(took, a.archive(program, a.ready(segments[n%len(segments)])))
				}
			}
			slices.Sort(took)
			b.ReportMetric(took[len(took)/2].Seconds()*1000, "ms-median")
			b.ReportMetric(took[len(took)*9/10].Seconds()*1000, "ms-p90")
		})
	}
}

// BenchmarkArchiveDrain archives segments that are waiting, as the server asks for
// them: 1,000 of them, as many bytes as pg_wal may have after hours without a store.
// Beside it the store is measured alone: as many objects, as many at once as the agent
// puts, of whole segments, and of segments that were compressed before.
func BenchmarkArchiveDrain(b *testing.B) {
	program, err := os.Executable()
	must(b, err)
	const count = 1000
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest))
	must(b, err)
	for _, kind := range kindsOfWAL {
		b.Run(kind.name, func(b *testing.B) {
			segments := kind.segments(b)
			var compressed [][]byte
			size := 0
			for _, segment := range segments {
				compressed = append(compressed, encoder.EncodeAll(segment, nil))
				size += len(compressed[len(compressed)-1])
			}
			var ours, whole, small time.Duration
			for b.Loop() {
				a := newArchiving(b)
				var names []string
				for n := range count {
					names = append(names, a.ready(segments[n%len(segments)]))
				}
				began := time.Now()
				for _, name := range names {
					a.archive(program, name)
				}
				ours = time.Since(began)
				whole = a.put("whole", count, segments)
				small = a.put("small", count, compressed)
			}
			b.ReportMetric(count/ours.Seconds(), "segments/s")
			b.ReportMetric(count/whole.Seconds(), "plain-puts/s")
			b.ReportMetric(count/small.Seconds(), "plain-compressed-puts/s")
			b.ReportMetric(float64(size)/float64(len(segments))/usualSegment, "compressed")
		})
	}
}

// put puts so many objects into the store, as many at once as the agent does, and
// returns how long it took. It begins again when contents are through.
func (a *archiving) put(prefix string, count int, contents [][]byte) time.Duration {
	a.Helper()
	d, err := a.agent.archiver.deposits.deposit(a.agent.view.knownConfig().Config.Backups.Store, a.agent.archiver.systemID())
	must(a.B, err)
	began := time.Now()
	var group sync.WaitGroup
	var next atomic.Int64
	for range pushedAtOnce {
		group.Go(func() {
			for n := int(next.Add(1)); n <= count; n = int(next.Add(1)) {
				content := bytes.NewReader(contents[n%len(contents)])
				if err := d.repository.Store().Create(context.Background(), fmt.Sprint(prefix, "/", n), content); err != nil {
					a.Error(err)
				}
			}
		})
	}
	group.Wait()
	return time.Since(began)
}
