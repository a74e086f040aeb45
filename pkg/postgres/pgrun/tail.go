package pgrun

import (
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

// Words is the text kept in one line, for messages: lines that only tell of
// progress are left out.
func (t *Tail) Words() string {
	var words []string
	for line := range strings.Lines(t.String()) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "pg_basebackup: removing ") && !strings.HasPrefix(line, "initdb: removing ") {
			words = append(words, strings.ToValidUTF8(line, "?"))
		}
	}
	return strings.Join(words, "; ")
}
