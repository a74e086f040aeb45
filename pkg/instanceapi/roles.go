package instanceapi

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// Declared are the roles and databases of the spec, which the primary keeps as they
// are declared. What is not in it is left alone.
type Declared struct {
	Roles     []DeclaredRole     `json:"roles,omitempty"`
	Databases []DeclaredDatabase `json:"databases,omitempty"`
}

// IsEmpty says whether nothing is declared.
func (d Declared) IsEmpty() bool { return len(d.Roles) == 0 && len(d.Databases) == 0 }

// Hash identifies what is declared, as State.Declared reports it.
func (d Declared) Hash() string {
	text, err := json.Marshal(d)
	if err != nil {
		panic(fmt.Sprintf("marshal what is declared: %v", err)) // plain data always marshals
	}
	sum := sha256.Sum256(text)
	const digits = 16
	return hex.EncodeToString(sum[:])[:digits]
}

// DeclaredRole is a role as it shall be. Everything in it counts, also what is
// zero; of one that is Absent, the name alone.
type DeclaredRole struct {
	Name        string `json:"name"`
	Absent      bool   `json:"absent,omitempty"`
	Login       bool   `json:"login,omitempty"`
	Superuser   bool   `json:"superuser,omitempty"`
	CreateDB    bool   `json:"createDB,omitempty"`
	CreateRole  bool   `json:"createRole,omitempty"`
	Inherit     bool   `json:"inherit,omitempty"`
	Replication bool   `json:"replication,omitempty"`
	BypassRLS   bool   `json:"bypassRLS,omitempty"`
	// ConnectionLimit is -1 for any number.
	ConnectionLimit int `json:"connectionLimit"`
	// ValidUntil is the password's end; zero: never.
	ValidUntil time.Time `json:"validUntil,omitzero"`
	// MemberOf are all roles of which it is a member.
	MemberOf []string `json:"memberOf,omitempty"`
	Comment  string   `json:"comment,omitempty"`
	// Secret has the password; empty: it is nobody's business here.
	Secret string `json:"secret,omitempty"`
	// OwnSecret is true if the operator makes the Secret: one of the name that is
	// not the cluster's does not count.
	OwnSecret bool `json:"ownSecret,omitempty"`
	// NoPassword is true for a role that shall have none.
	NoPassword bool `json:"noPassword,omitempty"`
	// PasswordOnly is true for a role of which nothing but the password counts, if it
	// exists at all. It is in no configuration.
	PasswordOnly bool `json:"-"`
}

// Keys of a role's Secret.
const (
	UsernameKey = "username"
	PasswordKey = "password"
	// NextPasswordKey is in a Secret that the operator makes while the password is
	// being exchanged: the server is to have this one, and once the primary has said so
	// by DeclaredEntry.Next it becomes that of PasswordKey.
	NextPasswordKey = "next-password"
)

// PasswordMark tells one password that the operator has made from another. Of the
// password it tells nothing, since that is of too much chance to be guessed.
func PasswordMark(password string) string {
	sum := sha256.Sum256([]byte("pgop.dev password\x00" + password))
	const digits = 16
	return hex.EncodeToString(sum[:])[:digits]
}

// OwnerLogin is where the password of the application database's owner is, whose name
// is Bootstrap.Owner.
type OwnerLogin struct {
	// Secret is the user's own; empty: <cluster>-app, which the operator makes.
	Secret string `json:"secret,omitempty"`
}

// Of is the name of the Secret, and whether the operator makes it.
func (o OwnerLogin) Of(cluster string) (secret string, own bool) {
	if o.Secret == "" {
		return cluster + "-app", true
	}
	return o.Secret, false
}

// WithOwner are the roles and databases of the configuration and, among the roles, the
// owner of the application's database with its Secret. Where the spec has no entry of
// it, nothing but its password counts.
func (c Config) WithOwner() Declared {
	d, owner := c.Declared, c.Bootstrap.Owner
	if owner == "" {
		return d
	}
	secret, own := c.Owner.Of(c.Cluster)
	d.Roles = slices.Clone(d.Roles)
	i := slices.IndexFunc(d.Roles, func(r DeclaredRole) bool { return r.Name == owner })
	if i < 0 {
		d.Roles = append(d.Roles, DeclaredRole{Name: owner, PasswordOnly: true})
		i = len(d.Roles) - 1
	}
	d.Roles[i].Secret, d.Roles[i].OwnSecret = secret, own
	return d
}

// DeclaredDatabase is a database as it shall be; of one that is Absent, the name
// alone counts.
type DeclaredDatabase struct {
	Name   string `json:"name"`
	Absent bool   `json:"absent,omitempty"`
	Owner  string `json:"owner,omitempty"`
	// Encoding and Locale are those with which it is made; empty: the template's.
	Encoding   string              `json:"encoding,omitempty"`
	Locale     string              `json:"locale,omitempty"`
	Extensions []DeclaredExtension `json:"extensions,omitempty"`
	Schemas    []DeclaredSchema    `json:"schemas,omitempty"`
	Grants     []DeclaredGrant     `json:"grants,omitempty"`
}

// DeclaredExtension is an extension of a database. Version and Schema are empty
// where any will do.
type DeclaredExtension struct {
	Name    string `json:"name"`
	Absent  bool   `json:"absent,omitempty"`
	Version string `json:"version,omitempty"`
	Schema  string `json:"schema,omitempty"`
}

// DeclaredSchema is a schema of a database. Owner is empty where any will do.
type DeclaredSchema struct {
	Name   string          `json:"name"`
	Absent bool            `json:"absent,omitempty"`
	Owner  string          `json:"owner,omitempty"`
	Grants []DeclaredGrant `json:"grants,omitempty"`
}

// DeclaredGrant is what a role shall, and shall not, be able to do with a database
// or schema. Public is every role.
type DeclaredGrant struct {
	Role       string   `json:"role"`
	Privileges []string `json:"privileges,omitempty"`
	Revoked    []string `json:"revoked,omitempty"`
}

// Public is the role of a DeclaredGrant that means every role.
const Public = "public"

// DeclaredState is how far a primary is with what is declared.
type DeclaredState struct {
	// Hash is that of the Declared to which it has brought the server, as far as the
	// entries below have no Problem; empty: none yet.
	Hash      string          `json:"hash,omitempty"`
	Roles     []DeclaredEntry `json:"roles,omitempty"`
	Databases []DeclaredEntry `json:"databases,omitempty"`
	// Owner is how the password of the application database's owner is; nil: nothing is
	// known yet, or the Declared has an entry of the role.
	Owner *DeclaredEntry `json:"owner,omitempty"`
}

// DeclaredEntry is one role or database of the Declared.
type DeclaredEntry struct {
	Name string `json:"name"`
	// Problem says what is not as declared and why; empty: all is.
	Problem string `json:"problem,omitempty"`
	// Next is the PasswordMark of what a role's Secret has under NextPasswordKey, once
	// the server has that password, or the LoginMark of its login under OtherUsernameKey,
	// once that can log in; empty: it has not, or there is none.
	Next string `json:"next,omitempty"`
}
