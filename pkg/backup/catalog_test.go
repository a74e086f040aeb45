package backup_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pgop/postgres-operator/pkg/backup"
	"github.com/pgop/postgres-operator/pkg/postgres"
)

var noon = time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)

// taken is a backup that was complete some days before noon, and needs the
// segments from first to last.
func taken(id string, daysAgo float64, first, last int, parent string) backup.Record {
	r := backup.Record{ID: id, Kind: backup.Full, Parent: parent, SegmentSize: segmentSize,
		StoppedAt: noon.Add(-time.Duration(daysAgo * float64(24*time.Hour))),
		WAL:       []backup.WALRange{{Timeline: 1, Start: backup.Position(first*segmentSize + 40), End: backup.Position(last*segmentSize + 400)}}}
	if parent != "" {
		r.Kind = backup.Incremental
	}
	return r
}

// files are archived segments of a timeline, one a minute.
func files(t *testing.T, timeline uint32, first, last int) []backup.ArchivedFile {
	t.Helper()
	var all []backup.ArchivedFile
	for n := first; n <= last; n++ {
		name, err := backup.ParseWALName(postgres.WALFile{Timeline: timeline, Start: postgres.LSN(n * segmentSize)}.Name(segmentSize))
		must(t, err)
		all = append(all, backup.ArchivedFile{WALName: name, ArchivedAt: noon.Add(time.Duration(n) * time.Minute)})
	}
	return all
}

// removed is a removal in words: backups, and the range of segments.
func removed(r backup.Removal) string {
	words := slices.Clone(r.Backups)
	slices.Sort(words)
	if len(r.WAL) > 0 {
		words = append(words, "WAL to", strings.TrimLeft(r.WAL[len(r.WAL)-1].Text[8:], "0"))
	}
	return strings.Join(words, " ")
}

func TestD18RetentionKeepsWhatKeptBackupsNeed(t *testing.T) {
	day := 24 * time.Hour
	old := func(id string) string { return backup.NewID(noon.Add(-72*time.Hour), backup.Full, id) }
	fulls := []backup.Record{taken("a", 9, 1, 1, ""), taken("b", 6, 3, 3, ""), taken("c", 3, 5, 6, ""), taken("d", 0.5, 8, 8, "")}
	increments := []backup.Record{taken("a", 9, 1, 1, ""), taken("a1", 8, 2, 2, "a"), taken("b", 6, 4, 4, ""), taken("b1", 5, 5, 5, "b"), taken("b2", 4, 6, 6, "b1")}
	cases := []struct {
		why       string
		records   []backup.Record
		retention backup.Retention
		want      string
	}{
		{"no rule: all is kept", fulls, backup.Retention{}, ""},
		{"keep 2: WAL from the start of the older one", fulls, backup.Retention{Keep: 2}, "a b WAL to 4"},
		{"keep 1", fulls, backup.Retention{Keep: 1}, "a b c WAL to 7"},
		{"keep more than there are", fulls, backup.Retention{Keep: 9}, ""},
		{"within 4 days: one from before is needed for their beginning", fulls, backup.Retention{Within: 4 * day}, "a WAL to 2"},
		{"within an hour: the newest is never given up", fulls, backup.Retention{Within: time.Hour}, "a b c WAL to 7"},
		{"both rules: what either wants", fulls, backup.Retention{Keep: 1, Within: 4 * day}, "a WAL to 2"},
		{"all are old: the newest is never given up", fulls[:1], backup.Retention{Within: time.Hour}, ""},
		{"keep 1: with what an incremental one goes back to", increments, backup.Retention{Keep: 1}, "a a1 WAL to 3"},
		{"keep 4", increments, backup.Retention{Keep: 4}, ""},
		{"an incremental one without its parent is none", append(slices.Clone(fulls[:1]), taken("x1", 1, 8, 8, "x")), backup.Retention{Keep: 1}, "x1"},
		{"no backup: all WAL is kept", nil, backup.Retention{Keep: 1}, ""},
	}
	for _, c := range cases {
		catalog := backup.Catalog{Records: c.records, WAL: backup.ArchivedWAL{Files: files(t, 1, 1, 12)}}
		if got := removed(backup.Expire(catalog, c.retention, noon, nil)); got != c.want {
			t.Errorf("%s: %q, want %q", c.why, got, c.want)
		}
	}

	// The clock of whoever decides is years ahead of the store's.
	ahead := backup.Catalog{Records: fulls, WAL: backup.ArchivedWAL{Files: files(t, 1, 1, 12)}}
	if got := removed(backup.Expire(ahead, backup.Retention{Within: 4 * day}, noon.Add(1000*day), nil)); got != "a WAL to 2" {
		t.Errorf("with a clock that is ahead: %q", got)
	}

	// The cluster was restored to a time in segment 4, between b and c.
	undone := backup.Catalog{Records: fulls, Present: 2, WAL: backup.ArchivedWAL{
		Files: append(files(t, 1, 1, 12), files(t, 2, 4, 6)...), Histories: map[uint32][]postgres.Switch{2: {{Timeline: 1, LSN: 4*segmentSize + 100}}},
	}}
	since := taken("e", 0.1, 5, 5, "")
	since.WAL[0].Timeline = 2
	later := undone
	later.Records = append(slices.Clone(fulls), since)
	unheard := undone
	unheard.Present = 3
	for _, c := range []struct {
		why       string
		catalog   backup.Catalog
		retention backup.Retention
		want      string
	}{
		{"keep 1: the newest that leads to the present, and what was left behind since", undone, backup.Retention{Keep: 1}, "a WAL to 2"},
		{"within 2 days: c is none that covers them", undone, backup.Retention{Within: 2 * day}, "a WAL to 2"},
		{"keep 1, with a backup since", later, backup.Retention{Keep: 1}, "a b c d WAL to 4"},
		{"keep 2, with a backup since: those left behind don't count", later, backup.Retention{Keep: 2}, "a WAL to 2"},
		{"nothing of the present timeline was archived yet", unheard, backup.Retention{Keep: 1}, ""},
	} {
		if got := removed(backup.Expire(c.catalog, c.retention, noon, nil)); got != c.want {
			t.Errorf("%s: %q, want %q", c.why, got, c.want)
		}
	}

	running, failed, fresh := old("running"), old("failed"), backup.NewID(noon.Add(-time.Hour), backup.Full, "fresh")
	catalog := backup.Catalog{Records: fulls, Incomplete: []string{running, failed, fresh, "lost+found"}}
	if got := removed(backup.Expire(catalog, backup.Retention{}, noon, []string{running})); got != failed {
		t.Errorf("of incomplete ones: %q, want %q", got, failed)
	}
	catalog.Damaged = []backup.DamagedBackup{{ID: "e", Err: errors.New("x")}}
	if got := removed(backup.Expire(catalog, backup.Retention{Keep: 1}, noon, nil)); got != "" {
		t.Errorf("with a record that can't be read: %q", got)
	}
}

