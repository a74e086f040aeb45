package specs

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/pki"
)

// derived Secret names are legal, no two roles share one, and what needs no
// change is not changed.
func TestA10SecretNamesOfRoles(t *testing.T) {
	names := []string{"reporting", "a", "app-new-reader", "Report_User", "report_user", "report-user", "_svc", "svc", "-", "---", "é", "è", "a.b", "a b", "A B",
		`a"; DROP ROLE b`, strings.Repeat("é", 31), strings.Repeat("X", 63), strings.Repeat("x", 63)}
	seen := map[string]string{}
	for _, role := range names {
		name := RoleSecret("a"+strings.Repeat("x", 49), role)
		if errs := validation.IsDNS1123Subdomain(name); len(errs) > 0 {
			t.Errorf("role %q: Secret %q: %v", role, name, errs)
		}
		if other, taken := seen[name]; taken {
			t.Errorf("roles %q and %q share the Secret %q", role, other, name)
		}
		seen[name] = role
		if !IsRoleSecret("a"+strings.Repeat("x", 49), name) {
			t.Errorf("Secret %q is not known as a role's", name)
		}
	}
	for role, want := range map[string]string{"reporting": "shop-role-reporting", "app-new-reader": "shop-role-app-new-reader", "Report_User": "shop-role-report-user-e0f7a001"} {
		if got := RoleSecret("shop", role); got != want {
			t.Errorf("role %q: Secret %q, want %q", role, got, want)
		}
	}
	for _, instance := range []string{Instance("shop", 1), TLSSecret(Instance("shop", 1)), AppSecret("shop"), CASecret("shop"), OperatorSecret("shop")} {
		if IsRoleSecret("shop", instance) {
			t.Errorf("%s counts as a role's", instance)
		}
	}
}

// whoever edits the password of a role's Secret gets it in every form.
func TestA21RoleSecretFollowsItsPassword(t *testing.T) {
	c, ca := shop(full), []byte("CA CERTIFICATE")
	role := Logins(c)[1]
	live := fromAPIServer(t, NewLoginSecret(c, role, "first", ca))
	if RepairLoginSecret(live, c, role, ca, someday) != nil {
		t.Error("one that is right is repaired")
	}
	live.Data["password"] = []byte("a:b@c/d#e%f g-é")
	repaired := RepairLoginSecret(live, c, role, ca, someday)
	if got, want := string(repaired.Data["uri"]), "postgresql://Report%20User:a%3Ab%40c%2Fd%23e%25f%20g-%C3%A9@shop-rw.db.svc:5432/reports?sslmode=require"; got != want {
		t.Errorf("uri is %s, want %s", got, want)
	}
	live.Data["password"] = nil
	if got := RepairLoginSecret(live, c, role, ca, someday).Data["password"]; len(got) < 20 {
		t.Errorf("an empty password becomes %q", got)
	}
}

// An exchange of a password that ends in the pass in which clients are told of another
// authority tells them of both, and leaves what people have put beside.
func TestE01EndOfAnExchangeKeepsAllElse(t *testing.T) {
	c := shop()
	owner := Logins(c)[0]
	authority, err := pki.NewAuthority("shop", someday)
	if err != nil {
		t.Fatal(err)
	}
	live := fromAPIServer(t, NewLoginSecret(c, owner, "first", []byte("OLD")))
	BeginRotation(live, "second", "all", someday)
	for key, value := range map[string]string{CertKey: "CERT", KeyKey: "KEY", "mine": "kept"} {
		live.Data[key] = []byte(value)
	}
	later := someday.Add(time.Hour)
	want := fromAPIServer(t, NewLoginSecret(c, owner, "second", authority.Cert))
	for key, value := range map[string]string{CertKey: "CERT", KeyKey: "KEY", "mine": "kept"} {
		want.Data[key] = []byte(value)
	}
	want.Annotations = map[string]string{RotatedAnnotation: someday.UTC().Format(time.RFC3339), RotationAskedAnnotation: "all", SinceAnnotation: later.UTC().Format(time.RFC3339)}
	finished := FinishRotation(live, c, owner, authority.Cert, later)
	if diff := cmp.Diff(want, finished); diff != "" {
		t.Error(diff)
	}
	if again := RepairLoginSecret(finished, c, owner, authority.Cert, later.Add(time.Hour)); again != nil {
		t.Error("what is finished is repaired")
	}
	if !ClientsTrustSince(finished).Equal(later) {
		t.Errorf("clients trust since %s, want %s", ClientsTrustSince(finished), later)
	}
}

