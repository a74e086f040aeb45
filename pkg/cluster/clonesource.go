package cluster

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/pki"
	"github.com/pgop/postgres-operator/pkg/postgres"
	"github.com/pgop/postgres-operator/pkg/specs"
)

// cloneSource is the server that the first database is to be a copy of.
type cloneSource struct {
	// host is the name in its certificate, and address where it is.
	host, address string
	// authorities are those of its cluster, and trusted are those that vouch for its
	// servers.
	authorities pki.Authorities
	trusted     []byte
}

// otherCluster is a cluster of the namespace as another one sees it.
type otherCluster struct {
	cluster           *v1.PostgresCluster
	pods              []*corev1.Pod
	authority, signer *corev1.Secret
	// credentials are the instances' certificates, by the Secret's name.
	credentials map[string]*corev1.Secret
}

// observeClone finds the cluster that the first database is to be a copy of.
func observeClone(l Listers, o *Observation) error {
	if !specs.CloneIsDue(o.Cluster) {
		return nil
	}
	namespace, name := o.Cluster.Namespace, o.Cluster.Spec.Bootstrap.Clone.Cluster
	found, err := l.Clusters.PostgresClusters(namespace).Get(name)
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	var other *otherCluster
	if err == nil {
		own := ownedBy{c: found, err: &err}
		other = &otherCluster{
			cluster:   v1.WithDefaults(found),
			pods:      list(own, l.Pods.Pods(namespace).List),
			authority: get(own, l.Secrets.Secrets(namespace).Get, specs.CASecret(name)),
			signer:    get(own, l.Secrets.Secrets(namespace).Get, specs.OperatorSecret(name)),
		}
		other.credentials = map[string]*corev1.Secret{}
		for _, pod := range other.pods {
			secret := specs.TLSSecret(pod.Name)
			other.credentials[secret] = get(own, l.Secrets.Secrets(namespace).Get, secret)
		}
		if err != nil {
			return err
		}
	}
	o.CloneFrom, o.SourceWaits, o.SourceRefused = locateCluster(o.Cluster, other, o.toldClone())
	if o.toldClone() != nil {
		o.SourceWaits = "" // who copies says itself how it goes
	}
	return nil
}

// locateCluster says which server of the other cluster is copied, or else what that
// waits for, or why it can't be. Other is nil if there is none of that name. A server
// that was told before stays the one as long as it serves.
func locateCluster(c *v1.PostgresCluster, other *otherCluster, told *instanceapi.Clone) (from *cloneSource, waits, refused string) {
	const field = "spec.bootstrap.clone.cluster: "
	name := c.Spec.Bootstrap.Clone.Cluster
	switch {
	case name == c.Name:
		return nil, "", field + "a cluster can't be a copy of itself; name another"
	case other == nil:
		return nil, "", fmt.Sprintf("%sthere is no PostgresCluster %s in this namespace; name another", field, name)
	case other.cluster.DeletionTimestamp != nil:
		return nil, "", fmt.Sprintf("%scluster %s is being deleted; name another", field, name)
	case other.cluster.Spec.Postgres.Version != c.Spec.Postgres.Version:
		return nil, "", fmt.Sprintf("%scluster %s is of PostgreSQL %d, and spec.postgres.version asks for %d; create the cluster with version %d",
			field, name, other.cluster.Spec.Postgres.Version, c.Spec.Postgres.Version, other.cluster.Spec.Postgres.Version)
	case other.cluster.Status.SystemID == "":
		return nil, fmt.Sprintf("cluster %s has no database yet; it is copied when it has", name), ""
	case *other.cluster.Spec.Instances == 0:
		return nil, fmt.Sprintf("cluster %s is stopped (spec.instances: 0); it is copied when it runs", name), ""
	}
	authorities := specs.Authorities(other.authority, other.signer)
	pod := serverToCopy(other.pods, told)
	switch {
	case pod == nil:
		return nil, fmt.Sprintf("no instance of cluster %s serves; it is copied when one does", name), ""
	case len(authorities.Signer.Key) == 0 || len(authorities.Trusted) == 0:
		return nil, fmt.Sprintf("cluster %s has no certificate authority yet; it is copied when it has", name), ""
	}
	from = &cloneSource{
		host:        specs.InstanceHost(name, c.Namespace, pod.Labels[specs.InstanceLabel]),
		address:     pod.Status.PodIP,
		authorities: authorities, trusted: authorities.Trusted,
	}
	if theirs := specs.ServerTLSOf(other.credentials[specs.TLSSecret(pod.Name)]); len(theirs.Trusted) > 0 {
		// It may show a certificate of people's own, which names the Services alone.
		from.host, from.trusted = instanceapi.ServiceHost(name, c.Namespace), theirs.Trusted
	}
	return from, "", ""
}

