package instance

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/lib/pq"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/pgop/postgres-operator/pkg/election"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
)

func TestPlanSlots(t *testing.T) {
	have := []slot{
		{Name: "shop_1"},                     // the primary's own, from when it was a replica
		{Name: "shop_2", Active: true},       // in use
		{Name: "shop_3", Lost: true},         // of a member, useless
		{Name: "shop_5"},                     // of one that has gone
		{Name: "shop_6", Active: true},       // of one that is going
		{Name: "debezium"}, {Name: "shop_x"}, // of users
	}
	drop, create := planSlots("shop", "shop-1", []string{"shop-1", "shop-2", "shop-3", "shop-4"}, have)
	if diff := cmp.Diff([]string{"shop_1", "shop_3", "shop_5"}, drop); diff != "" {
		t.Error("drop:", diff)
	}
	if diff := cmp.Diff([]string{"shop_3", "shop_4"}, create); diff != "" {
		t.Error("create:", diff)
	}
}

func TestReadiness(t *testing.T) {
	now := time.Now()
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	cases := []struct {
		why  string
		r    readiness
		want bool
	}{
		{"no server", readiness{Role: instanceapi.RoleNone}, false},
		{"a primary that reigns", readiness{Role: instanceapi.RolePrimary, Answers: true, Reigns: true}, true},
		{"a primary without the Lease", readiness{Role: instanceapi.RolePrimary, Answers: true}, false},
		{"a primary that is silent", readiness{Role: instanceapi.RolePrimary, Reigns: true}, false},
		{"a replica that streams", readiness{Role: instanceapi.RoleReplica, Answers: true, StreamedAt: now, RenewedAt: now}, true},
		{"a replica that streamed a moment ago",
			readiness{Role: instanceapi.RoleReplica, Answers: true, StreamedAt: ago(2 * time.Second), RenewedAt: now}, true},
		{"a replica that no longer streams from a living primary",
			readiness{Role: instanceapi.RoleReplica, Answers: true, StreamedAt: ago(6 * time.Second), RenewedAt: now}, false},
		{"a replica that streamed as long as there was a primary",
			readiness{Role: instanceapi.RoleReplica, Answers: true, StreamedAt: ago(6 * time.Second), RenewedAt: ago(5 * time.Second)}, true},
		{"a replica that has never streamed",
			readiness{Role: instanceapi.RoleReplica, Answers: true, RenewedAt: now}, false},
		{"a replica without a primary for long",
			readiness{Role: instanceapi.RoleReplica, Answers: true, RenewedAt: ago(11 * time.Second)}, true},
		{"a replica that does not stream, between two renewals of a long Lease",
			readiness{Role: instanceapi.RoleReplica, Answers: true, RenewedAt: ago(11 * time.Second), Lasts: time.Minute}, false},
		{"a replica without a primary for as long as a long Lease lasts",
			readiness{Role: instanceapi.RoleReplica, Answers: true, RenewedAt: ago(61 * time.Second), Lasts: time.Minute}, true},
	}
	for _, c := range cases {
		c.r.Lasts = max(c.r.Lasts, leaseDuration)
		if got := c.r.isReady(now); got != c.want {
			t.Errorf("%s: ready is %v", c.why, got)
		}
	}
}

// A receiver that reconnects is no news; one that is to follow another is.
func TestStreamedLately(t *testing.T) {
	now := time.Now()
	one, other := upstream{Instance: "shop-1", Address: "10.0.0.1"}, upstream{Instance: "shop-2", Address: "10.0.0.2"}
	ago := func(d time.Duration) streamed { return streamed{at: now.Add(-d), from: one} }
	cases := []struct {
		why  string
		s    streamed
		up   upstream
		want bool
	}{
		{"it streams", ago(0), one, true},
		{"it streamed a moment ago", ago(2 * time.Second), one, true},
		{"it streams no more", ago(blip), one, false},
		{"it follows another now", ago(time.Second), other, false},
		{"it follows nobody", streamed{at: now}, upstream{}, false},
		{"it has never streamed", streamed{from: one}, one, false},
	}
	for _, c := range cases {
		if got := c.s.lately(c.up, now); got != c.want {
			t.Errorf("%s: %v", c.why, got)
		}
	}
}

func TestExplainSQL(t *testing.T) {
	cases := []struct{ why, item, want string }{
		{"a line of many", "SELECT 1;\n  SELEC é 2;\n", `sql[3]: line 2: ERROR: wrong: "SELEC é 2;"`},
		{"a command of psql", "SELECT 1;\n\\connect app x", `sql[3]: line 2: \connect is a command of psql and not SQL; only SQL can be used here: "\\connect app x"`},
	}
	for _, c := range cases {
		position := map[string]string{"a line of many": "13", "a command of psql": "11"}[c.why]
		got := explainSQL(3, c.item, &pq.Error{Severity: "ERROR", Code: "42601", Message: "wrong", Position: position})
		if !strings.HasSuffix(got.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", c.why, got, c.want)
		}
	}
	got := explainSQL(0, "SELECT f()", &pq.Error{Severity: "ERROR", Message: "no", Hint: "try", Where: "PL\nline 2"}).Error()
	if want := `spec.bootstrap.initdb.sql[0]: ERROR: no; HINT: try; CONTEXT: PL; line 2: in "SELECT f()"`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if other := errors.New("gone"); !errors.Is(explainSQL(0, "", other), other) {
		t.Error("an error of another kind is lost")
	}
}

