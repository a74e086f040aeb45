package instance

import (
	"strings"
	"testing"
	"time"

	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/pki"
	"github.com/pgop/postgres-operator/pkg/postgres"
)

// copies is another world, with an authority of its own, whose cluster is a copy of
// what p serves at address.
func (from *world) copies(p *testPod, address string) *world {
	from.Helper()
	w := newWorldOf(from.T, from.bin, from.major)
	w.setPassword("another")
	w.kube.setSecret("shop-clone", false, from.cloneSecret(from.ca))
	w.apply(func() {
		b := &w.config.Bootstrap
		b.Encoding, b.Locale, b.DataChecksums = "", "", false
		b.Clone = &instanceapi.Clone{Cluster: "other", Host: p.options.Instance, Address: address, Port: from.port, Secret: "shop-clone"}
	})
	return w
}

// cloneSecret lets a copy in that trusts this world, with a certificate of ca.
func (w *world) cloneSecret(ca pki.Pair) map[string]string {
	leaf, err := ca.NewLeaf(postgres.ReplicationRole, nil, time.Now())
	must(w.T, err)
	return map[string]string{
		instanceapi.CAFile:              string(w.ca.Cert),
		instanceapi.ReplicationCertFile: string(leaf.Cert), instanceapi.ReplicationKeyFile: string(leaf.Key),
	}
}

// A running cluster is copied, from its primary or from a replica. The copy has this
// cluster's logins and is on a timeline of its own: it follows nobody, has no slots,
// takes no changes from where the other subscribes, and is followed like any other.
// The other cluster goes on as it was.
func TestCopyOfARunningCluster(t *testing.T) {
	t.Parallel()
	for what, of := range map[string]int{"its primary": 0, "a replica": 1} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			other := newWorld(t)
			other.conf["max_connections"], other.conf["wal_level"] = "60", "logical"
			other.apply(func() { other.config.Members = []string{"shop-1", "shop-2"} })
			addresses := []string{"127.0.71.1", "127.0.71.2"}
			pods := []*testPod{other.start("shop-1", addresses[0]), other.start("shop-2", addresses[1])}
			primary := pods[0]
			primary.waitFor("ready", isReady)
			pods[1].waitFor("streams", isStreaming)
			for _, statement := range []string{
				"CREATE TABLE public.ledger (n int)",
				"SELECT pg_create_physical_replication_slot('mine', true)",
				"CREATE SUBSCRIPTION news CONNECTION 'host=127.0.71.9' PUBLICATION p WITH (connect = false, slot_name = 'news')",
				"ALTER SUBSCRIPTION news ENABLE",
			} {
				must(t, primary.sql.Exec(t.Context(), statement))
			}
			primary.write(1)
			// The WAL of a cluster at rest ends with a record of no transaction.
			must(t, primary.sql.Exec(t.Context(), "CHECKPOINT"))
			const replayed = "SELECT pg_last_wal_replay_lsn()::text"
			end := primary.query("SELECT pg_current_wal_insert_lsn()::text")
			other.eventually("the checkpoint on the replica", func() bool { return pods[1].query(replayed) == end }, func() string { return pods[1].query(replayed) })
			const slots = "SELECT string_agg(slot_name, ' ' ORDER BY slot_name) FROM pg_replication_slots"
			before := primary.query(slots)

			w := other.copies(pods[of], addresses[of])
			w.withWAL = of == 1
			w.apply(func() { w.config.Members = []string{"shop-1", "shop-2"} })
			made, replica := w.start("shop-1", "127.0.72.1"), w.start("shop-2", "127.0.72.2")
			state := made.waitFor("ready", isReady)
			if state.Role != instanceapi.RolePrimary || state.Timeline != 2 || state.SystemID != primary.systemID || state.Restored == 0 {
				t.Errorf("it says %+v", state)
			}
			primary.write(2)
			made.write(3)
			replica.waitFor("streams", isStreaming)
			if got := made.ledger(); got != "1 3" {
				t.Errorf("it has %q", got)
			}
			if got := primary.ledger(); got != "1 2" {
				t.Errorf("the other has %q", got)
			}
			const password = "SELECT rolpassword FROM pg_authid WHERE rolname = 'app'"
			if made.query(password) == primary.query(password) {
				t.Error("the login is the other's")
			}
			if got := made.query("SELECT count(*)::text FROM pg_replication_slots WHERE slot_name = 'mine'"); got != "0" {
				t.Error("it has the other's slot")
			}
			const follows = "SELECT concat(current_setting('primary_conninfo'), current_setting('restore_command'), current_setting('recovery_target'), current_setting('archive_mode'), current_setting('max_connections'))"
			if got := made.query(follows); got != "always20" {
				t.Errorf("its server has %q", got)
			}
			const subscribes = "SELECT subenabled::text FROM pg_subscription"
			if mine, others := made.query(subscribes), primary.query(subscribes); mine != "false" || others != "true" {
				t.Errorf("its subscription is enabled: %s; the other's: %s", mine, others)
			}
			if after := primary.query(slots); after != before {
				t.Errorf("the other had slots %s and has %s", before, after)
			}
			if exists(made.volume.standby()) || exists(made.options.RunDir+"/.clone") {
				t.Error("the mark of a standby, or the key, is still there")
			}
		})
	}
}

