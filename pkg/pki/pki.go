// Package pki makes the certificates of a cluster: an authority of its own,
// leaves for each instance and one for the operator, and exchanges the
// authority while all of them are in use. New keys are ECDSA P-256.
package pki

import (
	"crypto"
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
	"net"
	"time"
)

const (
	// ShortestLeafLifetime is the least that a leaf may last.
	ShortestLeafLifetime = 5 * time.Minute

	// OperatorName is the common name of the operator's client certificate.
	OperatorName = "operator"

	authorityLifetime = 10 * 365 * 24 * time.Hour
	leafLifetime      = 90 * 24 * time.Hour
	// A leaf is made anew in the last third of its life, an authority in the
	// last fifth.
	leafRest, authorityRest = 3, 5
	// bringing is how long a kubelet takes at most to bring an instance a new leaf,
	// which must be there before the old one ends.
	bringing = 2 * time.Minute
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
		Subject: pkix.Name{
			CommonName: name, Organization: []string{"pgop.dev"},
			// Clients look for an issuer by its name, so each has one of its own.
			SerialNumber: rand.Text()[:8],
		},
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

// NewLeaf makes a certificate that the authority signs. name becomes its common
// name; hosts are DNS names and IP addresses by which clients may call it, and
// without them it is a client's only. It ends no later than the authority.
func (authority Pair) NewLeaf(name string, hosts []string, now time.Time) (Pair, error) {
	return authority.newLeaf(name, hosts, leafLifetime, now)
}

// newLeaf is NewLeaf for a leaf that lasts so long. A short one is valid from less
// before now, so that its last third is a part of what it lasts.
func (authority Pair) newLeaf(name string, hosts []string, lifetime time.Duration, now time.Time) (Pair, error) {
	issuer, err := authority.parse()
	if err != nil {
		return Pair{}, fmt.Errorf("issue certificate %s: %w", name, err)
	}
	issuerKey, ok := issuer.PrivateKey.(crypto.Signer)
	if !ok {
		return Pair{}, fmt.Errorf("issue certificate %s: the authority's key can't sign", name)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("make key of certificate %s: %w", name, err)
	}
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: name, Organization: []string{"pgop.dev"}},
		NotBefore:   now.Add(-min(clockSkew, lifetime/10)),
		NotAfter:    now.Add(lifetime),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	if len(hosts) > 0 {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	if issuer.Leaf.NotAfter.Before(template.NotAfter) {
		template.NotAfter = issuer.Leaf.NotAfter
	}
	return sign(template, issuer.Leaf, key, issuerKey)
}

// isLeafDue says whether a leaf must be made anew: it is in the last part of
// its life, it names another or lacks one of hosts, none of the issuers signed
// it, or it can't be read.
func isLeafDue(leaf Pair, issuers []*x509.Certificate, name string, hosts []string, now time.Time) bool {
	parsed, err := leaf.parse()
	if err != nil || parsed.Leaf.Subject.CommonName != name || !isSignedByOne(parsed.Leaf, issuers) {
		return true
	}
	for _, host := range hosts {
		if parsed.Leaf.VerifyHostname(host) != nil {
			return true
		}
	}
	return isLeafEnding(parsed.Leaf, now)
}

// restOf is what a leaf has left when it is time to renew it.
func restOf(leaf *x509.Certificate) time.Duration {
	life := leaf.NotAfter.Sub(leaf.NotBefore)
	// Who signs may end so soon that each new leaf would be due at once.
	return min(max(life/leafRest, bringing), life/2)
}

func isLeafEnding(leaf *x509.Certificate, now time.Time) bool {
	return !now.Before(leaf.NotAfter.Add(-restOf(leaf)))
}

// isEnding says whether a certificate has lived all but one of so many parts of
// its life.
func isEnding(c *x509.Certificate, parts int, now time.Time) bool {
	rest := c.NotAfter.Sub(c.NotBefore) / time.Duration(parts)
	return !now.Before(c.NotAfter.Add(-rest))
}

func isSignedByOne(leaf *x509.Certificate, issuers []*x509.Certificate) bool {
	for _, issuer := range issuers {
		if leaf.CheckSignatureFrom(issuer) == nil {
			return true
		}
	}
	return false
}

// ClientConfig lets the operator talk to the agents by its leaf. It trusts
// servers of the trusted authorities whatever their address, since agents are
// called by IP address; the caller names whom it expects with ServerName.
func ClientConfig(leaf Pair, trusted []byte) (*tls.Config, error) {
	cert, err := leaf.parse()
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(trusted) {
		return nil, errors.New("read certificates of the authorities: no PEM certificate in them")
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

func (p Pair) isMissing() bool { return len(p.Cert) == 0 && len(p.Key) == 0 }

// checkAuthority says why p can't be an authority; nil: it can.
func (p Pair) checkAuthority(now time.Time) error {
	parsed, err := p.parse()
	if err != nil {
		return err
	}
	c := parsed.Leaf
	switch {
	case !c.IsCA || !c.BasicConstraintsValid:
		return errors.New("it is no authority's certificate (CA:TRUE)")
	case c.KeyUsage != 0 && c.KeyUsage&x509.KeyUsageCertSign == 0:
		return errors.New("it may not sign certificates")
	case c.CheckSignatureFrom(c) != nil:
		// libpq takes none that another has signed.
		return errors.New("it has not signed itself")
	case now.Add(clockSkew).Before(c.NotBefore):
		return fmt.Errorf("it is not valid before %s", c.NotBefore.UTC().Format(time.RFC3339))
	case now.After(c.NotAfter):
		return fmt.Errorf("it has expired on %s", c.NotAfter.UTC().Format(time.RFC3339))
	}
	return nil
}

func sign(template, issuer *x509.Certificate, key *ecdsa.PrivateKey, issuerKey crypto.Signer) (Pair, error) {
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
