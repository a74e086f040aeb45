package cluster

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/pgop/postgres-operator/pkg/pki"
	"github.com/pgop/postgres-operator/pkg/specs"
)

// B-22: what belongs to another life of the cluster is not this one's, whatever
// its name: it is neither counted nor deleted.
func TestChildrenBelongByUID(t *testing.T) {
	w := settledWorld(3)
	w.cluster = w.cluster.DeepCopy()
	w.cluster.UID, w.cluster.Status.SystemID = "cluster-2", ""
	w.scale(1)
	o := w.observe()
	for _, i := range o.Instances {
		if i.Pod != nil {
			t.Errorf("pod %s of the cluster before counts as this one's", i.Name)
		}
	}
	if o.ConfigMap != nil || o.Lease != nil || o.Role != nil || o.ServiceAccount != nil || len(o.Services) > 0 || len(o.Secrets) > 0 {
		t.Errorf("objects of the cluster before count as this one's: %+v", o)
	}
	for _, a := range Analyse(o).Actions {
		if a.Verb != Create {
			t.Errorf("%v", a)
		}
	}
}

func TestObjectsWithStrangeNamesAreNoInstances(t *testing.T) {
	w := settledWorld(1)
	for _, name := range []string{"shop-01", "shop-x", "shopping-1"} {
		pod := w.pod("shop-1").DeepCopy()
		pod.Name = name
		w.store(pod)
	}
	w.catchUp(allKinds...)
	o := w.observe()
	if got := len(o.Instances); got != 1 {
		t.Errorf("%d instances: %+v", got, o.Instances)
	}
}

// F-04: the same trouble has the same words, whatever port the operator called
// from, and however the time ran out.
func TestUnreachableAgentsAreDescribedInFixedWords(t *testing.T) {
	address := func(port int) *net.TCPAddr { return &net.TCPAddr{IP: net.IPv4(10, 0, 0, 7), Port: port} }
	asked := func(err error) error {
		return fmt.Errorf("ask agent at 10.0.0.7:8443: %w", &url.Error{Op: "Get", URL: "https://10.0.0.7:8443/v1/state", Err: err})
	}
	cut := func(source int) error {
		return asked(&net.OpError{Op: "read", Net: "tcp", Source: address(source), Addr: address(8443), Err: errors.New("connection reset by peer")})
	}
	cases := []struct {
		err  error
		want string
	}{
		{cut(40001), "read 10.0.0.7:8443: connection reset by peer"},
		{cut(40002), "read 10.0.0.7:8443: connection reset by peer"},
		{asked(context.DeadlineExceeded), "no answer in time"},
		{asked(&net.OpError{Op: "dial", Addr: address(8443), Err: &net.DNSError{IsTimeout: true}}), "no answer in time"},
		{asked(&tls.CertificateVerificationError{Err: errors.New("signed by another")}), "tls: failed to verify certificate: signed by another"},
		{errors.New("it answered 503"), "it answered 503"},
	}
	for _, c := range cases {
		if diff := cmp.Diff(c.want, whyUnreachable(c.err)); diff != "" {
			t.Errorf("%v: %s", c.err, diff)
		}
	}
}

// A client is kept for as long as the operator's Secret stays as it is.
func TestAgentsAreAskedWithWhatTheOperatorsSecretHolds(t *testing.T) {
	now := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	own := func(version string) *corev1.Secret {
		a, _, err := pki.Authorities{}.Mend("db/shop", pki.Use{}, now)
		if err != nil {
			t.Fatal(err)
		}
		leaf, err := a.NewLeaf(pki.OperatorName, nil, 0, now)
		if err != nil {
			t.Fatal(err)
		}
		secret := specs.NewOperatorSecret(newWorld(1).cluster, a, leaf)
		secret.ResourceVersion = version
		return secret
	}
	a := &agents{}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "pod-1"}}
	ask := func(own *corev1.Secret) any {
		client, err := a.clientFor(own, pod, "shop-1")
		if err != nil {
			t.Fatal(err)
		}
		if got, want := string(a.config.Certificates[0].Certificate[0]), string(derOf(t, own.Data[specs.CertKey])); got != want {
			t.Error("asked with another certificate than the Secret's")
		}
		return client
	}
	first := own("1")
	client := ask(first)
	if ask(first) != client {
		t.Error("a second question opens a second connection")
	}
	if ask(own("2")) == client {
		t.Error("a new certificate is not used")
	}
}

func derOf(t *testing.T, cert []byte) []byte {
	block, _ := pem.Decode(cert)
	if block == nil {
		t.Fatal("no PEM")
	}
	return block.Bytes
}

func TestPodsThatCantAnswerAreNotAsked(t *testing.T) {
	running := []corev1.ContainerStatus{{Name: specs.PostgresContainer, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	sidecar := slices.Clone(running)
	sidecar[0].Name = "mesh"
	cases := []struct {
		why  string
		pod  *corev1.Pod
		want bool
	}{
		{"no pod", nil, false},
		{"no address", &corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: running}}, false},
		{"no container", &corev1.Pod{Status: corev1.PodStatus{PodIP: "10.0.0.7"}}, false},
		{"a sidecar alone", &corev1.Pod{Status: corev1.PodStatus{PodIP: "10.0.0.7", ContainerStatuses: sidecar}}, false},
		{"running", &corev1.Pod{Status: corev1.PodStatus{PodIP: "10.0.0.7", ContainerStatuses: running}}, true},
		{"stopping, and running", &corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: ptr.To(metav1.Now())}, Status: corev1.PodStatus{PodIP: "10.0.0.7", ContainerStatuses: running}}, true},
	}
	for _, c := range cases {
		if got := mayAnswer(c.pod); got != c.want {
			t.Errorf("%s: %v", c.why, got)
		}
	}
}