// A role with a certificate has no password, and no Secret that agents read.
func TestRolesWithACertificate(t *testing.T) {
	c := shop(func(c *v1.PostgresCluster) {
		c.Spec.Roles = []v1.RoleSpec{{Name: "Report User", Login: true, ClientCertificate: true}, {Name: "gone", Login: true, ClientCertificate: true, Ensure: v1.EnsureAbsent}}
		c.Spec.Databases = []v1.DatabaseSpec{{Name: "reports", Owner: "Report User"}}
	})
	if role, rules := DeclaredOf(c).Roles[0], passwordRules(c); !role.NoPassword || role.Secret != "" || len(rules) != 1 || !slices.Equal(slices.Compact(rules[0].ResourceNames), []string{"shop-app"}) {
		t.Errorf("declared as %+v, and agents may read %v", role, rules)
	}
	if logins := Logins(c); len(logins) != 1 || logins[0].Role != "app" {
		t.Errorf("logins with a password are %+v", logins)
	}
	made, err := NewConfigMap(c, Configuration{})
	if err != nil {
		t.Fatal(err)
	}
	if hba := made.Data[instanceapi.HBAKey]; !strings.Contains(hba, `hostssl all "Report User" all cert`) || strings.Contains(hba, "gone") {
		t.Errorf("pg_hba.conf is\n%s", hba)
	}
	secret := NewClientSecret(c, c.Spec.Roles[0], pki.Pair{Cert: []byte("CERT"), Key: []byte("KEY")}, []byte("CA"))
	want := map[string]string{"type": "postgresql", "provider": "pgop.dev", "host": "shop-rw.db.svc", "port": "5432", "dbname": "reports", "username": "Report User",
		"ca.crt": "CA", "tls.crt": "CERT", "tls.key": "KEY"}
	got := map[string]string{}
	for key, value := range secret.Data {
		got[key] = string(value)
	}
	if diff := cmp.Diff(want, got); diff != "" || !IsClientSecret("shop", secret.Name) || secret.Type != corev1.SecretTypeTLS {
		t.Errorf("Secret %s of type %s:\n%s", secret.Name, secret.Type, diff)
	}
}

