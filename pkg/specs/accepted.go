package specs

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
)

// acceptedKey is the key of the ConfigMap for what pods are made of. Agents don't read
// it.
const acceptedKey = "pods.json"

// podFields is of a spec what pods are made of, as JSON: all but what surely is not.
func podFields(c *v1.PostgresCluster) (string, error) {
	s := *c.Spec.DeepCopy()
	s.Instances, s.Paused, s.Roles, s.Databases = nil, false, nil, nil
	s.Postgres.Parameters, s.Postgres.HBA, s.Postgres.Ident = nil, nil, nil
	s.Replication, s.Services = v1.ReplicationSpec{}, v1.ServicesSpec{}
	wal := s.Storage.WAL != nil
	if s.Storage = (v1.StorageSpec{}); wal {
		s.Storage.WAL = &v1.WALStorageSpec{}
	}
	text, err := json.Marshal(s)
	if err != nil {
		return "", fmt.Errorf("marshal what pods of cluster %s are made of: %w", c.Name, err)
	}
	return string(text), nil
}

// ForPods returns what the pods of a cluster are made of whose spec is refused: the
// spec that was the last to be accepted, as its ConfigMap tells. Of c itself, if that
// does not tell.
func ForPods(c *v1.PostgresCluster, configMap *corev1.ConfigMap) *v1.PostgresCluster {
	if configMap == nil {
		return c
	}
	var accepted v1.PostgresClusterSpec
	if err := json.Unmarshal([]byte(configMap.Data[acceptedKey]), &accepted); err != nil || accepted.Postgres.Version == 0 {
		return c // made before there was the key, or edited: the next spec that is accepted mends it
	}
	before := c.DeepCopy()
	before.Spec = accepted
	return v1.WithDefaults(before)
}