// serverToCopy is the pod of the server that is copied: a replica, so that the primary
// has no more to do, or else the primary; nil: none serves. The one that was told
// before stays as long as it serves.
func serverToCopy(pods []*corev1.Pod, told *instanceapi.Clone) *corev1.Pod {
	rank := func(pod *corev1.Pod) int {
		switch {
		case told != nil && told.Address == pod.Status.PodIP:
			return 0
		case pod.Labels[specs.RoleLabel] == string(instanceapi.RoleReplica):
			return 1
		}
		return 2
	}
	serves := slices.DeleteFunc(slices.Clone(pods), func(pod *corev1.Pod) bool {
		return pod.DeletionTimestamp != nil || pod.Status.PodIP == "" || pod.Status.Phase != corev1.PodRunning || pod.Labels[specs.RoleLabel] == "" ||
			!hasTrueCondition(pod, corev1.PodReady)
	})
	if len(serves) == 0 {
		return nil
	}
	return slices.MinFunc(serves, func(a, b *corev1.Pod) int { return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Name, b.Name)) })
}

// toldClone is the copy of the cluster that the spec names, which the agents were told
// of; nil: they were not.
func (o Observation) toldClone() *instanceapi.Clone {
	told := o.told().Bootstrap.Clone
	if !specs.CloneIsDue(o.Cluster) || told == nil || told.Cluster != o.Cluster.Spec.Bootstrap.Clone.Cluster {
		return nil
	}
	return told
}

// cloneToTell is what the agents are told of the cluster that the first database is a
// copy of; nil while there is nothing to copy. A copy that has begun is not taken
// back because nobody serves there for a moment.
func (o Observation) cloneToTell() *instanceapi.Clone {
	switch {
	case o.SourceRefused != "":
		return nil
	case o.CloneFrom == nil:
		return o.toldClone()
	}
	return &instanceapi.Clone{
		Cluster: o.Cluster.Spec.Bootstrap.Clone.Cluster,
		Host:    o.CloneFrom.host, Address: o.CloneFrom.address, Port: specs.PostgresPort,
		Secret: specs.CloneSecret(o.Cluster.Name),
	}
}

// ensureCloneSecret keeps what lets the first instance copy another cluster, for as
// long as there is no database.
func ensureCloneSecret(o Observation, p *Plan) {
	live := o.Secrets[specs.CloneSecret(o.Cluster.Name)]
	if !specs.CloneIsDue(o.Cluster) {
		if live != nil {
			p.delete(live, "", "")
		}
		return
	}
	if o.CloneFrom == nil {
		return
	}
	a := o.CloneFrom.authorities
	var leaf pki.Pair
	if live != nil {
		leaf = specs.ReplicationCertificateOf(live)
	}
	if a.IsDue(leaf, postgres.ReplicationRole, nil, o.Now) {
		made, err := a.NewLeaf(postgres.ReplicationRole, nil, o.LeafLifetime, o.Now)
		if err != nil {
			p.wait("make the certificate for the copy of cluster %s: %v", o.Cluster.Spec.Bootstrap.Clone.Cluster, err)
			return
		}
		leaf = made
	}
	want := specs.NewCloneSecret(o.Cluster, o.CloneFrom.trusted, leaf)
	if live == nil {
		p.create(want, "", "")
	} else if repaired := specs.RepairSecret(live, want); repaired != nil {
		p.update(repaired)
	}
}
