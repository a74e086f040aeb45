//go:build e2e

package framework

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/pgop/postgres-operator/pkg/election"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/specs"
)

// volume is what a claim's volume holds.
type volume struct {
	dataID, systemID string
	initialised      bool
	lastReign        election.Record
	lastHolder       string
}

// agent does what the agent in a pod does, as far as operators see it: it makes
// or copies the data, holds the Lease much as the rules of pkg/election say, writes
// the rw slice and answers GET /v1/state and /v1/catalog over mutual TLS.
type agent struct {
	k      *Kubelet
	pod    *corev1.Pod
	ip     string
	server *http.Server
	volume *volume
	since  time.Time

	mu      sync.Mutex
	message string
}

// lastAddress is the last loopback address that was tried, without its 127.
var lastAddress atomic.Uint32

func init() {
	var seed [3]byte
	_, _ = rand.Read(seed[:]) // it never fails
	lastAddress.Store(uint32(seed[0])<<16 | uint32(seed[1])<<8 | uint32(seed[2]))
}

// listenAlone listens at a loopback address that nobody else has.
func listenAlone() (net.Listener, string, error) {
	for {
		n := lastAddress.Add(1)
		ip := net.IPv4(127, 64|byte(n>>16)&63, byte(n>>8), byte(n)|1).String()
		listener, err := net.Listen("tcp", net.JoinHostPort(ip, fmt.Sprint(specs.AgentPort)))
		if !errors.Is(err, syscall.EADDRINUSE) {
			return listener, ip, err
		}
	}
}

// agentOf is the agent of a pod, started if it does not run; nil if the pod's
// claim is not there.
func (k *Kubelet) agentOf(pod *corev1.Pod) (*agent, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if a := k.agents[pod.UID]; a != nil {
		return a, nil
	}
	claim, err := k.factory.Core().V1().PersistentVolumeClaims().Lister().PersistentVolumeClaims(pod.Namespace).Get(pod.Name)
	if err != nil {
		return nil, nil
	}
	if k.volumes[claim.UID] == nil {
		k.volumes[claim.UID] = &volume{}
	}
	listener, ip, err := listenAlone()
	if err != nil {
		return nil, fmt.Errorf("start the agent of pod %s: %w", pod.Name, err)
	}
	a := &agent{k: k, pod: pod, ip: ip, volume: k.volumes[claim.UID], since: time.Now()}
	// Handshakes that fail are the operator's to report.
	a.server = &http.Server{Handler: a, ReadHeaderTimeout: 10 * time.Second, ErrorLog: log.New(io.Discard, "", 0)}
	secured := tls.NewListener(listener, &tls.Config{
		MinVersion:         tls.VersionTLS13,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return a.credentials() },
	})
	go func() { _ = a.server.Serve(secured) }() // ends with close
	k.agents[pod.UID] = a
	return a, nil
}

func (k *Kubelet) stopAgent(pod *corev1.Pod) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if a := k.agents[pod.UID]; a != nil {
		a.close()
		delete(k.agents, pod.UID)
	}
}

func (a *agent) close() { _ = a.server.Close() }

// credentials are what the pod's certificate Secret holds now.
func (a *agent) credentials() (*tls.Config, error) {
	secret, err := a.k.factory.Core().V1().Secrets().Lister().Secrets(a.pod.Namespace).Get(specs.TLSSecret(a.pod.Name))
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(secret.Data[specs.CertKey], secret.Data[specs.KeyKey])
	if err != nil {
		return nil, err
	}
	clients := x509.NewCertPool()
	clients.AppendCertsFromPEM(secret.Data[specs.CAKey])
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients,
		VerifyConnection: func(s tls.ConnectionState) error {
			if name := s.PeerCertificates[0].Subject.CommonName; name != instanceapi.OperatorName {
				return fmt.Errorf("client is %s", name)
			}
			return nil
		},
	}, nil
}

