//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/test/e2e/framework"
)

// Deleted seconds after it was created, at whatever point that is: nothing is
// left, and nothing comes later.
func TestB01DeletedSecondsAfterCreation(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	delays := map[string]time.Duration{"one": time.Second, "three": 3 * time.Second, "eight": 8 * time.Second}
	var stories []func() error
	for name, delay := range delays {
		stories = append(stories, func() error {
			if err := f.TryCreate(framework.Manifest(name, framework.Instances(2))); err != nil {
				return err
			}
			if err := framework.Sleep(t.Context(), delay); err != nil {
				return err
			}
			return f.Cluster(name).TryDelete()
		})
	}
	f.Together(stories...)
	for name := range delays {
		f.Cluster(name).AwaitGone()
	}
	f.Hold(8*time.Second, "nothing comes later", func(ctx context.Context) error {
		var errs []error
		for name := range delays {
			errs = append(errs, f.Cluster(name).OnlyLeft(ctx))
		}
		return errors.Join(errs...)
	})
}

// Deleted and created at once under the same name, again and again: each time
// the volume is kept or goes as asked.
func TestB02DeletedAndCreatedAgain(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	rows := 0
	for round, retain := range []bool{true, true, false, true} {
		policy := framework.Modifier(func(*v1.PostgresCluster) {})
		if retain {
			policy = framework.Retain
		}
		c := f.Create("again", policy)
		c.AwaitReady()
		c.SQL(framework.RW, "create table if not exists kept (round int)")
		c.SQL(framework.RW, fmt.Sprintf("insert into kept values (%d)", round))
		rows++
		c.AwaitRows(framework.RW, "select count(distinct round) from kept", fmt.Sprint(rows))
		c.Delete()
		if !retain {
			rows = 0
		}
	}
	f.Cluster("again").AwaitGone("PersistentVolumeClaim/again-1")
}

// Deleting a cluster of which somebody has already deleted parts.
func TestB06DeletedWithPartsAlreadyGone(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	c := f.Create("parts", framework.Instances(2))
	c.AwaitReady()
	f.Kubectl("delete", "--wait=false", "service/parts-ro", "secret/parts-app", "secret/parts-2-tls", "configmap/parts-config",
		"lease/parts", "serviceaccount/parts-instance", "pod/parts-2")
	c.Delete()
	c.AwaitGone()
}

// A retained volume is adopted by the same manifest, with its data and with
// logins that fit the new Secrets; one that nobody may take over is left alone
// and named.
func TestB26VolumesOfEarlierClusters(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	c := f.Create("heir", framework.Retain, framework.Instances(2))
	c.AwaitReady()
	c.SQL(framework.RW, "create table kept as select generate_series(1, 1000) as n")
	first, volumes := c.Secret(), volumesOf(t, c)
	systemID := c.Live().Status.SystemID
	c.Delete()
	c.AwaitGone("PersistentVolumeClaim/heir-1", "PersistentVolumeClaim/heir-2")

	// Another major version can't use it, and does not write over it.
	c = f.Create("heir", framework.Retain, framework.Instances(2), framework.Version(15))
	message := c.AwaitCondition(v1.ConditionReady, metav1.ConditionFalse, "/pgdata/17/data")
	t.Logf("version 15 on a volume of version 17: %s", message)
	c.Delete()
	c.AwaitGone("PersistentVolumeClaim/heir-1", "PersistentVolumeClaim/heir-2")

	c = f.Create("heir", framework.Retain, framework.Instances(2))
	c.AwaitReady()
	if now := volumesOf(t, c); !slices.Equal(now, volumes) {
		t.Errorf("volumes are %v instead of %v", now, volumes)
	}
	if now := c.Live().Status.SystemID; now != systemID {
		t.Errorf("the database is %s instead of %s", now, systemID)
	}
	if c.Secret()["password"] == first["password"] {
		t.Errorf("the password is that of the deleted cluster")
	}
	c.AwaitRows(framework.RW, "select count(*) from kept", "1000")
	c.AwaitRows(framework.RO, "select count(*) from kept", "1000")
	f.Await(20*time.Second, "an event tells of the adoption", func(ctx context.Context) error {
		return hasMessage(ctx, c, v1.ReasonVolumeAdopted, "heir-1")
	})

	// Switching to Delete lets the volumes go with the cluster.
	c.Edit(func(c *v1.PostgresCluster) { c.Spec.Storage.Retain = v1.DeleteVolumes })
	f.Await(framework.Patience, "the volumes belong to the cluster", func(ctx context.Context) error {
		objects, err := f.Objects(ctx)
		if err != nil {
			return err
		}
		return errors.Join(
			framework.Want("owners of heir-1", len(objects["PersistentVolumeClaim/heir-1"].OwnerReferences), 1),
			framework.Want("owners of heir-2", len(objects["PersistentVolumeClaim/heir-2"].OwnerReferences), 1),
		)
	})
	c.Delete()
	c.AwaitGone()
}

// A claim of the instance's name that is somebody else's.
func TestB26ForeignVolumeIsLeftAlone(t *testing.T) {
	t.Parallel()
	f := framework.New(t)
	claims := f.Kube.CoreV1().PersistentVolumeClaims(f.Namespace)
	foreign, err := claims.Create(t.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "foreign-1", Labels: map[string]string{"app": "other"}},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("300Mi")}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c := f.Create("foreign")
	c.AwaitCondition(v1.ConditionReady, metav1.ConditionFalse, "foreign-1", "does not belong to this cluster")
	f.Hold(3*time.Second, "the claim is left alone", func(ctx context.Context) error {
		now, err := claims.Get(ctx, "foreign-1", metav1.GetOptions{})
		if err != nil {
			return err
		}
		return errors.Join(framework.Want("its labels", len(now.Labels), 1), framework.Want("its UID", now.UID, foreign.UID),
			framework.Want("its owners", len(now.OwnerReferences), 0), framework.Want("its phase", now.Status.Phase, corev1.ClaimPending))
	})
	f.Kubectl("delete", "pvc", "foreign-1", "--wait=false")
	c.AwaitReady()
}

// volumesOf are the cluster's claims with their UIDs, sorted.
func volumesOf(t *testing.T, c *framework.Cluster) []string {
	t.Helper()
	volumes, err := c.Volumes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for name, uid := range volumes {
		names = append(names, name+" "+string(uid))
	}
	slices.Sort(names)
	return names
}

// hasMessage looks for an event of the cluster with a reason and a word.
func hasMessage(ctx context.Context, c *framework.Cluster, reason, word string) error {
	messages, err := c.Messages(ctx)
	if err != nil {
		return err
	}
	for _, message := range messages {
		if strings.HasPrefix(message, reason+": ") && strings.Contains(message, word) {
			return nil
		}
	}
	return fmt.Errorf("events: %q", messages)
}
