// Package pki makes the certificates of a cluster: an authority of its own, a
// leaf for each instance, and one for the operator. All keys are ECDSA P-256.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"time"
)

const (
	// OperatorName is the common name of the operator's client certificate.
	OperatorName = "operator"

	authorityLifetime = 10 * 365 * 24 * time.Hour
	leafLifetime      = 90 * 24 * time.Hour
	// renewBefore is how long before its end a leaf is made anew.
	renewBefore = 30 * 24 * time.Hour
	// clockSkew lets a peer whose clock is behind accept a new certificate.
	clockSkew = time.Hour
)

// Pair is a certificate and its private key, both PEM.
type Pair struct {
	Cert, Key []byte
}

// NewAuthority makes a self-signed authority for the named cluster.
func NewAuthority(name string, now time.Time) (Pair, error) {
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: name, Organization: []string{"pgop.dev"}},
		NotBefore:             now.Add(-clockSkew),
		NotAfter:              now.Add(authorityLifetime),
		IsCA:                  true,
		BasicConstraintsValid: true,
		MaxPathLenZero:        true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("make key of authority %s: %w", name, err)
	}
	return sign(template, template, key, key)
}

// NewLeaf makes a certificate, for server and client alike, that the authority
// signs. name becomes its common name, hosts its DNS names.
func (authority Pair) NewLeaf(name string, hosts []string, now time.Time) (Pair, error) {
	issuer, err := authority.parse()
	if err != nil {
		return Pair{}, fmt.Errorf("issue certificate %s: %w", name, err)
	}
	issuerKey, ok := issuer.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		return Pair{}, fmt.Errorf("issue certificate %s: the authority's key is no ECDSA key", name)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("make key of certificate %s: %w", name, err)
	}
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: name, Organization: []string{"pgop.dev"}},
		DNSNames:    hosts,
		NotBefore:   now.Add(-clockSkew),
		NotAfter:    now.Add(leafLifetime),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	return sign(template, issuer.Leaf, key, issuerKey)
}

// IsDue says whether a leaf must be made anew: it ends within a third of its
// lifetime, another authority signed it, it lacks one of hosts, or it can't be
// read.
func (authority Pair) IsDue(leaf Pair, hosts []string, now time.Time) bool {
	issuer, err := authority.parse()
	if err != nil {
		return true
	}
	parsed, err := leaf.parse()
	if err != nil {
		return true
	}
	if parsed.Leaf.CheckSignatureFrom(issuer.Leaf) != nil {
		return true
	}
	for _, host := range hosts {
		if parsed.Leaf.VerifyHostname(host) != nil {
			return true
		}
	}
	return now.After(parsed.Leaf.NotAfter.Add(-renewBefore))
}

// ClientConfig lets the operator talk to the agents: it makes a client
// certificate for itself and trusts servers of the authority whatever their
// address, since agents are called by IP address; the caller names whom it
// expects with ServerName.
func (authority Pair) ClientConfig(now time.Time) (*tls.Config, error) {
	leaf, err := authority.NewLeaf(OperatorName, nil, now)
	if err != nil {
		return nil, err
	}
	cert, err := leaf.parse()
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority.Cert) {
		return nil, errors.New("read certificate of the authority: no PEM certificate in it")
	}
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{cert},
		RootCAs:      roots,
	}, nil
}

func (p Pair) parse() (tls.Certificate, error) {
	cert, err := tls.X509KeyPair(p.Cert, p.Key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("read certificate and key: %w", err)
	}
	return cert, nil
}

func sign(template, issuer *x509.Certificate, key, issuerKey *ecdsa.PrivateKey) (Pair, error) {
	name := template.Subject.CommonName
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return Pair{}, fmt.Errorf("make serial number of certificate %s: %w", name, err)
	}
	template.SerialNumber = serial
	der, err := x509.CreateCertificate(rand.Reader, template, issuer, &key.PublicKey, issuerKey)
	if err != nil {
		return Pair{}, fmt.Errorf("sign certificate %s: %w", name, err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return Pair{}, fmt.Errorf("marshal key of certificate %s: %w", name, err)
	}
	return Pair{
		Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}),
	}, nil
}