func (a *agent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if a.k.scriptOf(a.pod.Name).Hangs {
		<-r.Context().Done()
		return
	}
	if r.URL.Path == instanceapi.CatalogPath {
		a.serveCatalog(w)
		return
	}
	if r.URL.Path != instanceapi.StatePath {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(a.state()) // an error means that the client has gone
}

func (a *agent) cluster() string { return a.pod.Labels[specs.ClusterLabel] }

func (a *agent) lease() (*coordinationv1.Lease, election.Record, election.Holder) {
	lease, err := a.k.factory.Coordination().V1().Leases().Lister().Leases(a.pod.Namespace).Get(specs.Lease(a.cluster()))
	if err != nil || !a.isOurs(lease) {
		return nil, election.Record{}, election.Holder{}
	}
	record, err := election.ParseRecord(lease.Annotations[election.RecordAnnotation])
	if err != nil {
		return nil, election.Record{}, election.Holder{}
	}
	return lease, record, election.ParseHolder(ptr.Deref(lease.Spec.HolderIdentity, ""))
}

func (a *agent) configMap() *corev1.ConfigMap {
	config, err := a.k.factory.Core().V1().ConfigMaps().Lister().ConfigMaps(a.pod.Namespace).Get(specs.ConfigMap(a.cluster()))
	if err != nil || !a.isOurs(config) {
		return nil
	}
	return config
}

// isOurs says whether an object is of the cluster for which the pod was made.
func (a *agent) isOurs(o metav1.Object) bool {
	mine, owner := metav1.GetControllerOf(a.pod), metav1.GetControllerOf(o)
	return owner != nil && owner.UID == mine.UID
}

func (a *agent) me() election.Holder {
	return election.Holder{Instance: a.pod.Name, PodUID: string(a.pod.UID)}
}

// act does what is to be done with the data, the Lease and the slice.
func (a *agent) act(ctx context.Context) {
	lease, record, holder := a.lease()
	if lease == nil {
		a.say("waiting for the Lease")
		return
	}
	config, _ := a.config() // the zero one asks for nothing
	kept := a.kept()
	switch {
	case holder == a.me():
		if to := a.successor(config.Switchover, record); to != nil {
			a.k.report(ctx, to.claim(ctx, lease, record))
			return
		}
		a.k.report(ctx, a.serveInSlice(ctx, record))
		a.k.report(ctx, a.renew(ctx, lease, record, config))
		return
	case config.ForcePromote != nil && *config.ForcePromote == instanceapi.ForcePromote{Instance: a.pod.Name, Term: record.Term}:
		a.k.report(ctx, a.claim(ctx, lease, record))
		return
	case config.Reclone != nil && *config.Reclone == instanceapi.Reclone{Instance: a.pod.Name, DataID: kept.dataID}:
		a.store(func(v *volume) { v.dataID = rand.Text() })
		return
	case kept.dataID == "" && !record.IsEmpty() && holder.Instance == a.pod.Name:
		a.say("this instance reigned, and its volume is empty")
		return
	case kept.dataID == "" && !record.IsEmpty():
		a.store(func(v *volume) { v.dataID, v.systemID = rand.Text(), record.SystemID })
	case kept.dataID == "":
		config, err := a.config()
		if err != nil || config.SystemID != "" || config.Bootstrap.Instance != a.pod.Name {
			a.say("waiting until the operator names the instance that makes the database")
			return
		}
		a.store(func(v *volume) { v.dataID, v.systemID, v.initialised = rand.Text(), newSystemID(), true })
	}
	kept = a.kept()
	if kept.mayClaim(a.pod.Name, record, holder) {
		a.k.report(ctx, a.claim(ctx, lease, record))
		return
	}
	if !record.IsEmpty() {
		a.store(func(v *volume) {
			if record.Term >= v.lastReign.Term { // else it has just taken over
				v.lastReign, v.lastHolder = record, holder.Instance
			}
		})
	}
}

// mayClaim says whether the data of that instance reigned last, or is the first.
func (v *volume) mayClaim(instance string, record election.Record, holder election.Holder) bool {
	switch {
	case !record.IsEmpty():
		return holder.Instance == instance && record.HolderDataID == v.dataID
	case v.lastReign.IsEmpty():
		return v.initialised
	}
	return v.lastHolder == instance && v.lastReign.HolderDataID == v.dataID
}

func (a *agent) config() (instanceapi.Config, error) {
	configMap := a.configMap()
	if configMap == nil {
		return instanceapi.Config{}, errors.New("there is no ConfigMap")
	}
	return instanceapi.ParseConfig(configMap.Data[instanceapi.ConfigKey])
}

var systemIDs atomic.Uint64

func newSystemID() string { return fmt.Sprint(7_400_000_000_000_000_000 + systemIDs.Add(1)) }

func (a *agent) claim(ctx context.Context, lease *coordinationv1.Lease, last election.Record) error {
	now, kept := metav1.NowMicro(), a.kept()
	record := election.Record{
		Term: max(last.Term, kept.lastReign.Term) + 1, Timeline: max(last.Timeline, 1), SystemID: kept.systemID,
		HolderDataID: kept.dataID, HolderAddress: a.ip,
	}
	claimed := lease.DeepCopy()
	claimed.Spec.HolderIdentity = ptr.To(a.me().String())
	claimed.Spec.LeaseDurationSeconds = ptr.To[int32](10)
	claimed.Spec.AcquireTime, claimed.Spec.RenewTime = &now, &now
	metav1.SetMetaDataAnnotation(&claimed.ObjectMeta, election.RecordAnnotation, record.String())
	if _, err := a.k.f.Kube.CoordinationV1().Leases(lease.Namespace).Update(ctx, claimed, metav1.UpdateOptions{}); err != nil {
		return err
	}
	a.store(func(v *volume) { v.lastReign, v.lastHolder = record, a.pod.Name })
	return nil
}

// renewPeriod is how often the holder writes the Lease.
const renewPeriod = 3 * time.Second

// renew writes the Lease when it is due, and who can take over when that changes.
func (a *agent) renew(ctx context.Context, lease *coordinationv1.Lease, record election.Record, config instanceapi.Config) error {
	before := record.String()
	record.Members = a.members(config.Members)
	record.Votes = min(1, len(record.Members))
	if record.String() == before && time.Since(ptr.Deref(lease.Spec.RenewTime, metav1.MicroTime{}).Time) < renewPeriod {
		return nil
	}
	now := metav1.NowMicro()
	renewed := lease.DeepCopy()
	renewed.Spec.RenewTime = &now
	metav1.SetMetaDataAnnotation(&renewed.ObjectMeta, election.RecordAnnotation, record.String())
	_, err := a.k.f.Kube.CoordinationV1().Leases(lease.Namespace).Update(ctx, renewed, metav1.UpdateOptions{})
	return err
}

// members are the other instances of the cluster, of those names, that have data.
func (a *agent) members(names []string) []election.Member {
	var members []election.Member
	for _, other := range a.siblings() {
		other.mu.Lock()
		if id := other.volume.dataID; id != "" && slices.Contains(names, other.pod.Name) {
			members = append(members, election.Member{Instance: other.pod.Name, DataID: id})
		}
		other.mu.Unlock()
	}
	return members
}

// siblings are the agents of the cluster's other instances, by name.
func (a *agent) siblings() []*agent {
	a.k.mu.Lock()
	defer a.k.mu.Unlock()
	var others []*agent
	for _, other := range a.k.agents {
		if other != a && metav1.GetControllerOf(other.pod).UID == metav1.GetControllerOf(a.pod).UID {
			others = append(others, other)
		}
	}
	slices.SortFunc(others, func(a, b *agent) int { return strings.Compare(a.pod.Name, b.pod.Name) })
	return others
}

// successor is the agent to which the primary hands over; nil if it keeps the
// Lease.
func (a *agent) successor(asked *instanceapi.Switchover, record election.Record) *agent {
	if asked == nil || asked.From != a.pod.Name || asked.Term != record.Term || a.k.scriptOf(a.pod.Name).KeepsTheLead {
		return nil
	}
	for _, other := range a.siblings() {
		isMember := slices.ContainsFunc(record.Members, func(m election.Member) bool { return m.Instance == other.pod.Name })
		if isMember && (asked.To == "" || asked.To == other.pod.Name) {
			return other
		}
	}
	return nil
}

// TakeOver lets an instance take the Lease from the one that has it.
func (k *Kubelet) TakeOver(instance string) {
	k.f.T.Helper()
	k.f.Await(instance+" takes over", func(ctx context.Context) error {
		pod, err := k.factory.Core().V1().Pods().Lister().Pods(k.f.Namespace).Get(instance)
		if err != nil {
			return err
		}
		a, err := k.agentOf(pod)
		if err != nil {
			return err
		}
		lease, record, _ := a.lease()
		return a.claim(ctx, lease, record)
	})
	k.poke()
}

// serveInSlice writes an address of the real kind: the API server allows none
// of the loopback in a slice.
func (a *agent) serveInSlice(ctx context.Context, record election.Record) error {
	slice, err := a.k.factory.Discovery().V1().EndpointSlices().Lister().EndpointSlices(a.pod.Namespace).Get(specs.EndpointSlice(a.cluster()))
	if err != nil || !a.isOurs(slice) {
		return nil // the operator has not made it yet
	}
	serving := slice.DeepCopy()
	ip := net.ParseIP(a.ip).To4()
	serving.Endpoints = []discoveryv1.Endpoint{{
		Addresses:  []string{net.IPv4(10, ip[1], ip[2], ip[3]).String()},
		Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true), Serving: ptr.To(true), Terminating: ptr.To(false)},
		TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: a.pod.Namespace, Name: a.pod.Name, UID: a.pod.UID},
	}}
	metav1.SetMetaDataAnnotation(&serving.ObjectMeta, "pgop.dev/term", fmt.Sprint(record.Term))
	metav1.SetMetaDataAnnotation(&serving.ObjectMeta, "pgop.dev/pod-uid", string(a.pod.UID))
	if equality.Semantic.DeepEqual(slice, serving) {
		return nil
	}
	_, err = a.k.f.Kube.DiscoveryV1().EndpointSlices(slice.Namespace).Update(ctx, serving, metav1.UpdateOptions{})
	return err
}

