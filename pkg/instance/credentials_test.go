package instance

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lib/pq"

	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/pki"
	"github.com/pgop/postgres-operator/pkg/postgres"
)

// deliver gives a pod new certificates and waits until it uses them.
func (p *testPod) deliver(signer pki.Pair, trusted ...pki.Pair) {
	p.world.Helper()
	var bundle []byte
	for _, authority := range trusted {
		bundle = append(bundle, authority.Cert...)
	}
	issue(p.world.T, signer, bundle, p.options)
	p.awaitCredentials()
}

// awaitCredentials waits until the pod uses the certificates that it has.
func (p *testPod) awaitCredentials() {
	p.world.Helper()
	files := map[string][]byte{}
	for _, name := range slices.Concat(instanceapi.CredentialFiles, instanceapi.ServerFiles) {
		content, err := os.ReadFile(p.options.tls(name))
		if !errors.Is(err, fs.ErrNotExist) {
			must(p.world.T, err)
			files[name] = content
		}
	}
	p.waitFor("new certificates", func(s instanceapi.State) bool { return s.Credentials == instanceapi.CredentialsHash(files) })
}

// show lets the pod's server show a certificate of people's own, and verify others by
// a bundle; an empty pair or bundle takes it away again.
func (p *testPod) show(shown pki.Pair, trusted []byte) {
	p.world.Helper()
	for name, content := range map[string][]byte{instanceapi.ServerCAFile: trusted, instanceapi.ServerCertFile: shown.Cert, instanceapi.ServerKeyFile: shown.Key} {
		if len(content) == 0 {
			must(p.world.T, os.RemoveAll(p.options.tls(name)))
			continue
		}
		must(p.world.T, os.WriteFile(p.options.tls(name)+".new", content, 0o600))
		must(p.world.T, os.Rename(p.options.tls(name)+".new", p.options.tls(name)))
	}
	p.awaitCredentials()
}

