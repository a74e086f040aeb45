package specs

import (
	"bytes"
	"crypto/rand"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/postgres"
)

// ReplicationRole is the role as which replicas stream.
const ReplicationRole = "streaming_replica"

// Keys of a certificate's Secret, as Kubernetes names them.
const (
	CAKey   = "ca.crt"
	CertKey = corev1.TLSCertKey
	KeyKey  = corev1.TLSPrivateKeyKey
)

// NewPassword makes a password that needs no escaping in any form, with 130
// bits of chance.
func NewPassword() string { return rand.Text() }

// NewAppSecret is the login of the application's owner, in the forms that
// programs read. Its keys are those of the Service Binding specification.
func NewAppSecret(c *v1.PostgresCluster, password string, ca []byte) *corev1.Secret {
	initdb := c.Spec.Bootstrap.Initdb
	secret := &corev1.Secret{
		ObjectMeta: objectMeta(c, AppSecret(c.Name)),
		Type:       corev1.SecretTypeOpaque,
		Data:       appLogin(c, initdb.Owner, password, ca),
	}
	return secret
}

func appLogin(c *v1.PostgresCluster, user, password string, ca []byte) map[string][]byte {
	info := postgres.ConnInfo{
		Host:     fmt.Sprintf("%s.%s.svc", RWService(c.Name), c.Namespace),
		Port:     PostgresPort,
		DBName:   c.Spec.Bootstrap.Initdb.Database,
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

// RepairAppSecret returns live with everything in it derived anew from the
// user name and password that it holds, or nil if it is so. Whoever edits the
// password in the Secret gets it into the server and into the other forms. An
// empty password is made anew.
func RepairAppSecret(live *corev1.Secret, c *v1.PostgresCluster, ca []byte) *corev1.Secret {
	password := string(live.Data["password"])
	if password == "" {
		password = NewPassword()
	}
	return repairSecret(live, Labels(c), appLogin(c, c.Spec.Bootstrap.Initdb.Owner, password, ca))
}

// NewReplicationSecret is the login with which replicas stream.
func NewReplicationSecret(c *v1.PostgresCluster, password string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: objectMeta(c, ReplicationSecret(c.Name)),
		Type:       corev1.SecretTypeBasicAuth,
		Data: map[string][]byte{
			corev1.BasicAuthUsernameKey: []byte(ReplicationRole),
			corev1.BasicAuthPasswordKey: []byte(password),
		},
	}
}

// NewCASecret holds the cluster's certificate authority.
func NewCASecret(c *v1.PostgresCluster, cert, key []byte) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: objectMeta(c, CASecret(c.Name)),
		Type:       corev1.SecretTypeTLS,
		Data:       map[string][]byte{CAKey: cert, CertKey: cert, KeyKey: key},
	}
}

// NewTLSSecret holds the certificate of one instance.
func NewTLSSecret(c *v1.PostgresCluster, instance string, ca, cert, key []byte) *corev1.Secret {
	secret := &corev1.Secret{
		ObjectMeta: objectMeta(c, TLSSecret(instance)),
		Type:       corev1.SecretTypeTLS,
		Data:       map[string][]byte{CAKey: ca, CertKey: cert, KeyKey: key},
	}
	secret.Labels = instanceLabels(c, instance)
	return secret
}

// RepairTLSSecret returns live with the data of want.
func RepairTLSSecret(live, want *corev1.Secret) *corev1.Secret {
	return repairSecret(live, want.Labels, want.Data)
}

// CertificateHosts are the names that the certificate of an instance carries:
// its own, and those of the Services through which clients reach it.
func CertificateHosts(c *v1.PostgresCluster, instance string) []string {
	hosts := []string{instance, InstanceHost(c.Name, c.Namespace, instance), "localhost"}
	for _, service := range []string{RWService(c.Name), ROService(c.Name), RService(c.Name)} {
		hosts = append(hosts,
			service,
			service+"."+c.Namespace,
			service+"."+c.Namespace+".svc",
			service+"."+c.Namespace+".svc.cluster.local",
		)
	}
	return hosts
}

func repairSecret(live *corev1.Secret, labels map[string]string, data map[string][]byte) *corev1.Secret {
	same := hasLabels(live.Labels, labels)
	repaired := live.DeepCopy()
	repaired.Labels = withLabels(live.Labels, labels)
	if repaired.Data == nil {
		repaired.Data = map[string][]byte{}
	}
	for key, value := range data {
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