// kept is what the volume holds now: tests let an instance take over while the
// kubelet looks after it.
func (a *agent) kept() volume {
	a.mu.Lock()
	defer a.mu.Unlock()
	return *a.volume
}

func (a *agent) store(change func(*volume)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.message = ""
	change(a.volume)
}

func (a *agent) say(message string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.message = message
}

// endOfWAL is where every server of a test's cluster is.
const endOfWAL = "0/5000000"

// appliedBy is what a primary says of roles and databases that are as declared.
func appliedBy(d instanceapi.Declared) *instanceapi.DeclaredState {
	applied := &instanceapi.DeclaredState{Hash: d.Hash()}
	for _, r := range d.Roles {
		applied.Roles = append(applied.Roles, instanceapi.DeclaredEntry{Name: r.Name})
	}
	for _, database := range d.Databases {
		applied.Databases = append(applied.Databases, instanceapi.DeclaredEntry{Name: database.Name})
	}
	return applied
}

// noteNext tells of the next passwords in the operator's Secrets, as if the server had
// them.
func (a *agent) noteNext(config instanceapi.Config, applied *instanceapi.DeclaredState) {
	for _, r := range config.WithOwner().Roles {
		e := &instanceapi.DeclaredEntry{Name: r.Name}
		if r.PasswordOnly {
			applied.Owner = e
		} else {
			e = &applied.Roles[slices.IndexFunc(applied.Roles, func(e instanceapi.DeclaredEntry) bool { return e.Name == r.Name })]
		}
		secret, err := a.k.factory.Core().V1().Secrets().Lister().Secrets(a.pod.Namespace).Get(r.Secret)
		if err != nil || !r.OwnSecret {
			continue
		}
		if next := specs.NextPassword(secret); next != "" {
			e.Next = instanceapi.PasswordMark(next)
		}
		if user := string(secret.Data[instanceapi.OtherUsernameKey]); user != "" {
			e.Next = instanceapi.LoginMark(user, string(secret.Data[instanceapi.OtherPasswordKey]))
		}
	}
}

