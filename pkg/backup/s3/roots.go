package s3

import (
	"crypto/x509"
	"fmt"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// authorities are those that may vouch for the endpoint: the machine's, or where it
// has none, as in many images of PostgreSQL, those that Mozilla trusts. They are
// read when they are needed, since they take a megabyte.
func authorities() (*x509.CertPool, error) {
	system, err := x509.SystemCertPool()
	if err != nil {
		return nil, fmt.Errorf("read the machine's authorities: %w", err)
	}
	if !isEmpty(system) {
		return system, nil
	}
	return mozillas()
}

func isEmpty(pool *x509.CertPool) bool { return pool.Equal(x509.NewCertPool()) }

func mozillas() (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	for root := range bundle.Roots() {
		certificate, err := x509.ParseCertificate(root.Certificate)
		if err != nil {
			return nil, fmt.Errorf("read Mozilla's authorities: %w", err)
		}
		if root.Constraint == nil {
			pool.AddCert(certificate)
		} else {
			pool.AddCertWithConstraint(certificate, root.Constraint)
		}
	}
	return pool, nil
}
