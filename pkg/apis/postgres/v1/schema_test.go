package v1_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"github.com/pgop/postgres-operator/deploy"
	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/internal/apischema"
)

func loadSchema(t testing.TB) *apischema.Schema {
	t.Helper()
	s, err := apischema.New(deploy.PostgresClusterCRD)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestAPIServerAcceptsTheCRD(t *testing.T) {
	if err := loadSchema(t).Check(); err != nil {
		t.Error(err)
	}
}

// object reads a manifest, as JSON numbers are read by an API server.
func object(t testing.TB, manifest string) map[string]any {
	t.Helper()
	text, err := yaml.YAMLToJSON([]byte(manifest))
	if err != nil {
		t.Fatal(err)
	}
	var o map[string]any
	if err := utiljson.Unmarshal(text, &o); err != nil {
		t.Fatal(err)
	}
	return o
}

// minimal is the least that a PostgresCluster can be.
func minimal(t testing.TB) map[string]any {
	return object(t, `
apiVersion: pgop.dev/v1
kind: PostgresCluster
metadata: {name: shop, namespace: db}
spec:
  postgres: {version: 17}
  storage: {size: 1Gi}
`)
}

// set puts value, YAML, at path, a.b.c; "-" takes the field away.
func set(t testing.TB, o map[string]any, path, value string) {
	t.Helper()
	keys := strings.Split(path, ".")
	for _, key := range keys[:len(keys)-1] {
		inner, ok := o[key].(map[string]any)
		if !ok {
			inner = map[string]any{}
			o[key] = inner
		}
		o = inner
	}
	last := keys[len(keys)-1]
	if value == "-" {
		delete(o, last)
		return
	}
	o[last] = object(t, "value: "+value)["value"]
}

// decode reads what an API server stores with the operator's type.
func decode(stored map[string]any) (*v1.PostgresCluster, error) {
	text, err := json.Marshal(stored)
	if err != nil {
		return nil, err
	}
	c := &v1.PostgresCluster{}
	return c, utiljson.Unmarshal(text, c)
}

func TestCreation(t *testing.T) {
	s := loadSchema(t)
	name := func(n int) string { return "a" + strings.Repeat("x", n-1) }
	cases := []struct {
		why, path, value string
		// want is a part of the refusal; empty: accepted.
		want string
	}{
		{"the least", "spec.instances", "-", ""},
		{"A-12: a name of 50 characters", "metadata.name", name(50), ""},
		{"A-12: a name of 51 characters", "metadata.name", name(51), "metadata.name: at most 50 characters"},
		{"A-12: a name of 53 characters", "metadata.name", name(53), "metadata.name: at most 50 characters"},
		{"A-12: a name of 63 characters", "metadata.name", name(63), "choose a shorter name"},
		{"A-12: a name of 64 characters", "metadata.name", name(64), "choose a shorter name"},
		{"A-13: a name with a dot", "metadata.name", "my.db", "metadata.name: lower case letters, digits and '-' only"},
		{"A-13: a name that begins with a digit", "metadata.name", "126-demo", "beginning with a letter"},
		{"A-13: a name that ends with a dash", "metadata.name", "db-", "ending with a letter or digit"},
		{"a name of one letter", "metadata.name", "a", ""},
		{"the oldest major", "spec.postgres.version", "15", ""},
		{"the newest major", "spec.postgres.version", "18", ""},
		{"a major that is too old", "spec.postgres.version", "14", `spec.postgres.version: Unsupported value: 14: supported values: "15", "16", "17", "18"`},
		{"a major as text", "spec.postgres.version", `"17"`, "spec.postgres.version"},
		{"a minor version", "spec.postgres.version", "17.2", "spec.postgres.version"},
		{"no version", "spec.postgres.version", "-", "spec.postgres.version: Required value"},
		{"no postgres", "spec.postgres", "-", "spec.postgres: Required value"},
		{"no storage", "spec.storage", "-", "spec.storage: Required value"},
		{"no size", "spec.storage.size", "-", "spec.storage.size: Required value"},
		{"the least size", "spec.storage.size", "256Mi", ""},
		{"the least size in bytes", "spec.storage.size", "268435456", ""},
		{"a byte less", "spec.storage.size", "268435455", "spec.storage.size: a quantity of at least 256Mi"},
		{"a byte less as text", "spec.storage.size", `"268435455"`, "spec.storage.size: a quantity of at least 256Mi"},
		{"less in powers of ten", "spec.storage.size", "256M", "spec.storage.size: a quantity of at least 256Mi"},
		{"a size in words", "spec.storage.size", "large", "spec.storage.size"},
		{"a size of Postgres", "spec.storage.size", "20GB", "spec.storage.size"},
		{"a negative size", "spec.storage.size", "-1Gi", "spec.storage.size: a quantity of at least 256Mi"},
		{"a size that only looks like one", "spec.storage.size", "1e9.5", "spec.storage.size: a quantity"},
		{"a WAL volume", "spec.storage.wal", "{size: 4Gi, class: fast}", ""},
		{"the least WAL volume in bytes", "spec.storage.wal.size", "268435456", ""},
		{"a WAL volume that is too small", "spec.storage.wal", "{size: 255Mi}", "spec.storage.wal.size: a quantity of at least 256Mi, such as 4Gi"},
		{"a WAL volume without a size", "spec.storage.wal", "{class: fast}", "spec.storage.wal.size: Required value"},
		{"a WAL volume of Postgres' units", "spec.storage.wal", "{size: 4GB}", "spec.storage.wal.size"},
		{"99 instances", "spec.instances", "99", ""},
		{"B-13: no instance: the cluster is stopped", "spec.instances", "0", ""},
		{"B-13: fewer than none, and how to stop", "spec.instances", "-1", "spec.instances: at least 0. With 0 the cluster is stopped and keeps its volumes"},
		{"B-13: sync and stopped", "spec", "{instances: 0, replication: {mode: sync, need: 2}, postgres: {version: 17}, storage: {size: 1Gi}}", ""},
		{"made paused", "spec.paused", "true", ""},
		{"paused in words", "spec.paused", `"yes"`, "spec.paused"},
		{"a variable", "spec.pod.env", "[{name: LD_PRELOAD, value: /lib/a.so}, {name: SITE, valueFrom: {configMapKeyRef: {name: site, key: where}}}]", ""},
		{"a variable of libpq", "spec.pod.env", "[{name: PGUSER, value: x}]", "spec.pod.env: the operator's agent, which runs the server, goes by PG*, POD_*"},
		{"a variable of the pod", "spec.pod.env", "[{name: POD_NAME, value: x}]", "POD_*"},
		{"a variable of Kubernetes", "spec.pod.env", "[{name: KUBERNETES_SERVICE_HOST, value: x}]", "KUBERNETES_*"},
		{"the path", "spec.pod.env", "[{name: A}, {name: PATH, value: x}]", "PATH"},
		{"a proxy", "spec.pod.env", "[{name: https_proxy, value: x}]", "set them in a sidecar"},
		{"a variable of Go's that is none", "spec.pod.env", "[{name: GOOGLE_CREDENTIALS, value: x}]", ""},
		{"the time zone", "spec.pod.env", "[{name: TZ, value: Europe/Berlin}]", "set lc_messages, timezone and the like in spec.postgres.parameters"},
		{"a locale", "spec.pod.env", "[{name: LC_ALL, value: de_DE}]", "spec.pod.env: the server does not take its language"},
		{"a variable twice", "spec.pod.env", "[{name: A}, {name: A}]", "spec.pod.env"},
		{"a sidecar", "spec.pod.sidecars", "[{name: exporter, image: exporter, env: [{name: PGUSER, value: x}, {name: TZ, value: UTC}], volumeMounts: [{name: run, mountPath: /run/postgresql}]}]", ""},
		{"a sidecar without an image", "spec.pod.sidecars", "[{name: a}]", "image: Required value"},
		{"a sidecar without a name", "spec.pod.sidecars", "[{image: a}]", "name: Required value"},
		{"a sidecar called postgres", "spec.pod.sidecars", "[{name: postgres, image: a}]", "spec.pod.sidecars[].name: postgres and agent are the operator's own containers; choose another name"},
		{"a sidecar called agent", "spec.pod.sidecars", "[{name: agent, image: a}]", "choose another name"},
		{"a sidecar in upper case", "spec.pod.sidecars", "[{name: Exporter, image: a}]", "spec.pod.sidecars[].name: lower case letters"},
		{"two sidecars of a name", "spec.pod.sidecars", "[{name: a, image: a}, {name: a, image: b}]", "Duplicate value"},
		{"a sidecar on the server's port", "spec.pod.sidecars", "[{name: a, image: a, ports: [{containerPort: 5432}]}]", "spec.pod.sidecars[].ports: 5432, 8080 and 8443 are taken"},
		{"a sidecar that wants the data", "spec.pod.sidecars", "[{name: a, image: a, volumeMounts: [{name: data, mountPath: /d}]}]", `volumeMounts[0].name: Unsupported value: "data": supported values: "run"`},
		{"a sidecar with resources", "spec.pod.sidecars", "[{name: a, image: a, resources: {requests: {cpu: 10m, memory: 64Mi}, limits: {cpu: 1}}}]", ""},
		{"a sidecar with memory that only looks like a quantity", "spec.pod.sidecars", "[{name: a, image: a, resources: {limits: {memory: 1e1.5}}}]", "memory is a quantity"},
		{"a sidecar with two ways to tell whether it lives", "spec.pod.sidecars", "[{name: a, image: a, livenessProbe: {httpGet: {port: 80}, tcpSocket: {port: 80}}}]", "name exactly one of exec, httpGet and tcpSocket"},
		{"100 instances", "spec.instances", "100", "spec.instances"},
		{"instances as text", "spec.instances", `"3"`, "spec.instances"},
		{"an image by digest", "spec.postgres.image", "reg:5000/pg:16.4@sha256:00", ""},
		{"an image with a blank", "spec.postgres.image", `"reg/pg 16"`, "spec.postgres.image: an image reference has no white space"},
		{"an image with a tab", "spec.postgres.image", `"reg/pg\t"`, "spec.postgres.image: an image reference has no white space"},
		{"the superuser's id", "spec.postgres.uid", "0", "spec.postgres.uid"},
		{"retain in lower case", "spec.storage.retain", "retain", `supported values: "Retain", "Delete"`},
		{"A-01: any parameter", "spec.postgres.parameters", "{max_connections: 150, autovacuum: on, random_page_cost: 1.1, log_statement: ddl}", ""},
		{"parameters of any shape, which the operator refuses", "spec.postgres.parameters", "{a: [1], b: {c: d}, e: null}", ""},
		{"parameters as a list", "spec.postgres.parameters", "[a]", "spec.postgres.parameters"},
		{"a line of hba", "spec.postgres.hba", `["host all all all md5"]`, ""},
		{"two lines of hba in one", "spec.postgres.hba", `["host all all all md5\nlocal all all trust"]`, "spec.postgres.hba: one rule an item, without a line break"},
		{"hba as a block of text", "spec.postgres.hba", `"host all all all md5"`, "spec.postgres.hba"},
		{"a bootstrap of no kind", "spec.bootstrap", "{}", "spec.bootstrap: name exactly one way to make the database: initdb"},
		{"initdb with its defaults", "spec.bootstrap", "{initdb: {}}", ""},
		{"A-09: a database with a dash", "spec.bootstrap.initdb.database", "example-db", ""},
		{"the database template1", "spec.bootstrap.initdb.database", "template1", "choose another name"},
		{"a database without a name", "spec.bootstrap.initdb.database", `""`, "spec.bootstrap.initdb.database"},
		{"a database with a name of 64 characters", "spec.bootstrap.initdb.database", name(64), "spec.bootstrap.initdb.database"},
		{"an owner of the server's", "spec.bootstrap.initdb.owner", "pg_monitor", "reserved"},
		{"the role of replicas as owner", "spec.bootstrap.initdb.owner", "streaming_replica", "reserved"},
		{"A-10: an owner in upper case", "spec.bootstrap.initdb.owner", "Report_User", ""},
		{"checksums in words", "spec.bootstrap.initdb.dataChecksums", `"on"`, "spec.bootstrap.initdb.dataChecksums"},
		{"a role", "spec.roles", "[{name: reporting, login: true, memberOf: [pg_read_all_data], connectionLimit: 0, validUntil: 2027-01-31T00:00:00Z, comment: it reads}]", ""},
		{"A-09, A-10: roles with dashes, in upper case, with an underscore, with blanks", "spec.roles", `[{name: app-new-reader}, {name: Report_User}, {name: _svc}, {name: 'a "b" ; é'}]`, ""},
		{"the role of replicas", "spec.roles", "[{name: streaming_replica}]", "spec.roles[].name: postgres, streaming_replica"},
		{"everybody as a role", "spec.roles", "[{name: public}]", "spec.roles[].name"},
		{"a role of 63 bytes", "spec.roles", "[{name: " + name(63) + "}]", ""},
		{"a role of 64 bytes", "spec.roles", "[{name: " + name(61) + "é}]", ""},
		{"a role of 64 bytes in 63 characters", "spec.roles", "[{name: " + name(62) + "é}]", "spec.roles[].name: at most 63 bytes"},
		{"a role with a line break", "spec.roles", `[{name: "a\nb"}]`, "spec.roles[].name: no control characters"},
		{"a role with a backslash", "spec.roles", `[{name: 'a\x00\nb'}]`, ""},
		{"a role with a zero byte", "spec.roles", `[{name: "a\0b"}]`, "spec.roles[].name: no control characters"},
		{"a role without a name", "spec.roles", "[{login: true}]", "name: Required value"},
		{"a role twice", "spec.roles", "[{name: a}, {name: a, login: true}]", "Duplicate value"},
		{"a role to be gone", "spec.roles", "[{name: a, ensure: absent}]", ""},
		{"a role to be dropped", "spec.roles", "[{name: a, ensure: dropped}]", `supported values: "present", "absent"`},
		{"a member of itself", "spec.roles", "[{name: a, memberOf: [b, a]}]", "spec.roles[].memberOf: no role is a member of itself"},
		{"a member of the superuser", "spec.roles", "[{name: a, memberOf: [postgres]}]", "for all privileges set superuser: true"},
		{"a certificate of the user's own", "spec.tls", "{serverSecret: a, caSecret: b}", ""},
		{"none, in so many words", "spec.tls", `{serverSecret: "", caSecret: ""}`, ""},
		{"an authority that vouches for nothing", "spec.tls", "{caSecret: b}", "spec.tls.caSecret: it vouches for the certificate of serverSecret, which is not set"},
		{"a role with a certificate", "spec.roles", "[{name: a, login: true, clientCertificate: true}]", ""},
		{"a role with a certificate that does not log in", "spec.roles", "[{name: a, clientCertificate: true}]", "spec.roles[].clientCertificate: only a role that logs in has a use for a certificate"},
		{"a role with a certificate and a password of the user's own", "spec.roles", "[{name: a, login: true, clientCertificate: true, passwordSecret: {name: b}}]", "spec.roles[].clientCertificate: the role logs in by its certificate and never by a password"},
		{"a role with a password of the user's own, and none", "spec.roles", "[{name: a, login: true, disablePassword: true, passwordSecret: {name: b}}]", "spec.roles[].disablePassword: with passwordSecret the role has a password"},
		{"a role whose password is exchanged", "spec.roles", "[{name: a, login: true, rotation: {cron: '0 3 1 * *', timeZone: Europe/Berlin}}]", ""},
		{"a password that is exchanged never", "spec.roles", "[{name: a, login: true, rotation: {cron: '@monthly'}}]", "spec.roles[].rotation.cron: five fields"},
		{"a password that is exchanged at no time", "spec.roles", "[{name: a, login: true, rotation: {}}]", "spec.roles[].rotation: it says nothing; set cron for a schedule, grace"},
		{"a password that is exchanged with a grace time", "spec.roles", "[{name: a, login: true, rotation: {cron: '0 3 1 * *', grace: 24h}}]", ""},
		{"a password that is exchanged with a grace time when somebody asks", "spec.roles", "[{name: a, login: true, rotation: {grace: 1h30m}}]", ""},
		{"a grace time of no use", "spec.roles", "[{name: a, login: true, rotation: {grace: 59s}}]", "spec.roles[].rotation.grace: a duration from 1m to 8760h"},
		{"a grace time without end", "spec.roles", "[{name: a, login: true, rotation: {grace: 8761h}}]", "spec.roles[].rotation.grace: a duration from 1m to 8760h"},
		{"a grace time that is none", "spec.roles", "[{name: a, login: true, rotation: {grace: soon}}]", "spec.roles[].rotation.grace: a duration"},
		{"a grace time for a password of the user's own", "spec.roles", "[{name: a, login: true, passwordSecret: {name: b}, rotation: {grace: 1h}}]", "spec.roles[].rotation: the operator exchanges passwords that it makes"},
		{"a password of the user's own that is exchanged", "spec.roles", "[{name: a, login: true, passwordSecret: {name: b}, rotation: {cron: '0 3 1 * *'}}]", "spec.roles[].rotation: the operator exchanges passwords that it makes"},
		{"a password of nobody that is exchanged", "spec.roles", "[{name: a, login: true, disablePassword: true, rotation: {cron: '0 3 1 * *'}}]", "spec.roles[].rotation: the operator"},
		{"no password that is exchanged", "spec.roles", "[{name: a, login: true, clientCertificate: true, rotation: {cron: '0 3 1 * *'}}]", "spec.roles[].rotation: with clientCertificate the role has no password to exchange"},
		{"a certificate that is not asked for, and a password that is exchanged", "spec.roles", "[{name: a, login: true, clientCertificate: false, rotation: {cron: '0 3 1 * *'}}]", ""},
		{"a password of no login that is exchanged", "spec.roles", "[{name: a, rotation: {cron: '0 3 1 * *'}}]", "spec.roles[].rotation: the operator"},
		{"a role with less than no connections", "spec.roles", "[{name: a, connectionLimit: -2}]", "connectionLimit"},
		{"an end in words", "spec.roles", "[{name: a, validUntil: tomorrow}]", "validUntil"},
		{"a database", "spec.databases", "[{name: app, owner: app, extensions: [{name: pg_trgm, version: '1.6', schema: s}], schemas: [{name: s, grants: [{role: public, revoked: [CREATE]}]}], grants: [{role: reporting, privileges: [CONNECT]}]}]", ""},
		{"A-09: more databases", "spec.databases", "[{name: example-db}, {name: AppDB}, {name: old, ensure: absent}]", ""},
		{"a database of 64 bytes in 63 characters", "spec.databases", "[{name: " + name(62) + "é}]", "spec.databases[].name: at most 63 bytes"},
		{"a schema of the server's", "spec.databases", "[{name: a, schemas: [{name: pg_mine}]}]", "spec.databases[].schemas[].name: information_schema and names beginning with pg_"},
		{"the schema public", "spec.databases", "[{name: a, schemas: [{name: public, owner: b}]}]", ""},
		{"a privilege that databases don't have", "spec.databases", "[{name: a, grants: [{role: b, privileges: [SELECT]}]}]", `supported values: "CONNECT", "CREATE", "TEMPORARY"`},
		{"labels of the user's", "spec.pod.labels", "{team: web, example.com/app: shop}", ""},
		{"a label of the operator's", "spec.pod.labels", "{pgop.dev/role: primary}", "spec.pod.labels: keys under pgop.dev/ and app.kubernetes.io/ are the operator's"},
		{"a label that others select by", "spec.pod.labels", "{app.kubernetes.io/managed-by: me}", "use a prefix of your own"},
		{"an annotation of the operator's", "spec.pod.annotations", "{pgop.dev/template-hash: x}", "spec.pod.annotations: keys under pgop.dev/ are the operator's"},
		{"requests as numbers and text", "spec.resources.requests", "{cpu: 1, memory: 1Gi, hugepages-2Mi: 64Mi}", ""},
		{"a request that only looks like a quantity", "spec.resources.requests", "{memory: 1e1.5}", "spec.resources.requests"},
		{"A-14: a request larger than its limit", "spec.resources", "{requests: {memory: 256Mi}, limits: {memory: 128Mi}}", "spec.resources: the request of cpu or memory is larger than its limit; lower the request"},
		{"A-14: a request larger than its limit, in other units", "spec.resources", "{requests: {cpu: 1001m}, limits: {cpu: 1}}", "is larger than its limit"},
		{"A-14: a request as large as its limit, in other units", "spec.resources", "{requests: {cpu: 1000m, memory: 1024Mi}, limits: {cpu: 1, memory: 1Gi}}", ""},
		{"A-14: odd units", "spec.resources.requests", "{cpu: 100m, memory: 128974848, hugepages-2Mi: 1G}", ""},
		{"A-14: a fraction without quotes", "spec.resources.requests", "{cpu: 0.1}", "spec.resources.requests.cpu in body must be of type integer,string"},
		{"A-14: a unit of Postgres", "spec.resources.requests", "{memory: 256MB}", "spec.resources.requests"},
		{"requests apart from limits", "spec.resources", "{requests: {cpu: 2}, limits: {memory: 128Mi}}", ""},
		{"a limit that only looks like a quantity", "spec.resources.limits", "{memory: 1e1.5}", "spec.resources.limits"},
		{"services with their defaults", "spec.services", "{rw: {}, ro: {}}", ""},
		{"a load balancer", "spec.services.rw", "{type: LoadBalancer, annotations: {example.com/internal: 'true'}, loadBalancerSourceRanges: [203.0.113.0/24, '2001:db8::/32']}", ""},
		{"a port of every node", "spec.services.ro.type", "NodePort", ""},
		{"a type that leads nowhere", "spec.services.rw.type", "ExternalName", "spec.services.rw.type"},
		{"an annotation of a Service of the operator's", "spec.services.rw.annotations", "{pgop.dev/annotations: x}", "annotations: keys under pgop.dev/ are the operator's"},
		{"sources without a load balancer", "spec.services.rw.loadBalancerSourceRanges", "[203.0.113.0/24]", "loadBalancerSourceRanges: needs type: LoadBalancer"},
		{"a source that is none", "spec.services.rw", "{type: LoadBalancer, loadBalancerSourceRanges: [203.0.113.7]}", "loadBalancerSourceRanges: an address and the length of its prefix"},
		{"replication with its defaults", "spec.replication", "{}", ""},
		{"another mode", "spec.replication.mode", "quorum", `supported values: "async", "sync"`},
		{"another durability", "spec.replication.durability", "maybe", `supported values: "required", "preferred"`},
		{"no replica is needed", "spec.replication.need", "0", "spec.replication.need: at least 1; to let commits return without a replica, set spec.replication.mode to async"},
		{"more replicas than there can be", "spec.replication.need", "99", "spec.replication.need"},
		{"C-28: sync with one instance", "spec.replication.mode", "sync", "spec.replication.need: must be less than spec.instances with mode sync and durability required"},
		{"C-28: sync with one instance, preferably", "spec.replication", "{mode: sync, durability: preferred}", ""},
		{"C-28: async with one instance", "spec.replication", "{mode: async, need: 5}", ""},
		{"C-28: as many as there are instances", "spec", "{instances: 3, replication: {mode: sync, need: 3}, postgres: {version: 17}, storage: {size: 1Gi}}", "ask for more instances, lower need, or set durability to preferred or mode to async"},
		{"C-28: one less", "spec", "{instances: 3, replication: {mode: sync, need: 2}, postgres: {version: 17}, storage: {size: 1Gi}}", ""},
		{"failover with its defaults", "spec.failover", "{}", ""},
		{"the shortest lease", "spec.failover.leaseDuration", "6s", ""},
		{"the longest lease", "spec.failover.leaseDuration", "1m", ""},
		{"a lease in parts", "spec.failover.leaseDuration", "10s500ms", ""},
		{"a lease that is too short", "spec.failover.leaseDuration", "5.9s", "spec.failover.leaseDuration: a duration from 6s to 60s, such as 10s"},
		{"a lease that is too long", "spec.failover.leaseDuration", "61s", "spec.failover.leaseDuration: a duration from 6s to 60s"},
		{"a lease without a unit", "spec.failover.leaseDuration", `"10"`, "spec.failover.leaseDuration: a duration from 6s to 60s"},
		{"a lease as a number", "spec.failover.leaseDuration", "10", "spec.failover.leaseDuration"},
		{"a lease in words", "spec.failover.leaseDuration", "long", "spec.failover.leaseDuration: a duration"},
		{"a lease in days", "spec.failover.leaseDuration", "1d", "spec.failover.leaseDuration: a duration"},
		{"a negative lease", "spec.failover.leaseDuration", "-10s", "spec.failover.leaseDuration: a duration"},
		{"a timeout that is too short", "spec.failover.restartTimeout", "4s", "spec.failover.restartTimeout: a duration from 5s to 1h, such as 15s"},
		{"the longest timeout", "spec.failover.restartTimeout", "60m", ""},
		{"a timeout that is too long", "spec.failover.unresponsiveTimeout", "61m", "spec.failover.unresponsiveTimeout: a duration from 5s to 1h, such as 15s"},
		{"the least lag in bytes", "spec.failover.maxLag", "1048576", ""},
		{"a byte less", "spec.failover.maxLag", "1048575", "spec.failover.maxLag: a quantity from 1Mi to 1Ti, such as 16Mi"},
		{"more lag than a quantity of bytes can be", "spec.failover.maxLag", "1e40", "spec.failover.maxLag"},
		{"a lag in Postgres' units", "spec.failover.maxLag", "16MB", "spec.failover.maxLag"},
	}
	for _, c := range cases {
		t.Run(c.why, func(t *testing.T) {
			o := minimal(t)
			set(t, o, c.path, c.value)
			_, err := s.Create(o)
			expectRefusal(t, c.want, err)
		})
	}
}

// names that are the server's or the operator's are refused, whatever would
// have them.
func TestA11ReservedNames(t *testing.T) {
	s := loadSchema(t)
	for _, c := range []struct{ why, path, value, want string }{
		{"the database postgres", "spec.bootstrap.initdb.database", "postgres", "spec.bootstrap.initdb.database: postgres, template0 and template1 exist in every cluster"},
		{"the owner postgres", "spec.bootstrap.initdb.owner", "postgres", "spec.bootstrap.initdb.owner: postgres, public, none, streaming_replica and names beginning with pg_ are reserved"},
		{"the role postgres", "spec.roles", "[{name: postgres, superuser: true}]", "spec.roles[].name: postgres, streaming_replica, public, none and names beginning with pg_ are the server's or the operator's; choose another name"},
		{"a role of the server's", "spec.roles", "[{name: pg_monitor}]", "name them in its memberOf"},
		{"the database postgres as another one", "spec.databases", "[{name: postgres}]", "spec.databases[].name: postgres, template0 and template1 exist in every cluster and stay as they are"},
		{"a reserved owner of a copy", "spec.bootstrap", "{clone: {cluster: other, owner: pg_monitor}}", "spec.bootstrap.clone.owner: postgres, public"},
		{"a reserved owner of a restore", "spec.bootstrap", "{restore: {backup: x, owner: postgres}}", "spec.bootstrap.restore.owner: postgres, public"},
	} {
		t.Run(c.why, func(t *testing.T) {
			o := minimal(t)
			set(t, o, c.path, c.value)
			_, err := s.Create(o)
			expectRefusal(t, c.want, err)
		})
	}
}

func expectRefusal(t *testing.T, want string, err error) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("refused: %v", err)
	case want != "" && err == nil:
		t.Errorf("accepted; want a refusal with %q", want)
	case want != "" && !strings.Contains(err.Error(), want):
		t.Errorf("refused with\n%v\nwhich does not say %q", err, want)
	}
}

