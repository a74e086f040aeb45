package postgres

import (
	"regexp"
	"strconv"
	"strings"
)

// memory is how the server takes an amount of memory: a number, and a unit.
// Units are case-sensitive, and those of Kubernetes are not among them.
var memory = regexp.MustCompile(`^[ \t]*(0[xX][0-9a-fA-F]+|[0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?|[0-9]+\.)[ \t]*(B|kB|MB|GB|TB)?[ \t]*$`)

// blockSize is what a parameter such as shared_buffers counts in by itself.
const blockSize = 8192

var memoryUnits = map[string]float64{"": blockSize, "B": 1, "kB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}

// ParseBlocks returns the bytes that the value of shared_buffers means; false
// if the server would not take it, as it says by itself.
func ParseBlocks(value string) (int64, bool) {
	parts := memory.FindStringSubmatch(value)
	if parts == nil {
		return 0, false
	}
	number, err := strconv.ParseFloat(parts[1], 64)
	if whole, notWhole := strconv.ParseInt(parts[1], 0, 64); notWhole == nil { // hexadecimal, or octal after a 0
		number, err = float64(whole), nil
	}
	bytes := number * memoryUnits[parts[2]]
	if err != nil || bytes > 1<<62 {
		return 0, false
	}
	return int64(bytes), true
}

// HugePages is what huge_pages asks for.
type HugePages int

const (
	// HugePagesTry takes them if there are enough, which is the server's default.
	HugePagesTry HugePages = iota
	// HugePagesOff takes none.
	HugePagesOff
	// HugePagesOn does not start without them.
	HugePagesOn
)

// ParseHugePages reads a value of huge_pages, one of the server's own words for
// on and off; whatever else counts as try.
func ParseHugePages(value string) HugePages {
	switch strings.ToLower(value) {
	case "on", "true", "yes", "1":
		return HugePagesOn
	case "off", "false", "no", "0":
		return HugePagesOff
	}
	return HugePagesTry
}
