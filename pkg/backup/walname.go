package backup

import (
	"fmt"
	"regexp"
	"strconv"

	"github.com/pgop/postgres-operator/pkg/postgres"
)

// WALKind says what a file is that the server archives.
type WALKind string

const (
	// Segment is a whole segment of WAL.
	Segment WALKind = "segment"
	// Partial is the last segment of a timeline that was left within it. No
	// recovery asks for it: the next timeline begins with a copy.
	Partial WALKind = "partial"
	// History is a timeline's history file.
	History WALKind = "history"
	// Label says from where to where a base backup of a primary went.
	Label WALKind = "label"
)

// WALName is the name of a file that the server archives.
type WALName struct {
	Text     string
	Kind     WALKind
	Timeline uint32
}

// walNames are the forms of names. Each begins with the timeline.
var walNames = []struct {
	kind WALKind
	form *regexp.Regexp
}{
	{Segment, regexp.MustCompile(`^[0-9A-F]{24}$`)},
	{Partial, regexp.MustCompile(`^[0-9A-F]{24}\.partial$`)},
	{History, regexp.MustCompile(`^[0-9A-F]{8}\.history$`)},
	{Label, regexp.MustCompile(`^[0-9A-F]{24}\.[0-9A-F]{8}\.backup$`)},
}

// ParseWALName reads the name of a file that the server archives.
func ParseWALName(text string) (WALName, error) {
	const digits = 8
	for _, known := range walNames {
		if !known.form.MatchString(text) {
			continue
		}
		timeline, err := strconv.ParseUint(text[:digits], 16, 32)
		if err != nil {
			return WALName{}, fmt.Errorf("parse name of WAL file %q: %w", text, err)
		}
		return WALName{Text: text, Kind: known.kind, Timeline: uint32(timeline)}, nil
	}
	return WALName{}, fmt.Errorf("%q is not the name of a WAL file", text)
}

// number is that of the segment that the file is, or is a part or the label of;
// false for a history file, which belongs to none.
func (n WALName) number(segmentSize uint64) (uint64, bool) {
	const digits = 24
	if len(n.Text) < digits {
		return 0, false
	}
	file, ok := postgres.ParseWALFile(n.Text[:digits], segmentSize)
	return file.Number(segmentSize), ok
}