// verify opens a connection that trusts one authority.
func (p *testPod) verify(authority pki.Pair) error {
	p.world.Helper()
	root := filepath.Join(p.world.dir, p.options.Instance+"-root.crt")
	must(p.world.T, os.WriteFile(root, authority.Cert, 0o600))
	info := postgres.ConnInfo{Host: p.options.PodIP, Port: p.options.Port, DBName: "app", User: "app", Password: `a:b@c/d#e%f g-é'"\`,
		Options: map[string]string{"sslmode": "verify-ca", "sslrootcert": root, "connect_timeout": "5"}}
	db, err := sql.Open("postgres", info.KeyValue())
	must(p.world.T, err)
	defer db.Close()
	return db.Ping()
}

// E-09, E-10: certificates and authorities are exchanged under running servers.
// Each new connection uses the new ones, and no session ends.
func TestE09CertificatesAreRenewedWithoutARestart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply(func() { w.config.Members = []string{"shop-1", "shop-2"} })
	primary, replica := w.start("shop-1", "127.0.0.11"), w.start("shop-2", "127.0.0.12")
	primary.waitFor("ready", isReady)
	replica.waitFor("ready", isReady)
	began := []string{primary.query("SELECT pg_postmaster_start_time()"), replica.query("SELECT pg_postmaster_start_time()")}
	session, err := primary.connect("app", `a:b@c/d#e%f g-é'"\`, "app").Conn(t.Context())
	must(t, err)
	defer session.Close()
	var before, after int
	must(t, session.QueryRowContext(t.Context(), "SELECT pg_backend_pid()").Scan(&before))

	reconnect := func(when string) { t.Helper(); primary.awaitReplicaAnew(when) }
	old := w.ca
	fresh, err := pki.NewAuthority("shop", time.Now())
	must(t, err)
	for _, step := range []struct {
		why     string
		pod     *testPod
		signer  pki.Pair
		trusted []pki.Pair
	}{
		{"another leaf of the same authority", primary, old, []pki.Pair{old}},
		{"another leaf of the same authority", replica, old, []pki.Pair{old}},
		{"the primary trusts both", primary, old, []pki.Pair{old, fresh}},
		{"the replica trusts both", replica, old, []pki.Pair{old, fresh}},
		{"the replica has a new one", replica, fresh, []pki.Pair{old, fresh}},
		{"the primary has a new one", primary, fresh, []pki.Pair{old, fresh}},
		{"the primary trusts the new one alone", primary, fresh, []pki.Pair{fresh}},
		{"the replica trusts the new one alone", replica, fresh, []pki.Pair{fresh}},
	} {
		step.pod.deliver(step.signer, step.trusted...)
		if err := step.pod.verify(step.signer); err != nil {
			t.Errorf("%s: a client that trusts the signer: %v", step.why, err)
		}
		reconnect(step.why)
	}
	if err := primary.verify(old); err == nil {
		t.Error("the server still has a certificate of the old authority")
	}
	must(t, session.QueryRowContext(t.Context(), "SELECT pg_backend_pid()").Scan(&after))
	if before != after {
		t.Errorf("the session's backend was %d and is %d", before, after)
	}
	if now := []string{primary.query("SELECT pg_postmaster_start_time()"), replica.query("SELECT pg_postmaster_start_time()")}; !slices.Equal(now, began) {
		t.Errorf("servers started at %v and then at %v", began, now)
	}
}

// awaitReplicaAnew ends replication and waits until the replica streams again.
func (p *testPod) awaitReplicaAnew(when string) {
	p.world.Helper()
	sender := p.query("SELECT pid FROM pg_stat_replication")
	p.query("SELECT pg_terminate_backend(pid) FROM pg_stat_replication")
	p.world.eventually(when+": the replica streams again", func() bool {
		now := p.query("SELECT pid FROM pg_stat_replication WHERE state = 'streaming'")
		return now != sender && !strings.Contains(now, "no rows")
	}, func() string { return p.query("SELECT pid, state FROM pg_stat_replication") })
}

// E-09: servers show certificates of people's own, which name no instance, while the
// agents go on with theirs. They come, are renewed by another authority, and go
// under a session, and whichever the server shows, its replica believes it.
func TestE09ServersShowPeoplesOwnCertificates(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply(func() { w.config.Members = []string{"shop-1", "shop-2"} })
	primary, replica := w.start("shop-1", "127.0.0.11"), w.start("shop-2", "127.0.0.12")
	primary.waitFor("ready", isReady)
	replica.waitFor("ready", isReady)
	began := []string{primary.query("SELECT pg_postmaster_start_time()"), replica.query("SELECT pg_postmaster_start_time()")}
	session, err := primary.connect("app", appPassword, "app").Conn(t.Context())
	must(t, err)
	defer session.Close()

	theirs, later := newServerAuthority(t), newServerAuthority(t)
	own, both, all := w.ca.Cert, slices.Concat(w.ca.Cert, theirs.Cert), slices.Concat(w.ca.Cert, theirs.Cert, later.Cert)
	leaf := func(authority pki.Pair) pki.Pair {
		made, err := authority.NewLeaf("the shop", []string{instanceapi.ServiceHost("shop", "test")}, time.Now())
		must(t, err)
		return made
	}
	first, second := leaf(theirs), leaf(later)
	for _, step := range []struct {
		why     string
		pod     *testPod
		shown   pki.Pair
		trusted []byte
		signer  pki.Pair
	}{
		{"the replica trusts theirs", replica, pki.Pair{}, both, w.ca},
		{"the primary trusts theirs", primary, pki.Pair{}, both, w.ca},
		{"the primary shows theirs", primary, first, both, theirs},
		{"the replica shows theirs", replica, first, both, theirs},
		{"the replica trusts the later one, too", replica, first, all, theirs},
		{"the primary trusts the later one, too", primary, first, all, theirs},
		{"the primary shows one of the later authority", primary, second, all, later},
		{"the primary shows the operator's again", primary, pki.Pair{}, all, w.ca},
		{"the replica shows the operator's again", replica, pki.Pair{}, all, w.ca},
		{"the replica trusts the operator's alone", replica, pki.Pair{}, nil, w.ca},
		{"the primary trusts the operator's alone", primary, pki.Pair{}, nil, w.ca},
	} {
		step.pod.show(step.shown, step.trusted)
		if err := step.pod.verify(step.signer); err != nil {
			t.Errorf("%s: a client that trusts the signer: %v", step.why, err)
		}
		primary.awaitReplicaAnew(step.why)
	}
	if err := primary.verify(theirs); err == nil {
		t.Error("the server still shows their certificate")
	}

	replica.show(pki.Pair{}, own) // and still by the name of the Service
	primary.show(first, both)
	sender := primary.query("SELECT pid FROM pg_stat_replication WHERE state = 'streaming'")
	primary.query("SELECT pg_terminate_backend(pid) FROM pg_stat_replication")
	w.eventually("the replica to refuse whom it does not trust", func() bool {
		return strings.Contains(w.serverLogs.String(), "certificate verify failed")
	}, w.serverLogs.String)
	if now := primary.query("SELECT pid FROM pg_stat_replication WHERE state = 'streaming'"); now == sender {
		t.Error("the replica still streams")
	}
	replica.show(pki.Pair{}, both)
	primary.awaitReplicaAnew("trusted again")

	must(t, session.PingContext(t.Context()))
	if now := []string{primary.query("SELECT pg_postmaster_start_time()"), replica.query("SELECT pg_postmaster_start_time()")}; !slices.Equal(now, began) {
		t.Errorf("servers started at %v and then at %v", began, now)
	}
	// The server starts with theirs, too.
	primary.end()
	<-primary.ended
	again := w.start("shop-1", "127.0.0.11")
	again.waitFor("ready", isReady)
	if err := again.verify(theirs); err != nil {
		t.Errorf("after a restart: %v", err)
	}
}

// E-09: what a superuser sets by ALTER SYSTEM changes nothing of what a server shows, and
// keeps no renewal away.
func TestE09AlterSystemDoesNotChangeWhatServersShow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.start("shop-1", "127.0.0.11")
	p.waitFor("ready", isReady)
	stranger := newServerAuthority(t)
	leaf := func(authority pki.Pair) pki.Pair {
		made, err := authority.NewLeaf("the shop", []string{instanceapi.ServiceHost("shop", "test")}, time.Now())
		must(t, err)
		return made
	}
	reloads := 0
	// reload lets the server read its configuration, and waits until it has.
	reload := func() {
		t.Helper()
		reloads++
		memory := fmt.Sprintf("%dkB", 5000+reloads)
		p.exec("ALTER SYSTEM SET work_mem = '"+memory+"'", "SELECT pg_reload_conf()")
		p.wantQuery("the server to read its configuration", "SHOW work_mem", memory)
	}
	shows := func(when string, signer pki.Pair) {
		t.Helper()
		if err := p.verify(signer); err != nil {
			t.Errorf("%s: a client that trusts the signer: %v", when, err)
		}
	}
	theirs, shown := newServerAuthority(t), leaf(stranger)
	both := slices.Concat(w.ca.Cert, theirs.Cert)
	cert, key := filepath.Join(w.dir, "stranger.crt"), filepath.Join(w.dir, "stranger.key")
	must(t, os.WriteFile(cert, shown.Cert, 0o600))
	must(t, os.WriteFile(key, shown.Key, 0o600))
	for _, set := range [][2]string{{cert, key}, {"/nowhere.crt", "/nowhere.key"}} {
		p.exec("ALTER SYSTEM SET ssl_cert_file = "+pq.QuoteLiteral(set[0]), "ALTER SYSTEM SET ssl_key_file = "+pq.QuoteLiteral(set[1]))
		reload()
		shows("set to "+set[0], w.ca)
		p.show(leaf(theirs), both)
		shows("set to "+set[0]+", and theirs come", theirs)
		p.deliver(w.ca, w.ca)
		p.show(pki.Pair{}, nil)
		shows("set to "+set[0]+", and theirs go", w.ca)
	}
	if s := p.State(t.Context()); s.ConfigError != "" || !s.Ready {
		t.Errorf("ready %v, and the configuration is in the way: %s", s.Ready, s.ConfigError)
	}
}