func TestUpdate(t *testing.T) {
	s := loadSchema(t)
	created := "{systemID: '7432000000000000001', readyInstances: 0}"
	cases := []struct {
		why, path, old, value string
		status                string
		want                  string
	}{
		{"nothing changed", "spec.instances", "3", "3", created, ""},
		{"more instances", "spec.instances", "1", "3", created, ""},
		{"a newer major", "spec.postgres.version", "17", "18", "{}", "spec.postgres.version: a running cluster keeps its major version"},
		{"an older major", "spec.postgres.version", "17", "16", created, "pg_dump and pg_restore"},
		{"A-22: a smaller volume and more instances", "spec", "{instances: 2, postgres: {version: 17}, storage: {size: 2Gi}}", "{instances: 3, postgres: {version: 17}, storage: {size: 1Gi}}",
			"{readyInstances: 2, volumeSize: 2Gi}", "spec.storage.size: a volume can't shrink; ask for at least what status.volumeSize says"},
		{"A-24: growth that no volume began is taken back", "spec.storage.size", "2Gi", "1Gi", "{readyInstances: 1, volumeSize: 1Gi}", ""},
		{"A-24: growth that a volume began is not taken back", "spec.storage.size", "2Gi", "1Gi", "{readyInstances: 1, volumeSize: 2Gi}", "spec.storage.size: a volume can't shrink"},
		{"A-24: growth is taken back below what volumes have", "spec.storage.size", "3Gi", "1Gi", "{readyInstances: 1, volumeSize: 2Gi}", "spec.storage.size: a volume can't shrink"},
		{"A-24: growth is taken back in part", "spec.storage.size", "3Gi", "2048Mi", "{readyInstances: 1, volumeSize: 2Gi}", ""},
		{"a size that nobody has begun with", "spec.storage.size", "200Gi", "20Gi", "-", ""},
		{"a size of which no volume was provisioned", "spec.storage.size", "200Gi", "20Gi", "{readyInstances: 0, volumeSize: '0'}", ""},
		{"more, while volumes are larger still", "spec.storage.size", "1Gi", "2Gi", "{readyInstances: 1, volumeSize: 4Gi}", ""},
		{"a larger volume", "spec.storage.size", "1Gi", "2Gi", created, ""},
		{"A-22: a smaller WAL volume", "spec.storage.wal", "{size: 2Gi}", "{size: 1Gi}", "{readyInstances: 1, walVolumeSize: 2Gi}", "spec.storage.wal.size: a volume can't shrink; ask for at least what status.walVolumeSize says"},
		{"A-23: the same WAL volume in other units", "spec.storage.wal", "{size: 1Gi}", "{size: 1024Mi}", "{readyInstances: 1, walVolumeSize: 1Gi}", ""},
		{"A-24: growth that no WAL volume began is taken back", "spec.storage.wal", "{size: 2Gi}", "{size: 1Gi}", "{readyInstances: 1, walVolumeSize: 1Gi}", ""},
		{"A-24: growth that a WAL volume began is not taken back", "spec.storage.wal", "{size: 2Gi}", "{size: 1Gi}", "{readyInstances: 1, walVolumeSize: 2Gi}", "spec.storage.wal.size: a volume can't shrink"},
		{"A-25: another class of WAL volumes", "spec.storage.wal", "{size: 1Gi}", "{size: 1Gi, class: fast}", "{readyInstances: 1, walVolumeSize: 1Gi}", ""},
		{"a larger WAL volume", "spec.storage.wal", "{size: 1Gi}", "{size: 2Gi}", "{readyInstances: 1, walVolumeSize: 1Gi}", ""},
		{"a WAL volume for a cluster that has none", "spec.storage.wal", "-", "{size: 1Gi}", created, ""},
		{"no WAL volume any more", "spec.storage.wal", "{size: 1Gi}", "-", "{readyInstances: 1, walVolumeSize: 1Gi}", "spec.storage.wal: WAL is on volumes of its own and can't be moved back; leave the field as it is"},
		{"no WAL volume, before one was provisioned", "spec.storage.wal", "{size: 1Gi}", "-", "{readyInstances: 1, walVolumeSize: '0'}", ""},
		{"no WAL volume, before the operator saw it", "spec.storage.wal", "{size: 1Gi}", "-", created, ""},
		{"A-23: the same size in other units", "spec.storage.size", "1Gi", "1024Mi", created, ""},
		{"the same size in bytes", "spec.storage.size", "1Gi", "1073741824", created, ""},
		{"bytes, written as text", "spec.storage.size", "1073741824", "1Gi", created, ""},
		{"a smaller volume", "spec.storage.size", "2Gi", "1Gi", created, "spec.storage.size: a volume can't shrink"},
		{"smaller in other units", "spec.storage.size", "1Gi", "1023Mi", created, "spec.storage.size: a volume can't shrink"},
		{"smaller in powers of ten", "spec.storage.size", "1Gi", "1G", created, "spec.storage.size: a volume can't shrink"},
		{"smaller in bytes", "spec.storage.size", "1Gi", "1073741823", created, "spec.storage.size: a volume can't shrink"},
		{"a bootstrap corrected before the database is there", "spec.bootstrap", "{initdb: {locale: nope}}", "{initdb: {locale: C}}", "{readyInstances: 0}", ""},
		{"a bootstrap corrected before there is a status", "spec.bootstrap", "{initdb: {locale: nope}}", "-", "-", ""},
		{"a bootstrap changed later", "spec.bootstrap", "{initdb: {database: a}}", "{initdb: {database: b}}", created, "spec.bootstrap: used at creation only"},
		{"a bootstrap added later", "spec.bootstrap", "-", "{initdb: {database: b}}", created, "put the old value back"},
		{"a bootstrap taken away later", "spec.bootstrap", "{initdb: {database: b}}", "-", created, "spec.bootstrap"},
		{"a bootstrap that stays", "spec.bootstrap", "{initdb: {database: a}}", "{initdb: {database: a, owner: app}}", created, ""},
		{"A-18: the user corrected before the database is there", "spec.postgres.uid", "999", "70", "{readyInstances: 0}", ""},
		{"A-18: another user of files that are there", "spec.postgres.uid", "999", "70", created, "spec.postgres.uid: the files on this cluster's volumes belong to that user"},
		{"A-18: another user than the default", "spec.postgres.uid", "-", "70", created, "an image whose user postgres has the same id"},
		{"the default user, spelled out", "spec.postgres.uid", "-", "999", created, ""},
		{"retain switched", "spec.storage.retain", "Retain", "Delete", created, ""},
		{"retain switched while paused", "spec", "{paused: true, postgres: {version: 17}, storage: {size: 1Gi, retain: Delete}}", "{paused: true, postgres: {version: 17}, storage: {size: 1Gi}}", created,
			"spec.storage.retain: stays as it is while spec.paused is true"},
		{"retain switched with paused", "spec", "{postgres: {version: 17}, storage: {size: 1Gi, retain: Delete}}", "{paused: true, postgres: {version: 17}, storage: {size: 1Gi, retain: Retain}}", created, "set spec.paused to false first"},
		{"retain switched when paused ends", "spec", "{paused: true, postgres: {version: 17}, storage: {size: 1Gi, retain: Delete}}", "{paused: false, postgres: {version: 17}, storage: {size: 1Gi}}", created, ""},
		{"anything else while paused", "spec", "{paused: true, instances: 1, postgres: {version: 17}, storage: {size: 1Gi}}", "{paused: true, instances: 0, postgres: {version: 17}, storage: {size: 2Gi}}", created, ""},
		{"B-13: sync is stopped", "spec", "{instances: 3, replication: {mode: sync}, postgres: {version: 17}, storage: {size: 1Gi}}",
			"{instances: 0, replication: {mode: sync}, postgres: {version: 17}, storage: {size: 1Gi}}", created, ""},
		{"C-28: sync is kept while its replicas go", "spec", "{instances: 3, replication: {mode: sync}, postgres: {version: 17}, storage: {size: 1Gi}}",
			"{instances: 1, replication: {mode: sync}, postgres: {version: 17}, storage: {size: 1Gi}}", created, "spec.replication.need: must be less than spec.instances"},
		{"sync begins with the replicas", "spec", "{instances: 1, postgres: {version: 17}, storage: {size: 1Gi}}",
			"{instances: 2, replication: {mode: sync}, postgres: {version: 17}, storage: {size: 1Gi}}", created, ""},
		{"A-25: another storage class", "spec.storage.class", "slow", "fast", created, ""},
	}
	for _, c := range cases {
		t.Run(c.why, func(t *testing.T) {
			old := minimal(t)
			set(t, old, c.path, c.old)
			set(t, old, "status", c.status)
			stored, err := s.Create(old)
			if err != nil {
				t.Fatal(err)
			}
			edited := minimal(t)
			set(t, edited, c.path, c.value)
			_, err = s.Update(stored, edited)
			expectRefusal(t, c.want, err)
		})
	}
}

