package postgres

import (
	"fmt"
	"strconv"
	"strings"
)

// LSN is a position in the WAL.
type LSN uint64

// ParseLSN reads the form X/Y in which the server writes positions.
func ParseLSN(text string) (LSN, error) {
	high, low, ok := strings.Cut(text, "/")
	if !ok {
		return 0, fmt.Errorf("parse LSN %q: no slash", text)
	}
	h, err := strconv.ParseUint(high, 16, 32)
	if err != nil {
		return 0, fmt.Errorf("parse LSN %q: %w", text, err)
	}
	l, err := strconv.ParseUint(low, 16, 32)
	if err != nil {
		return 0, fmt.Errorf("parse LSN %q: %w", text, err)
	}
	return LSN(h<<32 | l), nil
}

// String is the form X/Y.
func (l LSN) String() string {
	return fmt.Sprintf("%X/%X", uint64(l)>>32, uint32(l))
}
