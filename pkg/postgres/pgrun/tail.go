package pgrun

import (
	"regexp"
	"slices"
	"strings"
	"sync"
)

// Tail is a writer that keeps the end of what is written to it.
type Tail struct {
	// Size is how many bytes it keeps, at least.
	Size int

	mu   sync.Mutex
	text []byte
}

// Write never fails.
func (t *Tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	// Cut at twice the size, so that most writes copy nothing.
	if len(t.text) > 2*t.Size {
		t.text = append(t.text[:0], t.text[len(t.text)-t.Size:]...)
	}
	return len(p), nil
}

// String is the text kept.
func (t *Tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text)
}

// logPrefix is what the server writes before each line of its log.
var logPrefix = regexp.MustCompile(`^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)? \S+ \[\d+\] `)

// progress are the beginnings of lines that explain nothing.
var progress = []string{
	"pg_basebackup: removing ", "initdb: removing ", "LOG:  skipping missing configuration file",
}

// Words is the text kept in one line, for messages: without the times and
// numbers of a log, so that the same failure reads the same, and without lines
// that only tell of progress.
func (t *Tail) Words() string {
	var words []string
	for line := range strings.Lines(t.String()) {
		line = logPrefix.ReplaceAllString(strings.TrimSpace(line), "")
		if line == "" || slices.ContainsFunc(progress, func(p string) bool { return strings.HasPrefix(line, p) }) {
			continue
		}
		words = append(words, strings.ToValidUTF8(line, "?"))
	}
	return strings.Join(words, "; ")
}