// An update that touches nothing must pass whatever is stored, or a status
// could never be written.
func TestUnchangedExamplesCanBeWrittenAgain(t *testing.T) {
	s := loadSchema(t)
	for file, example := range examples(t) {
		stored, err := s.Create(example)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if unknown := s.Unknown(example); len(unknown) > 0 {
			t.Errorf("%s has unknown fields %v", file, unknown)
		}
		again, err := s.Update(stored, stored)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if diff := cmp.Diff(stored, again); diff != "" {
			t.Errorf("%s: %s", file, diff)
		}
	}
}

// examples are the manifests that people start from, by file.
func examples(t testing.TB) map[string]map[string]any {
	t.Helper()
	files, err := filepath.Glob("../../../../example/*.yaml")
	if err != nil || len(files) < 2 {
		t.Fatalf("examples are %v, %v", files, err)
	}
	examples := map[string]map[string]any{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if o := object(t, string(text)); o["kind"] == v1.ClusterKind {
			examples[filepath.Base(file)] = o
		}
	}
	return examples
}

// a key without a value is not dropped, so that somebody can refuse it.
func TestParameterWithoutAValueIsKept(t *testing.T) {
	o := minimal(t)
	set(t, o, "spec.postgres.parameters", "{jit: }")
	stored, err := loadSchema(t).Create(o)
	if err != nil {
		t.Fatal(err)
	}
	c, err := decode(stored)
	if err != nil {
		t.Fatal(err)
	}
	if _, kept := c.Spec.Postgres.Parameters["jit"]; !kept {
		t.Error("dropped")
	}
}

