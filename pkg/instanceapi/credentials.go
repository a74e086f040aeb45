package instanceapi

import (
	"crypto/sha256"
	"encoding/hex"
)

// Files in which an instance has its certificates, and keys of its Secret.
const (
	// CAFile holds the certificates of all authorities that are trusted.
	CAFile = "ca.crt"
	// CertFile and KeyFile are what the server and the agent show.
	CertFile = "tls.crt"
	KeyFile  = "tls.key"
	// ReplicationCertFile and ReplicationKeyFile are what a replica shows to the
	// server that it follows.
	ReplicationCertFile = "replication.crt"
	ReplicationKeyFile  = "replication.key"
)

// CredentialFiles are all of them.
var CredentialFiles = []string{CAFile, CertFile, KeyFile, ReplicationCertFile, ReplicationKeyFile}

// CredentialsHash identifies a set of certificates, as State.Credentials
// reports it. The keys belong to their certificates and are left out.
func CredentialsHash(files map[string][]byte) string {
	sum := sha256.New()
	for _, name := range []string{CAFile, CertFile, ReplicationCertFile} {
		content := sha256.Sum256(files[name])
		_, _ = sum.Write(content[:]) // never fails
	}
	const digits = 16
	return hex.EncodeToString(sum.Sum(nil))[:digits]
}
