package postgres

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRecoveryNeeds(t *testing.T) {
	const output = `pg_control version number:            1300
wal_level setting:                    replica
wal_log_hints setting:                off
max_connections setting:              200
max_worker_processes setting:         8
max_wal_senders setting:              10
max_prepared_xacts setting:           3
max_locks_per_xact setting:           64
track_commit_timestamp setting:       off
`
	want := map[string]int{"max_connections": 200, "max_worker_processes": 8, "max_wal_senders": 10,
		"max_prepared_transactions": 3, "max_locks_per_transaction": 64}
	got, err := ParseRecoveryNeeds(output)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Error(err, diff)
	}
	for _, bad := range []string{"", "max_connections setting: many\n", "max_connections setting: 1\n"} {
		if _, err := ParseRecoveryNeeds(bad); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}
