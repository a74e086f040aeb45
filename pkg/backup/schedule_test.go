package backup_test

import (
	"strings"
	"testing"
	"time"

	"github.com/pgop/postgres-operator/pkg/backup"
)

func TestD05FiveFieldsAndNothingElse(t *testing.T) {
	for fields, want := range map[string]string{
		"0 3 * * *":         "",
		"0 1 * * 0":         "",
		"  0  1 * * sun ":   "",
		"*/5 * * * *":       "",
		"0,30 9-17 * * 1-5": "",
		"0 3 29 2 *":        "",
		"@daily":            "instead of five",
		"@every 1h":         "instead of five",
		"0 0 3 * * *":       "has 6 fields",
		"*/5":               "has 1 fields",
		"":                  "has 0 fields",
		"60 * * * *":        "above maximum",
		"0 24 * * *":        "above maximum",
		"TZ=UTC 3 * * *":    "is no field",
		"? 3 * * *":         "is no field",
		"0 3 30 2 *":        "never comes",
		"*/0 * * * *":       "should be a positive number",
		"a b c d e":         "failed to parse",
	} {
		_, err := backup.ParseSchedule(fields, "Etc/UTC")
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", fields, err, want)
		}
	}
}

// "Daily" must never become hourly.
func TestD05DailyIsDaily(t *testing.T) {
	s, err := backup.ParseSchedule("0 3 * * *", "")
	must(t, err)
	at := time.Date(2026, 11, 28, 3, 0, 0, 0, time.UTC)
	for day := range 3 {
		next := s.Next(at)
		if want := time.Date(2026, 11, 29+day, 3, 0, 0, 0, time.UTC); !next.Equal(want) {
			t.Errorf("after %s comes %s, want %s", at, next, want)
		}
		at = next
	}
}

func TestD06TheZoneIsTheSchedulesOwn(t *testing.T) {
	t.Setenv("TZ", "Asia/Tokyo")
	after := time.Date(2026, 7, 1, 12, 0, 0, 0, time.FixedZone("somewhere", -7*3600))
	for zone, want := range map[string]string{
		"": "2026-07-02T03:00:00Z", "Etc/UTC": "2026-07-02T03:00:00Z", "Europe/Berlin": "2026-07-02T01:00:00Z",
		"America/New_York": "2026-07-02T07:00:00Z",
	} {
		s, err := backup.ParseSchedule("0 3 * * *", zone)
		must(t, err)
		if got := s.Next(after).UTC().Format(time.RFC3339); got != want {
			t.Errorf("in %q: %s, want %s", zone, got, want)
		}
	}
	for _, zone := range []string{"Local", "Berlin", "+02:00", "CEST"} {
		if _, err := backup.ParseSchedule("0 3 * * *", zone); err == nil || !strings.Contains(err.Error(), zone) {
			t.Errorf("zone %q: %v", zone, err)
		}
	}
}

func TestD06WhenClocksAreChanged(t *testing.T) {
	cases := []struct {
		why, fields, zone, after string
		want                     []string
	}{
		{"put forward from 2:00 to 3:00: a skipped time comes at that moment, once", "30 2 * * *", "Europe/Berlin", "2027-03-27T12:00:00Z",
			[]string{"2027-03-28T01:00:00Z", "2027-03-29T00:30:00Z"}},
		{"put forward: times around stay what they are", "30 1,3 * * *", "Europe/Berlin", "2027-03-27T12:00:00Z",
			[]string{"2027-03-28T00:30:00Z", "2027-03-28T01:30:00Z"}},
		{"put back from 3:00 to 2:00: a time that comes twice comes once", "30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z",
			[]string{"2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"}},
		{"put back: the day has 25 hours", "0 3 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z",
			[]string{"2026-10-25T02:00:00Z", "2026-10-26T02:00:00Z"}},
		{"on the other half of the earth", "30 2 * * *", "Australia/Sydney", "2026-10-03T12:00:00Z",
			[]string{"2026-10-03T16:00:00Z", "2026-10-04T15:30:00Z"}},
		{"by half an hour", "15 2 * * *", "Australia/Lord_Howe", "2026-10-03T12:00:00Z",
			[]string{"2026-10-03T15:30:00Z", "2026-10-04T15:15:00Z"}},
	}
	for _, c := range cases {
		s, err := backup.ParseSchedule(c.fields, c.zone)
		must(t, err)
		at, err := time.Parse(time.RFC3339, c.after)
		must(t, err)
		for _, want := range c.want {
			at = s.Next(at)
			if got := at.UTC().Format(time.RFC3339); got != want {
				t.Errorf("%s: %s, want %s", c.why, got, want)
			}
		}
	}
}

// Whatever the zone does, time goes on, and at most a day passes.
func TestD06NextIsAlwaysLaterAndSoon(t *testing.T) {
	for _, zone := range []string{"Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe", "America/Sao_Paulo", "Africa/Casablanca"} {
		for _, fields := range []string{"*/20 * * * *", "30 2 * * *", "0 0 * * *"} {
			s, err := backup.ParseSchedule(fields, zone)
			must(t, err)
			at := time.Date(2018, 1, 1, 0, 0, 0, 0, time.UTC)
			for at.Year() < 2019 {
				next := s.Next(at)
				if !next.After(at) || next.Sub(at) > 25*time.Hour {
					t.Fatalf("%q in %s: after %s comes %s", fields, zone, at, next)
				}
				at = next
			}
		}
	}
}
