package backup

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

// Schedule is when something is to happen, again and again: by cron's five
// fields, in a time zone.
type Schedule struct {
	fields cron.Schedule
	zone   *time.Location
}

// fieldForm is what one field may hold.
var fieldForm = regexp.MustCompile(`^[0-9A-Za-z*/,-]+$`)

const howToWrite = `write minute, hour, day of month, month and day of week, such as "0 3 * * *" for every day at 3:00`

// ParseSchedule reads five fields, minute, hour, day of month, month and day of
// week, and the name of a time zone of the IANA database; empty: UTC. Nothing
// else is taken: not six fields, and no word such as @daily.
func ParseSchedule(fields, zone string) (Schedule, error) {
	words := strings.Fields(fields)
	if len(words) != 5 {
		return Schedule{}, fmt.Errorf("schedule %q has %d fields instead of five: %s", fields, len(words), howToWrite)
	}
	for _, word := range words {
		if !fieldForm.MatchString(word) {
			return Schedule{}, fmt.Errorf("schedule %q: %q is no field: %s", fields, word, howToWrite)
		}
	}
	parser := cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)
	parsed, err := parser.Parse(strings.Join(words, " "))
	if err != nil {
		return Schedule{}, fmt.Errorf("schedule %q: %w: %s", fields, err, howToWrite)
	}
	location, err := parseZone(zone)
	if err != nil {
		return Schedule{}, err
	}
	s := Schedule{fields: parsed, zone: location}
	if s.Next(time.Unix(0, 0)).IsZero() {
		return Schedule{}, fmt.Errorf("schedule %q never comes: there is no such day", fields)
	}
	return s, nil
}

// parseZone never takes the machine's own zone.
func parseZone(name string) (*time.Location, error) {
	if name == "" {
		return time.UTC, nil
	}
	location, err := time.LoadLocation(name)
	if err != nil || name == "Local" {
		return nil, fmt.Errorf("time zone %q is not known; write one like Europe/Berlin or Etc/UTC", name)
	}
	return location, nil
}

// Next is the first time of the schedule after a time. A time of day that
// clocks skip when they are put forward comes at that moment, and one that comes
// twice when they are put back comes once.
func (s Schedule) Next(after time.Time) time.Time {
	// The fields are about what clocks on the wall show, and in UTC those show
	// each time once.
	wall := asShown(after.In(s.zone))
	for {
		wall = s.fields.Next(wall)
		if wall.IsZero() {
			return time.Time{}
		}
		if at := s.at(wall); at.After(after) {
			return at
		}
	}
}

// asShown is the time in UTC at which clocks there show the same.
func asShown(t time.Time) time.Time {
	return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), time.UTC)
}

// at is when clocks in the zone first show the time; where they skip it, when
// they do.
func (s Schedule) at(wall time.Time) time.Time {
	t := time.Date(wall.Year(), wall.Month(), wall.Day(), wall.Hour(), wall.Minute(), wall.Second(), 0, s.zone)
	begin, end := t.ZoneBounds()
	switch shown := asShown(t); {
	case shown.Before(wall):
		// t is on one side of the change, and shows what the other side would.
		return end
	case shown.After(wall):
		return begin
	}
	if begin.IsZero() {
		return t
	}
	_, before := begin.Add(-time.Second).Zone()
	_, since := t.Zone()
	if earlier := t.Add(time.Duration(since-before) * time.Second); asShown(earlier).Equal(wall) {
		return earlier
	}
	return t
}
