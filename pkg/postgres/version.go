package postgres

import (
	"fmt"
	"strconv"
	"strings"
)

// Version is a server version.
type Version struct {
	Major int
	// Text is what the server calls itself, such as 17.12 or 18beta1.
	Text string
}

// ParseVersion reads what `postgres --version` prints and what the server
// reports as server_version: both may carry the packager's remarks.
func ParseVersion(text string) (Version, error) {
	text = strings.TrimPrefix(strings.TrimSpace(text), "postgres (PostgreSQL) ")
	word, _, _ := strings.Cut(text, " ")
	digits := word
	if end := strings.IndexFunc(word, func(r rune) bool { return r < '0' || r > '9' }); end >= 0 {
		digits = word[:end]
	}
	major, err := strconv.Atoi(digits)
	if err != nil {
		return Version{}, fmt.Errorf("parse server version %q: no major version", text)
	}
	return Version{Major: major, Text: word}, nil
}

// String is the version as the server writes it.
func (v Version) String() string { return v.Text }
