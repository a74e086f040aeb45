package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Ensure says whether something shall be there.
//
// +kubebuilder:validation:Enum=present;absent
type Ensure string

const (
	// EnsurePresent makes it, and keeps it as declared.
	EnsurePresent Ensure = "present"
	// EnsureAbsent drops it.
	EnsureAbsent Ensure = "absent"
)

// RoleSpec is a role of the server, which may log in if it has login.
//
// +kubebuilder:validation:XValidation:rule="!has(self.passwordSecret) || !has(self.disablePassword) || !self.disablePassword",message="spec.roles[].disablePassword: with passwordSecret the role has a password; remove one of the two"
// +kubebuilder:validation:XValidation:rule="!has(self.rotation) || (has(self.login) && self.login && !has(self.passwordSecret) && !(has(self.disablePassword) && self.disablePassword))",message="spec.roles[].rotation: the operator exchanges passwords that it makes, which it does for roles with login: true and without passwordSecret and disablePassword; edit a Secret of your own instead"
// +kubebuilder:validation:XValidation:rule="!has(self.rotation) || !has(self.clientCertificate) || !self.clientCertificate",message="spec.roles[].rotation: with clientCertificate the role has no password to exchange, and its certificate is renewed by itself; remove rotation, or clientCertificate"
// +kubebuilder:validation:XValidation:rule="!has(self.clientCertificate) || !self.clientCertificate || (has(self.login) && self.login)",message="spec.roles[].clientCertificate: only a role that logs in has a use for a certificate; set login: true"
// +kubebuilder:validation:XValidation:rule="!has(self.clientCertificate) || !self.clientCertificate || !has(self.passwordSecret)",message="spec.roles[].clientCertificate: the role logs in by its certificate and never by a password; remove passwordSecret, or clientCertificate"
// +kubebuilder:validation:XValidation:rule="!has(self.memberOf) || !(self.name in self.memberOf)",message="spec.roles[].memberOf: no role is a member of itself; remove its own name"
type RoleSpec struct {
	// Name of the role, at most 63 bytes; upper case and special characters stay as
	// they are. postgres, streaming_replica, public, none and names beginning with
	// pg_ are reserved.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="!(self in ['postgres', 'streaming_replica', 'public', 'none']) && !self.startsWith('pg_')",message="spec.roles[].name: postgres, streaming_replica, public, none and names beginning with pg_ are the server's or the operator's; choose another name, and to give a role what pg_monitor and the like may do, name them in its memberOf"
	// +kubebuilder:validation:XValidation:rule="bytes(self).size() <= 63",message="spec.roles[].name: at most 63 bytes, in which a letter such as é counts twice; choose a shorter name"
	// +kubebuilder:validation:XValidation:rule="!self.matches('[\\\\x00-\\\\x1f\\\\x7f]')",message="spec.roles[].name: no control characters, such as a line break"
	Name string `json:"name"`
	// present: the role is made, and kept as declared here. absent: it is dropped;
	// a role that still owns something stays, and status.roles says what. An entry
	// that is removed changes nothing: the role stays as it is. Default present.
	// +kubebuilder:default=present
	// +optional
	Ensure Ensure `json:"ensure,omitempty"`
	// Whether the role may log in. Default false.
	// +optional
	Login bool `json:"login,omitempty"`
	// Whether the role is a superuser, whom nothing is denied. Default false.
	// +optional
	Superuser bool `json:"superuser,omitempty"`
	// Whether the role may create databases. Default false.
	// +optional
	CreateDB bool `json:"createdb,omitempty"`
	// Whether the role may create and alter roles. Default false.
	// +optional
	CreateRole bool `json:"createrole,omitempty"`
	// Whether the role has the privileges of those of memberOf at once, without SET
	// ROLE. Default true.
	// +kubebuilder:default=true
	// +optional
	Inherit *bool `json:"inherit,omitempty"`
	// Whether the role may stream and make replication slots, as programs for
	// change data capture do. Default false.
	// +optional
	Replication bool `json:"replication,omitempty"`
	// Whether row level security does not bind the role. Default false.
	// +optional
	BypassRLS bool `json:"bypassrls,omitempty"`
	// How many connections the role may have at once; -1: any number. Default -1.
	// +kubebuilder:default=-1
	// +kubebuilder:validation:Minimum=-1
	// +optional
	ConnectionLimit *int32 `json:"connectionLimit,omitempty"`
	// Until when the password is valid, such as 2027-01-31T00:00:00Z. Default: for
	// ever.
	// +optional
	ValidUntil *metav1.Time `json:"validUntil,omitempty"`
	// The roles of which it is a member, the server's own, such as
	// pg_read_all_data, among them. The list is complete: other memberships are
	// revoked, but for the right to administer roles that it has created itself.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="!self.exists(r, r in ['postgres', 'streaming_replica', 'public', 'none'])",message="spec.roles[].memberOf: nobody is a member of postgres, streaming_replica, public and none; for all privileges set superuser: true"
	// +listType=set
	// +optional
	MemberOf []string `json:"memberOf,omitempty"`
	// A comment on the role. Default: none.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Comment string `json:"comment,omitempty"`
	// A Secret of your own, in the cluster's namespace, with the password under the
	// key password: as it is, or as a verifier that begins with SCRAM-SHA-256$. If it
	// has the key username, that must be the role's name. It is read and never
	// written; an edit reaches the server within seconds. The owner of the
	// application's database may have one, too. Default: a role that logs in has a
	// Secret made by the operator, which status.roles names.
	// +optional
	PasswordSecret *SecretName `json:"passwordSecret,omitempty"`
	// When and how the operator makes a new password and puts it into the Secret that it
	// made. Without grace there is a window, between the server and whoever mounts the
	// Secret, in which the old password is refused; see docs/roles.md. Default: only when
	// pgop.dev/rotate asks, and without grace.
	// +optional
	Rotation *RotationSpec `json:"rotation,omitempty"`
	// Whether the role has no password, as one that logs in by a certificate or
	// otherwise by spec.postgres.hba. Default false.
	// +optional
	DisablePassword bool `json:"disablePassword,omitempty"`
	// Whether the role logs in over TLS by a certificate that the operator issues and
	// renews, and not by a password. The certificate, its key and the authorities by
	// which to verify the server are in the Secret <cluster>-cert-<role>, under tls.crt,
	// tls.key and ca.crt; status.roles names it. Default false.
	// +optional
	ClientCertificate bool `json:"clientCertificate,omitempty"`
}

