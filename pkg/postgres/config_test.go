package postgres

import (
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseInteger(t *testing.T) {
	for text, want := range map[string]int64{"100": 100, " 100 ": 100, "0x64": 100, "0144": 100, "99.6": 100, "1e2": 100, "-1": -1} {
		if got, err := ParseInteger(text); err != nil || got != want {
			t.Errorf("%q: got %d, %v, want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "many", "100MB", "1 0"} {
		if got, err := ParseInteger(text); err == nil {
			t.Errorf("%q is taken for %d", text, got)
		}
	}
}

// What ALTER SYSTEM has set to less than a standby needs goes; all else stays.
func TestDropBelow(t *testing.T) {
	got := DropBelow("# a comment\nmax_connections = '50'\nMax_Wal_Senders = '40'\nwork_mem = '1'\nmax_worker_processes = 'x'\n",
		map[string]int64{"max_connections": 100, "max_wal_senders": 10, "max_worker_processes": 8})
	if want := "# a comment\nMax_Wal_Senders = '40'\nwork_mem = '1'\nmax_worker_processes = 'x'\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestCheckParameter(t *testing.T) {
	cases := []struct {
		why, name, value string
		// want is a part of the error; empty: accepted.
		want string
	}{
		{"an ordinary parameter", "work_mem", "64MB", ""},
		{"an extension's parameter", "auto_explain.log_min_duration", "1s", ""},
		{"any text as value", "application_name", `it's a "\ value`, ""},
		{"logical decoding", "wal_level", "logical", ""},
		{"the server's words in another case", "wal_level", "Logical", ""},
		{"A-27: minimal WAL stops replicas", "wal_level", "minimal", "wal_level"},
		{"owned", "listen_addresses", "*", "spec.postgres.hba"},
		{"owned in other case", "Restore_Command", "x", "Restore_Command is set by the operator"},
		{"owned by pattern", "recovery_target_time", "x", "recovery_target_time"},
		{"owned file", "ssl_cert_file", "x", "ssl_cert_file"},
		{"an include is not a parameter", "include_dir", "/tmp", "include_dir"},
		{"ciphers are the user's", "ssl_ciphers", "HIGH", ""},
		{"no name", "", "1", "not the name"},
		{"a name that would end its line", "a\nport", "1", "not the name"},
		{"a name with a blank", "work mem", "1", "not the name"},
		{"A-04: a sign of equality in the name", "log_disconnections=", "off", "not the name"},
		{"A-04: a dash in the name", "work-mem", "1", "not the name"},
		{"A-04: a digit at the beginning", "1work_mem", "1", "not the name"},
		{"A-04: a dot at the end", "auto_explain.", "1", "not the name"},
		{"two identifiers of full length", strings.Repeat("a", 63) + "." + strings.Repeat("b", 63), "1", ""},
		{"a name that is too long", strings.Repeat("a", 64) + "." + strings.Repeat("b", 63), "1", "not the name"},
		{"enough senders", "max_wal_senders", "12", ""},
		{"too few senders", "max_wal_senders", "0", "at least 10"},
		{"senders in words", "max_wal_senders", "many", "not a whole number"},
		{"zero byte", "application_name", "a\x00b", "zero byte"},
	}
	for _, c := range cases {
		err := CheckParameter(c.name, c.value)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got %v, want an error with %q", c.why, err, c.want)
		}
	}
}

func TestOwnedIsSortedAndReadable(t *testing.T) {
	if !slices.IsSorted(Owned) {
		t.Error("Owned is not sorted")
	}
	for _, pattern := range Owned {
		if _, err := path.Match(pattern, "x"); err != nil {
			t.Errorf("pattern %q: %v", pattern, err)
		}
	}
}

func TestDefaultsAreAllowed(t *testing.T) {
	for name, value := range Defaults(256 << 20) {
		if err := CheckParameter(name, value); err != nil {
			t.Error(err)
		}
	}
}

func TestRenderConf(t *testing.T) {
	got := RenderConf(Merge(
		map[string]string{"work_mem": "4MB", "jit": "on"},
		map[string]string{"Work_Mem": "64MB", "a.b": "it's\na \\ \"line\""}))
	want := `# Written by the operator from spec.postgres.parameters; changes made here are lost.
a.b = 'it''s\na \\ "line"'
jit = 'on'
work_mem = '64MB'
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