// state is what the agent reports of itself.
func (a *agent) state() instanceapi.State {
	_, record, holder := a.lease()
	a.mu.Lock()
	s := instanceapi.State{
		Instance: a.pod.Name, PodUID: string(a.pod.UID), AgentVersion: "test",
		Phase: instanceapi.PhaseWaiting, Message: a.message, Since: a.since,
		Inspected: true, HasData: a.volume.dataID != "", DataID: a.volume.dataID, SystemID: a.volume.systemID,
		Term: max(record.Term, a.volume.lastReign.Term), LastHolder: a.volume.lastHolder,
		VolumeSize: 1 << 30, VolumeFree: 1 << 29,
	}
	a.mu.Unlock()
	config, _ := a.config() // the zero one asks for nothing
	s.Stopping = config.Stop
	if secret, err := a.k.factory.Core().V1().Secrets().Lister().Secrets(a.pod.Namespace).Get(specs.TLSSecret(a.pod.Name)); err == nil {
		s.Credentials = instanceapi.CredentialsHash(secret.Data)
	}
	if s.HasData && !record.IsEmpty() && s.Message == "" {
		s.Phase = instanceapi.PhaseRunning
		s.ServerVersion, s.Timeline = flagOf(a.pod, "--major")+".12", record.Timeline
		if config := a.configMap(); config != nil {
			s.ConfigHash = instanceapi.ConfigHash(config.Data[instanceapi.PostgresConfKey], config.Data[instanceapi.HBAKey], config.Data[instanceapi.IdentKey])
		}
		if holder == a.me() {
			s.Role, s.Ready, s.WrittenLSN = instanceapi.RolePrimary, true, endOfWAL
			s.Declared = appliedBy(config.Declared)
			a.noteNext(config, s.Declared)
		} else {
			s.Role, s.Streaming, s.Ready = instanceapi.RoleReplica, true, holder.PodUID != ""
			s.ReceivedLSN, s.ReplayedLSN = endOfWAL, endOfWAL
		}
	}
	a.backups(config, &s)
	if change := a.k.scriptOf(a.pod.Name).State; change != nil {
		change(&s)
	}
	return s
}
