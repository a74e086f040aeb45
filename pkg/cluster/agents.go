package cluster

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/pki"
	"github.com/pgop/postgres-operator/pkg/specs"
)

// agents asks the agents of one cluster. It keeps a client for each pod, whose
// certificate must bear the instance's name.
type agents struct {
	mu sync.Mutex
	// madeFrom is the version of the operator's Secret that the clients use.
	madeFrom string
	clients  map[string]*instanceapi.Client
	config   *tls.Config
}

func (a *agents) fetch(ctx context.Context, own *corev1.Secret, pod *corev1.Pod, host string) (instanceapi.State, error) {
	client, err := a.clientFor(own, pod, host)
	if err != nil {
		return instanceapi.State{}, err
	}
	return client.State(ctx, net.JoinHostPort(pod.Status.PodIP, fmt.Sprint(specs.AgentPort)))
}

func (a *agents) catalog(ctx context.Context, own *corev1.Secret, pod *corev1.Pod, host string) (instanceapi.Catalog, error) {
	client, err := a.clientFor(own, pod, host)
	if err != nil {
		return instanceapi.Catalog{}, err
	}
	return client.Catalog(ctx, net.JoinHostPort(pod.Status.PodIP, fmt.Sprint(specs.AgentPort)))
}

func (a *agents) clientFor(own *corev1.Secret, pod *corev1.Pod, host string) (*instanceapi.Client, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.madeFrom != own.ResourceVersion {
		config, err := pki.ClientConfig(specs.CertificateOf(own), own.Data[specs.CAKey])
		if err != nil {
			return nil, fmt.Errorf("use the operator's certificate: %w", err)
		}
		a.closeAll()
		a.madeFrom = own.ResourceVersion
		a.config, a.clients = config, map[string]*instanceapi.Client{}
	}
	key := string(pod.UID)
	if a.clients[key] == nil {
		config := a.config.Clone()
		config.ServerName = host
		a.clients[key] = instanceapi.NewClient(config)
	}
	return a.clients[key], nil
}

func (a *agents) closeAll() {
	for _, client := range a.clients {
		client.Close()
	}
}
