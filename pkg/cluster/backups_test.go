package cluster

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/backup"
	postgresfake "github.com/pgop/postgres-operator/pkg/generated/clientset/versioned/fake"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/specs"
)

// The operator asks for the catalog when the primary says that it is another, and
// else never, however often it looks.
func TestCatalogIsReadWhenItIsAnother(t *testing.T) {
	w := settledWorld(3)
	w.settle()
	if w.bucket.reads != 0 {
		t.Errorf("read %d times, and there are no backups in the spec", w.bucket.reads)
	}
	w.backedUp()
	before := w.bucket.reads
	for range 5 {
		w.now = w.now.Add(time.Hour)
		w.catchUp(allKinds...)
		w.pass()
	}
	if w.bucket.reads != before {
		t.Errorf("read %d times, and it is the same", w.bucket.reads-before)
	}
	w.found("other")
	w.settle()
	if w.bucket.reads != before+1 {
		t.Errorf("read %d times since it is another", w.bucket.reads-before)
	}
}

// A catalog that can't be had is not taken for an empty one.
func TestUnknownCatalogRemovesNothing(t *testing.T) {
	w := settledWorld(3)
	w.backedUp()
	status := w.cluster.Status.Backup.DeepCopy()
	w.catalogRead = nil // as in an operator that has just begun
	w.bucket.away = "connection refused"
	w.catchUp(allKinds...)
	o, p, s := w.pass()
	if o.Catalog != nil || len(p.Actions) > 0 {
		t.Errorf("catalog %+v, actions %v", o.Catalog, p.Actions)
	}
	if diff := cmp.Diff(status, s.Backup); diff != "" {
		t.Errorf("what was known of the store is forgotten: %s", diff)
	}
}

// A backup that has gone from the store before the catalog was read goes, too, when
// the catalog has had its time to show it.
func TestBackupThatTheCatalogNeverShows(t *testing.T) {
	w := settledWorld(3)
	w.backedUp()
	w.bucket.backups = nil
	w.agents()
	change(w, "first", func(b *v1.PostgresBackup) { b.Status.InCatalog = false })
	w.settle()
	if w.backup("first") == nil {
		t.Error("the catalog may be late, and the backup is gone")
	}
	w.now = w.now.Add(unlistedPatience)
	w.settle()
	if w.backup("first") != nil {
		t.Error("the backup is shown, and the store does not have it")
	}
	if len(w.unlisted) != 0 {
		t.Errorf("remembered: %v", w.unlisted)
	}
}

// D-18: once the cluster was restored to a time before its newest backup, that one is
// neither the newest, nor what an incremental one goes on from, nor what is proved; what
// it can be restored to is told of itself.
func TestD18BackupThatWasLeftBehind(t *testing.T) {
	w := settledWorld(3)
	w.backUp()
	w.edit(func(s *v1.PostgresClusterSpec) { s.Backup.Verify = &v1.VerifySpec{Cron: "0 5 * * *"} })
	w.order("first", v1.BackupFull)
	w.settle()
	w.now = w.now.Add(time.Hour)
	w.order("second", v1.BackupFull)
	w.settle()
	left := &w.bucket.backups[1]
	left.LeftBehind, left.Until = true, w.now.Add(30*time.Minute)
	w.settle()
	w.now = w.now.Add(24 * time.Hour)
	w.order("more", v1.BackupIncremental)
	w.bucket.slow = true
	for range 4 {
		w.turn()
		w.catchUp(allKinds...)
		w.pass()
		w.catchUp(allKinds...)
	}
	o, _, s := w.pass()
	if got, want := w.backup("more").Status.Parent, w.backup("first").Status.ID; got != want {
		t.Errorf("the incremental one goes on from %q, want %s", got, want)
	}
	if b := meta.FindStatusCondition(s.Conditions, v1.ConditionBackedUp); !strings.Contains(b.Message, "the newest is first") {
		t.Errorf("condition %+v", b)
	}
	if b, of := s.Backup.LastCompleted, w.bucket.backups[0].StoppedAt; b == nil || !b.Equal(stampUp(of)) {
		t.Errorf("the last that completed is of %v, want %v", b, of)
	}
	if o.Verifier == nil {
		t.Fatal("nothing is proved")
	}
	if _, name := specs.Proves(o.Verifier); name != "first" {
		t.Errorf("%s is proved", name)
	}
	if got := w.backup("second").Status; !strings.Contains(got.Message, "timeline 1") || got.Restorable == nil || !got.Restorable.Until.Equal(stamp(left.Until)) {
		t.Errorf("it says %+v", got)
	}
}