func TestDeclaredThatIsRefused(t *testing.T) {
	role := func(change func(*v1.RoleSpec)) func(*v1.PostgresCluster) {
		return func(c *v1.PostgresCluster) {
			r := v1.RoleSpec{Name: "app", Login: true}
			change(&r)
			c.Spec.Roles = append(c.Spec.Roles, r)
		}
	}
	database := func(d v1.DatabaseSpec) func(*v1.PostgresCluster) {
		return func(c *v1.PostgresCluster) { c.Spec.Databases = append(c.Spec.Databases, d) }
	}
	cases := []struct {
		why  string
		with func(*v1.PostgresCluster)
		want string
	}{
		{"everything", full, ""},
		{"the owner may have more", role(func(r *v1.RoleSpec) { r.CreateDB = true }), ""},
		{"the owner logs in", role(func(r *v1.RoleSpec) { r.Login = false }), "spec.roles[app].login: the owner of the application's database logs in with the Secret shop-app; set login: true"},
		{"the owner stays", role(func(r *v1.RoleSpec) { r.Ensure = v1.EnsureAbsent }), "spec.roles[app].ensure: the role owns the application's database"},
		{"E-04: the owner's password is in a Secret of the user's own", role(func(r *v1.RoleSpec) { r.PasswordSecret = &v1.SecretName{Name: "x"} }), ""},
		{"a Secret of the user's own is not the operator's", role(func(r *v1.RoleSpec) { r.PasswordSecret = &v1.SecretName{Name: "shop-app"} }), "spec.roles[app].passwordSecret: the Secret shop-app is the operator's"},
		{"the owner has a password", role(func(r *v1.RoleSpec) { r.DisablePassword = true }), "spec.roles[app].disablePassword: "},
		{"the owner has a certificate", role(func(r *v1.RoleSpec) { r.ClientCertificate = true }), "spec.roles[app].clientCertificate: the owner of the application's database logs in with the Secret shop-app; declare another role"},
		{"the operator's certificate", role(func(r *v1.RoleSpec) { r.Name, r.ClientCertificate = "operator", true }), "spec.roles[operator].clientCertificate: a certificate of that name is the operator's own"},
		{"a role of the operator's name, with a password", role(func(r *v1.RoleSpec) { r.Name = "operator" }), ""},
		{"a pattern", role(func(r *v1.RoleSpec) { r.Name, r.ClientCertificate = "/all", true }), "spec.roles[/all].clientCertificate: in pg_hba.conf a name that begins with / is a pattern"},
		{"the application's database", database(v1.DatabaseSpec{Name: "app", Extensions: []v1.ExtensionSpec{{Name: "pg_trgm"}}}), ""},
		{"the application's database stays", database(v1.DatabaseSpec{Name: "app", Ensure: v1.EnsureAbsent}), "spec.databases[app].ensure: it is the application's database"},
		{"a privilege given and taken", database(v1.DatabaseSpec{Name: "d", Grants: []v1.DatabaseGrant{{Role: "r", Privileges: []v1.DatabasePrivilege{"CONNECT"}, Revoked: []v1.DatabasePrivilege{"CONNECT"}}}}),
			"spec.databases[d].grants[r]: CONNECT is in privileges and in revoked"},
		{"a privilege on a schema given and taken", database(v1.DatabaseSpec{Name: "d", Schemas: []v1.SchemaSpec{{Name: "s", Grants: []v1.SchemaGrant{{Role: "r", Privileges: []v1.SchemaPrivilege{"USAGE"}, Revoked: []v1.SchemaPrivilege{"USAGE"}}}}}}),
			"spec.databases[d].schemas[s].grants[r]: USAGE is in"},
		{"a name that the server would cut", database(v1.DatabaseSpec{Name: "d", Schemas: []v1.SchemaSpec{{Name: strings.Repeat("é", 32)}}}), "name: at most 63 bytes"},
		{"a name with a line break", database(v1.DatabaseSpec{Name: "d", Owner: "a\nb"}), "spec.databases[d].owner: at most 63 bytes"},
	}
	for _, c := range cases {
		got := ""
		if err := CheckConfiguration(shop(c.with)); err != nil {
			got = err.Error()
		}
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.why, got, c.want)
		}
	}
}

// A database that comes from a backup has the application's owner and database that
// spec.bootstrap.restore names.
func TestDeclaredInARestoredCluster(t *testing.T) {
	fromBackup := restored(v1.BackupStore{Volume: &v1.VolumeStore{Claim: "old"}}, v1.RestoreTarget{}) // its owner is shop
	c := shop(fromBackup, func(c *v1.PostgresCluster) {
		c.Spec.Roles = []v1.RoleSpec{{Name: "shop", Login: true, CreateDB: true}, {Name: "app", Login: true}}
		c.Spec.Databases = []v1.DatabaseSpec{{Name: "reports"}}
	})
	if err := CheckConfiguration(c); err != nil {
		t.Fatal(err)
	}
	d := DeclaredOf(c)
	if d.Roles[0].Secret != "" || d.Roles[1].Secret != "shop-role-app" || d.Databases[0].Owner != "shop" {
		t.Errorf("the agents are told %+v", d)
	}
	if got := string(NewLoginSecret(c, Logins(c)[1], "x", nil).Data["dbname"]); got != "app" {
		t.Errorf("the login of app leads to %s", got)
	}
	for want, with := range map[string]func(*v1.PostgresCluster){
		"spec.roles[shop].ensure: the role owns the application's database": func(c *v1.PostgresCluster) { c.Spec.Roles[0].Ensure = v1.EnsureAbsent },
		"spec.databases[app].ensure: it is the application's database": func(c *v1.PostgresCluster) {
			c.Spec.Databases = []v1.DatabaseSpec{{Name: "app", Ensure: v1.EnsureAbsent}}
		},
	} {
		refused := c.DeepCopy()
		with(refused)
		if err := CheckConfiguration(refused); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// Agents that read both passwords and the Secrets of backups have a rule for each.
func TestAgentsReadSecretsOfRolesAndOfBackups(t *testing.T) {
	role := InstanceRole(shop(backedUp, full))
	var got []string
	for _, rule := range role.Rules {
		if rule.Resources[0] == "secrets" {
			got = append(got, strings.Join(rule.Verbs, " ")+": "+strings.Join(rule.ResourceNames, " "))
		}
	}
	want := []string{"get list watch: own-login shop-app shop-role-report-user-ae89cfa0", "get: s3-ca s3-login"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
