package cluster

import (
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
)

// nightly is a schedule.
var nightly = v1.BackupSchedule{Name: "nightly", Cron: "0 3 * * *"}

// taking is a cluster in which shop-2 takes the backup "big", which does not end.
func taking(w *world) {
	w.backedUp()
	w.bucket.slow = true
	w.order("big", v1.BackupFull)
	for range 6 {
		w.turn()
		w.catchUp(allKinds...)
		w.pass()
		w.catchUp(allKinds...)
	}
}

// backupCases are what a pass may find of backups.
var backupCases = []analyseCase{
	{why: "backups are asked for: the agents are told, and may read the login of the store", change: func(w *world) { w.backUp() }},
	{why: "backups on a volume are asked for: instances restart to mount it", change: func(w *world) {
		w.edit(func(s *v1.PostgresClusterSpec) {
			s.Backup = &v1.BackupSpec{Store: v1.BackupStore{Volume: &v1.VolumeStore{Claim: "nfs", Path: "team"}}}
		})
	}},
	{why: "a cluster with a backup has settled", change: func(w *world) { w.backedUp(nightly) }},
	{why: "backups are given up: what the store has stays, and its objects do", change: func(w *world) {
		w.backedUp(nightly)
		w.edit(func(s *v1.PostgresClusterSpec) { s.Backup = nil })
	}},

	// One backup after the other.
	{why: "a backup is asked for without a store: it waits, and says so", change: func(w *world) { w.order("first", v1.BackupFull) }},
	{why: "a backup's turn: a replica is chosen", change: func(w *world) {
		w.backedUp()
		w.order("big", v1.BackupFull)
	}},
	{why: "a replica was chosen: it is asked, in its present life", change: func(w *world) {
		w.backedUp()
		w.order("big", v1.BackupFull)
		w.pass()
		w.catchUp(allKinds...)
		w.pass()
		w.catchUp(allKinds...)
	}},
	{why: "a replica was asked: the backup runs", change: func(w *world) {
		w.backedUp()
		w.order("big", v1.BackupFull)
		for range 2 {
			w.catchUp(allKinds...)
			w.pass()
		}
	}},
	{why: "a backup runs", change: taking},
	{why: "a backup gets on by less than a hundredth: nothing is written", change: func(w *world) {
		taking(w)
		w.say("shop-2", func(s *instanceapi.State) { b := *s.Backup; b.Done += 1 << 10; s.Backup = &b })
	}},
	{why: "a backup gets on", change: func(w *world) {
		taking(w)
		w.say("shop-2", func(s *instanceapi.State) { b := *s.Backup; b.Done += 100 << 20; s.Backup = &b })
	}},
	{why: "a backup's data is in the store, and its WAL is not", change: func(w *world) {
		taking(w)
		w.say("shop-2", func(s *instanceapi.State) { b := *s.Backup; b.AwaitsWAL = true; s.Backup = &b })
	}},
	{why: "a backup's data is in the store, and archiving fails", change: func(w *world) {
		taking(w)
		w.say("shop-2", func(s *instanceapi.State) { b := *s.Backup; b.AwaitsWAL = true; s.Backup = &b })
		w.say("shop-1", func(s *instanceapi.State) {
			s.Archive = &instanceapi.ArchiveState{Failing: "put wal/00000001/000000010000000000000007.zst: Access Denied", FailingSince: w.now}
		})
	}},
	{why: "a backup is complete, and the primary has not read the store since", change: func(w *world) {
		taking(w)
		done := w.complete(*w.told().TakeBackup)
		w.say("shop-2", func(s *instanceapi.State) { s.Backup = &instanceapi.BackupState{ID: s.Backup.ID, Complete: &done} })
	}},
	{why: "a backup has failed: in the store's words", change: func(w *world) {
		taking(w)
		w.say("shop-2", func(s *instanceapi.State) {
			s.Backup = &instanceapi.BackupState{ID: s.Backup.ID, Failed: "put base/x/part-00001.tar.zst: Access Denied"}
		})
	}},
	{why: "a backup has failed, and an older one can be restored", change: func(w *world) {
		w.backedUp()
		w.bucket.refuses = "no space left in the bucket"
		w.order("second", v1.BackupFull)
		w.settle()
	}},
	{why: "the first backup has failed, and there is none", change: func(w *world) {
		w.backUp()
		w.bucket.refuses = "no space left in the bucket"
		w.order("first", v1.BackupFull)
		w.settle()
	}},
	{why: "D-01: the agent has restarted while it took a backup", change: func(w *world) {
		taking(w)
		w.say("shop-2", func(s *instanceapi.State) { s.Life, s.Backup = "another", nil })
		change(w, "shop-2", func(p *corev1.Pod) {
			p.Status.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{Reason: "OOMKilled", ExitCode: 137}
		})
	}},
	{why: "D-01: the agent has restarted, and the store has the backup", change: func(w *world) {
		taking(w)
		w.bucket.backups = append(w.bucket.backups, w.complete(*w.told().TakeBackup))
		w.say("shop-1", func(s *instanceapi.State) { s.CatalogVersion = w.catalogVersion() })
		w.say("shop-2", func(s *instanceapi.State) { s.Life, s.Backup = "another", nil })
	}},
	{why: "D-01: the pod that took a backup is gone", change: func(w *world) {
		taking(w)
		delete(w.objects["Pod"], "shop-2")
	}},
	{why: "D-01: the agent that takes a backup is silent for a moment", change: func(w *world) {
		taking(w)
		w.cut["shop-2"] = true
		w.silent = 29 * time.Second
	}},
	{why: "D-01: the agent that takes a backup is silent for long", change: func(w *world) {
		taking(w)
		w.cut["shop-2"] = true
		w.silent = 30 * time.Second
	}},
	{why: "an agent was asked for a backup and does not begin", change: func(w *world) {
		taking(w)
		w.say("shop-2", func(s *instanceapi.State) { s.Backup = nil })
		w.silent = time.Minute
	}},
	{why: "somebody has taken the request for a backup from the ConfigMap, and it goes on", change: func(w *world) {
		taking(w)
		delete(w.objects["ConfigMap"], "shop-config")
	}},
	{why: "somebody has taken the request for a backup from the ConfigMap, and nothing is known of it", change: func(w *world) {
		taking(w)
		delete(w.objects["ConfigMap"], "shop-config")
		w.say("shop-2", func(s *instanceapi.State) { s.Backup = nil })
	}},
	{why: "a backup that runs is deleted: the agent is told to stop", change: func(w *world) {
		taking(w)
		delete(w.objects[v1.BackupKind], "big")
	}},
	{why: "spec.backup goes while a backup runs", change: func(w *world) {
		taking(w)
		w.edit(func(s *v1.PostgresClusterSpec) { s.Backup = nil })
	}},
	{why: "D-03: a backup runs, and one with an earlier name is asked for: it waits", change: func(w *world) {
		taking(w)
		w.order("a-2", v1.BackupFull)
	}},
	{why: "D-03: two wait: the older one comes first, whatever their names", change: func(w *world) {
		w.backedUp()
		w.order("z-1", v1.BackupFull)
		w.now = w.now.Add(time.Second)
		w.order("a-2", v1.BackupFull)
	}},
	{why: "the instance that was chosen is gone before it was asked: another is chosen", change: func(w *world) {
		w.backedUp()
		w.order("big", v1.BackupFull)
		w.catchUp(allKinds...)
		w.pass()
		delete(w.objects["Pod"], "shop-2")
	}},
	{why: "a backup's turn, and only the primary streams: it takes it", change: func(w *world) {
		w.backedUp()
		for _, name := range []string{"shop-2", "shop-3"} {
			w.say(name, func(s *instanceapi.State) { s.Streaming, s.Ready = false, false })
		}
		w.order("big", v1.BackupFull)
	}},
	{why: "a backup's turn, and shop-2 has replayed least: shop-3 takes it", change: func(w *world) {
		w.backedUp()
		w.say("shop-1", func(s *instanceapi.State) { s.WrittenLSN = "0/9000000" })
		w.say("shop-3", func(s *instanceapi.State) { s.ReplayedLSN = "0/9000000" })
		w.order("big", v1.BackupFull)
	}},
	{why: "a backup's turn, and there is no primary", change: func(w *world) {
		w.backedUp()
		w.say("shop-1", func(s *instanceapi.State) { s.Ready = false })
		w.order("big", v1.BackupFull)
	}},
	{why: "a backup's turn in a cluster that is paused", change: func(w *world) {
		w.backedUp()
		w.order("big", v1.BackupFull)
		w.pause()
	}},
	{why: "a backup ends in a cluster that is paused", change: func(w *world) {
		taking(w)
		w.pause()
		w.say("shop-2", func(s *instanceapi.State) { s.Backup = &instanceapi.BackupState{ID: s.Backup.ID, Failed: "gone"} })
	}},
	{why: "a backup's turn in a cluster that is stopped", change: func(w *world) {
		w.backedUp()
		w.scale(0)
		w.settle()
		w.order("big", v1.BackupFull)
	}},
	{why: "a backup's turn while a spec is refused: the configuration before has a store", change: func(w *world) {
		w.backedUp()
		w.set("listen_addresses", "*")
		w.order("big", v1.BackupFull)
		w.pass()
		w.catchUp(allKinds...)
		w.pass()
	}},
	{why: "a backup is asked for, and the API server does not take the report", change: func(w *world) {
		w.backedUp()
		w.order("big", v1.BackupFull)
	}, failed: map[string]error{"report PostgresBackup big": errors.New("etcd is away")}},

	// Incremental ones.
	{why: "an incremental backup goes on from the newest that can be restored", change: func(w *world) {
		w.backedUp()
		bad := w.complete(instanceapi.TakeBackup{ID: "20261127T115959Z-full-bad", Name: "bad"})
		bad.Unusable = "WAL segment 000000010000000000000003 is not in the archive"
		w.bucket.backups = append(w.bucket.backups, bad)
		w.settle()
		w.order("more", v1.BackupIncremental)
	}},
	{why: "an incremental backup, and none to go on from: a full one is taken", change: func(w *world) {
		w.backUp()
		w.settle()
		w.order("more", v1.BackupIncremental)
		w.settle()
	}},
	{why: "an incremental backup, and nobody knows what the store has", change: func(w *world) {
		w.backedUp()
		w.say("shop-1", func(s *instanceapi.State) {
			s.CatalogVersion, s.CatalogError = "", "list base/: 503 Service Unavailable"
		})
		w.order("more", v1.BackupIncremental)
	}},
	{why: "an incremental backup of a version that has none", change: func(w *world) {
		w.edit(func(s *v1.PostgresClusterSpec) { s.Postgres.Version = 16 })
		w.backedUp()
		w.order("more", v1.BackupIncremental)
	}},

	// Schedules.
	{why: "a schedule is new: its next time is in the status, and nothing is made", change: func(w *world) {
		w.backUp(nightly, v1.BackupSchedule{Name: "berlin", Cron: "30 2 * * 0", TimeZone: "Europe/Berlin", Type: v1.BackupIncremental})
	}},
	{why: "a scheduled backup is due", change: func(w *world) {
		w.backedUp(nightly)
		w.now = time.Date(2026, 11, 28, 3, 0, 0, 0, time.UTC)
	}},
	{why: "scheduled backups were missed: they are made up once", change: func(w *world) {
		w.backedUp(nightly)
		w.now = time.Date(2027, 1, 15, 12, 0, 0, 0, time.UTC)
	}},
	{why: "D-04: what the schedule would make is there", change: func(w *world) {
		w.backedUp(nightly)
		w.now = time.Date(2026, 11, 28, 3, 0, 0, 0, time.UTC)
		w.order("shop-nightly-20261128-0300", v1.BackupFull)
		w.catchUp(allKinds...)
		w.pass()
	}},
	{why: "a scheduled backup is due, and the API server refuses it: it stays due", change: func(w *world) {
		w.backedUp(nightly)
		w.now = time.Date(2026, 11, 28, 3, 0, 0, 0, time.UTC)
	}, failed: map[string]error{"create PostgresBackup shop-nightly-20261128-0300": errors.New("exceeded quota: backups")}},
	{why: "D-02: a scheduled backup is due, and the one before still runs", change: func(w *world) {
		taking(w)
		w.ofSchedule("big", "often")
		w.edit(func(s *v1.PostgresClusterSpec) {
			s.Backup.Schedules = []v1.BackupSchedule{{Name: "often", Cron: "* * * * *"}}
		})
		w.pass()
		w.now = w.now.Add(3 * time.Minute)
	}},
	{why: "a schedule is edited: its next time is another", change: func(w *world) {
		w.backedUp(nightly)
		w.edit(func(s *v1.PostgresClusterSpec) { s.Backup.Schedules[0].Cron = "0 5 * * *" })
		w.now = time.Date(2026, 11, 28, 4, 0, 0, 0, time.UTC)
	}},
	{why: "a scheduled backup is due in a cluster that is paused", change: func(w *world) {
		w.backedUp(nightly)
		w.pause()
		w.now = time.Date(2026, 11, 28, 4, 0, 0, 0, time.UTC)
	}},
	{why: "D-05, D-06: schedules that never come are refused by their fields", change: func(w *world) {
		w.backUp(v1.BackupSchedule{Name: "never", Cron: "0 0 30 2 *"}, v1.BackupSchedule{Name: "mars", Cron: "0 3 * * *", TimeZone: "Mars/Olympus"})
	}},
	{why: "failed backups of a schedule: the last ones stay", change: func(w *world) {
		w.backedUp(nightly)
		for n := range 5 {
			name := fmt.Sprintf("shop-nightly-2026112%d-0300", n)
			w.made(name, v1.PostgresBackupStatus{Phase: v1.BackupFailed, Message: "no"})
			w.ofSchedule(name, "nightly")
		}
		w.made("mine", v1.PostgresBackupStatus{Phase: v1.BackupFailed, Message: "no"})
	}},

	// The catalog.
	{why: "the store has backups that no object tells of: objects are made", change: func(w *world) {
		w.backedUp()
		w.found("before-migration")
		w.found("first")      // taken by another
		w.found("Not A Name") // made by another program
		w.agents()
	}},
	{why: "objects were made for what the store has: they are filled in", change: func(w *world) {
		w.backedUp()
		w.found("before-migration")
		w.agents()
		w.pass()
	}},
	{why: "objects of backups are deleted: they come back", change: func(w *world) {
		w.backedUp()
		clear(w.objects[v1.BackupKind])
	}},
	{why: "retention has removed a backup from the store: its object goes", change: func(w *world) {
		w.backedUp()
		w.order("second", v1.BackupFull)
		w.settle()
		w.bucket.backups = w.bucket.backups[1:]
		w.agents()
	}},
	{why: "another store is asked for: objects of backups in the old one stay", change: func(w *world) {
		w.backedUp()
		w.edit(func(s *v1.PostgresClusterSpec) { s.Backup.Store.S3.Bucket = "other" })
		w.bucket.backups = nil
		w.settle()
	}},
	{why: "a complete backup that the catalog has not shown yet stays", change: func(w *world) {
		w.backedUp()
		w.made("new", v1.PostgresBackupStatus{Phase: v1.BackupCompleted, ID: "20261127T115959Z-full-new"})
	}},
	{why: "a backup can't be restored any more, and another's record can't be read", change: func(w *world) {
		w.backedUp()
		w.order("second", v1.BackupFull)
		w.settle()
		w.bucket.damaged = map[string]string{w.bucket.backups[0].ID: "its checksum is another"}
		w.bucket.backups = slices.Clone(w.bucket.backups[1:])
		w.bucket.backups[0].Unusable = "its parent is gone"
		w.agents()
	}},
	{why: "the archive has a gap", change: func(w *world) {
		w.backedUp()
		w.bucket.gap = "000000010000000000000007"
		w.agents()
	}},
	{why: "more WAL is in the archive: the newest backup and the cluster say so", change: func(w *world) {
		w.backedUp()
		w.now = w.now.Add(time.Minute)
		w.order("second", v1.BackupFull)
		w.settle()
		w.bucket.backups = slices.Clone(w.bucket.backups)
		w.bucket.backups[1].StoppedAt = w.bucket.backups[1].StoppedAt.Add(10 * time.Minute)
		w.agents()
	}},
	{why: "the store can't be read", change: func(w *world) {
		w.backedUp()
		w.say("shop-1", func(s *instanceapi.State) { s.CatalogError = "list base/: 503 Service Unavailable" })
	}},

	// The archive.
	{why: "D-14: archiving fails, in the store's words", change: func(w *world) {
		w.backedUp()
		w.storeGoes("the bucket backups does not exist")
		w.agents()
	}},
	{why: "archiving fails on a replica", change: func(w *world) {
		w.backedUp()
		w.say("shop-3", func(s *instanceapi.State) {
			s.Archive = &instanceapi.ArchiveState{Failing: "connection refused", FailingSince: w.now}
		})
	}},
	{why: "archiving fails with other numbers in its words: nothing is written", change: func(w *world) {
		w.backedUp()
		w.storeGoes("request 17 was refused")
		w.settle()
		w.storeGoes("request 18 was refused")
		w.agents()
	}},
	{why: "archiving fails, and WAL fills the volume", change: func(w *world) {
		w.backedUp()
		w.say("shop-1", func(s *instanceapi.State) {
			s.Archive = &instanceapi.ArchiveState{Failing: "connection refused", FailingSince: w.now}
			s.VolumeSize, s.VolumeFree = 1<<30, 1<<30*17/100
		})
	}},
	{why: "archiving fails, and WAL fills its own volume", change: func(w *world) {
		w.withWAL()
		w.backedUp()
		w.say("shop-1", func(s *instanceapi.State) {
			s.Archive = &instanceapi.ArchiveState{Failing: "connection refused", FailingSince: w.now}
			s.VolumeSize, s.VolumeFree, s.WALVolumeSize, s.WALVolumeFree = 1<<30, 1<<30, 1<<29, 1<<29*4/100
		})
	}},
	{why: "F-07: archiving is well again: the failure is there with its time alone", change: func(w *world) {
		w.backedUp()
		w.storeGoes("the bucket backups does not exist")
		w.settle()
		w.now = w.now.Add(time.Minute)
		w.storeComesBack()
		w.agents()
	}},
	{why: "the primary is away while backups are asked for", change: func(w *world) {
		w.backedUp()
		delete(w.objects["Pod"], "shop-1")
	}},
	{why: "a cluster with backups stops", change: func(w *world) {
		w.backedUp(nightly)
		w.scale(0)
		w.settle()
	}},

	// A database that is made of a backup.
	{why: "a cluster is made of a backup: the agents are told where it lies", change: func(w *world) {
		w.other("old-1", "17.6")
		w.restoreOf("old-1", v1.RestoreTarget{Time: "2026-11-26T12:00:00Z"})
	}},
	{why: "a cluster is to be made of a backup that there is not", change: func(w *world) { w.restoreOf("nope", v1.RestoreTarget{}) }},
	{why: "D-17: a cluster is to be made of a backup that is not complete: it waits", change: func(w *world) {
		w.other("old-1", "")
		change(w, "old-1", func(b *v1.PostgresBackup) { b.Status = v1.PostgresBackupStatus{Phase: v1.BackupRunning, ID: "x"} })
		w.restoreOf("old-1", v1.RestoreTarget{})
	}},
	{why: "D-17: the backup has failed", change: func(w *world) {
		w.other("old-1", "")
		change(w, "old-1", func(b *v1.PostgresBackup) {
			b.Status = v1.PostgresBackupStatus{Phase: v1.BackupFailed, ID: "x", Message: "the pod is gone"}
		})
		w.restoreOf("old-1", v1.RestoreTarget{})
	}},
	{why: "D-10: the backup is of another major version", change: func(w *world) {
		w.other("old-1", "15.9")
		w.restoreOf("old-1", v1.RestoreTarget{})
	}},
	{why: "D-09: the backup was complete after the target", change: func(w *world) {
		w.other("old-1", "17.6")
		w.restoreOf("old-1", v1.RestoreTarget{Time: "2026-11-26T03:00:00Z"})
	}},
	{why: "a backup can't be restored", change: func(w *world) {
		w.other("old-1", "17.6")
		change(w, "old-1", func(b *v1.PostgresBackup) {
			b.Status.InCatalog, b.Status.Message = true, "it can't be restored: its parent is gone"
		})
		w.restoreOf("old-1", v1.RestoreTarget{})
	}},
	{why: "a target that is none, past the schema", change: func(w *world) {
		w.other("old-1", "17.6")
		w.restoreOf("old-1", v1.RestoreTarget{LSN: "x"})
	}},
	{why: "D-11: a cluster is made of the newest backup in a store, whose cluster is gone", change: func(w *world) {
		*w = *newWorld(1)
		w.edit(func(s *v1.PostgresClusterSpec) {
			s.Bootstrap = &v1.BootstrapSpec{Restore: &v1.RestoreSource{Cluster: "old", Store: &v1.BackupStore{Volume: &v1.VolumeStore{Claim: "nfs"}}}}
		})
	}},
	{why: "a restore is under way", change: func(w *world) {
		w.other("old-1", "17.6")
		w.restoreOf("old-1", v1.RestoreTarget{})
		for range 3 {
			w.turnWithoutAgents()
		}
		w.say("shop-1", func(s *instanceapi.State) {
			s.Phase, s.Message, s.Restored, s.RestoreTotal = instanceapi.PhaseBootstrapping, "restoring backup 20261126T030000Z-full-abc123", 7<<30, 20<<30
		})
	}},
	{why: "another volume is named for a restore before there is a database", change: func(w *world) {
		*w = *newWorld(1)
		source := func(claim string) {
			w.edit(func(s *v1.PostgresClusterSpec) {
				s.Bootstrap = &v1.BootstrapSpec{Restore: &v1.RestoreSource{Cluster: "old", Store: &v1.BackupStore{Volume: &v1.VolumeStore{Claim: claim}}}}
			})
		}
		source("nfs")
		for range 3 {
			w.turnWithoutAgents()
		}
		w.say("shop-1", func(s *instanceapi.State) {
			s.Phase, s.Message = instanceapi.PhaseFailed, "there is no backup of old in the store"
		})
		source("other")
	}},
	{why: "a restored database is there: nothing of the backup is needed any more", change: func(w *world) {
		w.other("old-1", "17.6")
		w.restoreOf("old-1", v1.RestoreTarget{})
		w.settle()
		delete(w.objects[v1.BackupKind], "old-1")
	}},
}
