package instanceapi

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"unicode/utf8"
)

// Keys of a Secret that the operator makes, while a role has a second login by which one
// can log in: the next, which clients are not told of yet, or the one before, which is
// valid for a grace time. The server lets in both logins of the Secret and no other of the
// role's. An agent that does not know of the keys leaves them.
const (
	OtherUsernameKey = "other-username"
	OtherPasswordKey = "other-password"
)

// RoleLogins are the two logins of a role whose passwords are exchanged with a grace
// time. They are members of the role and act as it. No name is longer than the server
// allows, 63 bytes: one that would be is cut, and has a hash of the role's.
func RoleLogins(role string) [2]string {
	const most, digits = 63, 8
	stem := role
	if len(stem)+len("_1") > most {
		sum := sha256.Sum256([]byte(role))
		end := most - len("_") - digits - len("_1")
		for !utf8.RuneStart(stem[end]) {
			end--
		}
		stem = stem[:end] + "_" + hex.EncodeToString(sum[:])[:digits]
	}
	return [2]string{stem + "_1", stem + "_2"}
}

// IsLoginOf says whether somebody who logs in as user acts as the role: it is the role
// itself, or one of its logins.
func IsLoginOf(role, user string) bool {
	logins := RoleLogins(role)
	return user == role || slices.Contains(logins[:], user)
}

// LoginMark tells a login with its password from others, as PasswordMark does. It is
// never the PasswordMark of the password.
func LoginMark(user, password string) string { return PasswordMark(user + "\x00" + password) }
