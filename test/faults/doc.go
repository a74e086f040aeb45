// Package faults is the fault suite: a cluster of three instances on the local
// Kubernetes, a ledger that writes to it all the time, and one fault a round.
//
//	ledger pod ── insert every 50 ms, twice ──▶ <cluster>-rw ──▶ the primary
//	                                                   ▲
//	suite ── strike, prove, hold, heal ────────────────┘
//	      ── afterwards: one primary, all stream, and the ledger is right
//
// Nothing is asserted about speed: outages are measured and printed. What is
// asserted after every round is in history.Judge, and that the fault struck.
//
// kinds.go says which faults there are, schedule.go deals them out by a seed,
// table.go sums them up; all three are pure. The rounds themselves are built with
// the tag e2e and need the cluster of test/localcluster, since they reach into
// the machine below Kubernetes.
package faults