// Nobody is copied who can't be known for who it is, and nobody is let in who is not
// known there. Nothing of a copy that failed stays, and it is tried again.
func TestCopyNeedsTheOtherClustersAuthority(t *testing.T) {
	t.Parallel()
	other := newWorld(t)
	p := other.start("shop-1", "127.0.73.1")
	p.waitFor("ready", isReady)
	w := other.copies(p, "127.0.73.1")
	serves := func(secret map[string]string) { w.kube.setSecret("shop-clone", false, secret) }
	serves(map[string]string{})
	made := w.start("shop-1", "127.0.74.1")
	made.waitFor("has no key", failsWith("shop-clone", "has no key ca.crt"))
	serves(other.cloneSecret(w.ca))
	made.waitFor("is not let in", failsWith("copy cluster other from shop-1"))
	untrusted := other.cloneSecret(other.ca)
	untrusted[instanceapi.CAFile] = string(w.ca.Cert)
	serves(untrusted)
	made.waitFor("does not trust it", failsWith("copy cluster other from shop-1", "certificate verify failed"))
	if exists(made.volume.data()) || exists(made.volume.marker()) || made.State(t.Context()).HasData {
		t.Error("something of the copy is there")
	}
	serves(other.cloneSecret(other.ca))
	made.waitFor("ready", isReady)
}

// A copy is one of another server once that is named, and goes on if it has begun.
func TestCopyGoesOnWhenAnotherServerIsNamed(t *testing.T) {
	before := instanceapi.Config{Bootstrap: instanceapi.Bootstrap{Instance: "new-1", Clone: &instanceapi.Clone{Cluster: "other", Host: "other-2", Address: "10.0.0.2"}}}
	at := func(cluster, host string) instanceapi.Config {
		now := before
		now.Bootstrap.Clone = &instanceapi.Clone{Cluster: cluster, Host: host, Address: "10.0.0.3"}
		return now
	}
	if bootstrapChanged(before, at("other", "other-3")) {
		t.Error("it begins anew for another server of the same cluster")
	}
	if !bootstrapChanged(before, at("third", "third-1")) || !bootstrapChanged(before, instanceapi.Config{Bootstrap: instanceapi.Bootstrap{Instance: "new-1"}}) {
		t.Error("it goes on, though another cluster or none is asked for")
	}
}

// No primary ever waits for a copy: what it waits for has a dot.
func TestNoPrimaryWaitsForACopy(t *testing.T) {
	info := cloneConnInfo(Options{Instance: "new-1"}, instanceapi.Clone{Host: "other-2.other-pods.db.svc", Address: "10.0.0.2", Port: 5432}, "/run/postgresql/.clone")
	for _, want := range []string{"application_name='new-1-clone'", "host='other-2.other-pods.db.svc'", "hostaddr='10.0.0.2'", "sslmode='verify-full'",
		"sslkey='/run/postgresql/.clone/replication.key'", "sslrootcert='/run/postgresql/.clone/ca.crt'"} {
		if !strings.Contains(info, want) {
			t.Errorf("%s has no %s", info, want)
		}
	}
}
