package postgres

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseControlData(t *testing.T) {
	got, err := ParseControlData(`pg_control version number:            1300
Catalog version number:               202209061
Database system identifier:           7432109876543210987
Bytes per WAL segment:                16777216
Database cluster state:               shut down in recovery
pg_control last modified:             Mon 01 Jan 2024 10:00:00 AM UTC
Latest checkpoint location:           0/3000060
Latest checkpoint's TimeLineID:       2
Minimum recovery ending location:     1/A0
Min recovery ending loc's timeline:   2
max_connections setting:              100
max_worker_processes setting:         8
max_wal_senders setting:              10
max_prepared_xacts setting:           0
max_locks_per_xact setting:           64
Data page checksum version:           1
`)
	if err != nil {
		t.Fatal(err)
	}
	want := ControlData{SystemID: "7432109876543210987", State: "shut down in recovery",
		Timeline: 2, CheckpointLSN: 0x3000060, MinRecoveryLSN: 0x1000000A0, MinRecoveryTimeline: 2, Checksums: true, SegmentSize: 16 << 20,
		Demands: map[string]int64{"max_connections": 100, "max_locks_per_transaction": 64, "max_prepared_transactions": 0,
			"max_wal_senders": 10, "max_worker_processes": 8}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if _, err := ParseControlData("pg_controldata: could not open file"); err == nil {
		t.Error("a text without control data is no error")
	}
}
