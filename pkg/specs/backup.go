package specs

import (
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
)

// IncrementalSince is the first major version that takes incremental backups.
const IncrementalSince = 17

// archiving are the parameters that let a server hand its WAL to the agent. Where
// there are no backups the agent says at once that it has it, so that turning them
// on or off restarts nothing.
func archiving(c *v1.PostgresCluster) map[string]string {
	parameters := map[string]string{
		"archive_mode":    "always",
		"archive_command": binaryPath + " archive %f",
	}
	if c.Spec.Backup == nil {
		return parameters
	}
	// What is committed is in the store that soon, however little is written.
	parameters["archive_timeout"] = "5min"
	if c.Spec.Postgres.Version >= IncrementalSince {
		parameters["summarize_wal"] = "on"
	}
	return parameters
}

// backupsOf is what the agents are told of spec.backup; nil: there are none.
func backupsOf(c *v1.PostgresCluster) *instanceapi.Backups {
	b := c.Spec.Backup
	if b == nil {
		return nil
	}
	told := &instanceapi.Backups{
		Store:     storeOf(b.Store, c.Name, backupsMount),
		Retention: instanceapi.Retention{Within: instanceapi.Duration{Duration: within(b.Retention.Within)}},
	}
	if b.Retention.Keep != nil {
		told.Retention.Keep = int(*b.Retention.Keep)
	}
	if b.MaxRate != nil {
		told.MaxRate = b.MaxRate.Value()
	}
	return told
}

// within reads spec.backup.retention.within; 0 if it is none.
func within(text string) time.Duration {
	if text == "" {
		return 0
	}
	unit, known := map[byte]time.Duration{'d': 24 * time.Hour, 'h': time.Hour, 'm': time.Minute}[text[len(text)-1]]
	n, err := strconv.ParseUint(text[:len(text)-1], 10, 16+1) // as many digits as the schema allows
	if err != nil || !known {
		return 0
	}
	return time.Duration(n) * unit
}

// restoreOf is what the agents are told of the backup that the first database is
// made of; nil while the operator does not know where it lies, and once there is a
// database.
func restoreOf(c *v1.PostgresCluster) *instanceapi.Restore {
	r := c.Spec.Bootstrap.Restore
	if !RestoreIsDue(c) || r.Store == nil {
		return nil
	}
	return &instanceapi.Restore{
		Store: storeOf(*r.Store, r.Cluster, restoreMountOf(c)),
		ID:    r.Backup,
		Target: instanceapi.RestoreTarget{
			Time: r.Target.Time, LSN: r.Target.LSN, XID: r.Target.XID, Name: r.Target.Name, Immediate: r.Target.Immediate,
		},
	}
}

// RestoreInPlace is what the agents are told of a backup of their own cluster, by its
// id, to which the cluster is rolled back.
func RestoreInPlace(c *v1.PostgresCluster, id string, target v1.RestoreTarget) *instanceapi.Restore {
	return &instanceapi.Restore{
		Store: storeOf(c.Spec.Backup.Store, c.Name, backupsMount), ID: id,
		Target: instanceapi.RestoreTarget{Time: target.Time, LSN: target.LSN, XID: target.XID, Name: target.Name, Immediate: target.Immediate},
	}
}

// RestoreIsDue says whether the first database is to be made of a backup, and is
// not there yet.
func RestoreIsDue(c *v1.PostgresCluster) bool {
	return c.Spec.Bootstrap != nil && c.Spec.Bootstrap.Restore != nil && c.Status.SystemID == ""
}

// storeOf is where all of a cluster lies in a store. Its volume, if it is one, is
// mounted at mount.
func storeOf(s v1.BackupStore, cluster, mount string) instanceapi.Store {
	switch {
	case s.S3 != nil:
		return instanceapi.Store{S3: &instanceapi.S3Store{
			Bucket:            s.S3.Bucket,
			Prefix:            path.Join(s.S3.Prefix, cluster),
			Endpoint:          strings.TrimSuffix(s.S3.Endpoint, "/"),
			Region:            s.S3.Region,
			CredentialsSecret: nameOf(s.S3.CredentialsSecret),
			CASecret:          nameOf(s.S3.CASecret),
		}}
	case s.Volume != nil:
		return instanceapi.Store{Volume: &instanceapi.VolumeStore{Dir: path.Join(mount, s.Volume.Path, cluster)}}
	}
	return instanceapi.Store{} // the schema refuses it, and so does the agent
}

