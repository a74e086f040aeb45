// Package deploy embeds what the operator installs by itself. The other
// manifests beside it are for people.
package deploy

import _ "embed"

// PostgresClusterCRD is the CustomResourceDefinition of PostgresCluster, YAML.
//
//go:embed crd/pgop.dev_postgresclusters.yaml
var PostgresClusterCRD []byte

// PostgresBackupCRD is the CustomResourceDefinition of PostgresBackup, YAML.
//
//go:embed crd/pgop.dev_postgresbackups.yaml
var PostgresBackupCRD []byte

// PostgresRestoreCRD is the CustomResourceDefinition of PostgresRestore, YAML.
//
//go:embed crd/pgop.dev_postgresrestores.yaml
var PostgresRestoreCRD []byte

// PostgresClusterPolicy is a ValidatingAdmissionPolicy for PostgresClusters and
// its binding, two documents of YAML.
//
//go:embed policy/pgop.dev_postgresclusters.yaml
var PostgresClusterPolicy []byte
