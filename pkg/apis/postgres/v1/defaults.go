package v1

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// The schema carries these defaults, too; they are repeated here for objects
// that never passed an API server, and for fields that depend on others.
const (
	defaultInstances = 1
	defaultUID       = 999
	defaultDatabase  = "app"
	defaultOwner     = "app"
	defaultLocale    = "C.UTF-8"
	defaultEncoding  = "UTF8"
	defaultTimeZone  = "Etc/UTC"

	defaultNeed                = 1
	defaultLeaseDuration       = 10 * time.Second
	defaultRestartTimeout      = 15 * time.Second
	defaultUnresponsiveTimeout = 15 * time.Second
	defaultMaxLag              = "16Mi"
)

// WithDefaults returns a copy of c in which every optional field that has a
// default is set: Instances, Postgres.UID, Postgres.Image, Storage.Retain,
// Replication, Failover and Services with all of theirs, and Bootstrap with all of its
// initdb, restore or clone are never empty in it. Of those it has one.
func WithDefaults(c *PostgresCluster) *PostgresCluster {
	c = c.DeepCopy()
	s := &c.Spec
	if s.Instances == nil {
		s.Instances = ptr.To[int32](defaultInstances)
	}
	if s.Postgres.UID == nil {
		s.Postgres.UID = ptr.To[int64](defaultUID)
	}
	if s.Postgres.Image == "" {
		s.Postgres.Image = fmt.Sprintf("docker.io/library/postgres:%d", s.Postgres.Version)
	}
	if s.Storage.Retain == "" {
		s.Storage.Retain = RetainVolumes
	}
	defaultReplication(&s.Replication)
	defaultFailover(&s.Failover)
	setIfEmpty(&s.Services.RW.Type, corev1.ServiceTypeClusterIP)
	setIfEmpty(&s.Services.RO.Type, corev1.ServiceTypeClusterIP)
	if s.Bootstrap == nil {
		s.Bootstrap = &BootstrapSpec{}
	}
	defaultBootstrap(s.Bootstrap)
	if s.Backup != nil {
		defaultSchedules(s.Backup.Schedules)
		if s.Backup.Verify != nil {
			setIfEmpty(&s.Backup.Verify.TimeZone, defaultTimeZone)
		}
	}
	return c
}

// defaultBootstrap prefers a restore, and then a clone, where there are several,
// which the schema refuses: a database that is asked back must not be empty.
func defaultBootstrap(b *BootstrapSpec) {
	if b.Restore != nil {
		b.Initdb, b.Clone = nil, nil
		setIfEmpty(&b.Restore.Database, defaultDatabase)
		setIfEmpty(&b.Restore.Owner, defaultOwner)
		return
	}
	if b.Clone != nil {
		b.Initdb = nil
		setIfEmpty(&b.Clone.Database, defaultDatabase)
		setIfEmpty(&b.Clone.Owner, defaultOwner)
		return
	}
	if b.Initdb == nil {
		b.Initdb = &InitdbSpec{}
	}
	defaultInitdb(b.Initdb)
}

func defaultSchedules(schedules []BackupSchedule) {
	for n := range schedules {
		setIfEmpty(&schedules[n].TimeZone, defaultTimeZone)
		setIfEmpty(&schedules[n].Type, BackupFull)
	}
}

// Application is the database of the application and the role that owns it. It
// wants defaults.
func (b *BootstrapSpec) Application() (database, owner string) {
	if b.Restore != nil {
		return b.Restore.Database, b.Restore.Owner
	}
	if b.Clone != nil {
		return b.Clone.Database, b.Clone.Owner
	}
	return b.Initdb.Database, b.Initdb.Owner
}

func defaultReplication(r *ReplicationSpec) {
	setIfEmpty(&r.Mode, ReplicationAsync)
	if r.Need == nil {
		r.Need = ptr.To[int32](defaultNeed)
	}
	setIfEmpty(&r.Durability, DurabilityRequired)
}

func defaultFailover(f *FailoverSpec) {
	setIfEmpty(&f.LeaseDuration, metav1.Duration{Duration: defaultLeaseDuration})
	setIfEmpty(&f.RestartTimeout, metav1.Duration{Duration: defaultRestartTimeout})
	setIfEmpty(&f.UnresponsiveTimeout, metav1.Duration{Duration: defaultUnresponsiveTimeout})
	if f.MaxLag == nil {
		f.MaxLag = ptr.To(resource.MustParse(defaultMaxLag))
	}
}

func defaultInitdb(i *InitdbSpec) {
	setIfEmpty(&i.Database, defaultDatabase)
	setIfEmpty(&i.Owner, defaultOwner)
	setIfEmpty(&i.Locale, defaultLocale)
	setIfEmpty(&i.Encoding, defaultEncoding)
	if i.DataChecksums == nil {
		i.DataChecksums = ptr.To(true)
	}
}

func setIfEmpty[T comparable](field *T, value T) {
	var empty T
	if *field == empty {
		*field = value
	}
}
