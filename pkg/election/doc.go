// Package election holds what decides who is the primary. It is pure: it has
// no clock and does no I/O of its own.
//
// Today it holds the record of a reign, which the holder keeps in the
// cluster's Lease, and the rule by which the holder's own data may take the
// Lease back. Nobody else may: a record without members says so.
package election