// The schema's defaults are those of WithDefaults, which repeats them.
func TestDefaultsOfSchemaAndCodeAgree(t *testing.T) {
	s := loadSchema(t)
	for _, empty := range []string{"-", "{}"} {
		o := minimal(t)
		set(t, o, "spec.bootstrap", strings.ReplaceAll(empty, "{}", "{initdb: {}}"))
		set(t, o, "spec.replication", empty)
		set(t, o, "spec.failover", empty)
		set(t, o, "spec.services", strings.ReplaceAll(empty, "{}", "{rw: {}, ro: {}}"))
		stored, err := s.Create(o)
		if err != nil {
			t.Fatal(err)
		}
		bare, err := decode(o)
		if err != nil {
			t.Fatal(err)
		}
		admitted, err := decode(stored)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(v1.WithDefaults(bare), v1.WithDefaults(admitted)); diff != "" {
			t.Error(diff)
		}
	}
}

// whatever the API server accepts, the operator can read, and what it
// writes back is the same. Each field in turn gets each value that its schema
// may let through.
func TestEveryAcceptedFieldDecodes(t *testing.T) {
	everyAcceptedFieldDecodes(t, loadSchema(t), minimal, func(stored map[string]any) (any, error) {
		c, err := decode(stored)
		v1.WithDefaults(c)
		return c, err
	})
	everyAcceptedFieldDecodes(t, loadBackupSchema(t), minimalBackup, func(stored map[string]any) (any, error) {
		return decodeBackup(stored)
	})
}

