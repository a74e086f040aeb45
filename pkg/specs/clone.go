package specs

import (
	corev1 "k8s.io/api/core/v1"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/pki"
)

// CloneIsDue says whether the first database is to be a copy of another cluster's, and
// is not there yet.
func CloneIsDue(c *v1.PostgresCluster) bool {
	return c.Spec.Bootstrap != nil && c.Spec.Bootstrap.Clone != nil && c.Status.SystemID == ""
}

// NewCloneSecret lets the first instance copy another cluster: it has the authorities
// that vouch for that one's servers, and a certificate of the replication role there.
// Agents read it from the API server; no pod mounts it.
func NewCloneSecret(c *v1.PostgresCluster, trusted []byte, replication pki.Pair) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: objectMeta(c, CloneSecret(c.Name)),
		Type:       corev1.SecretTypeOpaque,
		Data:       map[string][]byte{CAKey: trusted, ReplicationCertKey: replication.Cert, ReplicationKeyKey: replication.Key},
	}
}
