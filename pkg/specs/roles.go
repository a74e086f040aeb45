package specs

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/utils/ptr"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/pki"
)

// legalInSecretName is what a role's name may be to become part of a Secret's name
// as it is.
var legalInSecretName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)

// RoleSecret is the login of a role whose password the operator makes. A name that
// Kubernetes doesn't allow is written in what it allows, with a hash of the name
// itself, so that no two roles share a Secret.
func RoleSecret(cluster, role string) string { return secretNamed(roleSecretPrefix(cluster), role) }

// ClientSecret is the login of a role that shows a certificate, named as RoleSecret
// does.
func ClientSecret(cluster, role string) string {
	return secretNamed(clientSecretPrefix(cluster), role)
}

// IsClientSecret says whether a Secret of the cluster is the login of a role that
// shows a certificate.
func IsClientSecret(cluster, name string) bool {
	return strings.HasPrefix(name, clientSecretPrefix(cluster))
}

func clientSecretPrefix(cluster string) string { return cluster + "-cert-" }

func secretNamed(prefix, role string) string {
	if legalInSecretName.MatchString(role) {
		return prefix + role
	}
	allowed := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		}
		return '-'
	}, role)
	sum := sha256.Sum256([]byte(role))
	const digits = 8
	return prefix + strings.Trim(strings.Trim(allowed, "-")+"-"+hex.EncodeToString(sum[:])[:digits], "-")
}

// IsRoleSecret says whether a Secret of the cluster is the login of a role.
func IsRoleSecret(cluster, name string) bool {
	return strings.HasPrefix(name, roleSecretPrefix(cluster))
}

func roleSecretPrefix(cluster string) string { return cluster + "-role-" }

// HasOwnSecret says whether the operator makes the password of a role, in a Secret of
// RoleSecret.
func HasOwnSecret(c *v1.PostgresCluster, r v1.RoleSpec) bool {
	return r.Login && r.PasswordSecret == nil && !r.DisablePassword && !r.ClientCertificate && !isAbsent(r.Ensure) && r.Name != appOwner(c)
}

// HasCertificate says whether a role logs in by a certificate that the operator issues.
func HasCertificate(r v1.RoleSpec) bool { return r.Login && r.ClientCertificate && !isAbsent(r.Ensure) }

// certifiedRoles are the names of those that do.
func certifiedRoles(c *v1.PostgresCluster) []string {
	var names []string
	for _, r := range c.Spec.Roles {
		if HasCertificate(r) {
			names = append(names, r.Name)
		}
	}
	return names
}

// NewClientSecret is the login of a role that shows a certificate, with what it
// verifies the server by.
func NewClientSecret(c *v1.PostgresCluster, r v1.RoleSpec, leaf pki.Pair, ca []byte) *corev1.Secret {
	all := login(c, r.Name, databaseOf(c, r.Name), "", ca)
	data := map[string][]byte{CAKey: ca, CertKey: leaf.Cert, KeyKey: leaf.Key}
	for _, key := range []string{"type", "provider", "host", "port", "dbname", "username"} {
		data[key] = all[key]
	}
	return &corev1.Secret{ObjectMeta: objectMeta(c, ClientSecret(c.Name, r.Name)), Type: corev1.SecretTypeTLS, Data: data}
}

// OwnerSecret is the Secret of the user's own with the password of the application
// database's owner, as the role's entry names it; empty: it is that of AppSecret.
func OwnerSecret(c *v1.PostgresCluster) string {
	for _, r := range c.Spec.Roles {
		if r.Name == appOwner(c) && r.PasswordSecret != nil {
			return r.PasswordSecret.Name
		}
	}
	return ""
}

// SecretOfRole is the Secret with the password of a role, empty if there is none.
func SecretOfRole(c *v1.PostgresCluster, r v1.RoleSpec) string {
	switch {
	case isAbsent(r.Ensure):
		return ""
	case r.PasswordSecret != nil:
		return r.PasswordSecret.Name
	case r.Name == appOwner(c):
		return AppSecret(c.Name)
	case HasOwnSecret(c, r):
		return RoleSecret(c.Name, r.Name)
	}
	return ""
}

func databaseOf(c *v1.PostgresCluster, role string) string {
	for _, d := range c.Spec.Databases {
		if d.Owner == role && !isAbsent(d.Ensure) {
			return d.Name
		}
	}
	return appDatabase(c)
}

