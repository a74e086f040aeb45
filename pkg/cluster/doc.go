// Package cluster looks after one PostgresCluster. Its Loop makes a pass for
// each wake-up:
//
//	  listers, agents' states          pure                API server
//	┌─────────┐   Observation   ┌─────────┐    Plan    ┌─────────┐
//	│ observe │ ──────────────▶ │ analyse │ ─────────▶ │   act   │
//	└─────────┘                 └─────────┘            └────┬────┘
//	     ▲                                                  │ failures
//	     │        wake-ups, through the queue          ┌────▼────┐
//	     └──────────────────────────────────────────── │ status  │
//	                                                   └─────────┘
//
// Nothing is remembered between passes but what the API server and the
// instances can tell again, so a pass may be cut short anywhere, and caches may
// be stale: names are deterministic, so that a second create meets
// AlreadyExists; deletes and updates carry the UID and version that was seen.
package cluster