// RotationSpec is when and how a password is exchanged.
//
// +kubebuilder:validation:XValidation:rule="has(self.cron) || has(self.grace)",message="spec.roles[].rotation: it says nothing; set cron for a schedule, grace for a time in which the login before stays valid, or remove rotation"
type RotationSpec struct {
	// Minute, hour, day of month, month and day of week, such as "0 3 1 * *" for the
	// first of each month at 3:00. Five fields; no seconds, no words such as @monthly.
	// Default: none, so that only pgop.dev/rotate asks.
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule="self.trim().matches('^[0-9A-Za-z*/,-]+([ \\\\t]+[0-9A-Za-z*/,-]+){4}$')",message="spec.roles[].rotation.cron: five fields, minute, hour, day of month, month and day of week, such as \"0 3 1 * *\" for the first of each month at 3:00"
	// +optional
	Cron string `json:"cron,omitempty"`
	// Time zone of the fields, a name of the IANA database such as Europe/Berlin.
	// Default Etc/UTC.
	// +kubebuilder:default="Etc/UTC"
	// +kubebuilder:validation:MaxLength=64
	// +optional
	TimeZone string `json:"timeZone,omitempty"`
	// For how long the login before stays valid after an exchange, from 1m to 8760h, such
	// as 1h. Clients then log in by turns as two roles, <role>_1 and <role>_2, which act as
	// this one; the Secret says as which. It is shorter than the schedule's times are apart.
	// Default: none; the password is exchanged in place.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,6}([.][0-9]{1,6})?(ms|s|m|h)){1,4}$') && duration(self) >= duration('1m') && duration(self) <= duration('8760h')",message="spec.roles[].rotation.grace: a duration from 1m to 8760h, such as 1h"
	// +optional
	Grace *metav1.Duration `json:"grace,omitempty"`
}

// DatabaseSpec is a database of the server.
type DatabaseSpec struct {
	// Name of the database, at most 63 bytes; upper case and special characters
	// stay as they are. postgres, template0 and template1 are reserved.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="!(self in ['postgres', 'template0', 'template1'])",message="spec.databases[].name: postgres, template0 and template1 exist in every cluster and stay as they are; choose another name, such as app"
	// +kubebuilder:validation:XValidation:rule="bytes(self).size() <= 63",message="spec.databases[].name: at most 63 bytes, in which a letter such as é counts twice; choose a shorter name"
	// +kubebuilder:validation:XValidation:rule="!self.matches('[\\\\x00-\\\\x1f\\\\x7f]')",message="spec.databases[].name: no control characters, such as a line break"
	Name string `json:"name"`
	// present: the database is made, and kept as declared here. absent: it is
	// dropped with all its data, once nobody is connected to it. An entry that is
	// removed changes nothing: the database stays. Default present.
	// +kubebuilder:default=present
	// +optional
	Ensure Ensure `json:"ensure,omitempty"`
	// The role that owns it. Default: the owner of the application's database.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Owner string `json:"owner,omitempty"`
	// Character encoding with which it is made, such as UTF8; it can't be changed
	// later. Default: that of the cluster.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	Encoding string `json:"encoding,omitempty"`
	// Locale with which it is made, such as de_DE.UTF-8; it can't be changed later.
	// Default: that of the cluster.
	// +kubebuilder:validation:MaxLength=128
	// +optional
	Locale string `json:"locale,omitempty"`
	// Extensions in the database. The image must have them.
	// +kubebuilder:validation:MaxItems=64
	// +listType=map
	// +listMapKey=name
	// +optional
	Extensions []ExtensionSpec `json:"extensions,omitempty"`
	// Schemas in the database.
	// +kubebuilder:validation:MaxItems=32
	// +listType=map
	// +listMapKey=name
	// +optional
	Schemas []SchemaSpec `json:"schemas,omitempty"`
	// Privileges on the database.
	// +kubebuilder:validation:MaxItems=64
	// +listType=map
	// +listMapKey=role
	// +optional
	Grants []DatabaseGrant `json:"grants,omitempty"`
}

