// Package v1 is the API that users see: PostgresCluster, its defaults and its
// validation. Everything in it is plain data and pure functions.
//
// The CRD in deploy/crd is generated from the markers in this package, so the
// comments on the fields are what `kubectl explain` prints.
//
// +k8s:deepcopy-gen=package
// +k8s:openapi-gen=true
// +groupName=pgop.dev
package v1
