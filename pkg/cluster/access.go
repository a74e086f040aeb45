package cluster

import (
	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/specs"
)

// ensureAccess keeps the pods' ServiceAccount and what it may do.
func ensureAccess(o Observation, p *Plan) {
	switch want := specs.InstanceServiceAccount(o.Cluster); {
	case o.ServiceAccount == nil:
		p.create(want, "", "")
	default:
		if repaired := specs.RepairServiceAccount(o.ServiceAccount, want); repaired != nil {
			p.update(repaired)
		}
	}
	switch want := specs.InstanceRole(o.Cluster); {
	case o.Role == nil:
		p.create(want, "", "")
	default:
		if repaired := specs.RepairRole(o.Role, want); repaired != nil {
			p.update(repaired)
		}
	}
	switch want := specs.InstanceRoleBinding(o.Cluster); {
	case o.RoleBinding == nil:
		p.create(want, "", "")
	default:
		if repaired := specs.RepairRoleBinding(o.RoleBinding, want); repaired != nil {
			p.update(repaired)
		}
	}
}

// ensureConfiguration keeps the ConfigMap that the agents follow and makes the
// Lease. A spec that is refused leaves the configuration as it was, but for
// who is a member.
func ensureConfiguration(o Observation, p *Plan) {
	id, _ := o.systemID()
	if want := specs.NewLease(o.Cluster); o.Lease == nil {
		p.create(want, "", "")
	} else if repaired := specs.RepairLease(o.Lease, want); repaired != nil {
		p.update(repaired)
	}
	config := serverConfiguration(o)
	if p.Rollback.isMaking() && !o.isLed() && p.Rollback.source != nil {
		// As if there had been no database. Without a source an empty one would be made.
		id, config.Restore = "", p.Rollback.source
	}
	config.SystemID, config.Members, config.Initialiser = id, p.Members, initialiser(o, p)
	config.Blank = blankMembers(o, p)
	config.Switchover, config.SwitchoverAsked, config.Reclone = p.Switchover, p.SwitchoverAsked, p.Reclone
	config.ForcePromote, config.Restart, config.Stop = p.ForcePromote, p.Restart, p.Stop
	config.TakeBackup, config.Clone = p.TakeBackup, o.cloneToTell()
	if p.SpecError != "" {
		if o.ConfigMap == nil {
			return
		}
		if repaired := specs.ReconfigureConfigMap(o.ConfigMap, config); repaired != nil {
			p.update(repaired)
		}
		return
	}
	want, err := specs.NewConfigMap(o.Cluster, config)
	if err != nil {
		p.SpecError = err.Error()
		return
	}
	if o.ConfigMap == nil && o.Cluster.Status.SystemID == "" {
		p.create(want, v1.ReasonClusterCreated, "creating the cluster")
	} else if o.ConfigMap == nil {
		p.create(want, "", "") // somebody deleted it
	} else if repaired := specs.RepairConfigMap(o.ConfigMap, want); repaired != nil {
		p.update(repaired)
		last := &p.Actions[len(p.Actions)-1]
		last.Reason, last.Note = p.restartNote(o)
	}
}

// serverConfiguration is the part that postgresql.conf, pg_hba.conf and pg_ident.conf are
// made by.
func serverConfiguration(o Observation) specs.Configuration {
	return specs.Configuration{WALRoom: walRoom(o)}
}

// wantedConfigHash is that of the configuration that the spec asks for; empty if it
// asks for one that is refused.
func wantedConfigHash(o Observation) string {
	want, err := specs.NewConfigMap(o.Cluster, serverConfiguration(o))
	if err != nil {
		return ""
	}
	return instanceapi.ConfigHash(want.Data[instanceapi.PostgresConfKey], want.Data[instanceapi.HBAKey], want.Data[instanceapi.IdentKey])
}

// ensureDisruptionBudget keeps evictions, as of a drain, to one instance at a
// time.
func ensureDisruptionBudget(o Observation, p *Plan) {
	instances := len(p.Members)
	if p.Stop {
		instances = 0
	}
	want := specs.DisruptionBudget(o.Cluster, instances)
	switch live := o.DisruptionBudget; {
	case want == nil && live != nil:
		p.delete(live, "", "")
	case want == nil:
	case live == nil:
		p.create(want, "", "")
	default:
		if repaired := specs.RepairDisruptionBudget(live, want); repaired != nil {
			p.update(repaired)
		}
	}
}

// ensureServices keeps the Services, and the slice that the primary's agent
// fills. The slice waits for its Service, whose address family it takes.
func ensureServices(o Observation, p *Plan) {
	for _, want := range specs.Services(o.Cluster) {
		if live := o.Services[want.Name]; live == nil {
			p.create(want, "", "")
		} else if specs.MustRemakeService(live, want) {
			p.delete(live, "", "")
		} else if repaired := specs.RepairService(live, want); repaired != nil {
			p.update(repaired)
		}
	}
	rw := o.Services[specs.RWService(o.Cluster.Name)]
	if rw == nil {
		return
	}
	if want := specs.RWEndpointSlice(o.Cluster, rw); o.EndpointSlice == nil {
		p.create(want, "", "")
	} else if repaired := specs.RepairEndpointSlice(o.EndpointSlice, want); repaired != nil {
		p.update(repaired)
	}
}
