package backup

import (
	"maps"
	"strconv"
	"strings"
	"time"
)

// RecoveryParameters are the server's parameters for a recovery to a target:
// those of its configuration, with what the recovery needs beside them. Needs
// are the least values that the control file asks for, whatever the
// configuration says: a server with less stops.
//
// restoreCommand must end with status 1 only where FetchWAL returns ErrNotFound,
// and with one above 125 for every other error: else the server would take a
// store that is away for the end of the archive.
func RecoveryParameters(configured map[string]string, needs map[string]int, target Target, restoreCommand string) map[string]string {
	parameters := maps.Clone(configured)
	if parameters == nil {
		parameters = map[string]string{}
	}
	for name, least := range needs {
		if value, err := strconv.Atoi(strings.TrimSpace(parameters[name])); err != nil || value < least {
			parameters[name] = strconv.Itoa(least)
		}
	}
	maps.Copy(parameters, target.Parameters())
	parameters["restore_command"] = restoreCommand
	return parameters
}

// RecoveryEnd is how a recovery ended, as far as the server's log tells.
type RecoveryEnd struct {
	// Missed: the archive ended before the target.
	Missed bool
	// LastCommit is the time of the last transaction that was replayed; zero: the
	// log names none.
	LastCommit time.Time
}

// ParseRecoveryEnd reads the end of a server's log in English, with the
// server's timezone UTC or another: the server tells nowhere else.
func ParseRecoveryEnd(log string) RecoveryEnd {
	const missed, last = "recovery ended before configured recovery target was reached", "last completed transaction was at log time "
	var end RecoveryEnd
	for line := range strings.Lines(log) {
		if strings.Contains(line, missed) {
			end.Missed = true
		}
		if _, text, found := strings.Cut(line, last); found {
			if at, err := ParseTime(strings.TrimSpace(text)); err == nil {
				end.LastCommit = at
			}
		}
	}
	return end
}