func TestLastWords(t *testing.T) {
	cases := []struct{ why, log, want string }{
		{"nothing said", "2026-11-28 01:00:00 UTC [1] LOG:  starting\n", ""},
		{"the last FATAL with its hint", `2026-11-28 01:00:00 UTC [1] FATAL:  old
2026-11-28 01:00:00 UTC [1] FATAL:  could not map memory
2026-11-28 01:00:00 UTC [1] HINT:  use less
2026-11-28 01:00:00 UTC [1] LOG:  database system is shut down
`, "FATAL: could not map memory; HINT: use less"},
		{"what else ends with it", `x PANIC:  could not write to file "pg_wal/xlogtemp.330": No space left on device
x LOG:  terminating any other active server processes
x FATAL:  archive command was terminated by signal 3: Quit
x DETAIL:  The failed archive command was: archive 000000010000000000000002
`, `PANIC: could not write to file "pg_wal/xlogtemp.330": No space left on device`},
		{"before it can log", `postgres: could not find the database system
Expected to find it in the directory "/a",
but could not open file "/a/global/pg_control": No such file or directory
`, `could not find the database system Expected to find it in the directory "/a", but could not open file "/a/global/pg_control": No such file or directory`},
		{"what is wrong with a file", `x LOG:  invalid address
x CONTEXT:  line 6 of configuration file "/a/pg_hba.conf"
x FATAL:  could not load pg_hba.conf
`, `invalid address (line 6 of configuration file "/a/pg_hba.conf"); FATAL: could not load pg_hba.conf`},
	}
	for _, c := range cases {
		if got := lastWords(c.log); got != c.want {
			t.Errorf("%s: got %q, want %q", c.why, got, c.want)
		}
	}
}

func TestBackoffGrowsToALimit(t *testing.T) {
	last := time.Duration(0)
	for failures := 1; failures < 100; failures++ {
		d := backoff(failures)
		if d < last || d <= 0 || d > 15*time.Second {
			t.Fatalf("after %d failures %v, before %v", failures, d, last)
		}
		last = d
	}
}

func TestConnInfoHasNoPassword(t *testing.T) {
	o := Options{Instance: "shop-2", RunDir: "/run/postgresql", TLSDir: "/tls", Port: 5432}
	text := renderInstance(o, ownServerFiles(o), upstream{Instance: "shop-1", Address: "10.0.0.1"}, "shop-2.ab", "", nil, nil)
	for _, part := range []string{"hostaddr=''10.0.0.1''", "host=''shop-1''", "application_name=''shop-2.ab''", "sslmode=''verify-full''",
		"sslcert=''/tls/replication.crt''", "primary_slot_name = 'shop_2'"} {
		if !strings.Contains(text, part) {
			t.Errorf("no %s in %s", part, text)
		}
	}
	if strings.Contains(text, "password=") {
		t.Error("a password is in the file")
	}
	if got := renderInstance(o, ownServerFiles(o), upstream{}, "shop-2.ab", "", nil, nil); strings.Contains(got, "host") {
		t.Errorf("a primary has an upstream: %s", got)
	}
}

func TestWhatWaitsForARestart(t *testing.T) {
	var got pending
	got.add("max_connections", "100", "0x12C", false)
	got.add("max_wal_senders", "40", "20", false)
	got.add("max_worker_processes", "8", "8.2", false)
	got.add("shared_buffers", "16384", "32MB", false)
	got.add("wal_buffers", "512", "1MB", true)
	want := pending{
		Configured: []string{"max_connections", "max_wal_senders", "max_worker_processes", "shared_buffers"}, System: []string{"wal_buffers"},
		Raised: []string{"max_connections"}, Lowered: []string{"max_wal_senders"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// C-22: where instances are is known although the Lease that told it is gone, also
// without DNS.
func TestC22AddressesOutliveTheLease(t *testing.T) {
	v := &view{wake: func() {}}
	p := peers{options: Options{Cluster: "shop", Namespace: "db"}, view: v}
	record := election.Record{Term: 3, SystemID: "7", HolderDataID: "d1", HolderAddress: "10.0.0.1", Addresses: map[string]string{"shop-2": "10.0.0.2"}}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "1", Annotations: map[string]string{election.RecordAnnotation: record.String()}},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To("shop-1/u")}}
	v.SawLease(lease)
	v.SawLease(nil)
	v.SawLease(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "2"}})
	for instance, want := range map[string]string{"shop-1": "10.0.0.1:", "shop-2": "10.0.0.2:", "shop-3": "shop-3.shop-pods.db:"} {
		if got := p.addresses(instance); !strings.HasPrefix(got[0], want) {
			t.Errorf("%s may be at %v, want %s first", instance, got, want)
		}
	}
}
