package faults

import (
	"slices"
	"time"
)

// Kind is a kind of fault.
type Kind struct {
	Name string
	// Hold is how long it lasts in the fixed list. Zero: it is over at once.
	Hold time.Duration
	// Fixed means that it lasts as long in random rounds, too.
	Fixed bool
	// OnDemand leaves it out unless it is asked for by name.
	OnDemand bool
	// Realm is what it strikes. Faults of two realms may come together; empty: it
	// comes alone.
	Realm Realm
	// MayBeLate is true where, with asynchronous commits, an old primary may
	// hand out what it had answered before it was stopped.
	MayBeLate bool
	// Witnessed puts a second ledger on the primary's own node, which may see the
	// primary when nobody else does.
	Witnessed bool
}

// Realm is the part of the world that a fault strikes.
type Realm string

// Realms in the order in which faults that come together strike: whatever needs
// a process comes before its node stands still, and the API server goes last.
const (
	process   Realm = "process"
	standby   Realm = "standby"
	node      Realm = "node"
	names     Realm = "names"
	apiServer Realm = "API server"
)

var strikingOrder = []Realm{process, standby, node, names, apiServer}

const (
	second = time.Second
	minute = time.Minute
)

// Kinds are all kinds of faults; numbers are those of field cases. Unless the name says otherwise they strike the
// primary.
var Kinds = []Kind{
	{Name: "postmaster-kill", Realm: process},
	{Name: "agent-kill", Realm: process}, // C-02
	{Name: "container-kill", Realm: process},
	{Name: "pod-delete", Realm: process},       // C-01, C-15
	{Name: "pod-force-delete", Realm: process}, // C-16
	{Name: "postmaster-freeze", Realm: process, Hold: 40 * second},
	{Name: "agent-freeze", Realm: process, Hold: 30 * second, Witnessed: true},
	{Name: "node-cut", Realm: node, Hold: 30 * second, Witnessed: true},
	{Name: "node-cut-with-operator", Hold: 30 * second, Witnessed: true},
	{Name: "node-pause-15s", Realm: node, Hold: 15 * second, Fixed: true, MayBeLate: true},
	{Name: "node-pause-60s", Realm: node, Hold: 60 * second, Fixed: true, MayBeLate: true},
	{Name: "primary-api-cut", Realm: node, Hold: 30 * second, Witnessed: true},
	{Name: "partition", Realm: node, Hold: 30 * second, Witnessed: true},
	{Name: "api-stop-60s", Realm: apiServer, Hold: minute, Fixed: true}, // C-17
	{Name: "api-stop-10m", Realm: apiServer, Hold: 10 * minute, Fixed: true, OnDemand: true},
	{Name: "dns-stop", Realm: names, Hold: 30 * second}, // C-23
	{Name: "disk-full", Hold: 40 * second},              // C-08
	{Name: "volume-delete"},                             // C-22
	{Name: "operator-absent"},                           // B-28
	{Name: "all-pods"},                                  // B-11
	{Name: "switchover"},                                // E-11
	{Name: "rolling-change", OnDemand: true},            // B-17; no fault, but measured in the same way
	{Name: "standby-kill", Realm: standby},
	{Name: "standby-node-cut", Realm: standby, Hold: 30 * second},
}

// pairName is the name of a round with two faults at once.
const pairName = "two-at-once"

// KindNamed is the kind with this name.
func KindNamed(name string) (Kind, bool) {
	i := slices.IndexFunc(Kinds, func(k Kind) bool { return k.Name == name })
	if i < 0 {
		return Kind{}, false
	}
	return Kinds[i], true
}