func everyAcceptedFieldDecodes(t *testing.T, s *apischema.Schema, minimal func(testing.TB) map[string]any, decode func(map[string]any) (any, error)) {
	accepted := map[string]int{}
	try := func(path []any, field *schema.Structural) {
		for _, value := range candidates(field) {
			o := minimal(t)
			putAt(o, path, value, s.Structural())
			if slices.Contains(path, any("loadBalancerSourceRanges")) { // needs another beside it
				putAt(o, append(slices.Clone(path[:3]), "type"), "LoadBalancer", s.Structural())
			}
			if slices.Contains(path, any("rotation")) { // so does this
				role := o["spec"].(map[string]any)["roles"].([]any)[0].(map[string]any)
				role["login"] = true
				if rotation, is := role["rotation"].(map[string]any); is && rotation["cron"] == nil && path[len(path)-1] == "timeZone" {
					rotation["cron"] = "0 3 * * *"
				}
			}
			stored, err := s.Create(o)
			if err != nil {
				continue
			}
			accepted[fmt.Sprint(path...)]++
			c, err := decode(stored)
			if err != nil {
				t.Errorf("%v = %#v is accepted and can't be read: %v", path, value, err)
				continue
			}
			expectSameJSON(t, path, stored, c)
		}
		if accepted[fmt.Sprint(path...)] == 0 {
			t.Errorf("%v: no value that was tried is accepted", path)
		}
	}
	for _, name := range []string{"spec", "status"} {
		part := s.Structural().Properties[name]
		walk(&part, []any{name}, try)
	}
	t.Logf("%d fields", len(accepted))
}

