// Package instance is the agent: PID 1 of every Postgres pod. It makes or
// clones the data directory, supervises the server, holds or follows the
// cluster's Lease, applies configuration, and reports its state.
//
//	ConfigMap, Lease, slice ──watch──▶ view ─┐
//	volume ──inspect──▶ data ────────────────┼─▶ decide (pure) ──▶ one job at a time
//	server ──exited, ready──▶ ───────────────┘         initdb, clone, serve, follow, tend, …
//
// One goroutine, the loop, owns the decisions; it never blocks. What takes
// time is a job in a goroutine of its own, at most one at a time; while it
// runs, the server and the data are the job's. Three more go on beside it: the
// watches, the renewal of the Lease, and the observer, which asks the server
// how it is.
//
// Invariants:
//
//  1. Nothing below <mount>/lock is read or written without the flock on it,
//     and every program that touches the data inherits the descriptor.
//  2. The server runs as a primary only after this agent has claimed the Lease
//     in its present life, or, right after initdb, with nobody let in but the
//     agent.
//  3. The data id lies beside the data, exists only while the data is
//     complete, and is new after each initdb or clone.
//  4. Data is deleted only where the marker says that it was being written and
//     never served; everything else is moved aside or left alone.
package instance