func TestMissedRunsAreMadeUpOnce(t *testing.T) {
	at := func(text string) time.Time {
		parsed, err := time.Parse(time.RFC3339, text)
		if err != nil {
			t.Fatal(err)
		}
		return parsed
	}
	for _, c := range []struct{ why, cron, first, now, want string }{
		{"on time", "0 3 * * *", "2026-11-27T03:00:00Z", "2026-11-27T03:00:00Z", "2026-11-27T03:00:00Z"},
		{"a moment late", "0 3 * * *", "2026-11-27T03:00:00Z", "2026-11-27T03:00:30Z", "2026-11-27T03:00:00Z"},
		{"two were missed", "0 3 * * *", "2026-11-25T03:00:00Z", "2026-11-27T02:59:59Z", "2026-11-26T03:00:00Z"},
		{"years of minutes were missed", "* * * * *", "2016-11-27T03:00:00Z", "2026-11-27T03:00:59Z", "2026-11-27T03:00:00Z"},
		{"one that comes once a year, months ago", "0 0 1 1 *", "2026-01-01T00:00:00Z", "2026-11-27T00:00:00Z", "2026-01-01T00:00:00Z"},
		{"several that come once a year", "0 0 1 1 *", "2024-01-01T00:00:00Z", "2026-11-27T00:00:00Z", "2026-01-01T00:00:00Z"},
	} {
		s, err := backup.ParseSchedule(c.cron, "")
		if err != nil {
			t.Fatal(err)
		}
		if got := lastDue(s, at(c.first), at(c.now)); !got.Equal(at(c.want)) {
			t.Errorf("%s: %s instead of %s", c.why, got, c.want)
		}
	}
}

// D-02: a schedule that comes each minute, with backups that take three: one at a
// time, and no heap of those that wait.
func TestD02ScheduleThatIsFasterThanItsBackups(t *testing.T) {
	pure(t)
	w := settledWorld(3)
	w.backUp(v1.BackupSchedule{Name: "often", Cron: "* * * * *"})
	w.settle()
	w.bucket.slow = true
	taken := 0
	for second := range 600 {
		w.now = w.now.Add(time.Second)
		if w.bucket.slow = second%180 != 0; !w.bucket.slow {
			taken++
		}
		w.turn()
		unfinished := 0
		for name := range w.objects[v1.BackupKind] {
			if !hasEnded(w.backup(name)) {
				unfinished++
			}
		}
		if unfinished > 1 {
			t.Fatalf("after %d s %d backups are not finished", second, unfinished)
		}
	}
	if n := len(w.bucket.backups); n < taken-1 {
		t.Errorf("%d backups were taken, and %d could be", n, taken)
	}
}

func TestSizesForPeople(t *testing.T) {
	for bytes, want := range map[int64]string{0: "0", 1: "1", 10<<10 - 1: "10239", 10 << 10: "10Ki", 22931456: "22Mi", 20<<30 + 5<<20: "20Gi", 1 << 40: "1Ti", 1<<40 + 1<<30: "1025Gi"} {
		if got := sizeForPeople(bytes); got != want {
			t.Errorf("%d is %s instead of %s", bytes, got, want)
		}
	}
}

