package backup

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/pgop/postgres-operator/pkg/postgres"
)

// TargetSpec is where a recovery is to end, as a user says it: at most one of
// its fields. None: at the end of the archive.
type TargetSpec struct {
	Time, LSN, XID, Name string
	Immediate            bool
}

// Target is where a recovery is to end.
type Target struct {
	// at is the zero time unless the target is a time.
	at        time.Time
	lsn       postgres.LSN
	xid, name string
	immediate bool
}

// ParseTarget reads a target. Its errors name the field and say what it takes.
func ParseTarget(spec TargetSpec) (Target, error) {
	var set []string
	var target Target
	var problems []error
	take := func(field string, isSet bool, read func() error) {
		if isSet {
			set = append(set, field)
			problems = append(problems, read())
		}
	}
	take("time", spec.Time != "", func() (err error) { target.at, err = parseTargetTime(spec.Time); return err })
	take("lsn", spec.LSN != "", func() (err error) { target.lsn, err = parseTargetLSN(spec.LSN); return err })
	take("xid", spec.XID != "", func() (err error) { target.xid, err = parseXID(spec.XID); return err })
	take("name", spec.Name != "", func() (err error) { target.name, err = parseName(spec.Name); return err })
	take("immediate", spec.Immediate, func() error { target.immediate = true; return nil })
	if len(set) > 1 {
		return Target{}, fmt.Errorf("target: %s are set, and a target is one of them", strings.Join(set, " and "))
	}
	if err := errors.Join(problems...); err != nil {
		return Target{}, fmt.Errorf("target.%s: %w", set[0], err)
	}
	return target, nil
}

// timeForms are what ParseTime takes: RFC 3339, and how PostgreSQL writes times
// in its output. All have an offset from UTC; fractions of a second may follow
// the seconds in each.
var timeForms = []string{
	"2006-01-02T15:04:05Z07:00",
	"2006-01-02T15:04:05Z0700",
	"2006-01-02T15:04:05-07",
	"2006-01-02 15:04:05Z07:00",
	"2006-01-02 15:04:05Z0700",
	"2006-01-02 15:04:05-07",
}

// ParseTime reads a time that says its offset from UTC. Times without one are
// refused: nobody could tell whose zone they are in.
func ParseTime(text string) (time.Time, error) {
	for _, form := range timeForms {
		if at, err := time.Parse(form, text); err == nil {
			return at.UTC(), nil
		}
	}
	return time.Time{}, fmt.Errorf("%q is no time with an offset from UTC; write it like 2026-11-27T12:00:00Z or 2026-11-27 12:00:00+02", text)
}

// parseTargetTime refuses times before 1970, too: what has forgotten to set a time may
// write the first moment of the calendar, and must not get all that there is instead.
func parseTargetTime(text string) (time.Time, error) {
	at, err := ParseTime(text)
	if err == nil && at.Before(time.Unix(0, 0)) {
		return time.Time{}, fmt.Errorf("%q is long before there was any backup", text)
	}
	return at, err
}

func parseTargetLSN(text string) (postgres.LSN, error) {
	lsn, err := postgres.ParseLSN(text)
	if err != nil || lsn == 0 {
		return 0, fmt.Errorf("%q is no position in the WAL; write it like 0/3000148", text)
	}
	return lsn, nil
}

func parseXID(text string) (string, error) {
	if xid, err := strconv.ParseUint(text, 10, 64); err != nil || xid == 0 {
		return "", fmt.Errorf("%q is no transaction id; write a whole number", text)
	}
	return text, nil
}

func parseName(text string) (string, error) {
	const longest = 63 // the server's MAXFNAMELEN, less the zero at its end
	if len(text) > longest || strings.ContainsAny(text, "\x00\n\r") {
		return "", fmt.Errorf("%q is no name of a restore point: it has more than %d bytes, or a line break", text, longest)
	}
	return text, nil
}

// String is the target in words.
func (t Target) String() string {
	switch {
	case !t.at.IsZero():
		return "time " + t.at.Format(time.RFC3339Nano)
	case t.lsn != 0:
		return "lsn " + t.lsn.String()
	case t.xid != "":
		return "xid " + t.xid
	case t.name != "":
		return "name " + t.name
	case t.immediate:
		return "immediate"
	}
	return "the end of the archive"
}

// IsEnd says whether the target is the end of the archive, whatever that is.
func (t Target) IsEnd() bool { return t == Target{} }

// Parameters are the server's parameters for the target. Where it is reached,
// the server is opened.
func (t Target) Parameters() map[string]string {
	parameters := map[string]string{"recovery_target_timeline": "latest", "recovery_target_action": "promote"}
	switch {
	case !t.at.IsZero():
		parameters["recovery_target_time"] = t.at.Format("2006-01-02 15:04:05.000000+00")
	case t.lsn != 0:
		parameters["recovery_target_lsn"] = t.lsn.String()
	case t.xid != "":
		parameters["recovery_target_xid"] = t.xid
	case t.name != "":
		parameters["recovery_target_name"] = t.name
	case t.immediate:
		parameters["recovery_target"] = "immediate"
	}
	return parameters
}

// allows says whether a backup was complete by the target, as far as that can
// be told.
func (t Target) allows(r Record) bool {
	switch {
	case !t.at.IsZero():
		return !r.StoppedAt.After(t.at)
	case t.lsn != 0:
		return r.StopLSN() <= t.lsn
	}
	return true
}

// needsChoice says that nothing tells which backups come before the target.
func (t Target) needsChoice() bool { return t.xid != "" || t.name != "" }
