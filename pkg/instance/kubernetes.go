package instance

import (
	"context"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// Kubernetes is all of the Kubernetes API that an agent touches: its cluster's
// ConfigMap, Lease and rw EndpointSlice, which the operator creates, and, to be read
// only, the Secrets of roles and of the store for backups.
//
// Updates compare and swap: they fail with a conflict, as apierrors.IsConflict
// tells, unless the object still has the given resourceVersion.
type Kubernetes interface {
	// Watch shows w the newest version of each object, at first and after
	// each change, until ctx ends. It tries again by itself after errors.
	Watch(ctx context.Context, w Watcher)
	// Lease reads the newest version.
	Lease(ctx context.Context) (*coordinationv1.Lease, error)
	UpdateLease(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error)
	// WatchSecret shows saw the newest version of a Secret, nil if there is none, at
	// first and after each change, until ctx ends. Of own ones, what is not the
	// cluster's counts as none. Calls of saw do not overlap.
	WatchSecret(ctx context.Context, name string, own bool, saw func(*corev1.Secret))
	UpdateSlice(ctx context.Context, slice *discoveryv1.EndpointSlice) (*discoveryv1.EndpointSlice, error)
	// Secret reads what a Secret holds, by its name. OwnSecret does so for those that
	// the operator makes: one that is not the cluster's is not found.
	Secret(ctx context.Context, name string) (map[string][]byte, error)
	OwnSecret(ctx context.Context, name string) (map[string][]byte, error)
}

// Watcher is shown objects, or nil where there is none. It must not change
// them. Calls for one kind of object do not overlap.
type Watcher interface {
	SawConfigMap(*corev1.ConfigMap)
	SawLease(*coordinationv1.Lease)
	SawSlice(*discoveryv1.EndpointSlice)
}
