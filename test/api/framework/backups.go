//go:build e2e

package framework

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/specs"
)

// BackUp asks for backups in a bucket, by those schedules.
func BackUp(schedules ...v1.BackupSchedule) Modifier {
	return func(c *v1.PostgresCluster) {
		c.Spec.Backup = &v1.BackupSpec{
			Store:     v1.BackupStore{S3: &v1.S3Store{Bucket: "backups", CredentialsSecret: &v1.SecretName{Name: "s3-login"}}},
			Schedules: schedules,
		}
	}
}

// CreateBackup makes a PostgresBackup.
func (f *Framework) CreateBackup(name, cluster string, kind v1.BackupType) {
	f.T.Helper()
	b := &v1.PostgresBackup{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.PostgresBackupSpec{Cluster: cluster, Type: kind}}
	if _, err := f.Postgres.PgopV1().PostgresBackups(f.Namespace).Create(f.ctx(), b, metav1.CreateOptions{FieldValidation: "Strict"}); err != nil {
		f.T.Fatal(err)
	}
}

// DeleteBackup deletes a PostgresBackup.
func (f *Framework) DeleteBackup(name string) {
	f.T.Helper()
	if err := f.Postgres.PgopV1().PostgresBackups(f.Namespace).Delete(f.ctx(), name, metav1.DeleteOptions{}); err != nil {
		f.T.Fatal(err)
	}
}

// AwaitBackup waits until a backup is in that phase, with those words in its message,
// and returns it.
func (f *Framework) AwaitBackup(name string, phase v1.BackupPhase, words ...string) *v1.PostgresBackup {
	f.T.Helper()
	var live *v1.PostgresBackup
	f.Await(fmt.Sprintf("backup %s is %s", name, phase), func(ctx context.Context) (err error) {
		if live, err = f.Postgres.PgopV1().PostgresBackups(f.Namespace).Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		for _, word := range words {
			if !strings.Contains(live.Status.Message, word) {
				return fmt.Errorf("it is %s: %s", live.Status.Phase, live.Status.Message)
			}
		}
		return Want("phase", live.Status.Phase, phase)
	})
	return live
}

// Told is what the cluster's agents are told.
func (c *Cluster) Told(ctx context.Context) (instanceapi.Config, error) {
	live, err := c.f.Kube.CoreV1().ConfigMaps(c.f.Namespace).Get(ctx, specs.ConfigMap(c.Name), metav1.GetOptions{})
	if err != nil {
		return instanceapi.Config{}, err
	}
	return instanceapi.ParseConfig(live.Data[instanceapi.ConfigKey])
}

// Stored are the backups of a cluster that the store has.
func (k *Kubelet) Stored(cluster string) []instanceapi.BackupInfo {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.stored[cluster])
}

// Store changes what the store has of a cluster.
func (k *Kubelet) Store(cluster string, change func([]instanceapi.BackupInfo) []instanceapi.BackupInfo) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.stored[cluster] = change(slices.Clone(k.stored[cluster]))
}

// CatalogReads is how often an operator has asked for a catalog.
func (k *Kubelet) CatalogReads() int64 { return k.catalogReads.Load() }

// life is that of the agent.
func (a *agent) life() string { return "life of " + string(a.pod.UID) }

// backups fills in what an agent says of backups, and takes the one that it is asked
// for: at once, unless a test lets it take long.
func (a *agent) backups(config instanceapi.Config, s *instanceapi.State) {
	s.Life = a.life()
	if config.Backups == nil {
		return
	}
	s.Archive = &instanceapi.ArchiveState{}
	take := config.TakeBackup
	if take != nil && take.Instance == a.pod.Name && take.Life == s.Life {
		s.Backup = &instanceapi.BackupState{ID: take.ID, Done: 1 << 20, Estimated: 4 << 20}
		if !a.k.scriptOf(a.pod.Name).TakesLong {
			info := a.k.complete(a.cluster(), *take, a.pod)
			s.Backup.Complete = &info
		}
	}
	if s.Role == instanceapi.RolePrimary {
		s.CatalogVersion = catalogVersion(a.k.Stored(a.cluster()))
	}
}

func catalogVersion(stored []instanceapi.BackupInfo) string {
	text := "backups"
	for _, info := range stored {
		text += " " + info.ID
	}
	return text
}

// complete puts a backup into the store, once.
func (k *Kubelet) complete(cluster string, take instanceapi.TakeBackup, pod *corev1.Pod) instanceapi.BackupInfo {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, info := range k.stored[cluster] {
		if info.ID == take.ID {
			return info
		}
	}
	info := instanceapi.BackupInfo{
		ID: take.ID, Name: take.Name, Incremental: take.Parent != "", Parent: take.Parent, Instance: take.Instance,
		Version: flagOf(pod, "--major") + ".12", Timeline: 1, StartLSN: "0/2000028", StopLSN: "0/2000120",
		StartedAt: time.Now().Add(-time.Second), StoppedAt: time.Now(), Size: 22931456, StoredSize: 4194304,
		FirstWAL: "000000010000000000000002", LastWAL: "000000010000000000000002",
	}
	k.stored[cluster] = append(k.stored[cluster], info)
	return info
}

func (a *agent) serveCatalog(w http.ResponseWriter) {
	a.k.catalogReads.Add(1)
	stored := a.k.Stored(a.cluster())
	catalog := instanceapi.Catalog{Version: catalogVersion(stored), ReadAt: time.Now(), Backups: stored}
	if n := len(stored); n > 0 {
		catalog.First, catalog.Last = stored[0].StoppedAt, stored[n-1].StoppedAt
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(catalog) // an error means that the client has gone
}
