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
