// Package instance is the agent: PID 1 of every Postgres pod. It makes or
// clones the data directory, supervises the server, elects the primary together
// with the other agents, applies configuration, and reports its state.
//
//	ConfigMap, Lease, slice ──watch──▶ view ─┐
//	votes, promises ─────────────────▶ inbox ┼─▶ election.Step (pure) ─▶ target
//	standbys ──────────────────▶ replication ┘                             │
//	volume ──inspect──▶ data ────────────────────▶ decide (pure) ◀─────────┘
//	                                                  └─▶ one job at a time
//
// One goroutine, the loop, owns the decisions; it never blocks. What takes
// time is a job in a goroutine of its own, at most one at a time; while it
// runs, the server and the data are the job's. Others go on beside it: the
// watches; the observer, which asks the server how it is; replication, which
// looks after a primary's standbys; the declarer, which keeps a primary's roles and
// databases; the prober, which asks for a new connection; the archiver, which
// answers the server's archive_command; a base backup; and, on a primary, the
// cataloguer, which reads and tidies the store for backups. Reads and writes of the Lease, and questions to peers, are
// goroutines that end by themselves and leave their answers in the inbox.
//
// Invariants:
//
//  1. Nothing below <mount>/lock is read or written without the flock on it,
//     and every program that touches the data inherits the descriptor.
//  2. The server runs as a primary only while this agent holds the Lease by a
//     claim of its present life, or, while its database is made, with nobody let
//     in but the agent. When it holds it no more, every process of the server is killed,
//     whatever job runs.
//  3. The data id lies beside the data, exists only while the data is
//     complete, and is new after each initdb, restore, clone or rewind.
//  4. A vote leaves this instance only after its term is on the volume, its WAL
//     receiver is gone, and its WAL was measured after that.
//  5. Data is deleted only where the marker says that it was being written and
//     never served; everything else is moved aside or left alone. So it is with
//     directories of WAL on a WAL volume, which go with the data that links to
//     them and stay otherwise.
package instance
