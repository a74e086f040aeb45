// Package controller turns events into passes: informers enqueue the name of
// the cluster that an object belongs to, and a worker finds that cluster's
// loop, starts or stops it, and wakes it. Workers never wait for a cluster, so
// that a broken one delays no other.
package controller
