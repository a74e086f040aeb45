package faults

import (
	"slices"
	"strings"
	"time"
)

// Kind is a kind of fault.
type Kind struct {
	Name string
	// Cases are the field cases that it tells.
	Cases []string
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
	// Undisturbed means that, where it comes alone, it may end no connection and
	// restart no server.
	Undisturbed bool
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

// Kinds are all kinds of faults. Unless the name says otherwise they strike the
// primary.
var Kinds = []Kind{
	{Name: "postmaster-kill", Realm: process},
	{Name: "agent-kill", Cases: []string{"C-02"}, Realm: process},
	{Name: "agent-interrupt", Cases: []string{"C-02"}, Realm: process},
	{Name: "container-kill", Realm: process},
	{Name: "pod-delete", Cases: []string{"C-01", "C-15"}, Realm: process},
	{Name: "pod-force-delete", Cases: []string{"C-16"}, Realm: process},
	{Name: "postmaster-freeze", Realm: process, Hold: 40 * second},
	{Name: "agent-freeze", Realm: process, Hold: 30 * second, Witnessed: true},
	{Name: "node-cut", Realm: node, Hold: 30 * second, Witnessed: true},
	{Name: "node-cut-with-operator", Hold: 30 * second, Witnessed: true},
	{Name: "node-pause-15s", Realm: node, Hold: 15 * second, Fixed: true, MayBeLate: true},
	{Name: "node-pause-60s", Realm: node, Hold: 60 * second, Fixed: true, MayBeLate: true},
	{Name: "primary-api-cut", Realm: node, Hold: 30 * second, Witnessed: true},
	{Name: "partition", Realm: node, Hold: 30 * second, Witnessed: true},
	{Name: "api-stop-60s", Cases: []string{"C-17"}, Realm: apiServer, Hold: minute, Fixed: true, Undisturbed: true},
	{Name: "api-stop-10m", Cases: []string{"C-17"}, Realm: apiServer, Hold: 10 * minute, Fixed: true, OnDemand: true, Undisturbed: true},
	{Name: "dns-stop", Cases: []string{"C-23"}, Realm: names, Hold: 30 * second, Undisturbed: true},
	{Name: "disk-full", Cases: []string{"C-08"}, Hold: 40 * second},
	{Name: "volume-delete", Cases: []string{"C-22"}},
	{Name: "operator-absent", Cases: []string{"B-28"}},
	{Name: "all-pods", Cases: []string{"B-11"}},
	{Name: "switchover", Cases: []string{"E-11"}},
	{Name: "rolling-change", Cases: []string{"B-17"}, OnDemand: true}, // no fault, but measured in the same way
	{Name: "standby-kill", Realm: standby},
	{Name: "standby-node-cut", Realm: standby, Hold: 30 * second},
}

// pairName is the name of a round with two faults at once.
const pairName = "two-at-once"

// Title is the kind's name, and the cases that it tells.
func (k Kind) Title() string {
	if len(k.Cases) == 0 {
		return k.Name
	}
	return k.Name + " (" + strings.Join(k.Cases, ", ") + ")"
}

// KindNamed is the kind with this name.
func KindNamed(name string) (Kind, bool) {
	i := slices.IndexFunc(Kinds, func(k Kind) bool { return k.Name == name })
	if i < 0 {
		return Kind{}, false
	}
	return Kinds[i], true
}