func newServerAuthority(t *testing.T) pki.Pair {
	t.Helper()
	made, err := pki.NewAuthority("theirs", time.Now())
	must(t, err)
	return made
}

// What can't be used is left alone, and the certificates before it go on.
func TestDamagedCertificatesAreNotUsed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.start("shop-1", "127.0.0.11")
	good := p.waitFor("ready", isReady).Credentials
	if good == "" {
		t.Fatal("the agent says nothing of its certificates")
	}
	for _, name := range instanceapi.CredentialFiles {
		content, err := os.ReadFile(p.options.tls(name))
		must(t, err)
		must(t, os.WriteFile(p.options.tls(name), bytes.ToUpper(content), 0o600))
		if got := p.State(t.Context()).Credentials; got != good {
			t.Errorf("%s is damaged: credentials %q, want %q", name, got, good)
		}
		if err := p.verify(w.ca); err != nil {
			t.Errorf("%s is damaged: %v", name, err)
		}
		must(t, os.Remove(p.options.tls(name)))
		if got := p.State(t.Context()).Credentials; got != good {
			t.Errorf("%s is missing: credentials %q, want %q", name, got, good)
		}
		must(t, os.WriteFile(p.options.tls(name), content, 0o600))
	}
	p.deliver(w.ca, w.ca)
}

