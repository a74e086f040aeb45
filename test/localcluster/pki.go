package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// certLifetime is longer than anyone keeps a local cluster.
const certLifetime = 5 * 365 * 24 * time.Hour

// identity is who a certificate speaks for.
type identity struct {
	// file is the name of its files in the pki directory, and of its kubeconfig.
	file  string
	user  string
	group string
	// hosts and ips are for servers; without them the certificate is only a
	// client's.
	hosts []string
	ips   []string
	// kubeconfig means that the identity gets one.
	kubeconfig bool
}

// identities are all that the cluster's CA vouches for.
func identities(c *cluster, nodes []node) []identity {
	all := []identity{
		{file: "apiserver", user: "kube-apiserver",
			hosts: []string{"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local", "localhost"},
			ips:   []string{c.apiIP, kubernetesIP, "127.0.0.1"}},
		{file: "apiserver-kubelet-client", user: "kube-apiserver-kubelet-client", group: "system:masters"},
		{file: "admin", user: "kubernetes-admin", group: "system:masters", kubeconfig: true},
		{file: "kube-controller-manager", user: "system:kube-controller-manager", kubeconfig: true},
		{file: "kube-scheduler", user: "system:kube-scheduler", kubeconfig: true},
		{file: "kube-proxy", user: "system:kube-proxy", kubeconfig: true},
		{file: "dns", user: "system:coredns", kubeconfig: true},
	}
	for _, n := range nodes {
		all = append(all, identity{file: n.name(), user: "system:node:" + n.name(), group: "system:nodes",
			hosts: []string{n.name()}, ips: []string{n.ip()}, kubeconfig: true})
	}
	return all
}

// writePKI makes every key and certificate of the cluster anew, and the
// kubeconfigs that hold them.
func writePKI(c *cluster, nodes []node) error {
	ca, err := newAuthority("kubernetes")
	if err != nil {
		return err
	}
	if err := ca.write(c.path("pki", "ca")); err != nil {
		return err
	}
	for _, id := range identities(c, nodes) {
		pair, err := ca.issue(id)
		if err != nil {
			return err
		}
		if err := pair.write(c.path("pki", id.file)); err != nil {
			return err
		}
		if id.kubeconfig {
			if err := writeFile(c.userConfig(id.file), kubeconfigFor(c, ca.certPEM, pair), 0o600); err != nil {
				return err
			}
		}
		if id.file == "admin" {
			if err := writeFile(c.kubeconfig(), kubeconfigFor(c, ca.certPEM, pair), 0o600); err != nil {
				return err
			}
		}
	}
	if err := writeFrontProxyPKI(c); err != nil {
		return err
	}
	return writeServiceAccountKey(c)
}

// writeFrontProxyPKI makes the certificates by which aggregated APIs know the
// API server. They need a CA of their own: whoever holds one of its certificates
// may speak as any user.
func writeFrontProxyPKI(c *cluster) error {
	ca, err := newAuthority("front-proxy-ca")
	if err != nil {
		return err
	}
	if err := ca.write(c.path("pki", "front-proxy-ca")); err != nil {
		return err
	}
	pair, err := ca.issue(identity{user: "front-proxy-client"})
	if err != nil {
		return err
	}
	return pair.write(c.path("pki", "front-proxy-client"))
}

func writeServiceAccountKey(c *cluster) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("make service account key: %w", err)
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return err
	}
	return writeFile(c.path("pki", "sa.key"), keyPEM, 0o600)
}

// keyPair is a certificate and its key, in PEM.
type keyPair struct {
	certPEM, keyPEM []byte
}

func (p keyPair) write(path string) error {
	if err := writeFile(path+".crt", p.certPEM, 0o644); err != nil {
		return err
	}
	return writeFile(path+".key", p.keyPEM, 0o600)
}

// authority signs certificates.
type authority struct {
	keyPair
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(name string) (*authority, error) {
	template, err := certTemplate(pkix.Name{CommonName: name})
	if err != nil {
		return nil, err
	}
	template.IsCA = true
	template.BasicConstraintsValid = true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make key of CA %s: %w", name, err)
	}
	a := &authority{key: key, cert: template}
	if a.keyPair, err = a.sign(template, key); err != nil {
		return nil, fmt.Errorf("make CA %s: %w", name, err)
	}
	block, _ := pem.Decode(a.certPEM)
	if a.cert, err = x509.ParseCertificate(block.Bytes); err != nil {
		return nil, fmt.Errorf("make CA %s: %w", name, err)
	}
	return a, nil
}

func (a *authority) issue(id identity) (keyPair, error) {
	subject := pkix.Name{CommonName: id.user}
	if id.group != "" {
		subject.Organization = []string{id.group}
	}
	template, err := certTemplate(subject)
	if err != nil {
		return keyPair{}, err
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	if len(id.hosts)+len(id.ips) > 0 {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	template.DNSNames = id.hosts
	for _, ip := range id.ips {
		template.IPAddresses = append(template.IPAddresses, net.ParseIP(ip))
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return keyPair{}, fmt.Errorf("make key of %s: %w", id.user, err)
	}
	pair, err := a.sign(template, key)
	if err != nil {
		return keyPair{}, fmt.Errorf("issue certificate for %s: %w", id.user, err)
	}
	return pair, nil
}

func (a *authority) sign(template *x509.Certificate, key *ecdsa.PrivateKey) (keyPair, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return keyPair{}, err
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return keyPair{}, err
	}
	return keyPair{certPEM: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), keyPEM: keyPEM}, nil
}

func certTemplate(subject pkix.Name) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("make serial number for %s: %w", subject.CommonName, err)
	}
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      subject,
		NotBefore:    now.Add(-time.Hour), // the clock may be set back a little
		NotAfter:     now.Add(certLifetime),
	}, nil
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}

// kubeconfigFor holds the keys itself, so that the file may be copied elsewhere.
func kubeconfigFor(c *cluster, caPEM []byte, pair keyPair) []byte {
	b64 := base64.StdEncoding.EncodeToString
	return fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters:
- name: %[1]s
  cluster:
    server: %[2]s
    certificate-authority-data: %[3]s
users:
- name: user
  user:
    client-certificate-data: %[4]s
    client-key-data: %[5]s
contexts:
- name: %[1]s
  context: {cluster: %[1]s, user: user}
current-context: %[1]s
`, c.name, c.apiURL(), b64(caPEM), b64(pair.certPEM), b64(pair.keyPEM))
}

// writeFile makes missing parents, and never leaves a half-written file under
// the final name.
func writeFile(path string, content []byte, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	tmp := fmt.Sprintf("%s.tmp-%d", path, os.Getpid())
	if err := os.WriteFile(tmp, content, mode); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.Rename(tmp, path); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
