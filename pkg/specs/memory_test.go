package specs

import (
	"encoding/json"
	"strings"
	"testing"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
)

// shared_buffers is compared with the memory that it will live in.
func TestSharedBuffersHaveRoom(t *testing.T) {
	cases := []struct {
		why, parameters, resources string
		// want is a part of the refusal; empty: accepted.
		want string
	}{
		{"nothing is said", `{}`, `{}`, ""},
		{"no memory is asked for", `{"shared_buffers": "100GB"}`, `{}`, ""},
		{"the server's default is the server's business", `{}`, `{"requests": {"memory": "64Mi"}}`, ""},
		{"more than the request", `{"shared_buffers": "512MB"}`, `{"requests": {"memory": "256Mi"}}`,
			"spec.postgres.parameters[shared_buffers]: 512MB is more than the memory of 256Mi in spec.resources; lower it, or raise the memory"},
		{"more than the request, less than the limit", `{"shared_buffers": "512MB"}`, `{"requests": {"memory": "256Mi"}, "limits": {"memory": "1Gi"}}`, "is more than the memory of 256Mi"},
		{"more than the limit, which is the request then", `{"shared_buffers": "512MB"}`, `{"limits": {"memory": "256Mi"}}`, "is more than the memory of 256Mi"},
		{"in other case", `{"Shared_Buffers": "512MB"}`, `{"requests": {"memory": "256Mi"}}`, "is more than"},
		{"in blocks", `{"shared_buffers": 65536}`, `{"requests": {"memory": "256Mi"}}`, "65536 is more than"},
		{"as much as the request, in other units", `{"shared_buffers": "0.25 GB"}`, `{"requests": {"memory": "268435456"}}`, ""},
		{"a unit that the server refuses by itself", `{"shared_buffers": "512M"}`, `{"requests": {"memory": "256Mi"}}`, ""},
		{"huge pages hold it", `{"shared_buffers": "512MB", "huge_pages": true}`, `{"requests": {"memory": "256Mi"}, "limits": {"hugepages-2Mi": "600Mi"}}`, ""},
		{"huge pages hold it, if they are tried", `{"shared_buffers": "512MB"}`, `{"requests": {"memory": "256Mi"}, "limits": {"hugepages-2Mi": "600Mi"}}`, ""},
		{"huge pages would hold it, and are off", `{"shared_buffers": "512MB", "huge_pages": "off"}`, `{"requests": {"memory": "256Mi"}, "limits": {"hugepages-2Mi": "600Mi"}}`, "is more than the memory of 256Mi"},
		{"too few huge pages, and they must do", `{"shared_buffers": "512MB", "huge_pages": "on"}`, `{"requests": {"memory": "2Gi"}, "limits": {"hugepages-2Mi": "256Mi", "hugepages-1Gi": "0"}}`,
			"spec.postgres.parameters[huge_pages]: shared_buffers of 512MB needs more huge pages than the 256Mi in spec.resources.limits"},
		{"too few huge pages, and memory will do", `{"shared_buffers": "512MB"}`, `{"requests": {"memory": "2Gi"}, "limits": {"hugepages-2Mi": "256Mi"}}`, ""},
		{"no huge pages, and they must do", `{"huge_pages": "on"}`, `{}`, "needs more huge pages than the 0 in"},
		{"huge pages of two sizes", `{"shared_buffers": "1GB", "huge_pages": "on"}`, `{"limits": {"hugepages-2Mi": "512Mi", "hugepages-1Gi": "1Gi"}}`, ""},
	}
	for _, c := range cases {
		cluster := shop(func(p *v1.PostgresCluster) {
			if err := json.Unmarshal([]byte(c.parameters), &p.Spec.Postgres.Parameters); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal([]byte(c.resources), &p.Spec.Resources); err != nil {
				t.Fatal(err)
			}
		})
		err := CheckConfiguration(cluster)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got %v, want an error with %q", c.why, err, c.want)
		}
	}
}