// appOwner is the owner of the application's database; its login is AppSecret.
func appOwner(c *v1.PostgresCluster) string {
	_, owner := c.Spec.Bootstrap.Application()
	return owner
}

func appDatabase(c *v1.PostgresCluster) string {
	database, _ := c.Spec.Bootstrap.Application()
	return database
}

func isAbsent(e v1.Ensure) bool { return e == v1.EnsureAbsent }

// DeclaredOf is what the agents are told of spec.roles and spec.databases.
func DeclaredOf(c *v1.PostgresCluster) instanceapi.Declared {
	var d instanceapi.Declared
	for _, r := range c.Spec.Roles {
		d.Roles = append(d.Roles, declaredRole(c, r))
	}
	for _, database := range c.Spec.Databases {
		d.Databases = append(d.Databases, declaredDatabase(c, database))
	}
	return d
}

func declaredRole(c *v1.PostgresCluster, r v1.RoleSpec) instanceapi.DeclaredRole {
	if isAbsent(r.Ensure) {
		return instanceapi.DeclaredRole{Name: r.Name, Absent: true}
	}
	declared := instanceapi.DeclaredRole{
		Name: r.Name, Login: r.Login, Superuser: r.Superuser, CreateDB: r.CreateDB, CreateRole: r.CreateRole,
		Inherit: ptr.Deref(r.Inherit, true), Replication: r.Replication, BypassRLS: r.BypassRLS,
		ConnectionLimit: int(ptr.Deref(r.ConnectionLimit, -1)), MemberOf: r.MemberOf, Comment: r.Comment,
		NoPassword: r.DisablePassword || r.ClientCertificate,
	}
	if r.ValidUntil != nil {
		declared.ValidUntil = r.ValidUntil.UTC()
	}
	if r.Name != appOwner(c) { // else Config.Owner says it
		declared.Secret, declared.OwnSecret = SecretOfRole(c, r), HasOwnSecret(c, r)
	}
	return declared
}

func declaredDatabase(c *v1.PostgresCluster, d v1.DatabaseSpec) instanceapi.DeclaredDatabase {
	if isAbsent(d.Ensure) {
		return instanceapi.DeclaredDatabase{Name: d.Name, Absent: true}
	}
	declared := instanceapi.DeclaredDatabase{Name: d.Name, Owner: cmp.Or(d.Owner, appOwner(c)), Encoding: d.Encoding, Locale: d.Locale}
	for _, e := range d.Extensions {
		declared.Extensions = append(declared.Extensions, instanceapi.DeclaredExtension{
			Name: e.Name, Absent: isAbsent(e.Ensure), Version: e.Version, Schema: e.Schema})
	}
	for _, s := range d.Schemas {
		schema := instanceapi.DeclaredSchema{Name: s.Name, Absent: isAbsent(s.Ensure), Owner: s.Owner}
		for _, g := range s.Grants {
			schema.Grants = append(schema.Grants, instanceapi.DeclaredGrant{Role: g.Role, Privileges: asText(g.Privileges), Revoked: asText(g.Revoked)})
		}
		declared.Schemas = append(declared.Schemas, schema)
	}
	for _, g := range d.Grants {
		declared.Grants = append(declared.Grants, instanceapi.DeclaredGrant{Role: g.Role, Privileges: asText(g.Privileges), Revoked: asText(g.Revoked)})
	}
	return declared
}

func asText[T ~string](words []T) []string {
	var texts []string
	for _, word := range words {
		texts = append(texts, string(word))
	}
	return texts
}

// checkDeclared refuses of spec.roles and spec.databases what the schema can't
// judge.
func checkDeclared(c *v1.PostgresCluster) error {
	var errs []error
	for _, r := range c.Spec.Roles {
		errs = append(errs, checkRole(c, r))
	}
	for _, d := range c.Spec.Databases {
		if d.Name == appDatabase(c) && isAbsent(d.Ensure) {
			errs = append(errs, fmt.Errorf("spec.databases[%s].ensure: it is the application's database, to which the Secret %s leads; remove the entry, and drop the database by hand if nobody needs it", d.Name, AppSecret(c.Name)))
		}
		errs = append(errs, checkGrants(fmt.Sprintf("spec.databases[%s]", d.Name), d.Grants, func(g v1.DatabaseGrant) (string, []string, []string) {
			return g.Role, asText(g.Privileges), asText(g.Revoked)
		}))
		for _, s := range d.Schemas {
			errs = append(errs, checkGrants(fmt.Sprintf("spec.databases[%s].schemas[%s]", d.Name, s.Name), s.Grants, func(g v1.SchemaGrant) (string, []string, []string) {
				return g.Role, asText(g.Privileges), asText(g.Revoked)
			}))
		}
		errs = append(errs, checkIdentifiers(d))
	}
	return errors.Join(errs...)
}

