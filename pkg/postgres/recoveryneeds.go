package postgres

import (
	"fmt"
	"strconv"
	"strings"
)

// recoveryNeeds are the parameters that a recovering server must have at least
// as high as the one that wrote the WAL, by their names in the control file.
var recoveryNeeds = map[string]string{
	"max_connections setting":      "max_connections",
	"max_worker_processes setting": "max_worker_processes",
	"max_wal_senders setting":      "max_wal_senders",
	"max_prepared_xacts setting":   "max_prepared_transactions",
	"max_locks_per_xact setting":   "max_locks_per_transaction",
}

// ParseRecoveryNeeds reads, from what pg_controldata prints in the locale C, the
// parameters that a server needs to recover the data, with the least values
// that will do. A server with less refuses to start, or stops later.
func ParseRecoveryNeeds(output string) (map[string]int, error) {
	needs := map[string]int{}
	for line := range strings.Lines(output) {
		key, value, _ := strings.Cut(line, ":")
		parameter, known := recoveryNeeds[key]
		if !known {
			continue
		}
		number, err := strconv.Atoi(strings.TrimSpace(value))
		if err != nil {
			return nil, fmt.Errorf("parse control data: %s: %w", key, err)
		}
		needs[parameter] = number
	}
	if len(needs) != len(recoveryNeeds) {
		return nil, fmt.Errorf("parse control data: it names only %d of the %d parameters that recovery needs", len(needs), len(recoveryNeeds))
	}
	return needs, nil
}
