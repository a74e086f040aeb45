package specs

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
)

func replicating(mode v1.ReplicationMode, need int32, durability v1.Durability) func(*v1.PostgresCluster) {
	return func(c *v1.PostgresCluster) {
		c.Spec.Replication = v1.ReplicationSpec{Mode: mode, Need: &need, Durability: durability}
	}
}

func TestAgentsAreToldOfReplicationAndFailover(t *testing.T) {
	seconds := func(n time.Duration) metav1.Duration { return metav1.Duration{Duration: n * time.Second} }
	defaults := instanceapi.HA{Mode: "async", LeaseDuration: seconds(10), RestartTimeout: seconds(15), UnresponsiveTimeout: seconds(15), MaxLag: 16 << 20}
	with := func(mode string, need int) instanceapi.HA {
		ha := defaults
		ha.Mode, ha.Need = mode, need
		return ha
	}
	for why, c := range map[string]struct {
		change func(*v1.PostgresCluster)
		want   instanceapi.HA
	}{
		"defaults":                       {func(*v1.PostgresCluster) {}, defaults},
		"async, whatever else is asked":  {replicating("async", 2, "preferred"), defaults},
		"sync with defaults":             {func(c *v1.PostgresCluster) { c.Spec.Replication.Mode = "sync" }, with("required", 1)},
		"sync, two replicas, preferably": {replicating("sync", 2, "preferred"), with("preferred", 2)},
	} {
		config, err := instanceapi.ParseConfig(configMap(t, shop(c.change), Configuration{}).Data[instanceapi.ConfigKey])
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, config.HA); diff != "" {
			t.Errorf("%s: %s", why, diff)
		}
	}
}

// C-28, C-29: the server never waits for a replica that can't be, and what was
// promised is not dropped in silence.
func TestSyncRefusesWhatBreaksItsPromise(t *testing.T) {
	sync := replicating("sync", 1, "required")
	for _, c := range []struct {
		why        string
		change     func(*v1.PostgresCluster)
		instances  int32
		parameters string
		// want is a part of the refusal; empty: accepted.
		want string
	}{
		{"async, with all of it", replicating("async", 5, "required"), 1, `{"fsync": "off", "full_page_writes": false, "synchronous_commit": "local"}`, ""},
		{"sync", sync, 2, `{}`, ""},
		{"C-28: one instance", sync, 1, `{}`, "spec.replication.need: 1 must be less than the 1 of spec.instances"},
		{"C-28: one instance, preferably", replicating("sync", 1, "preferred"), 1, `{}`, ""},
		{"as many as there are instances", replicating("sync", 3, "required"), 3, `{}`, "spec.replication.need: 3 must be less than the 3"},
		{"stronger", sync, 3, `{"synchronous_commit": "remote_apply", "fsync": "on"}`, ""},
		{"on, in another word", sync, 3, `{"Synchronous_Commit": true}`, ""},
		{"commits that wait for the primary only", sync, 3, `{"synchronous_commit": "local"}`, "spec.postgres.parameters[synchronous_commit]: with local commits don't wait"},
		{"commits that wait for nothing", sync, 3, `{"synchronous_commit": false}`, "spec.postgres.parameters[synchronous_commit]: with off"},
		{"commits that a replica may lose", sync, 3, `{"synchronous_commit": "remote_write"}`, "set on or remote_apply"},
		{"no fsync, preferably", replicating("sync", 1, "preferred"), 3, `{"FSYNC": 0}`, "spec.postgres.parameters[fsync]: off loses commits"},
		{"torn pages", sync, 3, `{"full_page_writes": "F"}`, "spec.postgres.parameters[full_page_writes]: off loses commits"},
	} {
		cluster := shop(c.change, func(p *v1.PostgresCluster) {
			p.Spec.Instances = ptr.To(c.instances)
			if err := json.Unmarshal([]byte(c.parameters), &p.Spec.Postgres.Parameters); err != nil {
				t.Fatal(err)
			}
		})
		err := CheckConfiguration(cluster)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got %v, want an error with %q", c.why, err, c.want)
		}
	}
}

// A spec that is refused keeps the configuration, and still passes requests on.
func TestRequestsReachTheAgentsUnderARefusedSpec(t *testing.T) {
	live := configMap(t, shop(replicating("sync", 1, "preferred")), Configuration{Members: []string{"shop-1"}})
	request := Configuration{
		Members:      []string{"shop-1"},
		Switchover:   &instanceapi.Switchover{To: "shop-2", From: "shop-1", Term: 3},
		Reclone:      &instanceapi.Reclone{Instance: "shop-3", DataID: "d3"},
		ForcePromote: &instanceapi.ForcePromote{Instance: "shop-2", Term: 3},
	}
	changed := ReconfigureConfigMap(live, request)
	got, err := instanceapi.ParseConfig(changed.Data[instanceapi.ConfigKey])
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(request, Configuration{Members: got.Members, Switchover: got.Switchover, Reclone: got.Reclone, ForcePromote: got.ForcePromote}); diff != "" {
		t.Error(diff)
	}
	if got.HA.Mode != "preferred" {
		t.Errorf("the mode is %s now", got.HA.Mode)
	}
	if again := ReconfigureConfigMap(changed, request); again != nil {
		t.Error("changed again")
	}
}
