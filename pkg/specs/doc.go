// Package specs builds the Kubernetes objects of a cluster, one kind of object
// in a file. Builders are pure: a cluster with its defaults goes in
// (v1.WithDefaults), an object as we ask for it comes out.
//
// Each kind that can drift has a function beside its builder that says how a
// live object differs from what is asked. They compare only what was asked, so
// that what the API server or a webhook adds never counts as drift.
package specs
