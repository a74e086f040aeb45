package specs

import (
	"errors"
	"fmt"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/postgres"
)

// haOf is what the agents are told of spec.replication and spec.failover.
func haOf(c *v1.PostgresCluster) instanceapi.HA {
	failover := c.Spec.Failover
	ha := instanceapi.HA{
		Mode:                string(v1.ReplicationAsync),
		LeaseDuration:       failover.LeaseDuration,
		RestartTimeout:      failover.RestartTimeout,
		UnresponsiveTimeout: failover.UnresponsiveTimeout,
		MaxLag:              failover.MaxLag.Value(),
	}
	if isSync(c) {
		ha.Mode = string(c.Spec.Replication.Durability)
		ha.Need = int(*c.Spec.Replication.Need)
	}
	return ha
}

func isSync(c *v1.PostgresCluster) bool { return c.Spec.Replication.Mode == v1.ReplicationSync }

// checkReplication refuses what mode sync can't keep its promise with. Parameters
// are the user's, by name in lower case.
func checkReplication(c *v1.PostgresCluster, parameters map[string]string) error {
	if !isSync(c) {
		return nil
	}
	var errs []error
	// The schema refuses it, too; an API server may have an older one.
	if need, instances := *c.Spec.Replication.Need, *c.Spec.Instances; c.Spec.Replication.Durability == v1.DurabilityRequired && need >= instances && instances != 0 {
		errs = append(errs, fmt.Errorf("spec.replication.need: %d must be less than the %d of spec.instances with mode sync and durability required, since every commit would wait for a replica that isn't there; ask for more instances, lower need, or set durability to preferred or mode to async", need, instances))
	}
	for _, name := range []string{"fsync", "full_page_writes"} {
		if on, isBool := postgres.ParseBool(parameters[name]); isBool && !on {
			errs = append(errs, fmt.Errorf("spec.postgres.parameters[%s]: off loses commits in a crash, which spec.replication.mode sync rules out; remove it, or set mode to async", name))
		}
	}
	if level, given := parameters["synchronous_commit"]; given && !postgres.CommitsAwaitReplicas(level) {
		errs = append(errs, fmt.Errorf("spec.postgres.parameters[synchronous_commit]: with %s commits don't wait until a replica has them on disk, which is what spec.replication.mode sync is for; set on or remote_apply, remove it, or set mode to async", level))
	}
	return errors.Join(errs...)
}