// expectSameJSON finds fields that the type drops.
func expectSameJSON(t *testing.T, path []any, stored map[string]any, c any) {
	t.Helper()
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	var back map[string]any
	if err := utiljson.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"spec", "status"} {
		if missing := missingIn(back[name], stored[name], name); missing != "" {
			t.Errorf("%v: %s is lost in decoding", path, missing)
		}
	}
}

// missingIn names a field with a value in want that got does not have.
func missingIn(got, want any, path string) string {
	fields, ok := want.(map[string]any)
	if !ok {
		return ""
	}
	have, _ := got.(map[string]any)
	for _, key := range slices.Sorted(mapsKeys(fields)) {
		if isEmpty(fields[key]) {
			continue // left out in writing
		}
		if _, found := have[key]; !found {
			return path + "." + key
		}
		if missing := missingIn(have[key], fields[key], path+"."+key); missing != "" {
			return missing
		}
	}
	return ""
}

func mapsKeys(m map[string]any) func(func(string) bool) {
	return func(yield func(string) bool) {
		for key := range m {
			if !yield(key) {
				return
			}
		}
	}
}

func isEmpty(value any) bool {
	switch value := value.(type) {
	case nil:
		return true
	case map[string]any:
		for _, inner := range value {
			if !isEmpty(inner) {
				return false
			}
		}
		return true
	case []any:
		return len(value) == 0
	case string:
		return value == ""
	case bool:
		return !value
	case int64:
		return value == 0
	case float64:
		return value == 0
	}
	return false
}

