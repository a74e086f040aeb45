//go:build e2e

package framework

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/test/s3test"
)

// Bucket is a bucket of an S3 server on this machine, which pods reach.
type Bucket struct {
	*s3test.Server
	f *Framework
}

// BucketLogin is the Secret with the login of a Bucket.
const BucketLogin = "s3-login"

// StartBucket starts an S3 server that lives as long as the test. Pods reach it at the
// address of the local cluster's API server.
func (f *Framework) StartBucket() *Bucket {
	f.T.Helper()
	LocalOnly(f.T)
	server, err := url.Parse(f.Config.Host)
	if err != nil {
		f.T.Fatal(err)
	}
	return &Bucket{Server: s3test.StartAt(f.T, server.Hostname()), f: f}
}

// Store is the bucket as a spec names it.
func (b *Bucket) Store() v1.BackupStore {
	return v1.BackupStore{S3: &v1.S3Store{Bucket: b.Bucket, Endpoint: b.Endpoint, CredentialsSecret: &v1.SecretName{Name: BucketLogin}}}
}

// BackUp asks for backups in the bucket, by those schedules.
func (b *Bucket) BackUp(schedules ...v1.BackupSchedule) Modifier {
	return func(c *v1.PostgresCluster) { c.Spec.Backup = &v1.BackupSpec{Store: b.Store(), Schedules: schedules} }
}

// PutLogin makes or replaces the Secret with the login, as it is or with another
// password.
func (b *Bucket) PutLogin(password string) {
	b.f.T.Helper()
	secrets := b.f.Kube.CoreV1().Secrets(b.f.Namespace)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: BucketLogin}, StringData: map[string]string{
		instanceapi.S3KeyID: b.Login.KeyID, instanceapi.S3Key: password,
	}}
	_, err := secrets.Create(b.f.ctx(), secret, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = secrets.Update(b.f.ctx(), secret, metav1.UpdateOptions{})
	}
	if err != nil {
		b.f.T.Fatal(err)
	}
}

// Restore makes the database of a backup.
func Restore(r v1.RestoreSource) Modifier {
	return func(c *v1.PostgresCluster) { c.Spec.Bootstrap = &v1.BootstrapSpec{Restore: &r} }
}

// BackUp makes a PostgresBackup of the cluster.
func (c *Cluster) BackUp(name string, kind v1.BackupType) {
	c.f.T.Helper()
	b := &v1.PostgresBackup{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.PostgresBackupSpec{Cluster: c.Name, Type: kind}}
	if _, err := c.f.Postgres.PgopV1().PostgresBackups(c.f.Namespace).Create(c.f.ctx(), b, metav1.CreateOptions{FieldValidation: "Strict"}); err != nil {
		c.f.T.Fatal(err)
	}
}

// AwaitBackup waits until a backup is in that phase, with those words in its message,
// and returns it.
func (f *Framework) AwaitBackup(limit time.Duration, name string, phase v1.BackupPhase, words ...string) *v1.PostgresBackup {
	f.T.Helper()
	var live *v1.PostgresBackup
	f.Await(limit, fmt.Sprintf("backup %s is %s", name, phase), func(ctx context.Context) (err error) {
		if live, err = f.Postgres.PgopV1().PostgresBackups(f.Namespace).Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		for _, word := range append(words, "") {
			if live.Status.Phase != phase || !strings.Contains(live.Status.Message, word) {
				return fmt.Errorf("it is %s: %s", live.Status.Phase, live.Status.Message)
			}
		}
		return nil
	})
	return live
}
