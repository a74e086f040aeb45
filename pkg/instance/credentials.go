package instance

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/postgres"
)

// credentials are the instance's certificates and the authorities that it
// trusts. They are read again when a file has changed.
type credentials struct {
	options Options

	mu     sync.Mutex
	stamp  credentialStamp
	loaded loadedCredentials
}

// loadedCredentials are a set of files that belong together.
type loadedCredentials struct {
	// api is how the agent serves its API.
	api *tls.Config
	// replication is what the agent shows to the agents of other instances.
	replication tls.Certificate
	// server is by what servers are known to each other and to clients.
	server serverFiles
	// hash is what State.Credentials reports.
	hash string
}

// serverFiles are the files by which a server shows who it is, and by which replicas
// verify servers.
type serverFiles struct {
	Cert, Key, CA string
	// Host is the name that a server's certificate must bear; empty: that of the
	// instance.
	Host string
}

// credentialStamp is when each file was written; zero for one that need not be there.
type credentialStamp [8]time.Time

// current is what the files hold. While files are being replaced, or hold
// nothing that can be used, it is what they held before.
func (c *credentials) current() (loadedCredentials, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	stamp, err := c.stampNow()
	if err == nil && c.loaded.api != nil && stamp == c.stamp {
		return c.loaded, nil
	}
	var fresh loadedCredentials
	if err == nil {
		fresh, err = loadCredentials(c.options)
	}
	if after, changed := c.stampNow(); err == nil && (changed != nil || after != stamp) {
		err = errors.New("the certificates are being replaced")
	}
	if err != nil {
		if c.loaded.api != nil {
			return c.loaded, nil // the next call looks again
		}
		return loadedCredentials{}, err
	}
	c.loaded, c.stamp = fresh, stamp
	return fresh, nil
}

func (c *credentials) stampNow() (credentialStamp, error) {
	var stamp credentialStamp
	for i, name := range instanceapi.CredentialFiles {
		info, err := os.Stat(c.options.tls(name))
		if err != nil {
			return stamp, fmt.Errorf("look at certificate: %w", err)
		}
		stamp[i] = info.ModTime()
	}
	for i, name := range instanceapi.ServerFiles {
		info, err := os.Stat(c.options.tls(name))
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return stamp, fmt.Errorf("look at the server's certificate: %w", err)
		default:
			stamp[len(instanceapi.CredentialFiles)+i] = info.ModTime()
		}
	}
	return stamp, nil
}

func loadCredentials(o Options) (loadedCredentials, error) {
	files := map[string][]byte{}
	for _, name := range instanceapi.CredentialFiles {
		content, err := os.ReadFile(o.tls(name))
		if err != nil {
			return loadedCredentials{}, fmt.Errorf("load certificates: %w", err)
		}
		files[name] = content
	}
	server, err := loadServerFiles(o, files)
	if err != nil {
		return loadedCredentials{}, err
	}
	certificate, err := tls.X509KeyPair(files[instanceapi.CertFile], files[instanceapi.KeyFile])
	if err != nil {
		return loadedCredentials{}, fmt.Errorf("load certificate: %w", err)
	}
	replication, err := tls.X509KeyPair(files[instanceapi.ReplicationCertFile], files[instanceapi.ReplicationKeyFile])
	if err != nil {
		return loadedCredentials{}, fmt.Errorf("load certificate for replication: %w", err)
	}
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM(bytes.Clone(files[instanceapi.CAFile])) {
		return loadedCredentials{}, fmt.Errorf("load authorities: %s holds no certificate", o.tls(instanceapi.CAFile))
	}
	return loadedCredentials{hash: instanceapi.CredentialsHash(files), server: server, replication: replication, api: &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{certificate},
		ClientCAs:    authorities,
		ClientAuth:   tls.RequireAndVerifyClientCert,
		// HTTP/2 would cost memory and gain nothing.
		NextProtos:       []string{"http/1.1"},
		VerifyConnection: verifyClient,
	}}, nil
}

