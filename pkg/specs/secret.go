package specs

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/pki"
	"github.com/pgop/postgres-operator/pkg/postgres"
)

// Keys of a certificate's Secret, as Kubernetes names them.
const (
	CAKey   = instanceapi.CAFile
	CertKey = instanceapi.CertFile
	KeyKey  = instanceapi.KeyFile

	ReplicationCertKey = instanceapi.ReplicationCertFile
	ReplicationKeyKey  = instanceapi.ReplicationKeyFile

	ServerCAKey   = instanceapi.ServerCAFile
	ServerCertKey = instanceapi.ServerCertFile
	ServerKeyKey  = instanceapi.ServerKeyFile
)

// NewPassword makes a password that needs no escaping in any form, with 130
// bits of chance.
func NewPassword() string { return rand.Text() }

// login is a login in every form that programs read. Its keys are those of the Service
// Binding specification.
func login(c *v1.PostgresCluster, user, database, password string, ca []byte) map[string][]byte {
	info := postgres.ConnInfo{
		Host:     instanceapi.ServiceHost(c.Name, c.Namespace),
		Port:     PostgresPort,
		DBName:   database,
		User:     user,
		Password: password,
		Options:  map[string]string{"sslmode": "require"},
	}
	return map[string][]byte{
		"type":     []byte("postgresql"),
		"provider": []byte(v1.GroupName),
		"host":     []byte(info.Host),
		"port":     fmt.Append(nil, info.Port),
		"dbname":   []byte(info.DBName),
		"username": []byte(info.User),
		"password": []byte(info.Password),
		"uri":      []byte(info.URI()),
		"jdbc-uri": []byte(info.JDBC()),
		"pgpass":   []byte(info.PgPass()),
		CAKey:      ca,
	}
}

// ClientsTrustSince is when an authority last came into ca.crt of the application's
// Secret, which may be nil; zero: that is not known, or was when it was made.
func ClientsTrustSince(app *corev1.Secret) time.Time {
	if app == nil {
		return time.Time{}
	}
	// A time that can't be read is none, and then it counts from when it is seen.
	since, _ := time.Parse(time.RFC3339, app.Annotations[SinceAnnotation])
	return since
}

// NewCASecret holds the certificate authority that the cluster shall have.
func NewCASecret(c *v1.PostgresCluster, authority pki.Pair) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: objectMeta(c, CASecret(c.Name)),
		Type:       corev1.SecretTypeTLS,
		Data:       map[string][]byte{CAKey: authority.Cert, CertKey: authority.Cert, KeyKey: authority.Key},
	}
}

// Keys of the operator's Secret, beside those of a certificate's, and the
// annotation that says when the last step of a rotation was taken. On the
// application's Secret it says since when ca.crt has all that are in it.
const (
	SignerCertKey   = "signer.crt"
	SignerKeyKey    = "signer.key"
	SinceAnnotation = v1.GroupName + "/authorities-since"
)

// NewOperatorSecret holds the operator's own certificate, and of the
// authorities what is not in the Secret that people may replace.
func NewOperatorSecret(c *v1.PostgresCluster, a pki.Authorities, leaf pki.Pair) *corev1.Secret {
	secret := &corev1.Secret{
		ObjectMeta: objectMeta(c, OperatorSecret(c.Name)),
		Type:       corev1.SecretTypeTLS,
		Data: map[string][]byte{
			CAKey: a.Trusted, CertKey: leaf.Cert, KeyKey: leaf.Key,
			SignerCertKey: a.Signer.Cert, SignerKeyKey: a.Signer.Key,
		},
	}
	secret.Annotations = map[string]string{SinceAnnotation: a.Since.UTC().Format(time.RFC3339)}
	return secret
}

// Authorities are a cluster's, as its Secrets hold them; either may be nil.
func Authorities(wanted, operator *corev1.Secret) pki.Authorities {
	var a pki.Authorities
	if wanted != nil {
		a.Wanted = CertificateOf(wanted)
	}
	if operator != nil {
		a.Signer = pki.Pair{Cert: operator.Data[SignerCertKey], Key: operator.Data[SignerKeyKey]}
		a.Trusted = operator.Data[CAKey]
		// A time that can't be read is none, and then the step begins anew.
		a.Since, _ = time.Parse(time.RFC3339, operator.Annotations[SinceAnnotation])
	}
	return a
}

// CertificateOf is the certificate of a Secret, with its key.
func CertificateOf(secret *corev1.Secret) pki.Pair {
	return pki.Pair{Cert: secret.Data[CertKey], Key: secret.Data[KeyKey]}
}