func nameOf(s *v1.SecretName) string {
	if s == nil {
		return ""
	}
	return s.Name
}

// secretsToRead are the names of the Secrets that the agents read to reach stores of
// backups, or the cluster that the first database is a copy of, sorted.
func secretsToRead(c *v1.PostgresCluster) []string {
	var names []string
	add := func(s v1.BackupStore) {
		if s.S3 != nil {
			names = append(names, nameOf(s.S3.CredentialsSecret), nameOf(s.S3.CASecret))
		}
	}
	if c.Spec.Backup != nil {
		add(c.Spec.Backup.Store)
	}
	if RestoreIsDue(c) && c.Spec.Bootstrap.Restore.Store != nil {
		add(*c.Spec.Bootstrap.Restore.Store)
	}
	if CloneIsDue(c) {
		names = append(names, CloneSecret(c.Name))
	}
	slices.Sort(names)
	names = slices.Compact(names)
	return slices.DeleteFunc(names, func(name string) bool { return name == "" })
}

// mountBackups gives pod the volume that backups go to, if the spec asks for one.
func mountBackups(c *v1.PostgresCluster, pod *corev1.Pod) {
	if claim := backupsClaim(c); claim != "" {
		mountClaim(pod, "backups", claim, backupsMount)
	}
}

// mountRestoreSource gives pod the volume that a backup lies on, until there is a
// database.
func mountRestoreSource(c *v1.PostgresCluster, pod *corev1.Pod) {
	if claim := RestoreClaim(c); claim != "" && claim != backupsClaim(c) {
		mountClaim(pod, "restore", claim, restoreMount)
	}
}

func mountClaim(pod *corev1.Pod, name, claim, path string) {
	pod.Spec.Volumes = append(pod.Spec.Volumes, claimVolume(name, claim))
	server := &pod.Spec.Containers[0]
	server.VolumeMounts = append(server.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: path})
}

// backupsClaim is the claim of the volume that backups go to; empty: none.
func backupsClaim(c *v1.PostgresCluster) string {
	if c.Spec.Backup == nil || c.Spec.Backup.Store.Volume == nil {
		return ""
	}
	return c.Spec.Backup.Store.Volume.Claim
}

// RestoreClaim is the claim of the volume with the backup that the first database is
// to be made of; empty: it is on none, or there is a database.
func RestoreClaim(c *v1.PostgresCluster) string {
	if !RestoreIsDue(c) || c.Spec.Bootstrap.Restore.Store == nil || c.Spec.Bootstrap.Restore.Store.Volume == nil {
		return ""
	}
	return c.Spec.Bootstrap.Restore.Store.Volume.Claim
}

// restoreMountOf is where the volume with the backup is mounted.
func restoreMountOf(c *v1.PostgresCluster) string {
	if RestoreClaim(c) == backupsClaim(c) {
		return backupsMount
	}
	return restoreMount
}

// Backup is a PostgresBackup that a schedule of the cluster asks for; schedule is
// empty for one that was found in the store, whose id is then noted.
func Backup(c *v1.PostgresCluster, name string, kind v1.BackupType, schedule, id string) *v1.PostgresBackup {
	b := &v1.PostgresBackup{
		// It has no owner: it stays as long as the store has what it tells of.
		ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: name, Labels: Labels(c)},
		Spec:       v1.PostgresBackupSpec{Cluster: c.Name, Type: kind},
	}
	if schedule != "" {
		b.Labels[ScheduleLabel] = schedule
	}
	if id != "" {
		b.Annotations = map[string]string{BackupIDAnnotation: id}
	}
	return b
}
