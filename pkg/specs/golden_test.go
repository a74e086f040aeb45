package specs

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/internal/golden"
	"github.com/pgop/postgres-operator/pkg/pki"
)

const operatorImage = "docker.io/pgop/postgres-operator:1.0"

// shop is a cluster with its defaults, as changed by each of with.
func shop(with ...func(*v1.PostgresCluster)) *v1.PostgresCluster {
	c := &v1.PostgresCluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: "db", Name: "shop", UID: "5c09e8b2-0000-4000-8000-000000000001"},
		Spec: v1.PostgresClusterSpec{
			Instances: ptr.To[int32](3),
			Postgres:  v1.PostgresSpec{Version: 17},
			Storage:   v1.StorageSpec{Size: resource.MustParse("1Gi")},
		},
	}
	for _, change := range with {
		change(c)
	}
	return v1.WithDefaults(c)
}

// wal asks for a WAL volume.
func wal(size, class string) func(*v1.PostgresCluster) {
	return func(c *v1.PostgresCluster) {
		c.Spec.Storage.WAL = &v1.WALStorageSpec{Size: resource.MustParse(size), Class: class}
	}
}

// full asks for everything that a spec can ask for.
func full(c *v1.PostgresCluster) {
	c.Annotations = map[string]string{v1.RestartAnnotation: "2026-11-27"}
	c.Spec.Postgres.Image = "registry.example.com:5000/db/postgres:17.6@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	c.Spec.Postgres.UID = ptr.To[int64](70)
	c.Spec.Postgres.Parameters = map[string]v1.ParameterValue{
		"shared_buffers":  v1.NewParameter("256MB"),
		"log_line_prefix": v1.NewParameter(`%m it's [%p] \`),
	}
	c.Spec.Postgres.HBA = []string{"hostssl all monitor 10.0.0.0/8 scram-sha-256"}
	c.Spec.Replication = v1.ReplicationSpec{Mode: v1.ReplicationSync, Need: ptr.To[int32](2), Durability: v1.DurabilityPreferred}
	c.Spec.Failover = v1.FailoverSpec{
		LeaseDuration:       metav1.Duration{Duration: 15 * time.Second},
		RestartTimeout:      metav1.Duration{Duration: time.Minute},
		UnresponsiveTimeout: metav1.Duration{Duration: 20 * time.Second},
		MaxLag:              ptr.To(resource.MustParse("64Mi")),
	}
	c.Spec.Storage.Class = "fast"
	wal("4Gi", "faster")(c)
	c.Spec.Storage.Retain = v1.DeleteVolumes
	c.Spec.Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse("500m"), "memory": resource.MustParse("1Gi")}
	c.Spec.Resources.Limits = corev1.ResourceList{"memory": resource.MustParse("2Gi")}
	c.Spec.Bootstrap = &v1.BootstrapSpec{Initdb: &v1.InitdbSpec{
		Database: "Web Shop", Owner: "o'wner", Locale: "de_DE.UTF-8", Encoding: "LATIN1",
		DataChecksums: ptr.To(false), SQL: []string{"CREATE TABLE a (b text);\n"},
	}}
	c.Spec.Services.RW = v1.ServiceSpec{
		Type: corev1.ServiceTypeLoadBalancer, Annotations: map[string]string{"example.com/internal": "true", "example.com/idle": "3600"},
		LoadBalancerSourceRanges: []string{"203.0.113.0/24"},
	}
	c.Spec.Roles = []v1.RoleSpec{
		{Name: "Report User", Ensure: v1.EnsurePresent, Login: true, Superuser: true, CreateDB: true, CreateRole: true, Inherit: ptr.To(false),
			Replication: true, BypassRLS: true, ConnectionLimit: ptr.To[int32](0), ValidUntil: ptr.To(metav1.NewTime(time.Date(2027, 1, 31, 1, 0, 0, 0, time.FixedZone("CET", 3600)))),
			MemberOf: []string{"pg_monitor", "readers"}, Comment: "it's one"},
		{Name: "own", Login: true, PasswordSecret: &v1.SecretName{Name: "own-login"}}, {Name: "none", Login: true, DisablePassword: true},
		{Name: "gone", Ensure: v1.EnsureAbsent, Login: true}, {Name: "o'wner", Login: true, CreateDB: true},
	}
	c.Spec.Databases = []v1.DatabaseSpec{{Name: "Web Shop"}, {Name: "gone", Ensure: v1.EnsureAbsent, Owner: "x"}, {
		Name: "reports", Owner: "Report User", Encoding: "LATIN1", Locale: "de_DE",
		Extensions: []v1.ExtensionSpec{{Name: "pg_trgm", Version: "1.6", Schema: "s"}, {Name: "hstore", Ensure: v1.EnsureAbsent}},
		Schemas:    []v1.SchemaSpec{{Name: "s", Owner: "own", Grants: []v1.SchemaGrant{{Role: "readers", Privileges: []v1.SchemaPrivilege{"USAGE"}, Revoked: []v1.SchemaPrivilege{"CREATE"}}}}, {Name: "t", Ensure: v1.EnsureAbsent}},
		Grants:     []v1.DatabaseGrant{{Role: "public", Revoked: []v1.DatabasePrivilege{"CONNECT"}}, {Role: "readers", Privileges: []v1.DatabasePrivilege{"CONNECT", "TEMPORARY"}}},
	}}
	c.Spec.Pod = v1.PodSpec{
		Labels:       map[string]string{"team": "web"},
		Annotations:  map[string]string{"example.com/scrape": "true"},
		NodeSelector: map[string]string{"disk": "ssd"},
		Affinity: &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
				LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "web"}},
				TopologyKey:   corev1.LabelTopologyZone,
			}},
		}},
		Tolerations: []corev1.Toleration{{Key: "db", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}},
		TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{
			MaxSkew: 1, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.ScheduleAnyway,
		}},
		PriorityClassName: "important",
		ImagePullSecrets:  []corev1.LocalObjectReference{{Name: "registry-login"}},
		Env: []v1.EnvVar{
			{Name: "LD_PRELOAD", Value: "/usr/lib/libjemalloc.so.2"},
			{Name: "WHERE", ValueFrom: &v1.EnvSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: "site"}, Key: "where"}}},
		},
		Sidecars: []v1.Sidecar{{Name: "plain", Image: "docker.io/library/busybox"}, {
			Name: "exporter", Image: "registry.example.com/exporter:1.2", ImagePullPolicy: corev1.PullAlways,
			Command: []string{"/exporter"}, Args: []string{"--port", "9187"},
			Env:     []v1.EnvVar{{Name: "PGHOST", Value: "/sockets"}},
			EnvFrom: []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "exporter"}}}},
			Ports:   []corev1.ContainerPort{{Name: "metrics", ContainerPort: 9187}},
			Resources: v1.SidecarResources{
				Limits:   v1.SidecarQuantities{Memory: ptr.To(resource.MustParse("64Mi")), EphemeralStorage: ptr.To(resource.MustParse("1Gi"))},
				Requests: v1.SidecarQuantities{CPU: ptr.To(resource.MustParse("10m"))},
			},
			LivenessProbe:   &v1.SidecarProbe{HTTPGet: &v1.SidecarHTTPGet{Path: "/", Port: 9187, Scheme: corev1.URISchemeHTTPS}, InitialDelaySeconds: 1, TimeoutSeconds: 2, PeriodSeconds: 3, FailureThreshold: 4},
			SecurityContext: &corev1.SecurityContext{RunAsUser: ptr.To[int64](65534), ReadOnlyRootFilesystem: ptr.To(true)},
			VolumeMounts:    []v1.SidecarMount{{Name: "run", MountPath: "/sockets"}},
		}},
	}
}

// backedUp asks for backups in a bucket.
func backedUp(c *v1.PostgresCluster) {
	c.Spec.Backup = &v1.BackupSpec{
		Store: v1.BackupStore{S3: &v1.S3Store{
			Bucket: "backups", Prefix: "team/db", Endpoint: "https://minio.example.com:9000/", Region: "eu-1",
			CredentialsSecret: &v1.SecretName{Name: "s3-login"}, CASecret: &v1.SecretName{Name: "s3-ca"},
		}},
		Schedules: []v1.BackupSchedule{{Name: "nightly", Cron: "0 3 * * *"}},
		Retention: v1.RetentionSpec{Keep: ptr.To[int32](7), Within: "30d"},
		MaxRate:   ptr.To(resource.MustParse("50Mi")),
	}
}

// backedUpOn asks for backups on a volume.
func backedUpOn(claim, path string) func(*v1.PostgresCluster) {
	return func(c *v1.PostgresCluster) {
		c.Spec.Backup = &v1.BackupSpec{Store: v1.BackupStore{Volume: &v1.VolumeStore{Claim: claim, Path: path}}}
	}
}

// restored asks for the database of a backup of the cluster old in that store.
func restored(store v1.BackupStore, target v1.RestoreTarget) func(*v1.PostgresCluster) {
	return func(c *v1.PostgresCluster) {
		c.Spec.Bootstrap = &v1.BootstrapSpec{Restore: &v1.RestoreSource{
			Backup: "20261127T030000Z-full-abc123", Store: &store, Cluster: "old", Target: target, Owner: "shop",
		}}
	}
}

// cloned asks for a copy of the cluster old.
func cloned(c *v1.PostgresCluster) {
	c.Spec.Bootstrap = &v1.BootstrapSpec{Clone: &v1.CloneSource{Cluster: "old", Database: "Web Shop"}}
}

// fromAPIServer is o as it comes back from an API server that admitted it.
func fromAPIServer[T metav1.Object](t *testing.T, o T) T {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	live := new(T)
	if err := json.Unmarshal(text, live); err != nil {
		t.Fatal(err)
	}
	(*live).SetUID(types.UID("live-" + o.GetName()))
	(*live).SetResourceVersion("17")
	(*live).SetGeneration(1)
	return *live
}

func configMap(t *testing.T, c *v1.PostgresCluster, config Configuration) *corev1.ConfigMap {
	t.Helper()
	made, err := NewConfigMap(c, config)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// goldenObjects are all that the builders make, by the name of their file.
func goldenObjects(t *testing.T) map[string]any {
	c, everything := shop(), shop(full)
	members := Configuration{Members: []string{"shop-1", "shop-2", "shop-3"}}
	starting, running := members, members
	starting.Initialiser = "shop-1"
	running.SystemID = "7432000000000000001"
	running.Switchover = &instanceapi.Switchover{To: "shop-2", From: "shop-1", Term: 3}
	running.SwitchoverAsked = time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	running.Reclone = &instanceapi.Reclone{Instance: "shop-3", DataID: "d3"}
	running.ForcePromote = &instanceapi.ForcePromote{Instance: "shop-2", Term: 3}
	taking := members
	taking.SystemID = "7432000000000000001"
	taking.TakeBackup = &instanceapi.TakeBackup{ID: "20261127T120000Z-incr-abc123", Name: "shop-nightly-20261127-1200", Parent: "20261127T030000Z-full-abc123", Instance: "shop-2", Life: "life"}
	inBucket, onVolume := shop(backedUp), shop(backedUpOn("nfs", "team"))
	fromBucket := shop(backedUpOn("nfs", "team"), restored(v1.BackupStore{S3: &v1.S3Store{Bucket: "old", CredentialsSecret: &v1.SecretName{Name: "old-login"}}}, v1.RestoreTarget{Time: "2026-11-27T12:00:00Z"}))
	fromVolume := shop(backedUp, restored(v1.BackupStore{Volume: &v1.VolumeStore{Claim: "old-nfs", Path: "x"}}, v1.RestoreTarget{}))
	copying := starting
	copying.Clone = &instanceapi.Clone{Cluster: "old", Host: "old-2.old-pods.db.svc", Address: "10.0.0.2", Port: PostgresPort, Secret: "shop-clone"}
	fromCluster := shop(backedUp, cloned)
	services := Services(c)
	ca, pair := []byte("CA CERTIFICATE"), pki.Pair{Cert: []byte("CERTIFICATE"), Key: []byte("KEY")}
	since := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	balanced := services[0].DeepCopy()
	balanced.Spec.Type = corev1.ServiceTypeLoadBalancer
	balanced.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.10"}, {Hostname: "db.example.com"}}
	return map[string]any{
		"pod-defaults":             Pod(c, "shop-2", operatorImage),
		"pod-full":                 Pod(everything, "shop-2", operatorImage),
		"volume-retained":          Volume(c, "shop-2"),
		"volume-deleted":           Volume(everything, "shop-2"),
		"volume-wal":               WALVolume(everything, "shop-2"),
		"service-rw":               services[0],
		"service-ro":               services[1],
		"service-r":                services[2],
		"service-pods":             services[3],
		"service-rw-full":          Services(everything)[0],
		"endpointslice":            RWEndpointSlice(c, services[0]),
		"configmap-starting":       configMap(t, c, starting),
		"configmap-full":           configMap(t, everything, running),
		"configmap-backup":         configMap(t, inBucket, taking),
		"configmap-backup-volume":  configMap(t, onVolume, running),
		"configmap-restore":        configMap(t, fromBucket, starting),
		"configmap-restore-volume": configMap(t, fromVolume, starting),
		"configmap-clone":          configMap(t, fromCluster, copying),
		"role-clone":               InstanceRole(fromCluster),
		"secret-clone":             text(NewCloneSecret(fromCluster, ca, pair)),
		"pod-backup-volume":        Pod(onVolume, "shop-2", operatorImage),
		"pod-restore-volume":       Pod(fromVolume, "shop-2", operatorImage),
		"pod-verify":               VerifyPod(inBucket, "20261127T030000Z-full-abc123", "shop-nightly-20261127-0300", operatorImage),
		"pod-verify-full":          VerifyPod(shop(full, backedUpOn("nfs", "team")), "20261127T030000Z-full-abc123", "before-migration", operatorImage),
		"role-backup":              InstanceRole(inBucket),
		"role-restore":             InstanceRole(fromBucket),
		"secret-app-restored":      text(NewLoginSecret(fromBucket, Logins(fromBucket)[0], "pass-word", ca)),
		"backup-scheduled":         Backup(c, "shop-nightly-20261127-1200", v1.BackupFull, "nightly", ""),
		"backup-found":             Backup(c, "before-migration", v1.BackupIncremental, "", "20261127T120000Z-incr-abc123"),
		"lease":                    NewLease(c),
		"pdb":                      DisruptionBudget(c, 3),
		"serviceaccount":           InstanceServiceAccount(c),
		"role":                     InstanceRole(c),
		"rolebinding":              InstanceRoleBinding(c),
		"secret-app":               text(NewLoginSecret(c, Logins(c)[0], "pass-word", ca)),
		"secret-app-full":          text(NewLoginSecret(everything, Logins(everything)[0], "a:b@c/d#e%f g-é", ca)),
		"secret-ca":                text(NewCASecret(c, pair)),
		"secret-operator":          text(NewOperatorSecret(c, pki.Authorities{Signer: pair, Trusted: ca, Since: since}, pair)),
		"secret-tls":               text(NewTLSSecret(c, "shop-2", ca, pair, pair, ServerTLS{})),
		"secret-tls-theirs":        text(NewTLSSecret(c, "shop-2", ca, pair, pair, ServerTLS{Trusted: ca, Shown: pair})),
		"secret-role":              text(NewLoginSecret(everything, Logins(everything)[1], "a:b@c/d#e%f g-é", ca)),
		"role-full":                InstanceRole(everything),
		"certificate-hosts":        CertificateHosts(c, "shop-2", map[string]*corev1.Service{services[0].Name: balanced}),
		"labels-of-everything":     Labels(c),
	}
}

// text moves a Secret's data to where people can read it.
func text(s *corev1.Secret) *corev1.Secret {
	s.StringData = map[string]string{}
	for key, value := range s.Data {
		s.StringData[key] = string(value)
	}
	s.Data = nil
	return s
}

func TestBuildersMakeTheGoldenObjects(t *testing.T) {
	objects := goldenObjects(t)
	for name, object := range objects {
		t.Run(name, func(t *testing.T) { golden.YAML(t, name+".yaml", object) })
	}
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if name := filepath.Base(file); objects[name[:len(name)-len(".yaml")]] == nil {
			t.Errorf("%s belongs to no builder", file)
		}
	}
	if _, err := os.Stat("testdata"); err != nil {
		t.Error(err)
	}
}