// Roles with a certificate log in by it, whatever is in their names, and by nothing
// else; nobody logs in over a plain connection.
func TestRolesLogInByTheirCertificates(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const role = `we"ird, +x # é`
	w.apply(func() { w.certified = []string{role, "all"} })
	p := w.start("shop-1", "127.0.0.11")
	p.waitFor("ready", isReady)
	p.query("CREATE ROLE " + pq.QuoteIdentifier(role) + " LOGIN PASSWORD 'known'")
	stranger, err := pki.NewAuthority("stranger", time.Now())
	must(t, err)
	for _, c := range []struct {
		why, user, sslmode string
		signer             pki.Pair
		name, want         string
	}{
		{"the role's own", role, "require", w.ca, role, ""},
		{"another role's", role, "require", w.ca, "app", "certificate authentication failed"},
		{"of another authority", role, "require", stranger, role, "unknown ca"},
		{"its password alone", role, "require", pki.Pair{}, "", "certificate"},
		{"another role's password, as ever", "app", "require", pki.Pair{}, "", ""},
		{"another role's certificate, and no password", "app", "require", w.ca, "app", "password authentication failed"},
		{"a plain connection", "app", "disable", pki.Pair{}, "", "no pg_hba.conf entry"},
		{"a plain connection of the role", role, "disable", pki.Pair{}, "", "no pg_hba.conf entry"},
		{"a plain connection of replicas", postgres.ReplicationRole, "disable", pki.Pair{}, "", "no pg_hba.conf entry"},
		{"a plain connection of the superuser", postgres.Superuser, "disable", pki.Pair{}, "", "pg_hba.conf rejects connection"},
	} {
		info := postgres.ConnInfo{Host: p.options.PodIP, Port: p.options.Port, DBName: "app", User: c.user, Password: "known",
			Options: map[string]string{"sslmode": c.sslmode, "sslcert": filepath.Join(w.dir, "none"), "sslkey": filepath.Join(w.dir, "none")}}
		if c.user == "app" && c.name == "" {
			info.Password = appPassword
		}
		if c.name != "" {
			leaf, err := c.signer.NewLeaf(c.name, nil, time.Now())
			must(t, err)
			info.Options["sslcert"], info.Options["sslkey"] = filepath.Join(w.dir, "r.crt"), filepath.Join(w.dir, "r.key")
			must(t, os.WriteFile(info.Options["sslcert"], leaf.Cert, 0o600))
			must(t, os.WriteFile(info.Options["sslkey"], leaf.Key, 0o600))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		output, err := exec.CommandContext(ctx, filepath.Join(w.bin, "psql"), "-XAt", "-d", info.KeyValue(), "-c", "SELECT 1").CombinedOutput()
		cancel()
		if (err == nil) != (c.want == "") || !strings.Contains(string(output), c.want) {
			t.Errorf("%s: %v: %s, want %q", c.why, err, output, c.want)
		}
	}
}

// The role of replicas is let in by its certificate alone.
func TestReplicationNeedsItsCertificate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply(func() { w.hba = []string{"host all all all trust", "host replication all all trust"} })
	p := w.start("shop-1", "127.0.0.11")
	p.waitFor("ready", isReady)
	// What an adopted volume may hold.
	must(t, p.sql.Exec(t.Context(), "ALTER ROLE streaming_replica PASSWORD 'known' NOREPLICATION"))
	w.eventually("the role to be put right", func() bool {
		return p.query("SELECT rolreplication AND rolcanlogin AND rolpassword IS NULL FROM pg_authid WHERE rolname = 'streaming_replica'") == "true"
	}, func() string { return p.query("SELECT rolpassword FROM pg_authid WHERE rolname = 'streaming_replica'") })

	stranger, err := pki.NewAuthority("stranger", time.Now())
	must(t, err)
	cases := []struct {
		why    string
		signer pki.Pair
		name   string
		want   string
	}{
		{"the role's own", w.ca, postgres.ReplicationRole, ""},
		{"another's", w.ca, "shop-2", "certificate authentication failed"},
		{"of another authority", stranger, postgres.ReplicationRole, "unknown ca"},
		{"none", pki.Pair{}, "", "certificate"},
	}
	for _, c := range cases {
		info := postgres.ConnInfo{Host: p.options.PodIP, Port: p.options.Port, User: postgres.ReplicationRole, Password: "known",
			Options: map[string]string{"sslmode": "require", "replication": "true", "sslcert": filepath.Join(w.dir, "none"), "sslkey": filepath.Join(w.dir, "none")}}
		if c.name != "" {
			leaf, err := c.signer.NewLeaf(c.name, nil, time.Now())
			must(t, err)
			info.Options["sslcert"], info.Options["sslkey"] = filepath.Join(w.dir, "c.crt"), filepath.Join(w.dir, "c.key")
			must(t, os.WriteFile(info.Options["sslcert"], leaf.Cert, 0o600))
			must(t, os.WriteFile(info.Options["sslkey"], leaf.Key, 0o600))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		output, err := exec.CommandContext(ctx, filepath.Join(w.bin, "psql"), "-XAt", "-d", info.KeyValue(), "-c", "IDENTIFY_SYSTEM").CombinedOutput()
		cancel()
		if (err == nil) != (c.want == "") || !strings.Contains(string(output), c.want) {
			t.Errorf("%s: %v: %s, want %q", c.why, err, output, c.want)
		}
	}
}
