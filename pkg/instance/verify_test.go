package instance

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/pgop/postgres-operator/pkg/backup"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
)

// prove proves a backup in a pod of its own.
func (w *world) prove(id string) instanceapi.Proof {
	w.Helper()
	home := filepath.Join(w.dir, "verify")
	o := Options{
		Cluster: "shop", ClusterUID: "shop-uid", Instance: "shop-verify", Namespace: "test", PodUID: "uid-verify", Major: w.major,
		Mount: filepath.Join(home, "v"), RunDir: filepath.Join(home, "r"), BackupMounts: []string{w.backups()}, Version: "test",
		StopTimeout: 10 * time.Second, Bin: w.bin, Port: w.port, Alone: true,
	}
	must(w.T, os.RemoveAll(home))
	for _, dir := range []string{o.Mount, o.RunDir} {
		must(w.T, os.MkdirAll(dir, 0o700))
	}
	log := logrus.New()
	log.SetOutput(&testLog{w.T})
	agent, err := New(o, w.kube, log.WithField("instance", o.Instance), io.Writer(&testLog{w.T}))
	must(w.T, err)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	proof, err := agent.Prove(ctx, id)
	must(w.T, err)
	return proof
}

// A backup is proved to the last transaction in the archive, and neither the archive
// nor the cluster notices.
func TestGoodBackupIsProvedToTheEndOfTheArchive(t *testing.T) {
	t.Parallel()
	w, p, store := source(t)
	info := p.takeWell(backup.Full, "")
	before := p.write(1)
	p.write(2)
	p.archiveAll(store)
	was := written(t, w)
	proof := w.prove(info.ID)
	if proof.Failed != "" || proof.Until.Before(before) {
		t.Errorf("it says %+v; row 1 is of %s", proof, before)
	}
	if is := written(t, w); !slices.Equal(was, is) {
		t.Errorf("the archive had %v and has %v", was, is)
	}
	p.waitFor("still serves", isReady)
}

// written are the files of the archive, without what is on its way to be one.
func written(t *testing.T, w *world) []string {
	t.Helper()
	return slices.DeleteFunc(files(t, w.backups()), func(path string) bool { return strings.Contains(path, ".writing-") })
}

// Without a transaction after it, a backup is proved until it was complete.
func TestBackupWithNothingAfterItIsProvedUntilItsEnd(t *testing.T) {
	t.Parallel()
	w, p, _ := source(t)
	info := p.takeWell(backup.Full, "")
	if proof := w.prove(info.ID); proof.Failed != "" || proof.Until.Before(info.StoppedAt) {
		t.Errorf("it says %+v; the backup is of %s", proof, info.StoppedAt)
	}
}

// An incremental backup is proved with those that it goes on from.
func TestIncrementalBackupIsProved(t *testing.T) {
	t.Parallel()
	first := newWorldFor(t, 17)
	first.conf["summarize_wal"] = "on"
	w, p, store := sourceIn(first)
	full := p.takeWell(backup.Full, "")
	p.write(1)
	info := p.takeWell(backup.Incremental, full.ID)
	p.archiveAll(store)
	if proof := w.prove(info.ID); proof.Failed != "" {
		t.Errorf("it says %+v", proof)
	}
	must(t, os.RemoveAll(filepath.Dir(w.object(full.ID+"/backup.json"))))
	if proof := w.prove(info.ID); !strings.Contains(proof.Failed, full.ID) {
		t.Errorf("without the backup that it goes on from it says %+v", proof)
	}
}

// D-18: what the store has lost or damaged is named.
func TestD18BackupWithLostOrDamagedObjectsIsNotProved(t *testing.T) {
	t.Parallel()
	w, p, store := source(t)
	info := p.takeWell(backup.Full, "")
	p.write(1)
	p.archiveAll(store)
	last := p.endSegment()
	p.awaitArchived(p.repository(store), last)

	path := w.object("part-00001.")
	content, err := os.ReadFile(path)
	must(t, err)
	must(t, os.WriteFile(path, damaged(content), 0o600))
	if proof := w.prove(info.ID); !strings.Contains(proof.Failed, "part-00001") || !strings.Contains(proof.Failed, "damaged") {
		t.Errorf("of a damaged part it says %+v", proof)
	}
	must(t, os.WriteFile(path, content, 0o600))

	path = w.object(info.LastWAL + ".")
	must(t, os.Rename(path, path+".aside"))
	if proof := w.prove(info.ID); !strings.Contains(proof.Failed, info.LastWAL) {
		t.Errorf("of a lost segment it says %+v", proof)
	}
	must(t, os.Rename(path+".aside", path))
	if proof := w.prove(info.ID); proof.Failed != "" {
		t.Errorf("of a whole archive it says %+v", proof)
	}
}

// A page that the server had damaged before it was backed up, so that every
// object of the backup is as it was written, is found, by the table's name.
func TestBackupOfADamagedPageIsNotProved(t *testing.T) {
	t.Parallel()
	first := newWorld(t)
	// With checksums, such a backup is not even taken: pg_basebackup refuses the page.
	first.apply(func() { first.config.Bootstrap.DataChecksums = false })
	w, p, store := sourceIn(first)
	must(t, p.sql.Exec(t.Context(), "CREATE TABLE public.victim (n int) WITH (autovacuum_enabled = off); INSERT INTO public.victim SELECT generate_series(1, 1000)"))
	// After that the server has no reason to write the page again.
	must(t, p.sql.Exec(t.Context(), "VACUUM (FREEZE) public.victim"))
	must(t, p.sql.Exec(t.Context(), "CHECKPOINT"))
	path := filepath.Join(p.volume.data(), p.query("SELECT pg_relation_filepath('public.victim')"))
	page, err := os.ReadFile(path)
	must(t, err)
	// The whole header of a row.
	copy(page[4000:], "this is no header of a tuple at all")
	must(t, os.WriteFile(path, page, 0o600))
	info := p.takeWell(backup.Full, "")
	p.archiveAll(store)
	proof := w.prove(info.ID)
	if !strings.Contains(proof.Failed, "victim") {
		t.Errorf("it says %+v", proof)
	}
}

// A copy's subscription would take what the publisher keeps for the original.
func TestProofReachesNobody(t *testing.T) {
	t.Parallel()
	w, p, store := source(t)
	connections := listenAndCount(t)
	must(t, p.sql.Exec(t.Context(), "CREATE SUBSCRIPTION s CONNECTION 'host=127.0.0.1 port="+connections.port+" sslmode=disable' PUBLICATION x WITH (connect = false, slot_name = 'x', enabled = false)"))
	must(t, p.sql.Exec(t.Context(), "UPDATE pg_subscription SET subenabled = true"))
	info := p.takeWell(backup.Full, "")
	p.archiveAll(store)
	p.stop()
	connections.count.Store(0)
	if proof := w.prove(info.ID); proof.Failed != "" {
		t.Errorf("it says %+v", proof)
	}
	if n := connections.count.Load(); n != 0 {
		t.Errorf("the copy has connected %d times", n)
	}
}

// countedListener counts those who connect.
type countedListener struct {
	port  string
	count atomic.Int64
}

func listenAndCount(t *testing.T) *countedListener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	_, port, err := net.SplitHostPort(listener.Addr().String())
	must(t, err)
	l := &countedListener{port: port}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return // the test has ended
			}
			l.count.Add(1)
			_ = conn.Close()
		}
	}()
	return l
}
