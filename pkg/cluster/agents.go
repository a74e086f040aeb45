package cluster

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/pki"
	"github.com/pgop/postgres-operator/pkg/specs"
)

// clientLifetime is how long the operator talks to agents with one certificate
// of its own, which lives far longer.
const clientLifetime = 24 * time.Hour

// agents asks the agents of one cluster. It keeps a client for each pod, whose
// certificate must bear the instance's name.
type agents struct {
	now func() time.Time

	mu sync.Mutex
	// madeFrom is the version of the authority's Secret that the clients trust,
	// and madeAt when they were made.
	madeFrom string
	madeAt   time.Time
	clients  map[string]*instanceapi.Client
	config   *tls.Config
}

func (a *agents) fetch(ctx context.Context, authority *corev1.Secret, pod *corev1.Pod, host string) (instanceapi.State, error) {
	client, err := a.clientFor(authority, pod, host)
	if err != nil {
		return instanceapi.State{}, err
	}
	return client.State(ctx, net.JoinHostPort(pod.Status.PodIP, fmt.Sprint(specs.AgentPort)))
}

func (a *agents) clientFor(authority *corev1.Secret, pod *corev1.Pod, host string) (*instanceapi.Client, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if now := a.now(); a.madeFrom != authority.ResourceVersion || now.Sub(a.madeAt) > clientLifetime {
		ca := pki.Pair{Cert: authority.Data[specs.CertKey], Key: authority.Data[specs.KeyKey]}
		config, err := ca.ClientConfig(now)
		if err != nil {
			return nil, fmt.Errorf("make the operator's certificate: %w", err)
		}
		a.closeAll()
		a.madeFrom, a.madeAt = authority.ResourceVersion, now
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
