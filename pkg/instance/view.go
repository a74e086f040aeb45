package instance

import (
	"maps"
	"strconv"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"github.com/pgop/postgres-operator/pkg/election"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
)

// knownConfig is the cluster's ConfigMap as last read.
type knownConfig struct {
	Known    bool
	Config   instanceapi.Config
	Settings settings
	// Problem is why a newer version could not be read.
	Problem string
	// Version counts the versions seen.
	Version int
}

// knownLease is the cluster's Lease as last seen.
type knownLease struct {
	Known  bool
	Holder election.Holder
	Record election.Record
	// RenewedAt is when, by this process's clock, a renewal was last seen, and
	// RenewTime what the holder wrote then, which only tells one from another.
	RenewedAt time.Time
	RenewTime time.Time
	// Version is the object's resourceVersion, and SeenAt when it was first
	// seen, by this process's clock.
	Version string
	SeenAt  time.Time
	// Object is the version itself, which nobody changes. It stays when the
	// Lease is gone, which makes it no freer.
	Object *coordinationv1.Lease
}

// lasts is the Lease's duration; 0: it has none.
func (l knownLease) lasts() time.Duration {
	if l.Object == nil {
		return 0
	}
	return time.Duration(ptr.Deref(l.Object.Spec.LeaseDurationSeconds, 0)) * time.Second
}

// view keeps what the agent has seen in Kubernetes. It wakes the loop when
// something has changed that it decides by.
type view struct {
	wake func()
	log  *logrus.Entry

	mu     sync.Mutex
	config knownConfig
	lease  knownLease
	slice  *discoveryv1.EndpointSlice
	// addresses are the last that a Lease told, by instance. They outlive it.
	addresses map[string]string
}

func (v *view) knownConfig() knownConfig {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.config
}

func (v *view) knownLease() knownLease {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.lease
}

// lastAddress is the last that a Lease told of an instance; empty: none did.
func (v *view) lastAddress(instance string) string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.addresses[instance]
}

func (v *view) knownSlice() *discoveryv1.EndpointSlice {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.slice
}

// SawConfigMap reads a new version. One that is gone or can't be read changes
// nothing: what was known goes on being in force.
func (v *view) SawConfigMap(object *corev1.ConfigMap) {
	if object == nil {
		return
	}
	config, err := instanceapi.ParseConfig(object.Data[instanceapi.ConfigKey])
	v.mu.Lock()
	defer v.mu.Unlock()
	defer v.wake()
	v.config.Version++
	if err != nil {
		v.config.Problem = err.Error()
		return
	}
	v.config.Known, v.config.Config, v.config.Problem = true, config, ""
	v.config.Settings = settings{Conf: object.Data[instanceapi.PostgresConfKey], HBA: object.Data[instanceapi.HBAKey], Ident: object.Data[instanceapi.IdentKey]}
}

// SawLease reads a new version. A record that can't be read is nobody's leave
// to do anything, so what was known stays.
func (v *view) SawLease(object *coordinationv1.Lease) {
	v.mu.Lock()
	last := v.lease
	v.mu.Unlock()
	if object != nil && last.Object != nil && isOlder(object, last.Object) {
		return // a watch may be behind our own reads and writes
	}
	seen := knownLease{Object: last.Object, Version: last.Version, SeenAt: last.SeenAt}
	if object != nil {
		record, err := election.ParseRecord(object.Annotations[election.RecordAnnotation])
		if err != nil {
			v.log.WithError(err).Error("the Lease can't be read; going on with the version before")
			return
		}
		seen = knownLease{Known: true, Holder: leaseHolder(object), Record: record, RenewedAt: time.Now(),
			Version: object.ResourceVersion, SeenAt: time.Now(), Object: object}
		if last.Version == seen.Version {
			seen.SeenAt = last.SeenAt
		}
		if object.Spec.RenewTime != nil {
			seen.RenewTime = object.Spec.RenewTime.Time
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.lease.Known && seen.RenewTime.Equal(v.lease.RenewTime) {
		seen.RenewedAt = v.lease.RenewedAt
	}
	if v.lease.Known != seen.Known || v.lease.Holder != seen.Holder || !v.lease.Record.Equal(seen.Record) {
		defer v.wake()
	}
	v.lease = seen
	v.noteAddresses(seen)
}

// noteAddresses remembers where instances are; mu is held.
func (v *view) noteAddresses(l knownLease) {
	if v.addresses == nil {
		v.addresses = map[string]string{}
	}
	maps.Copy(v.addresses, l.Record.Addresses)
	if l.Holder.Instance != "" && l.Record.HolderAddress != "" {
		v.addresses[l.Holder.Instance] = l.Record.HolderAddress
	}
}

// SawSlice keeps a new version.
func (v *view) SawSlice(object *discoveryv1.EndpointSlice) {
	v.mu.Lock()
	defer v.mu.Unlock()
	defer v.wake()
	v.slice = object
}

// isOlder says whether one version of an object comes before another.
func isOlder(a, b *coordinationv1.Lease) bool {
	if a.UID != b.UID {
		return false
	}
	one, err := strconv.ParseUint(a.ResourceVersion, 10, 64)
	other, err2 := strconv.ParseUint(b.ResourceVersion, 10, 64)
	return err == nil && err2 == nil && one < other
}

func leaseHolder(lease *coordinationv1.Lease) election.Holder {
	if lease.Spec.HolderIdentity == nil {
		return election.Holder{}
	}
	return election.ParseHolder(*lease.Spec.HolderIdentity)
}
