// Package instanceapi is what the operator and the agents say to each other:
// the configuration that the operator leaves in the cluster's ConfigMap, and
// the state that every agent reports over HTTPS.
//
// Field names are part of the protocol between versions: they may be added,
// and never change their meaning.
package instanceapi