// each is the step from a list or map to its elements in a path of walk.
type each struct{}

// walk visits every field below s.
func walk(s *schema.Structural, path []any, visit func([]any, *schema.Structural)) {
	visit(path, s)
	below := func(step any) []any { return append(slices.Clone(path), step) }
	for _, name := range slices.Sorted(func(yield func(string) bool) {
		for name := range s.Properties {
			if !yield(name) {
				return
			}
		}
	}) {
		field := s.Properties[name]
		walk(&field, below(name), visit)
	}
	if s.Items != nil {
		walk(s.Items, below(each{}), visit)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Structural != nil {
		walk(s.AdditionalProperties.Structural, below(each{}), visit)
	}
}

// putAt sets the field at path, making what it lies in with what that requires.
func putAt(o map[string]any, path []any, value any, s *schema.Structural) {
	name := path[0].(string)
	field := s.Properties[name]
	if len(path) == 1 {
		o[name] = value
		return
	}
	if _, isEach := path[1].(each); !isEach {
		inner, ok := o[name].(map[string]any)
		if !ok || name == "store" { // of which one thing is to be in it
			inner = filled(&field).(map[string]any)
			o[name] = inner
		}
		if name == "restore" {
			maps.Copy(inner, beside(path[1]))
		}
		putAt(inner, path[1:], value, &field)
		return
	}
	element := field.Items
	if element == nil {
		element = field.AdditionalProperties.Structural
	}
	if len(path) > 2 {
		inner := filled(element).(map[string]any)
		putAt(inner, path[2:], value, element)
		value = inner
	}
	if field.Items != nil {
		o[name] = []any{value}
		return
	}
	o[name] = map[string]any{"key": value}
}

// filledByName are values of required fields whose rules are narrow.
var filledByName = map[string]any{
	"bucket": "aaa", "cron": "0 3 * * *", "store": map[string]any{"volume": map[string]any{"claim": "a"}},
}

// beside is what a restore needs beside that field.
func beside(field any) map[string]any {
	switch field {
	case "store":
		return map[string]any{"cluster": "a"}
	case "cluster":
		return map[string]any{"store": filledByName["store"]}
	}
	return map[string]any{"backup": "a"}
}

// filled is an object with no more than what s requires.
func filled(s *schema.Structural) any {
	switch s.Type {
	case "object":
		o := map[string]any{}
		if s.ValueValidation != nil {
			for _, name := range s.ValueValidation.Required {
				field := s.Properties[name]
				if o[name] = filledByName[name]; o[name] == nil {
					o[name] = filled(&field)
				}
			}
		}
		return o
	case "array":
		return []any{}
	case "integer":
		return int64(17)
	case "boolean":
		return true
	}
	if s.XIntOrString {
		return "1Gi"
	}
	if s.ValueValidation != nil && s.ValueValidation.Format == "date-time" {
		return "2026-11-27T12:00:00Z"
	}
	if s.ValueValidation != nil && len(s.ValueValidation.Enum) > 0 {
		return s.ValueValidation.Enum[0].Object
	}
	return "a"
}

// candidates are values worth trying: what people write, and the edges of what
// a schema of that type lets through.
func candidates(s *schema.Structural) []any {
	values := []any{
		filled(s), "10s", nil, map[string]any{}, []any{}, "", "a", "1Gi", "17", "1e3", "1E", "1e1.5", "1.5e3", ".5", "+1", "1e40", "9223372036854775808", "true", "yes", "Retain", "app", "192.0.2.0/24",
		true, false, int64(0), int64(1), int64(17), int64(-1), int64(1) << 31, int64(1) << 33, int64(1<<63 - 1), 1.0, 17.0, 1.5, 1e30, -1e30,
		"aaa", "0 3 * * *", "30d", "1h", "https://minio.example.com:9000", "2026-11-27T12:00:00Z", "0/3000148", "50Mi", "full",
		filledByName["store"], map[string]any{"bucket": "aaa"}, map[string]any{"claim": "a"}, map[string]any{"backup": "a"}, map[string]any{"name": "a"},
		[]any{"a"}, []any{nil}, map[string]any{"a": "b"}, map[string]any{"a": nil}, map[string]any{"a": int64(1)},
	}
	if s.ValueValidation != nil {
		for _, e := range s.ValueValidation.Enum {
			values = append(values, e.Object)
		}
	}
	return slices.DeleteFunc(values, func(value any) bool { return !fits(s.Type, value) })
}

// fits leaves out what a schema of the type refuses for sure.
func fits(kind string, value any) bool {
	switch value.(type) {
	case nil:
		return true
	case bool:
		return kind == "boolean" || kind == ""
	case string:
		return kind == "string" || kind == ""
	case int64, float64:
		return kind == "integer" || kind == "number" || kind == ""
	case []any:
		return kind == "array" || kind == ""
	}
	return kind == "object" || kind == ""
}
