package cluster

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/backup"
	"github.com/pgop/postgres-operator/pkg/specs"
)

// locate says where the backup lies that the cluster is to be made of: the restore
// with its store, or else what it waits for, or why it can't be. Source is the
// PostgresBackup of that name; nil: there is none. Its cluster may be gone.
func locate(c *v1.PostgresCluster, source *v1.PostgresBackup) (r *v1.RestoreSource, waits, refused string) {
	r = c.Spec.Bootstrap.Restore
	const field = "spec.bootstrap.restore.backup: "
	if source == nil {
		return r, "", fmt.Sprintf("%sthere is no PostgresBackup %s in this namespace; name another, or say in store and cluster where the backup lies", field, r.Backup)
	}
	s := source.Status
	switch {
	case s.Phase == v1.BackupFailed:
		return r, "", fmt.Sprintf("%sbackup %s has failed, so that it can't be restored: %s; name another", field, r.Backup, s.Message)
	case s.Phase != v1.BackupCompleted:
		return r, fmt.Sprintf("backup %s is not complete yet; the database is made of it when it is", r.Backup), ""
	case s.Store == nil || s.ID == "":
		return r, "", fmt.Sprintf("%sPostgresBackup %s does not say where the backup lies; say so in store and cluster", field, r.Backup)
	case s.InCatalog && s.Restorable == nil:
		return r, "", fmt.Sprintf("%sbackup %s: %s; name another", field, r.Backup, s.Message)
	}
	if major, known := majorOf(s.Version); known && major != c.Spec.Postgres.Version {
		return r, "", fmt.Sprintf("%sbackup %s is of PostgreSQL %d, and spec.postgres.version asks for %d; create the cluster with version %d", field, r.Backup, major, c.Spec.Postgres.Version, major)
	}
	if at, err := backup.ParseTime(r.Target.Time); err == nil && s.CompletedAt != nil && at.Before(s.CompletedAt.Add(-time.Second)) {
		return r, "", fmt.Sprintf("spec.bootstrap.restore.target.time: backup %s was complete at %s, and can be restored to that time and later ones; name an older backup or a later time",
			r.Backup, s.CompletedAt.UTC().Format(time.RFC3339))
	}
	located := r.DeepCopy()
	located.Backup, located.Store, located.Cluster = s.ID, s.Store.DeepCopy(), source.Spec.Cluster
	return located, "", ""
}

// majorOf is the major version in a server's version.
func majorOf(version string) (int32, bool) {
	major, _, _ := strings.Cut(version, ".")
	n, err := strconv.ParseInt(major, 10, 32)
	return int32(n), err == nil
}

// checkSource refuses to make a database of a backup, or of a cluster, that it can't be
// made of, as far as that is known here. The agent that does it looks closer.
func checkSource(o Observation) error {
	var errs []error
	if o.SourceRefused != "" && !o.mayHoldData() {
		errs = append(errs, errors.New(o.SourceRefused))
	}
	if !specs.RestoreIsDue(o.Cluster) {
		return errors.Join(errs...)
	}
	t := o.Cluster.Spec.Bootstrap.Restore.Target
	if _, err := backup.ParseTarget(backup.TargetSpec{Time: t.Time, LSN: t.LSN, XID: t.XID, Name: t.Name, Immediate: t.Immediate}); err != nil {
		errs = append(errs, fmt.Errorf("spec.bootstrap.restore.%w", err))
	}
	return errors.Join(errs...)
}
