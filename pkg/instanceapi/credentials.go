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

	// ServerCAFile holds the certificates of the authorities of which one vouches for
	// every server of the cluster, and ServerCertFile and ServerKeyFile are what the
	// server shows instead of CertFile and KeyFile. They are there for a cluster whose
	// servers show people's own certificates; ServerCAFile comes first and goes last.
	// The agents' API has nothing to do with them.
	ServerCAFile   = "server-ca.crt"
	ServerCertFile = "server.crt"
	ServerKeyFile  = "server.key"
)

// ServiceHost is the name in DNS of the Service that leads to the primary. Every
// server's certificate bears it, whoever issued that.
func ServiceHost(cluster, namespace string) string { return cluster + "-rw." + namespace + ".svc" }

// ServerFiles are those that an instance need not have.
var ServerFiles = []string{ServerCAFile, ServerCertFile, ServerKeyFile}

// CredentialFiles are those that every instance has.
var CredentialFiles = []string{CAFile, CertFile, KeyFile, ReplicationCertFile, ReplicationKeyFile}

// CredentialsHash identifies a set of certificates, as State.Credentials
// reports it. The keys belong to their certificates and are left out.
func CredentialsHash(files map[string][]byte) string {
	sum := sha256.New()
	for _, name := range []string{CAFile, CertFile, ReplicationCertFile} {
		content := sha256.Sum256(files[name])
		_, _ = sum.Write(content[:]) // never fails
	}
	for _, name := range []string{ServerCAFile, ServerCertFile} {
		if len(files[name]) > 0 { // agents that don't know these files have none
			content := sha256.Sum256(files[name])
			_, _ = sum.Write(append([]byte(name), content[:]...))
		}
	}
	const digits = 16
	return hex.EncodeToString(sum.Sum(nil))[:digits]
}
