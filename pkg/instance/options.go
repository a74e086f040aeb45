package instance

import (
	"cmp"
	"errors"
	"path/filepath"
	"slices"
	"time"

	"github.com/pgop/postgres-operator/pkg/election"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
)

// Options are what the pod says to its agent.
type Options struct {
	Cluster string
	// ClusterUID is that of the PostgresCluster in its present life. What
	// another cluster of the name owns is none of this agent's.
	ClusterUID string

	Instance  string
	Namespace string
	PodUID    string
	PodIP     string
	// NodeName is optional.
	NodeName string

	// Major version that the server must have.
	Major int
	// Mount is where the data volume is mounted.
	Mount string
	// WALMount is where the WAL volume is mounted; empty: there is none.
	WALMount string
	// BackupMounts are where volumes with backups are mounted, if the pod has any.
	BackupMounts []string
	// RunDir holds the server's socket and the agent's own transient files.
	RunDir string
	// TLSDir holds instanceapi.CredentialFiles, and maybe instanceapi.ServerFiles.
	TLSDir string
	// APIListen and ProbeListen are addresses as net.Listen takes them.
	APIListen, ProbeListen string
	// StopTimeout is how long an orderly stop of the server may take.
	StopTimeout time.Duration
	// Version of the agent's binary.
	Version string
	// Alone: the pod proves a backup. Nobody but the agent reaches its server, and it
	// has no use for logins, certificates and addresses.
	Alone bool

	// The following are fixed in a pod, and chosen by tests.

	// Bin is the directory of PostgreSQL's programs; empty: on PATH.
	Bin string
	// Listen is the server's listen_addresses, and Port its port.
	Listen string
	Port   int
	// PeerPort is where the agents of other instances serve their API; 0: where
	// all do.
	PeerPort int
	// DeclaredEvery is how often roles and databases that are as declared are read;
	// 0: every few minutes.
	DeclaredEvery time.Duration
}

func (o Options) validate() error {
	required := map[string]string{
		"cluster": o.Cluster, "cluster-uid": o.ClusterUID, "POD_NAME": o.Instance, "POD_NAMESPACE": o.Namespace, "POD_UID": o.PodUID,
		"POD_IP": o.PodIP, "mount": o.Mount, "run-dir": o.RunDir, "tls-dir": o.TLSDir,
	}
	for _, name := range []string{"cluster", "cluster-uid", "POD_NAME", "POD_NAMESPACE", "POD_UID", "POD_IP", "mount",
		"run-dir", "tls-dir"} {
		if required[name] == "" && !(o.Alone && slices.Contains([]string{"POD_IP", "tls-dir"}, name)) {
			return errors.New(name + " is not set")
		}
	}
	if o.Major == 0 {
		return errors.New("major is not set")
	}
	return nil
}

func (o Options) holder() election.Holder {
	return election.Holder{Instance: o.Instance, PodUID: o.PodUID}
}

// owner is the cluster's name in a store that others use, too.
func (o Options) owner() string { return o.Namespace + "/" + o.Cluster }

// walSocket is where the server's archive_command and restore_command find the
// agent.
func (o Options) walSocket() string { return filepath.Join(o.RunDir, ".agent.wal") }

// shown is where the server finds what it shows to clients, CertFile or KeyFile: a link
// to the file that counts. What the server is told stays the same, so that it is told at
// its start, where ALTER SYSTEM has no say.
func (o Options) shown(name string) string { return filepath.Join(o.RunDir, ".shown."+name) }

func (o Options) peerPort() int { return cmp.Or(o.PeerPort, instanceapi.Port) }

func (o Options) tls(name string) string { return filepath.Join(o.TLSDir, name) }
