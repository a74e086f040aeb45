package cluster

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
)

// textOf is a status as the API server is sent it. Times have whole seconds
// there, so equal texts are equal statuses.
func textOf(status v1.PostgresClusterStatus) string {
	text, err := json.Marshal(status)
	if err != nil {
		panic(fmt.Sprintf("marshal a status: %v", err)) // plain data always marshals
	}
	return string(text)
}

// missingFields are the fields at the top of one status that another lacks or
// has otherwise, sorted.
func missingFields(sent, kept string) []string {
	var before, after map[string]json.RawMessage
	for text, into := range map[string]*map[string]json.RawMessage{sent: &before, kept: &after} {
		if err := json.Unmarshal([]byte(text), into); err != nil {
			panic(fmt.Sprintf("read a status that was just marshalled: %v", err))
		}
	}
	var fields []string
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if string(before[name]) != string(after[name]) {
			fields = append(fields, "status."+name)
		}
	}
	return fields
}
