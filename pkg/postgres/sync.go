package postgres

import (
	"fmt"
	"strings"
)

// StandbyName is the application_name by which a standby streams: it says whose
// data acknowledges, not only which instance.
func StandbyName(instance, dataID string) string { return instance + "." + dataID }

// ParseStandbyName splits a StandbyName; a name of another kind is returned as
// the instance.
func ParseStandbyName(name string) (instance, dataID string) {
	if at := strings.LastIndexByte(name, '.'); at > 0 {
		return name[:at], name[at+1:]
	}
	return name, ""
}

// nobody is a name that no standby has.
const nobody = "pgop-nobody"

// RenderSync is synchronous_standby_names for commits that need of the named
// standbys acknowledge. With need and no names, commits wait for nobody that
// there is.
func RenderSync(need int, names []string) string {
	if need == 0 {
		return ""
	}
	if len(names) == 0 {
		names = []string{nobody}
	}
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
	}
	return fmt.Sprintf("ANY %d (%s)", need, strings.Join(quoted, ", "))
}