func checkRole(c *v1.PostgresCluster, r v1.RoleSpec) error {
	if err := errors.Join(checkCertified(r), checkLoginNames(c, r)); err != nil {
		return err
	}
	if r.Name != appOwner(c) {
		return nil
	}
	field := fmt.Sprintf("spec.roles[%s]", r.Name)
	secret := AppSecret(c.Name)
	switch {
	case isAbsent(r.Ensure):
		return fmt.Errorf("%s.ensure: the role owns the application's database and logs in with the Secret %s; remove the entry", field, secret)
	case !r.Login:
		return fmt.Errorf("%s.login: the owner of the application's database logs in with the Secret %s; set login: true", field, secret)
	case r.PasswordSecret != nil && r.PasswordSecret.Name == secret:
		return fmt.Errorf("%s.passwordSecret: the Secret %s is the operator's, which tells there how the database is reached; choose another name, or remove the field and edit the password there", field, secret)
	case r.ClientCertificate:
		return fmt.Errorf("%s.clientCertificate: the owner of the application's database logs in with the Secret %s; declare another role", field, secret)
	case r.DisablePassword:
		return fmt.Errorf("%s.disablePassword: the owner of the application's database logs in with the Secret %s; remove it", field, secret)
	}
	return nil
}

// checkCertified refuses a certificate for a name that means something else where
// certificates are read.
func checkCertified(r v1.RoleSpec) error {
	field := fmt.Sprintf("spec.roles[%s].clientCertificate", r.Name)
	switch {
	case !HasCertificate(r):
	case r.Name == pki.OperatorName:
		return fmt.Errorf("%s: a certificate of that name is the operator's own; choose another name for the role", field)
	case strings.HasPrefix(r.Name, "/"):
		return fmt.Errorf("%s: in pg_hba.conf a name that begins with / is a pattern; choose another name for the role", field)
	}
	return nil
}

func checkGrants[T any](field string, grants []T, parts func(T) (role string, privileges, revoked []string)) error {
	var errs []error
	for _, g := range grants {
		role, privileges, revoked := parts(g)
		for _, privilege := range privileges {
			if slices.Contains(revoked, privilege) {
				errs = append(errs, fmt.Errorf("%s.grants[%s]: %s is in privileges and in revoked; remove it from one of them", field, role, privilege))
			}
		}
	}
	return errors.Join(errs...)
}

// checkIdentifiers refuses names that the server would cut, and that would then
// never be found.
func checkIdentifiers(d v1.DatabaseSpec) error {
	names := map[string]string{"owner": d.Owner}
	for _, e := range d.Extensions {
		names["extensions["+e.Name+"].name"], names["extensions["+e.Name+"].schema"] = e.Name, e.Schema
	}
	for _, s := range d.Schemas {
		names["schemas["+s.Name+"].name"], names["schemas["+s.Name+"].owner"] = s.Name, s.Owner
	}
	var errs []error
	for _, field := range slices.Sorted(maps.Keys(names)) {
		const most = 63 // bytes
		if name := names[field]; len(name) > most || !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			errs = append(errs, fmt.Errorf("spec.databases[%s].%s: at most %d bytes, in which a letter such as é counts twice, and no control characters", d.Name, field, most))
		}
	}
	return errors.Join(errs...)
}

// passwordRules let the agents read the Secrets of roles, and of the application
// database's owner, by name.
func passwordRules(c *v1.PostgresCluster) []rbacv1.PolicyRule {
	// The operator's is read until the agents are told of another.
	names := []string{AppSecret(c.Name), cmp.Or(OwnerSecret(c), AppSecret(c.Name))}
	for _, r := range DeclaredOf(c).Roles {
		if r.Secret != "" {
			names = append(names, r.Secret)
		}
	}
	slices.Sort(names)
	return []rbacv1.PolicyRule{{
		APIGroups:     []string{""},
		Resources:     []string{"secrets"},
		ResourceNames: slices.Compact(names),
		Verbs:         []string{"get", "list", "watch"},
	}}
}
