package instanceapi

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
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
}

// Keys of a role's Secret.
const (
	UsernameKey = "username"
	PasswordKey = "password"
)

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
}

// DeclaredEntry is one role or database of the Declared.
type DeclaredEntry struct {
	Name string `json:"name"`
	// Problem says what is not as declared and why; empty: all is.
	Problem string `json:"problem,omitempty"`
}
