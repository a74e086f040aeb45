package s3

import (
	"crypto/x509"
	"path/filepath"
	"testing"
)

// An image without authorities still reaches a public store.
func TestWhereTheMachineHasNoAuthoritiesMozillasAreUsed(t *testing.T) {
	// Both are read once in the life of a process, so this is no other test's business.
	t.Setenv("SSL_CERT_FILE", filepath.Join(t.TempDir(), "none"))
	t.Setenv("SSL_CERT_DIR", t.TempDir())
	pool, err := authorities()
	if err != nil {
		t.Fatal(err)
	}
	if isEmpty(pool) {
		t.Error("nobody is trusted")
	}
	known, err := mozillas()
	if err != nil || isEmpty(known) {
		t.Fatalf("Mozilla's: %v", err)
	}
	if system, err := x509.SystemCertPool(); err != nil || isEmpty(system) && !pool.Equal(known) {
		t.Errorf("the machine has none (%v), and others than Mozilla's are trusted", err)
	}
}