// D-18: a backup that went on across a failover needs no segment that only the old
// timeline could have: it was left within it.
func TestD18SegmentsOfABackupAcrossASwitch(t *testing.T) {
	across := func(at backup.Position) backup.Record {
		return backup.Record{SegmentSize: segmentSize, WAL: []backup.WALRange{
			{Timeline: 1, Start: 3*segmentSize + 40, End: at}, {Timeline: 2, Start: at, End: 6*segmentSize + 8}}}
	}
	for at, want := range map[backup.Position]string{
		5*segmentSize + 100: "000000010000000000000003 000000010000000000000004 000000020000000000000005 000000020000000000000006",
		5 * segmentSize:     "000000010000000000000003 000000010000000000000004 000000020000000000000005 000000020000000000000006",
		3*segmentSize + 100: "000000020000000000000003 000000020000000000000004 000000020000000000000005 000000020000000000000006",
	} {
		if got := strings.Join(across(at).Segments(), " "); got != want {
			t.Errorf("left at %s: %s, want %s", at, got, want)
		}
	}
}

func TestRestoreWindow(t *testing.T) {
	at := func(minute int) time.Time { return noon.Add(time.Duration(minute) * time.Minute) }
	records := []backup.Record{taken("a", 9, 1, 1, ""), taken("b", 6, 3, 4, "")}
	first := records[0].StoppedAt
	// Timeline 2 began within segment 6 of timeline 1.
	histories := map[uint32][]postgres.Switch{2: {{Timeline: 1, LSN: 6*segmentSize + 100}}, 3: {{Timeline: 1, LSN: 2 * segmentSize}}}
	failover := map[uint32][]postgres.Switch{2: histories[2]}
	cases := []struct {
		why       string
		files     []backup.ArchivedFile
		histories map[uint32][]postgres.Switch
		want      backup.Window
	}{
		{"no WAL after the backup", nil, nil, backup.Window{First: first, Last: records[1].StoppedAt}},
		{"whole", files(t, 1, 1, 9), nil, backup.Window{First: first, Last: at(9)}},
		{"with a gap", append(files(t, 1, 1, 6), files(t, 1, 8, 9)...), nil,
			backup.Window{First: first, Last: at(6), Gap: "000000010000000000000007"}},
		{"a gap before the newest backup is none of its", append(files(t, 1, 1, 1), files(t, 1, 4, 9)...), nil, backup.Window{First: first, Last: at(9)}},
		{"across a switch; what the old timeline has beyond it doesn't count", append(files(t, 1, 1, 20), files(t, 2, 6, 8)...), failover,
			backup.Window{First: first, Last: at(8)}},
		{"the cluster was restored to a time before the newest backup: the older one leads on", append(append(files(t, 1, 1, 20), files(t, 2, 6, 8)...), files(t, 3, 2, 30)...), histories,
			backup.Window{First: first, Last: at(30)}},
		{"with a gap since then", append(files(t, 1, 1, 20), files(t, 3, 3, 30)...), histories,
			backup.Window{First: first, Last: at(1), Gap: "000000030000000000000002"}},
	}
	for _, c := range cases {
		present := uint32(1)
		for timeline := range c.histories {
			present = max(present, timeline)
		}
		got, ok := backup.RestoreWindow(backup.Catalog{Records: records, Present: present, WAL: backup.ArchivedWAL{Files: c.files, Histories: c.histories}})
		if diff := cmp.Diff(c.want, got); !ok || diff != "" {
			t.Errorf("%s: %s", c.why, diff)
		}
	}
	if _, ok := backup.RestoreWindow(backup.Catalog{Records: []backup.Record{taken("x1", 1, 1, 1, "x")}}); ok {
		t.Error("a backup without its parent can't be restored")
	}
}

