package specs

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pgop/postgres-operator/pkg/instanceapi"
)

// A spec that is refused meanwhile does not take back a copy that is under way; a
// database that is there does, and then nothing may be read of the other cluster.
func TestCopyIsToldUntilThereIsADatabase(t *testing.T) {
	c := shop(cloned)
	config := Configuration{Members: []string{"shop-1"}, Initialiser: "shop-1", Clone: &instanceapi.Clone{Cluster: "old", Host: "old-1", Secret: "shop-clone"}}
	live := fromAPIServer(t, configMap(t, c, config))
	cloneOf := func(config Configuration) *instanceapi.Clone {
		t.Helper()
		changed := ReconfigureConfigMap(live, config)
		if changed == nil {
			changed = live
		}
		held, err := instanceapi.ParseConfig(changed.Data[instanceapi.ConfigKey])
		if err != nil {
			t.Fatal(err)
		}
		return held.Bootstrap.Clone
	}
	if diff := cmp.Diff(config.Clone, cloneOf(Configuration{Members: config.Members})); diff != "" {
		t.Errorf("refused, and the agents are told %s", diff)
	}
	another := config
	another.Clone = &instanceapi.Clone{Cluster: "old", Host: "old-2", Secret: "shop-clone"}
	if diff := cmp.Diff(another.Clone, cloneOf(another)); diff != "" {
		t.Errorf("another server is named, and the agents are told %s", diff)
	}
	if told := cloneOf(Configuration{Members: config.Members, SystemID: "7"}); told != nil {
		t.Errorf("there is a database, and the agents are told %+v", told)
	}
	if rules := len(InstanceRole(c).Rules); rules != 5 {
		t.Errorf("the role has %d rules", rules)
	}
	c.Status.SystemID = "7"
	if rules := len(InstanceRole(c).Rules); rules != 4 || CloneIsDue(c) {
		t.Errorf("there is a database, and the role has %d rules", rules)
	}
}
