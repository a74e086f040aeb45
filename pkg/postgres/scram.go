package postgres

import (
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

const (
	scramIterations = 4096
	scramSaltSize   = 16
)

// ScramVerifier makes the verifier that the server keeps of a password, with a
// salt of its own. Sent in place of the password, it keeps the password out of
// the server's log and statistics.
func ScramVerifier(password string) (string, error) {
	salt := make([]byte, scramSaltSize)
	if _, err := rand.Read(salt); err != nil {
		return "", fmt.Errorf("make a salt: %w", err)
	}
	return scramVerifier(password, salt, scramIterations)
}

// VerifierMatches says whether verifier, as in pg_authid.rolpassword, is of the
// password. Verifiers other than scram-sha-256 never match.
func VerifierMatches(verifier, password string) bool {
	salt, iterations, ok := parseVerifier(verifier)
	if !ok {
		return false
	}
	want, err := scramVerifier(password, salt, iterations)
	return err == nil && subtle.ConstantTimeCompare([]byte(want), []byte(verifier)) == 1
}

func parseVerifier(verifier string) (salt []byte, iterations int, ok bool) {
	rest, ok := strings.CutPrefix(verifier, "SCRAM-SHA-256$")
	if !ok {
		return nil, 0, false
	}
	count, rest, _ := strings.Cut(rest, ":")
	encoded, _, _ := strings.Cut(rest, "$")
	iterations, err := strconv.Atoi(count)
	if err != nil || iterations < 1 {
		return nil, 0, false
	}
	salt, err = base64.StdEncoding.DecodeString(encoded)
	return salt, iterations, err == nil
}

func scramVerifier(password string, salt []byte, iterations int) (string, error) {
	salted, err := pbkdf2.Key(sha256.New, saslPrep(password), salt, iterations, sha256.Size)
	if err != nil {
		return "", fmt.Errorf("derive a key from the password: %w", err)
	}
	storedKey := sha256.Sum256(sign(salted, "Client Key"))
	encode := base64.StdEncoding.EncodeToString
	return fmt.Sprintf("SCRAM-SHA-256$%d:%s$%s:%s", iterations, encode(salt),
		encode(storedKey[:]), encode(sign(salted, "Server Key"))), nil
}

func sign(key []byte, text string) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(text))
	return mac.Sum(nil)
}

// saslPrep brings a password into the form that libpq and the server give it
// before hashing (RFC 4013). As they do, it takes a password that the rules
// don't allow as it is.
func saslPrep(password string) string {
	if isASCII(password) || !utf8.ValidString(password) {
		return password
	}
	prepared := norm.NFKC.String(strings.Map(mapSASL, password))
	if prepared == "" || strings.ContainsFunc(prepared, isProhibited) {
		return password
	}
	return prepared
}

func isASCII(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r >= utf8.RuneSelf }) < 0
}

// mapSASL maps blanks to a space (table C.1.2) and drops what is commonly
// mapped to nothing (table B.1).
func mapSASL(r rune) rune {
	switch {
	case r == 0x200B, r != ' ' && unicode.Is(unicode.Zs, r):
		return ' '
	case r == 0x00AD, r == 0x034F, r == 0x1806, r >= 0x180B && r <= 0x180D, r == 0x200C, r == 0x200D,
		r == 0x2060, r >= 0xFE00 && r <= 0xFE0F, r == 0xFEFF:
		return -1
	}
	return r
}

// isProhibited covers control characters, private use, surrogates and what is
// not assigned.
func isProhibited(r rune) bool {
	return unicode.IsControl(r) || unicode.In(r, unicode.Co, unicode.Cs) ||
		r == utf8.RuneError || r >= 0xFDD0 && r <= 0xFDEF || r&0xFFFE == 0xFFFE
}