// ExtensionSpec is an extension in a database.
type ExtensionSpec struct {
	// Name of the extension, such as pg_trgm.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// present: the extension is created. absent: it is dropped, unless something
	// depends on it. An entry that is removed changes nothing. Default present.
	// +kubebuilder:default=present
	// +optional
	Ensure Ensure `json:"ensure,omitempty"`
	// The version to which it is created or updated. Default: the one that the
	// server takes when it creates it; later it is left as it is.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	Version string `json:"version,omitempty"`
	// The schema that it is in. Default: the one that the extension asks for, else
	// public; later it is left where it is.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Schema string `json:"schema,omitempty"`
}

// SchemaSpec is a schema in a database.
type SchemaSpec struct {
	// Name of the schema; names beginning with pg_ and information_schema are
	// reserved.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self != 'information_schema' && !self.startsWith('pg_')",message="spec.databases[].schemas[].name: information_schema and names beginning with pg_ are the server's; choose another name"
	Name string `json:"name"`
	// present: the schema is created. absent: it is dropped if it is empty. An
	// entry that is removed changes nothing. Default present.
	// +kubebuilder:default=present
	// +optional
	Ensure Ensure `json:"ensure,omitempty"`
	// The role that owns it. Default: the owner of the database, when it is created;
	// later it is left as it is.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Owner string `json:"owner,omitempty"`
	// Privileges on the schema.
	// +kubebuilder:validation:MaxItems=32
	// +listType=map
	// +listMapKey=role
	// +optional
	Grants []SchemaGrant `json:"grants,omitempty"`
}

// DatabaseGrant is what a role may do with a database.
type DatabaseGrant struct {
	// The role; public: every role.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Role string `json:"role"`
	// CONNECT, CREATE (schemas) or TEMPORARY (tables). These are granted; what else
	// the role has is left as it is.
	// +kubebuilder:validation:MaxItems=3
	// +listType=set
	// +optional
	Privileges []DatabasePrivilege `json:"privileges,omitempty"`
	// Privileges that the role shall not have: they are revoked from it. What public
	// has, every role has.
	// +kubebuilder:validation:MaxItems=3
	// +listType=set
	// +optional
	Revoked []DatabasePrivilege `json:"revoked,omitempty"`
}

// DatabasePrivilege is a privilege on a database.
//
// +kubebuilder:validation:Enum=CONNECT;CREATE;TEMPORARY
type DatabasePrivilege string

// SchemaGrant is what a role may do with a schema.
type SchemaGrant struct {
	// The role; public: every role.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Role string `json:"role"`
	// USAGE or CREATE. These are granted; what else the role has is left as it is.
	// +kubebuilder:validation:MaxItems=2
	// +listType=set
	// +optional
	Privileges []SchemaPrivilege `json:"privileges,omitempty"`
	// Privileges that the role shall not have: they are revoked from it. What public
	// has, every role has.
	// +kubebuilder:validation:MaxItems=2
	// +listType=set
	// +optional
	Revoked []SchemaPrivilege `json:"revoked,omitempty"`
}

// SchemaPrivilege is a privilege on a schema.
//
// +kubebuilder:validation:Enum=USAGE;CREATE
type SchemaPrivilege string

// RoleStatus is a role of the spec as the primary last saw it.
type RoleStatus struct {
	// Name of the role.
	Name string `json:"name"`
	// Whether the role in the server is as declared.
	Ready bool `json:"ready"`
	// The Secret with its password; none: it has none from here.
	// +optional
	Secret string `json:"secret,omitempty"`
	// The role as which the Secret logs in, with rotation.grace; none: as this one itself.
	// +optional
	Login string `json:"login,omitempty"`
	// As which one could log in before, and still can; none: as no other.
	// +optional
	PreviousLogin string `json:"previousLogin,omitempty"`
	// Until when the previous login is valid, at least.
	// +optional
	PreviousLoginUntil *metav1.Time `json:"previousLoginUntil,omitempty"`
	// When the operator last began to exchange the password; none: it never has.
	// +optional
	LastRotation *metav1.Time `json:"lastRotation,omitempty"`
	// When it does so next, as rotation asks.
	// +optional
	NextRotation *metav1.Time `json:"nextRotation,omitempty"`
	// What is not as declared and why, in the server's words.
	// +optional
	Message string `json:"message,omitempty"`
}

// DatabaseStatus is a database of the spec as the primary last saw it.
type DatabaseStatus struct {
	// Name of the database.
	Name string `json:"name"`
	// Whether the database is as declared, with its extensions, schemas and grants.
	Ready bool `json:"ready"`
	// What is not as declared and why, in the server's words.
	// +optional
	Message string `json:"message,omitempty"`
}
