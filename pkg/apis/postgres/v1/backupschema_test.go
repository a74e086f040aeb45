package v1_test

import (
	"encoding/json"
	"os"
	"testing"

	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/pgop/postgres-operator/deploy"
	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/internal/apischema"
)

func loadBackupSchema(t testing.TB) *apischema.Schema {
	t.Helper()
	s, err := apischema.New(deploy.PostgresBackupCRD)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// minimalBackup is the least that a PostgresBackup can be.
func minimalBackup(t testing.TB) map[string]any {
	return object(t, `
apiVersion: pgop.dev/v1
kind: PostgresBackup
metadata: {name: before-migration, namespace: db}
spec: {cluster: shop}
`)
}

func decodeBackup(stored map[string]any) (*v1.PostgresBackup, error) {
	text, err := json.Marshal(stored)
	if err != nil {
		return nil, err
	}
	b := &v1.PostgresBackup{}
	return b, utiljson.Unmarshal(text, b)
}

func TestAPIServerAcceptsTheCRDOfBackups(t *testing.T) {
	if err := loadBackupSchema(t).Check(); err != nil {
		t.Error(err)
	}
}

func TestCreationOfBackups(t *testing.T) {
	s := loadBackupSchema(t)
	for _, c := range []struct{ why, path, value, want string }{
		{"the least", "spec.type", "-", ""},
		{"an incremental one", "spec.type", "incremental", ""},
		{"another type", "spec.type", "differential", `spec.type: Unsupported value: "differential": supported values: "full", "incremental"`},
		{"of no cluster", "spec.cluster", "-", "spec.cluster: Required value"},
		{"of a cluster without a name", "spec.cluster", "''", "spec.cluster"},
	} {
		t.Run(c.why, func(t *testing.T) {
			o := minimalBackup(t)
			set(t, o, c.path, c.value)
			_, err := s.Create(o)
			expectRefusal(t, c.want, err)
		})
	}
	stored, err := s.Create(minimalBackup(t))
	if err != nil {
		t.Fatal(err)
	}
	if b, err := decodeBackup(stored); err != nil || b.Spec.Type != v1.BackupFull {
		t.Errorf("type %v, %v", b, err)
	}
	misspelt := minimalBackup(t)
	set(t, misspelt, "spec.retention", "7")
	if unknown := s.Unknown(misspelt); len(unknown) != 1 {
		t.Errorf("A-06: unknown fields %v", unknown)
	}
}

func TestExampleOfABackupIsAccepted(t *testing.T) {
	s := loadBackupSchema(t)
	text, err := os.ReadFile("../../../../example/backup-now.yaml")
	if err != nil {
		t.Fatal(err)
	}
	example := object(t, string(text))
	if _, err := s.Create(example); err != nil || len(s.Unknown(example)) > 0 {
		t.Errorf("%v, unknown fields %v", err, s.Unknown(example))
	}
}

func TestUpdateOfBackups(t *testing.T) {
	s := loadBackupSchema(t)
	stored, err := s.Create(minimalBackup(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ why, path, value, want string }{
		{"nothing changed", "spec.cluster", "shop", ""},
		{"another cluster", "spec.cluster", "other", "spec: a backup is taken once, as it was asked for; make another PostgresBackup"},
		{"another type", "spec.type", "incremental", "make another PostgresBackup"},
		{"its status", "status", "{phase: Running, id: x, progress: {done: 1, estimated: 2}}", ""},
	} {
		t.Run(c.why, func(t *testing.T) {
			o := minimalBackup(t)
			set(t, o, c.path, c.value)
			_, err := s.Update(stored, o)
			expectRefusal(t, c.want, err)
		})
	}
}

// Each rule of spec.backup and of a restore, with its message.
func TestBackupsOfAClusterInTheSchema(t *testing.T) {
	s := loadSchema(t)
	const bucket = "store: {s3: {bucket: backups}}"
	backup := func(more string) string { return "{" + bucket + ", " + more + "}" }
	s3 := func(more string) string { return "{store: {s3: {bucket: backups, " + more + "}}}" }
	schedule := func(more string) string { return backup("schedules: [{name: nightly, " + more + "}]") }
	restore := func(fields string) string { return "{restore: {" + fields + "}}" }
	target := func(fields string) string { return restore("backup: a, target: {" + fields + "}") }
	for _, c := range []struct{ why, path, value, want string }{
		{"a bucket", "spec.backup", "{" + bucket + "}", ""},
		{"a bucket with all that it can have", "spec.backup", s3("prefix: a/b, endpoint: 'https://minio.example.com:9000', region: eu-1, credentialsSecret: {name: login}, caSecret: {name: ca}"), ""},
		{"an address of IPv6", "spec.backup", s3("endpoint: 'http://[fd00::1]:9000'"), ""},
		{"a volume", "spec.backup", "{store: {volume: {claim: nfs, path: team/db}}}", ""},
		{"no store", "spec.backup", "{retention: {keep: 7}}", "spec.backup.store: Required value"},
		{"an empty store", "spec.backup", "{store: {}}", "store: name exactly one place: s3 or volume"},
		{"two stores", "spec.backup", "{store: {s3: {bucket: backups}, volume: {claim: nfs}}}", "store: name exactly one place: s3 or volume"},
		{"a bucket in capitals", "spec.backup", "{store: {s3: {bucket: Backups}}}", "s3.bucket: the name of a bucket"},
		{"a prefix that leaves", "spec.backup", s3("prefix: a/../b"), "s3.prefix: words of letters"},
		{"a prefix with a slash too many", "spec.backup", s3("prefix: /a"), "s3.prefix: words of letters"},
		{"an endpoint without a scheme", "spec.backup", s3("endpoint: minio:9000"), "s3.endpoint: http:// or https://"},
		{"an endpoint with a path", "spec.backup", s3("endpoint: 'https://a/b'"), "s3.endpoint: http:// or https://"},
		{"a path that leaves", "spec.backup", "{store: {volume: {claim: nfs, path: ..}}}", "volume.path: words of letters"},
		{"retention", "spec.backup", backup("retention: {keep: 7, within: 30d}"), ""},
		{"retention of none", "spec.backup", backup("retention: {keep: 0}"), "spec.backup.retention.keep"},
		{"retention in months", "spec.backup", backup("retention: {within: 1y}"), "spec.backup.retention.within: a number of days, hours or minutes"},
		{"a rate", "spec.backup", backup("maxRate: 50Mi"), ""},
		{"a rate in Postgres' units", "spec.backup", backup("maxRate: 50MB"), "spec.backup.maxRate"},
		{"a rate that is too slow", "spec.backup", backup("maxRate: 1Ki"), "spec.backup.maxRate: a quantity from 32Ki to 1Gi"},
		{"D-05: a schedule", "spec.backup", schedule("cron: '0 3 * * *', timeZone: Europe/Berlin, type: incremental"), ""},
		{"D-05: weekly", "spec.backup", schedule("cron: '0 1 * * 0'"), ""},
		{"D-05: six fields", "spec.backup", schedule("cron: '0 0 3 * * *'"), "spec.backup.schedules.cron: five fields"},
		{"D-05: a word", "spec.backup", schedule("cron: '@daily'"), "spec.backup.schedules.cron: five fields"},
		{"D-05: one field", "spec.backup", schedule("cron: '*/5'"), "spec.backup.schedules.cron: five fields"},
		{"a schedule without a time", "spec.backup", schedule("type: full"), "cron: Required value"},
		{"a schedule in capitals", "spec.backup", backup("schedules: [{name: Nightly, cron: '0 3 * * *'}]"), "spec.backup.schedules.name: lower case letters"},
		{"two schedules of a name", "spec.backup", backup("schedules: [{name: a, cron: '0 3 * * *'}, {name: a, cron: '0 4 * * *'}]"), "Duplicate value"},

		{"proofs", "spec.backup", backup("verify: {cron: '0 5 * * 0', timeZone: Europe/Berlin}"), ""},
		{"D-05: proofs with a word", "spec.backup", backup("verify: {cron: '@weekly'}"), "spec.backup.verify.cron: five fields"},
		{"proofs without a time", "spec.backup", backup("verify: {timeZone: Etc/UTC}"), "cron: Required value"},

		{"a backup to restore", "spec.bootstrap", restore("backup: before-migration"), ""},
		{"D-11: a store and a cluster", "spec.bootstrap", restore("cluster: old, store: {s3: {bucket: backups}}"), ""},
		{"a restore of nothing", "spec.bootstrap", restore("database: app"), "spec.bootstrap.restore: name a backup, or the store and the cluster"},
		{"a store without a cluster", "spec.bootstrap", restore("backup: x, store: {s3: {bucket: backups}}"), "spec.bootstrap.restore.cluster: name the cluster"},
		{"a way out of the folder", "spec.bootstrap", restore("store: {s3: {bucket: backups, prefix: team}}, cluster: ../other"), "spec.bootstrap.restore.cluster: the name of a PostgresCluster"},
		{"a cluster that is a folder", "spec.bootstrap", restore("store: {volume: {claim: backups}}, cluster: ."), "spec.bootstrap.restore.cluster: the name of a PostgresCluster"},
		{"a cluster without a store", "spec.bootstrap", restore("backup: x, cluster: old"), "spec.bootstrap.restore.store: say where"},
		{"initdb and a restore", "spec.bootstrap", "{initdb: {}, restore: {backup: x}}", "spec.bootstrap: name exactly one way to make the database: initdb, restore or clone"},
		{"a copy of another cluster", "spec.bootstrap", "{clone: {cluster: other}}", ""},
		{"a copy with names of its own", "spec.bootstrap", "{clone: {cluster: other, database: 'Web Shop', owner: web}}", ""},
		{"a copy of no cluster", "spec.bootstrap", "{clone: {database: app}}", "spec.bootstrap.clone.cluster: Required value"},
		{"a copy of a cluster without a name", "spec.bootstrap", "{clone: {cluster: ''}}", "spec.bootstrap.clone.cluster"},
		{"a copy of itself", "spec.bootstrap", "{clone: {cluster: shop}}", "spec.bootstrap.clone.cluster: a cluster can't be a copy of itself; name another"},
		{"a copy and a restore", "spec.bootstrap", "{clone: {cluster: other}, restore: {backup: x}}", "spec.bootstrap: name exactly one way to make the database"},
		{"a copy and initdb", "spec.bootstrap", "{clone: {cluster: other}, initdb: {}}", "spec.bootstrap: name exactly one way to make the database"},
		{"no way at all", "spec.bootstrap", "{}", "spec.bootstrap: name exactly one way to make the database"},
		{"D-07: a time in UTC", "spec.bootstrap", target("time: '2026-11-27T12:00:00Z'"), ""},
		{"D-07: a time with an offset", "spec.bootstrap", target("time: '2026-11-27T12:00:00.25+02:00'"), ""},
		{"D-07: a time as the server writes it", "spec.bootstrap", target("time: '2026-11-27 12:00:00+00'"), ""},
		{"D-07: a time without an offset", "spec.bootstrap", target("time: '2026-11-27 12:00:00'"), "target.time: a time with its offset from UTC"},
		{"D-07: a time in words", "spec.bootstrap", target("time: yesterday"), "target.time: a time with its offset from UTC"},
		{"a position", "spec.bootstrap", target("lsn: 0/3000148"), ""},
		{"a position that is none", "spec.bootstrap", target("lsn: '3000148'"), "target.lsn: a position in the WAL"},
		{"a transaction", "spec.bootstrap", target("xid: '742'"), ""},
		{"a transaction that is none", "spec.bootstrap", target("xid: 7a"), "target.xid: a transaction id"},
		{"the end of the backup", "spec.bootstrap", target("immediate: true"), ""},
		{"not the end of the backup", "spec.bootstrap", target("immediate: false"), "target.immediate: true, or leave it out"},
		{"two targets", "spec.bootstrap", target("xid: '742', name: here"), "target: at most one of time, lsn, xid, name and immediate"},
	} {
		t.Run(c.why, func(t *testing.T) {
			o := minimal(t)
			set(t, o, c.path, c.value)
			_, err := s.Create(o)
			expectRefusal(t, c.want, err)
		})
	}
}

// D-19: once there is a database, nobody restores another over it by an edit.
func TestD19RestoreIsNotEditedOnceThereIsADatabase(t *testing.T) {
	s := loadSchema(t)
	made := func(bootstrap, status string) map[string]any {
		o := minimal(t)
		set(t, o, "spec.bootstrap", bootstrap)
		set(t, o, "status", status)
		stored, err := s.Create(o)
		if err != nil {
			t.Fatal(err)
		}
		return stored
	}
	edited := func(bootstrap string) map[string]any {
		o := minimal(t)
		set(t, o, "spec.bootstrap", bootstrap)
		return o
	}
	const created, before = "{systemID: '7432000000000000001', readyInstances: 1}", "{readyInstances: 0}"
	const refused = "spec.bootstrap: used at creation only, and this cluster has been created; put the old value back"
	for _, c := range []struct{ why, old, status, new, want string }{
		{"another target", "{restore: {backup: a, target: {time: '2026-11-27T12:00:00Z'}}}", created, "{restore: {backup: a, target: {time: '2026-11-27T13:00:00Z'}}}", refused},
		{"another backup", "{restore: {backup: a}}", created, "{restore: {backup: b}}", refused},
		{"a restore over a database of its own", "{initdb: {}}", created, "{restore: {backup: b}}", refused},
		{"a copy of another over a database of its own", "{initdb: {}}", created, "{clone: {cluster: other}}", refused},
		{"a copy of a third cluster", "{clone: {cluster: other}}", created, "{clone: {cluster: third}}", refused},
		{"the copy's source corrected before there is a database", "{clone: {cluster: other}}", before, "{clone: {cluster: third}}", ""},
		{"the copy with its defaults", "{clone: {cluster: other}}", created, "{clone: {cluster: other, database: app, owner: app}}", ""},
		{"the same with its defaults", "{restore: {backup: a}}", created, "{restore: {backup: a, database: app, owner: app}}", ""},
		{"a backup corrected before there is a database", "{restore: {backup: a}}", before, "{restore: {backup: b}}", ""},
	} {
		_, err := s.Update(made(c.old, c.status), edited(c.new))
		t.Run(c.why, func(t *testing.T) { expectRefusal(t, c.want, err) })
	}
}
