package postgres

import (
	"fmt"
	"maps"
	"math"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Owned are the parameters that the operator sets itself and that a user can't
// set, as patterns of path.Match, sorted.
var Owned = []string{
	"allow_alter_system",
	"archive_cleanup_command",
	"archive_command",
	"archive_library",
	"archive_mode",
	"cluster_name",
	"config_file",
	"data_directory",
	"external_pid_file",
	"hba_file",
	"hot_standby",
	"ident_file",
	"include",
	"include_dir",
	"include_if_exists",
	"listen_addresses",
	"log_destination",
	"logging_collector",
	"port",
	"primary_conninfo",
	"primary_slot_name",
	"promote_trigger_file",
	"recovery_end_command",
	"recovery_target*",
	"restart_after_crash",
	"restore_command",
	"ssl",
	"ssl_*_file",
	"ssl_crl_dir",
	"ssl_passphrase_command*",
	"synchronous_standby_names",
	"unix_socket_directories",
	"unix_socket_group",
	"unix_socket_permissions",
}

// WayOut says what to do instead of setting an owned parameter, or a pattern of
// them.
func WayOut(owned string) string {
	if way := wayOut[owned]; way != "" {
		return way
	}
	return "remove it"
}

var wayOut = map[string]string{
	"port":             "the server listens on 5432; choose another port in a Service of your own",
	"listen_addresses": "restrict who may connect by spec.postgres.hba or a NetworkPolicy",
	"hba_file":         "write rules into spec.postgres.hba",
	"ident_file":       "write maps into spec.postgres.ident",
	"hot_standby":      "replicas always answer queries",
	"log_destination":  "the log is that of the container; read it with kubectl logs",
}

// maxParameterName is room for two identifiers, an extension's and its
// parameter's, and the dot between them.
const maxParameterName = 127

// parameterName is what the server takes as a parameter's name: one word, or
// for extensions more, joined by dots.
var parameterName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_$]*(\.[A-Za-z_][A-Za-z0-9_$]*)*$`)

// Least are parameters that replication and the agent need, with the
// least that they get along with.
var Least = map[string]int{
	"max_wal_senders":                10,
	"max_replication_slots":          10,
	"superuser_reserved_connections": 1,
}

// CheckParameter says why a user can't set the parameter to value, and what to
// do instead. It knows what the operator owns and what the file's syntax can
// hold; what the server thinks of the value, the server says.
func CheckParameter(name, value string) error {
	if len(name) > maxParameterName || !parameterName.MatchString(name) {
		return fmt.Errorf("%q is not the name of a parameter; use letters, digits and '_', as in work_mem or auto_explain.log_min_duration", name)
	}
	if strings.ContainsRune(value, 0) {
		return fmt.Errorf("%s: the value holds a zero byte; remove it", name)
	}
	lower := strings.ToLower(name)
	if isOwned(lower) {
		return fmt.Errorf("%s is set by the operator; %s", name, WayOut(lower))
	}
	// The server takes its own words in any case.
	if level := strings.ToLower(value); lower == "wal_level" && level != "replica" && level != "logical" {
		return fmt.Errorf("%s: replicas need replica or logical; set one of these or remove it", name)
	}
	if least, ok := Least[lower]; ok {
		return checkLeast(name, value, least)
	}
	return nil
}

func checkLeast(name, value string, least int) error {
	n, err := strconv.ParseInt(strings.TrimSpace(value), 0, 32)
	if err != nil {
		return fmt.Errorf("%s: %q is not a whole number; set at least %d or remove it", name, value, least)
	}
	if n < int64(least) {
		return fmt.Errorf("%s: the operator needs at least %d; raise it or remove it", name, least)
	}
	return nil
}

func isOwned(name string) bool {
	return slices.ContainsFunc(Owned, func(pattern string) bool {
		matched, err := path.Match(pattern, name)
		return err == nil && matched // the patterns are constants, and a test tries them all
	})
}

// Defaults are the parameters that the operator sets unless the user does, for
// a data volume of that many bytes: WAL must never fill a small one. A volume for
// WAL alone counts as one of twice its size.
func Defaults(volume int64) map[string]string {
	const mb = 1 << 20
	maxWAL := min(max(volume/8/mb, 64), 1024)
	return map[string]string{
		"wal_level":                   "replica",
		"wal_log_hints":               "on",
		"max_wal_senders":             "40",
		"max_replication_slots":       "40",
		"max_wal_size":                fmt.Sprintf("%dMB", maxWAL),
		"min_wal_size":                fmt.Sprintf("%dMB", min(80, maxWAL)),
		"max_slot_wal_keep_size":      fmt.Sprintf("%dMB", max(volume/4/mb, 64)),
		"password_encryption":         "scram-sha-256",
		"wal_receiver_timeout":        "5s",
		"wal_sender_timeout":          "10s",
		"wal_retrieve_retry_interval": "500ms",
		"log_line_prefix":             "%m [%p] %q%u@%d ",
		"log_checkpoints":             "on",
		"log_timezone":                "UTC",
		"timezone":                    "UTC",
	}
}

// Merge returns the parameters of under and over; where both name one, over
// wins. The server takes names in any case, so they are written in lower case:
// else two spellings of one name would be two lines, the last of which counts.
func Merge(under, over map[string]string) map[string]string {
	merged := make(map[string]string, len(under)+len(over))
	for _, layer := range []map[string]string{under, over} {
		for _, name := range slices.Sorted(maps.Keys(layer)) {
			merged[strings.ToLower(name)] = layer[name]
		}
	}
	return merged
}

// RenderConf writes postgresql.conf: a line for each parameter, sorted. The
// same parameters always give the same text.
func RenderConf(parameters map[string]string) string {
	var b strings.Builder
	b.WriteString("# Written by the operator from spec.postgres.parameters; changes made here are lost.\n")
	for _, name := range slices.Sorted(maps.Keys(parameters)) {
		fmt.Fprintf(&b, "%s = %s\n", name, QuoteConf(parameters[name]))
	}
	return b.String()
}

// DropOwned takes out of a postgresql.auto.conf, where ALTER SYSTEM writes,
// the lines that set owned parameters.
func DropOwned(auto string) string {
	return dropSettings(auto, func(name, _ string) bool { return isOwned(name) })
}

// DropBelow takes out of a postgresql.auto.conf the lines that set a parameter to
// less than demands has of it.
func DropBelow(auto string, demands map[string]int64) string {
	return dropSettings(auto, func(name, value string) bool {
		demand, demanded := demands[name]
		n, err := ParseInteger(value)
		return demanded && err == nil && n < demand
	})
}

// dropSettings takes lines out of a file that ALTER SYSTEM has written; unwanted
// is given the name in lower case and the value without quotes.
func dropSettings(auto string, unwanted func(name, value string) bool) string {
	var b strings.Builder
	for line := range strings.Lines(auto) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		value = strings.Trim(strings.TrimSpace(value), "'")
		if !unwanted(strings.ToLower(strings.TrimSpace(name)), value) {
			b.WriteString(line)
		}
	}
	return b.String()
}

// ParseInteger reads a value as the server does for whole numbers without a unit:
// decimal, hexadecimal or octal, or a fraction that is rounded.
func ParseInteger(value string) (int64, error) {
	text := strings.TrimSpace(value)
	if n, err := strconv.ParseInt(text, 0, 64); err == nil {
		return n, nil
	}
	fraction, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is no number", value)
	}
	return int64(math.RoundToEven(fraction)), nil
}