// loadServerFiles reads into files what the server shows of people's own, and says
// which of all files count.
func loadServerFiles(o Options, files map[string][]byte) (serverFiles, error) {
	for _, name := range instanceapi.ServerFiles {
		content, err := os.ReadFile(o.tls(name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return serverFiles{}, fmt.Errorf("load the server's certificate: %w", err)
		}
		files[name] = content
	}
	server := ownServerFiles(o)
	if trusted, found := files[instanceapi.ServerCAFile]; found {
		if !x509.NewCertPool().AppendCertsFromPEM(bytes.Clone(trusted)) {
			return serverFiles{}, fmt.Errorf("load authorities: %s holds no certificate", o.tls(instanceapi.ServerCAFile))
		}
		server.CA, server.Host = o.tls(instanceapi.ServerCAFile), instanceapi.ServiceHost(o.Cluster, o.Namespace)
	}
	if cert, found := files[instanceapi.ServerCertFile]; found {
		if _, err := tls.X509KeyPair(cert, files[instanceapi.ServerKeyFile]); err != nil {
			return serverFiles{}, fmt.Errorf("load the server's certificate: %w", err)
		}
		server.Cert, server.Key = o.tls(instanceapi.ServerCertFile), o.tls(instanceapi.ServerKeyFile)
	}
	return server, nil
}

// ownServerFiles are those of a server that shows what the operator issued.
func ownServerFiles(o Options) serverFiles {
	return serverFiles{Cert: o.tls(instanceapi.CertFile), Key: o.tls(instanceapi.KeyFile), CA: o.tls(instanceapi.CAFile)}
}

// serverFiles are those that count now.
func (a *Agent) serverFiles() serverFiles {
	now, err := a.credentials.current()
	if err != nil {
		return ownServerFiles(a.options) // whoever uses them says what is wrong
	}
	return now.server
}

// linkServerFiles lets the server find what it shall show now, when it reads its files
// next. One that reads them in between finds a key of another certificate, and goes on
// with those that it has.
func (a *Agent) linkServerFiles() error {
	if a.options.Alone {
		return nil
	}
	now := a.serverFiles()
	return errors.Join(replaceLink(now.Cert, a.options.shown(instanceapi.CertFile)), replaceLink(now.Key, a.options.shown(instanceapi.KeyFile)))
}

// replaceLink makes path a link to a file, whatever it is a link to.
func replaceLink(file, path string) error {
	if at, err := os.Readlink(path); err == nil && at == file {
		return nil
	}
	fresh := path + ".new"
	if err := removeFile(fresh); err != nil {
		return err
	}
	if err := os.Symlink(file, fresh); err != nil {
		return fmt.Errorf("link %s: %w", path, err)
	}
	if err := os.Rename(fresh, path); err != nil {
		return fmt.Errorf("link %s: %w", path, err)
	}
	return nil
}

// verifyClient lets in the operator and the cluster's instances; other holders
// of a certificate of this CA have no business here.
func verifyClient(state tls.ConnectionState) error {
	name := state.PeerCertificates[0].Subject.CommonName
	if name != instanceapi.OperatorName && name != postgres.ReplicationRole {
		return fmt.Errorf("client certificate of %q: only %q and %q may ask", name, instanceapi.OperatorName, postgres.ReplicationRole)
	}
	return nil
}

// hash is that of the current credentials; empty if there are none.
func (c *credentials) hash() string {
	now, err := c.current()
	if err != nil {
		return ""
	}
	return now.hash
}

// credentialsInUse are those that agent and server both use; empty while the
// server is behind. Replication reads the files at each connection.
func (a *Agent) credentialsInUse() string {
	now := a.credentials.hash()
	if s := a.runningAs().server; s != nil && s.credentials.Load() != now {
		return ""
	}
	return now
}

// hasOldCredentials says whether the server should read its certificates again.
func (a *Agent) hasOldCredentials() bool {
	now := a.credentials.hash()
	return now != "" && a.server.credentials.Load() != now
}

// renewCredentials lets the server read its certificates again. Sessions go on.
func (a *Agent) renewCredentials(ctx context.Context) error {
	now := a.credentials.hash()
	a.log.WithField("credentials", now).Info("the certificates have changed; reloading")
	// The server may show another file than before, and verify its primary by another.
	if err := errors.Join(a.linkServerFiles(), a.installInstance(a.runningAs().Upstream), a.reload(ctx)); err != nil {
		return err
	}
	if a.credentials.hash() == now { // else the server may have read what came in between
		a.server.credentials.Store(now)
	}
	return nil
}
