package postgres

import (
	"fmt"
	"strconv"
	"strings"
)

// ControlData is what the control file of a data directory says.
type ControlData struct {
	SystemID string
	// State of the cluster in the server's words, such as "in production" or
	// "shut down in recovery".
	State         string
	Timeline      uint32
	CheckpointLSN LSN
	// MinRecoveryLSN is up to where a standby must replay before its data is
	// consistent, on MinRecoveryTimeline; both are 0 where it need not.
	MinRecoveryLSN      LSN
	MinRecoveryTimeline uint32
	Checksums           bool
	// SegmentSize is that of WAL files, in bytes.
	SegmentSize uint64
	// Demands are the values of StandbyParameters that the primary of this data
	// ran with, as far as WAL was replayed: a standby starts with no less.
	Demands map[string]int64
}

// StandbyParameters are those of which a standby needs at least as much as its
// primary has, sorted. That is a rule of replication itself: the server writes
// them to WAL and into the control file.
var StandbyParameters = []string{
	"max_connections",
	"max_locks_per_transaction",
	"max_prepared_transactions",
	"max_wal_senders",
	"max_worker_processes",
}

// demandLabels are what pg_controldata calls StandbyParameters.
var demandLabels = map[string]string{
	"max_connections":           "max_connections setting",
	"max_locks_per_transaction": "max_locks_per_xact setting",
	"max_prepared_transactions": "max_prepared_xacts setting",
	"max_wal_senders":           "max_wal_senders setting",
	"max_worker_processes":      "max_worker_processes setting",
}

// ParseControlData reads what pg_controldata prints in the locale C.
func ParseControlData(output string) (ControlData, error) {
	values := map[string]string{}
	for line := range strings.Lines(output) {
		key, value, ok := strings.Cut(line, ":")
		if ok {
			values[key] = strings.TrimSpace(value)
		}
	}
	c := ControlData{
		SystemID:  values["Database system identifier"],
		State:     values["Database cluster state"],
		Checksums: values["Data page checksum version"] != "0",
	}
	if _, err := strconv.ParseUint(c.SystemID, 10, 64); err != nil {
		return ControlData{}, fmt.Errorf("parse control data: system identifier %q: %w", c.SystemID, err)
	}
	segment, err := strconv.ParseUint(values["Bytes per WAL segment"], 10, 32)
	if err != nil {
		return ControlData{}, fmt.Errorf("parse control data: size of WAL segments: %w", err)
	}
	c.SegmentSize = segment
	c.Demands = map[string]int64{}
	for _, name := range StandbyParameters {
		demand, err := strconv.ParseInt(values[demandLabels[name]], 10, 64)
		if err != nil {
			return ControlData{}, fmt.Errorf("parse control data: %s: %w", name, err)
		}
		c.Demands[name] = demand
	}
	timeline, err := strconv.ParseUint(values["Latest checkpoint's TimeLineID"], 10, 32)
	if err != nil {
		return ControlData{}, fmt.Errorf("parse control data: timeline: %w", err)
	}
	c.Timeline = uint32(timeline)
	if c.CheckpointLSN, err = ParseLSN(values["Latest checkpoint location"]); err != nil {
		return ControlData{}, fmt.Errorf("parse control data: latest checkpoint: %w", err)
	}
	if c.MinRecoveryLSN, err = ParseLSN(values["Minimum recovery ending location"]); err != nil {
		return ControlData{}, fmt.Errorf("parse control data: minimum recovery: %w", err)
	}
	if timeline, err = strconv.ParseUint(values["Min recovery ending loc's timeline"], 10, 32); err != nil {
		return ControlData{}, fmt.Errorf("parse control data: timeline of the minimum recovery: %w", err)
	}
	c.MinRecoveryTimeline = uint32(timeline)
	return c, nil
}
