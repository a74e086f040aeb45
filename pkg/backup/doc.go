// Package backup keeps a cluster's WAL and base backups in an object store, and
// brings them back. docs/backup-format.md says what lies where.
//
//	pg_wal ──▶ Pusher ──▶ Repository ──▶ Store (file, s3) ──▶ Fetcher ──▶ pg_wal
//	pg_basebackup ──▶ TakeBase ─▲            │
//	                                         ├──▶ RestoreBase ──▶ data directory
//	                     Remove ◀── Expire ◀─┴── ReadCatalog
//
// What is decided is decided by pure functions over records: Choose, Chain,
// CheckTarget, Expire, RestoreWindow, Schedule.Next.
//
// Invariants:
//
//  1. No object is ever overwritten.
//  2. Nothing is written under a prefix that belongs to another database system
//     or cluster.
//  3. Content that was read to its end without an error is what was once
//     written under that name.
//  4. A backup has a record only while all of its parts are in the store, and
//     when it was written all WAL that it needs was.
//  5. Nothing is removed that a kept backup needs, and the newest backup that
//     can be restored is kept.
//  6. Memory doesn't grow with the size of anything that is stored.
package backup
