package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"os"
	"strings"
	"testing"
)

func TestPKI(t *testing.T) {
	c := testNode(1).cluster
	c.state = t.TempDir()
	nodes := c.nodes(2)
	if err := writePKI(c, nodes); err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	ca, err := os.ReadFile(c.path("pki", "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	roots.AppendCertsFromPEM(ca)

	verify := func(file, host string, usage x509.ExtKeyUsage) error {
		t.Helper()
		pair, err := tls.LoadX509KeyPair(c.path("pki", file+".crt"), c.path("pki", file+".key"))
		if err != nil {
			t.Fatal(err)
		}
		_, err = pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: host, KeyUsages: []x509.ExtKeyUsage{usage}})
		return err
	}
	for _, host := range []string{c.apiIP, kubernetesIP, "kubernetes.default.svc"} {
		if err := verify("apiserver", host, x509.ExtKeyUsageServerAuth); err != nil {
			t.Errorf("API server as %s: %v", host, err)
		}
	}
	if err := verify("node-2", nodes[1].ip(), x509.ExtKeyUsageServerAuth); err != nil {
		t.Errorf("kubelet as server: %v", err)
	}
	if err := verify("node-2", nodes[0].ip(), x509.ExtKeyUsageServerAuth); err == nil {
		t.Error("a kubelet may pose as another node")
	}
	if err := verify("admin", "", x509.ExtKeyUsageServerAuth); err == nil {
		t.Error("the administrator may pose as a server")
	}
	if err := verify("front-proxy-client", "", x509.ExtKeyUsageClientAuth); err == nil {
		t.Error("the cluster's CA vouches for the front proxy")
	}
	if admin := subject(t, c.path("pki", "admin.crt")); admin != "CN=kubernetes-admin,O=system:masters" {
		t.Errorf("administrator is %s", admin)
	}
	if n := subject(t, c.path("pki", "node-1.crt")); n != "CN=system:node:node-1,O=system:nodes" {
		t.Errorf("node is %s", n)
	}
	config, err := os.ReadFile(c.kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(config), "server: https://10.171.0.1:6443\n") {
		t.Errorf("kubeconfig leads elsewhere:\n%s", config)
	}
}

func subject(t *testing.T, file string) string {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(content)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return cert.Subject.String()
}
