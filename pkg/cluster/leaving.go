package cluster

import (
	"maps"
	"slices"
	"strings"
)

// awaitDeletions says which of the cluster's objects are on their way out, and
// what holds them up. When one is gone, the rule that it belongs to makes it
// anew. Pods and volumes have rules of their own.
func awaitDeletions(o Observation, p *Plan) {
	for _, part := range o.parts() {
		if part.GetDeletionTimestamp() == nil {
			continue
		}
		holder := ""
		if finalizers := part.GetFinalizers(); len(finalizers) > 0 {
			holder = ", which waits for whoever set the finalizer " + strings.Join(finalizers, ", ")
		}
		p.wait("%s %s is being deleted%s; its name is taken until it is gone", kindOf(part), part.GetName(), holder)
	}
}

// parts are the objects that there are, but for pods and volumes, in a fixed
// order.
func (o Observation) parts() []object {
	parts := []object{}
	add := func(part object, found bool) {
		if found {
			parts = append(parts, part)
		}
	}
	add(o.ServiceAccount, o.ServiceAccount != nil)
	add(o.Role, o.Role != nil)
	add(o.RoleBinding, o.RoleBinding != nil)
	for _, name := range slices.Sorted(maps.Keys(o.Secrets)) {
		add(o.Secrets[name], true)
	}
	add(o.ConfigMap, o.ConfigMap != nil)
	add(o.Lease, o.Lease != nil)
	for _, name := range slices.Sorted(maps.Keys(o.Services)) {
		add(o.Services[name], true)
	}
	add(o.EndpointSlice, o.EndpointSlice != nil)
	add(o.DisruptionBudget, o.DisruptionBudget != nil)
	return parts
}