func TestD07FormsOfTargets(t *testing.T) {
	for text, want := range map[string]string{
		"2026-11-27T12:00:00Z":          "2026-11-27 12:00:00.000000+00",
		"2026-11-27T12:00:00.123456Z":   "2026-11-27 12:00:00.123456+00",
		"2026-11-27T12:00:00+02:00":     "2026-11-27 10:00:00.000000+00",
		"2026-11-27 12:00:00+00":        "2026-11-27 12:00:00.000000+00",
		"2026-11-27 12:00:00.5-0330":    "2026-11-27 15:30:00.500000+00",
		"2026-11-27 12:00:00.25+05:30":  "2026-11-27 06:30:00.250000+00",
		"2026-11-27T12:00:00":           "",
		"2026-11-27 12:00:00":           "",
		"2026-11-27":                    "",
		"27.11.2026 12:00 Z":            "",
		"2026-11-27 12:00:00 UTC":       "",
		"2026-11-27 12:00:00 Europe/XX": "",
		"yesterday":                     "",
		"2026-02-30T12:00:00Z":          "",
	} {
		target, err := backup.ParseTarget(backup.TargetSpec{Time: text})
		if want == "" {
			if err == nil || !strings.Contains(err.Error(), "target.time") || !strings.Contains(err.Error(), "2026-11-27T12:00:00Z") {
				t.Errorf("%q: %v", text, err)
			}
			continue
		}
		if got := target.Parameters()["recovery_target_time"]; err != nil || got != want {
			t.Errorf("%q: %q, %v; want %q", text, got, err, want)
		}
	}
	for _, bad := range []backup.TargetSpec{{LSN: "12"}, {LSN: "0/0"}, {XID: "-1"}, {XID: "x"}, {Name: strings.Repeat("n", 64)}, {Name: "a\nb"},
		{Time: "0001-01-01T00:00:00Z"}, {Time: "0000-01-01T00:00:00Z"}, {Time: "2026-11-27T12:00:00Z", LSN: "0/1"}, {Immediate: true, Name: "x"}} {
		if _, err := backup.ParseTarget(bad); err == nil || !strings.Contains(err.Error(), "target") {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

// writeBackup writes the objects of a backup, the record last, by way of the
// store.
func (a *archive) writeBackup(id string, complete bool) {
	a.Helper()
	layout := a.Layout()
	must(a.T, a.store.Create(context.Background(), layout.Part(id, 1), strings.NewReader("x")))
	if complete {
		must(a.T, a.store.Create(context.Background(), layout.Record(id), strings.NewReader("{}")))
	}
}

func TestOneDamagedRecordHidesNoOther(t *testing.T) {
	a, _ := archived(t, append([]string{"000000010000000000000002.partial"}, segments[:2]...)...)
	must(t, a.store.Create(context.Background(), a.Layout().WALFolder()+"00000001/notes.txt", strings.NewReader("x")))
	a.writeBackup("20261128T110000Z-full-a", false)
	a.writeBackup("20261128T120000Z-full-b", true)
	c, err := a.ReadCatalog(context.Background())
	must(t, err)
	if len(c.Records) != 0 || !slices.Equal(c.Incomplete, []string{"20261128T110000Z-full-a"}) || len(c.Damaged) != 1 || len(c.WAL.Files) != 3 {
		t.Errorf("catalog %+v", c)
	}
	wants(t, "the damaged one", c.Damaged[0].Err, backup.ErrDamaged, "20261128T120000Z-full-b/backup.json")
}

// D-18: a store that lists a record and then does not find it leaves everything open: the
// backup is neither taken for one that has failed, nor its WAL for what nobody needs.
func TestD18ARecordThatIsListedAndNotFound(t *testing.T) {
	a, _ := archived(t, segments[:2]...)
	a.writeBackup("20261101T120000Z-full-a", true)
	a.store.set(func() {
		a.store.fail = func(call, key string) error {
			if call == "open" && strings.HasSuffix(key, "backup.json") {
				return backup.ErrNotFound
			}
			return nil
		}
	})
	_, err := a.ReadCatalog(context.Background())
	if err == nil || errors.Is(err, backup.ErrNotFound) || !strings.Contains(err.Error(), "20261101T120000Z-full-a") {
		t.Errorf("the catalog: %v", err)
	}
}

func TestRemovalTakesTheRecordFirstAndGoesOn(t *testing.T) {
	a, _ := archived(t, segments[:3]...)
	a.writeBackup("old", true)
	a.writeBackup("new", true)
	var names []backup.WALName
	for _, text := range segments[:2] {
		name, err := backup.ParseWALName(text)
		must(t, err)
		names = append(names, name)
	}
	removal := backup.Removal{Backups: []string{"old"}, WAL: names}
	broken := errors.New("the store broke")
	store := &failingDelete{Store: a.store, err: broken, after: 1}
	other := backup.NewRepository(store, "shop", shop)
	wants(t, "broken off", other.Remove(context.Background(), removal), broken, "old")
	if _, err := a.Record(context.Background(), "old"); !errors.Is(err, backup.ErrNotFound) {
		t.Errorf("the record is still there: %v", err)
	}
	if !a.has(segments[0]) {
		t.Error("the WAL went before the backup")
	}
	must(t, a.Remove(context.Background(), removal))
	left := []string{}
	must(t, a.store.List(context.Background(), "", func(o backup.Object) error {
		left = append(left, filepath.Base(o.Key))
		return nil
	}))
	slices.Sort(left)
	if want := []string{segments[2] + ".zst", "backup.json", "owner.json", "part-00001.tar.zst"}; !slices.Equal(left, want) {
		t.Errorf("left %v, want %v", left, want)
	}
	foreign := backup.NewRepository(a.store, "shop", backup.Owner{SystemID: "2", Major: 17})
	var owned *backup.OwnerError
	if err := foreign.Remove(context.Background(), removal); !errors.As(err, &owned) {
		t.Errorf("another's archive: %v", err)
	}
}

// failingDelete fails after a number of deletions.
type failingDelete struct {
	backup.Store
	err   error
	after int
}

func (f *failingDelete) Delete(ctx context.Context, key string) error {
	if f.after--; f.after < 0 {
		return f.err
	}
	return f.Store.Delete(ctx, key)
}

func TestPrunedArchiveStillRestores(t *testing.T) {
	s := newShop(t, 15, nil)
	for range 2 {
		s.write(2)
		s.take(s.options(s.primary))
	}
	want := s.write(2)
	s.switchWAL()
	catalog, err := s.repository.ReadCatalog(context.Background())
	must(t, err)
	removal := backup.Expire(catalog, backup.Retention{Keep: 1}, time.Now(), nil)
	if len(removal.Backups) != 1 || len(removal.WAL) == 0 {
		t.Fatalf("removal: %+v", removal)
	}
	must(t, s.repository.Remove(context.Background(), removal))
	after, err := s.repository.ReadCatalog(context.Background())
	must(t, err)
	if len(after.Records) != 1 || len(after.Incomplete) > 0 {
		t.Fatalf("left: %+v", after)
	}
	must(t, s.repository.CheckBackup(context.Background(), after.Records))
	if w, ok := backup.RestoreWindow(after); !ok || w.Gap != "" || w.Last.Before(w.First) {
		t.Errorf("window %+v", w)
	}
	server := s.restored(after.Records[0], backup.TargetSpec{})
	s.startPromoted(server)
	if got := rows(server); got != want {
		t.Errorf("rows %s, want %s", got, want)
	}
}