// ReplicationCertificateOf is an instance's certificate as a replica.
func ReplicationCertificateOf(secret *corev1.Secret) pki.Pair {
	return pki.Pair{Cert: secret.Data[ReplicationCertKey], Key: secret.Data[ReplicationKeyKey]}
}

// ServerTLS is what a server shows of people's own; zero: nothing.
type ServerTLS struct {
	// Trusted are the authorities of which one vouches for every server of the cluster,
	// whoever issued its certificate; empty: those of the cluster do.
	Trusted []byte
	// Shown is the certificate; empty: the server shows the operator's.
	Shown pki.Pair
}

// ServerTLSOf is what a Secret of NewTLSSecret has of people's own; it may be nil.
func ServerTLSOf(secret *corev1.Secret) ServerTLS {
	if secret == nil {
		return ServerTLS{}
	}
	return ServerTLS{Trusted: secret.Data[ServerCAKey], Shown: pki.Pair{Cert: secret.Data[ServerCertKey], Key: secret.Data[ServerKeyKey]}}
}

// AuthoritiesIn are the certificates of a Secret that vouches for others: under
// ca.crt, or else under tls.crt.
func AuthoritiesIn(secret *corev1.Secret) []byte {
	if ca := secret.Data[CAKey]; len(ca) > 0 {
		return ca
	}
	return secret.Data[CertKey]
}

// NewTLSSecret holds the certificates of one instance: one that its server and
// its agent show, one with which it streams as a replica, and what its server shows
// of people's own.
func NewTLSSecret(c *v1.PostgresCluster, instance string, trusted []byte, server, replication pki.Pair, theirs ServerTLS) *corev1.Secret {
	secret := &corev1.Secret{
		ObjectMeta: objectMeta(c, TLSSecret(instance)),
		Type:       corev1.SecretTypeTLS,
		Data: map[string][]byte{
			CAKey: trusted, CertKey: server.Cert, KeyKey: server.Key,
			ReplicationCertKey: replication.Cert, ReplicationKeyKey: replication.Key,
		},
	}
	secret.Labels = instanceLabels(c, instance)
	for key, value := range map[string][]byte{ServerCAKey: theirs.Trusted, ServerCertKey: theirs.Shown.Cert, ServerKeyKey: theirs.Shown.Key} {
		if len(value) > 0 {
			secret.Data[key] = value
		}
	}
	return secret
}

// RepairTLSSecret does what RepairSecret does, and takes away what the server shows
// no more.
func RepairTLSSecret(live, want *corev1.Secret) *corev1.Secret {
	repaired := RepairSecret(live, want)
	for _, key := range instanceapi.ServerFiles {
		_, wanted := want.Data[key]
		if _, has := live.Data[key]; !has || wanted {
			continue
		}
		if repaired == nil {
			repaired = live.DeepCopy()
		}
		delete(repaired.Data, key)
	}
	return repaired
}

// ServiceHosts are the names under which clients reach the servers, all of which a
// certificate of people's own must bear.
func ServiceHosts(c *v1.PostgresCluster) []string {
	var hosts []string
	for _, service := range []string{RWService(c.Name), ROService(c.Name), RService(c.Name)} {
		hosts = append(hosts, service+"."+c.Namespace+".svc")
	}
	return hosts
}

// CertificateHosts are the names that the certificate of an instance carries:
// its own, those of the Services through which clients reach it, and those of the
// load balancers that lead to these.
func CertificateHosts(c *v1.PostgresCluster, instance string, services map[string]*corev1.Service) []string {
	hosts := []string{instance, InstanceHost(c.Name, c.Namespace, instance), "localhost"}
	for _, service := range []string{RWService(c.Name), ROService(c.Name), RService(c.Name)} {
		hosts = append(hosts,
			service,
			service+"."+c.Namespace,
			service+"."+c.Namespace+".svc",
			service+"."+c.Namespace+".svc.cluster.local",
		)
		hosts = append(hosts, LoadBalancerHosts(services[service])...)
	}
	return hosts
}

// RepairSecret returns live with all that want has, and with what it has
// beside, or nil if it is so.
func RepairSecret(live, want *corev1.Secret) *corev1.Secret {
	same := hasLabels(live.Labels, want.Labels) && hasLabels(live.Annotations, want.Annotations)
	repaired := live.DeepCopy()
	repaired.Labels = withLabels(live.Labels, want.Labels)
	if len(want.Annotations) > 0 {
		repaired.Annotations = withLabels(live.Annotations, want.Annotations)
	}
	if repaired.Data == nil {
		repaired.Data = map[string][]byte{}
	}
	for key, value := range want.Data {
		if !bytes.Equal(live.Data[key], value) {
			repaired.Data[key] = value
			same = false
		}
	}
	if same {
		return nil
	}
	return repaired
}
