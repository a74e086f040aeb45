// Package election holds what decides who is the primary. It is pure: it has
// no clock and does no I/O of its own.
//
// Step decides by what an instance has seen: its own data, the cluster's Lease with
// the Record of the reign, and what others say. The holder keeps the record and
// stops in time (holder.go, members.go); others seal and vote (voter.go), stand
// for election or take their own Lease back (candidate.go); and when the Lease does
// not tell of the last reign, all are heard first (lost.go).
//
// What must hold is checked in simulated worlds, with each rule switched off once.
package election
