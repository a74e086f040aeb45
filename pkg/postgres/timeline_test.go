package postgres

import "testing"

func TestHistory(t *testing.T) {
	got, err := ParseHistory("1\t0/3000148\tno recovery target specified\n\n# comment\n2\t1/A0\tbefore 2026\n")
	if err != nil || len(got) != 2 || got[0] != (Switch{1, 0x3000148}) || got[1] != (Switch{2, 1<<32 + 0xA0}) {
		t.Errorf("got %v, %v", got, err)
	}
	for _, bad := range []string{"1\n", "x 0/1\n", "1 0-1\n"} {
		if _, err := ParseHistory(bad); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}

// It goes by where a timeline was left, never by its number alone.
func TestDiverges(t *testing.T) {
	history := []Switch{{1, 100}, {3, 200}}
	cases := []struct {
		timeline uint32
		position LSN
		want     bool
	}{
		{4, 1 << 40, false}, {1, 100, false}, {1, 101, true}, {3, 200, false}, {3, 201, true},
		{2, 10, true}, // lower than the current one, and no part of its past
		{5, 10, true},
	}
	for _, c := range cases {
		if got, why := Diverges(c.timeline, c.position, 4, history); got != c.want || got && why == "" {
			t.Errorf("timeline %d at %s: %v (%s)", c.timeline, c.position, got, why)
		}
	}
}

func TestTimelineAt(t *testing.T) {
	const size = 16 << 20
	files := []string{"000000010000000000000003", "000000020000000000000003", "000000020000000000000004", "00000002.history", "archive_status"}
	cases := []struct {
		position LSN
		want     uint32
	}{{3*size + 1, 2}, {4 * size, 2}, {4*size + 1, 2}, {5*size + 1, 0}, {0, 0}}
	for _, c := range cases {
		if got := TimelineAt(files, c.position, size); got != c.want {
			t.Errorf("at %s: %d, want %d", c.position, got, c.want)
		}
	}
	if got := OldestWAL(files, size); got != 3*size {
		t.Errorf("oldest: %s", got)
	}
	if got, ok := ParseWALFile("00000001000000020000000A", size); !ok || got.Start != LSN(2<<32+10*size) {
		t.Errorf("got %v, %v", got, ok)
	}
}

func TestSyncNames(t *testing.T) {
	if got := RenderSync(0, []string{"a"}); got != "" {
		t.Error(got)
	}
	if got := RenderSync(1, []string{"shop-2.ab", `x"y`}); got != `ANY 1 ("shop-2.ab", "x""y")` {
		t.Error(got)
	}
	if got := RenderSync(2, nil); got != `ANY 2 ("pgop-nobody")` {
		t.Error(got)
	}
	if instance, id := ParseStandbyName(StandbyName("shop-2", "ab")); instance != "shop-2" || id != "ab" {
		t.Error(instance, id)
	}
	if instance, id := ParseStandbyName("walreceiver"); instance != "walreceiver" || id != "" {
		t.Error(instance, id)
	}
}