// Times have whole seconds in the API. What it says can be restored, can be.
func TestTimesAreRoundedIntoTheWindow(t *testing.T) {
	w := settledWorld(1)
	w.backedUp()
	first := w.backup("first").Status
	end := w.bucket.backups[0].StoppedAt
	if first.Restorable == nil || first.Restorable.From.Time.Before(end) || first.CompletedAt.Time.Before(end) {
		t.Errorf("restorable from %v, and it was complete at %s", first.Restorable, end)
	}
}

func TestBackupsAreWrittenAndNotOverwritten(t *testing.T) {
	ctx := context.Background()
	c := v1.WithDefaults(newWorld(1).cluster)
	wanted := specs.Backup(c, "nightly", v1.BackupFull, "nightly", "")
	client := postgresfake.NewSimpleClientset()
	a := actor{clusters: client.PgopV1()}
	act := func(verb Verb, b *v1.PostgresBackup) bool {
		t.Helper()
		did, failure := a.act(ctx, Action{Verb: verb, Object: b})
		if failure != nil {
			t.Fatalf("%v: %v", failure.Action, failure.Err)
		}
		return did
	}
	if !act(Create, wanted) {
		t.Error("not made")
	}
	if act(Create, wanted) {
		t.Error("D-04: one that is there counts as made by this pass")
	}
	reported := wanted.DeepCopy()
	reported.Status.Phase = v1.BackupRunning
	if !act(Report, reported) {
		t.Error("not reported")
	}
	live, err := client.PgopV1().PostgresBackups("db").Get(ctx, "nightly", metav1.GetOptions{})
	if err != nil || live.Status.Phase != v1.BackupRunning {
		t.Errorf("%+v, %v", live, err)
	}
	if !act(Delete, wanted) || act(Delete, wanted) || act(Report, reported) {
		t.Error("one that is gone is written")
	}

	for verb, refusal := range map[Verb]error{
		Create: errors.New("exceeded quota"), Report: errors.New("etcd is away"), Delete: errors.New("etcd is away"),
	} {
		failing := postgresfake.NewSimpleClientset()
		failing.PrependReactor("*", "*", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, refusal })
		if _, failure := (actor{clusters: failing.PgopV1()}).act(ctx, Action{Verb: verb, Object: wanted}); failure == nil || !errors.Is(failure.Err, refusal) {
			t.Errorf("%s: failure %+v", verb, failure)
		}
		conflict := postgresfake.NewSimpleClientset()
		conflict.PrependReactor("*", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewConflict(v1.Resource("postgresbackups"), "nightly", errors.New("changed"))
		})
		if did, failure := (actor{clusters: conflict.PgopV1()}).act(ctx, Action{Verb: verb, Object: wanted}); did || failure != nil {
			t.Errorf("%s: a conflict: did %v, failure %+v", verb, did, failure)
		}
	}
}

// For how long an agent says nothing of its backup is counted anew for each kind of
// silence, and not at all while it speaks.
func TestSilenceOfABackupIsCounted(t *testing.T) {
	w := settledWorld(3)
	taking(w)
	w.catchUp(allKinds...)
	l := new(Loop)
	waited := func(after time.Duration) time.Duration {
		w.now = w.now.Add(after)
		o := w.observe()
		l.lookAtTheClock(&o)
		return o.BackupWaited
	}
	waited(0)
	w.cut["shop-2"] = true
	if got := []time.Duration{waited(time.Second), waited(20 * time.Second), waited(20 * time.Second)}; got[0] != 0 || got[2] != 40*time.Second {
		t.Errorf("silent for %v", got)
	}
	w.cut["shop-2"] = false
	w.say("shop-2", func(s *instanceapi.State) { s.Backup = nil })
	if got := []time.Duration{waited(time.Second), waited(30 * time.Second)}; got[0] != 0 || got[1] != 30*time.Second {
		t.Errorf("has not begun for %v", got)
	}
}
