// Package framework runs operators in the test's own process against an API
// server that has no nodes and no controllers:
//
//	operator (pkg/controller) ──▶ Proxy ──▶ API server ◀── test
//	    │                      counts, faults   ▲
//	    │ mutual TLS, 127.x.y.z:8443            │
//	    └──────────────▶ agent ─── Kubelet ─────┘
//	                     one per pod
//
// A Kubelet stands in for all that acts on objects in a real cluster: scheduler,
// kubelet, volume provisioner, garbage collector, and the agents in the pods.
// Each test has a namespace, a Kubelet and operators of its own, so tests run
// side by side. Nothing here is a fake of the API server: versions, conflicts,
// admission and watches are real.
package framework
