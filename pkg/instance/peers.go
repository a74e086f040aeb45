package instance

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/pgop/postgres-operator/pkg/election"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
)

// peers asks the agents of the other instances.
type peers struct {
	options     Options
	credentials *credentials
	view        *view
	// find is where an instance may be, as host:port; tests replace it.
	find func(instance string) []string

	mu sync.Mutex
	// madeWith is the hash of the credentials that the clients use.
	madeWith string
	clients  map[string]*instanceapi.Client
}

func (p *peers) vote(ctx context.Context, instance string, request election.VoteRequest) (election.Vote, error) {
	return askPeer(ctx, p, instance, func(ctx context.Context, c *instanceapi.Client, address string) (election.Vote, error) {
		return c.Vote(ctx, address, request)
	})
}

func (p *peers) promise(ctx context.Context, instance string, request election.PromiseRequest) (election.Promise, error) {
	return askPeer(ctx, p, instance, func(ctx context.Context, c *instanceapi.Client, address string) (election.Promise, error) {
		return c.Promise(ctx, address, request)
	})
}

func (p *peers) peer(ctx context.Context, instance string) (instanceapi.Peer, error) {
	return askPeer(ctx, p, instance, func(ctx context.Context, c *instanceapi.Client, address string) (instanceapi.Peer, error) {
		return c.Peer(ctx, address)
	})
}

func (p *peers) switchWAL(ctx context.Context, instance string, request instanceapi.SwitchWAL) (instanceapi.Switched, error) {
	return askPeer(ctx, p, instance, func(ctx context.Context, c *instanceapi.Client, address string) (instanceapi.Switched, error) {
		return c.SwitchWAL(ctx, address, request)
	})
}

func (p *peers) configuration(ctx context.Context, instance string) (instanceapi.Configuration, error) {
	return askPeer(ctx, p, instance, func(ctx context.Context, c *instanceapi.Client, address string) (instanceapi.Configuration, error) {
		return c.Configuration(ctx, address)
	})
}

// impatience is how long an address has before the next one is tried as well:
// one that is gone says nothing for long.
const impatience = 300 * time.Millisecond

// askPeer asks at every address that the instance may have until one answers.
func askPeer[A any](ctx context.Context, p *peers, instance string, ask func(context.Context, *instanceapi.Client, string) (A, error)) (A, error) {
	var none A
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	client, err := p.client(instance)
	if err != nil {
		return none, err
	}
	type answer struct {
		value A
		err   error
	}
	addresses := p.find(instance)
	answers := make(chan answer, len(addresses))
	for i, address := range addresses {
		go func() {
			if err := pause(ctx, time.Duration(i)*impatience); err != nil {
				answers <- answer{err: err}
				return
			}
			value, err := ask(ctx, client, address)
			answers <- answer{value, err}
		}()
	}
	var errs []error
	for range addresses {
		got := <-answers
		if got.err == nil {
			return got.value, nil
		}
		errs = append(errs, got.err)
	}
	return none, fmt.Errorf("ask instance %s: %w", instance, errors.Join(errs...))
}

// addresses are where an instance may be: where the last Lease that named it said, and
// where DNS says. Its certificate tells whether it is.
func (p *peers) addresses(instance string) []string {
	port := fmt.Sprint(p.options.peerPort())
	var addresses []string
	if known := p.view.lastAddress(instance); known != "" {
		addresses = append(addresses, net.JoinHostPort(known, port))
	}
	return append(addresses, net.JoinHostPort(fmt.Sprintf("%s.%s-pods.%s", instance, p.options.Cluster, p.options.Namespace), port))
}

func (p *peers) client(instance string) (*instanceapi.Client, error) {
	now, err := p.credentials.current()
	if err != nil {
		return nil, fmt.Errorf("ask instance %s: %w", instance, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.madeWith != now.hash {
		for _, client := range p.clients {
			client.Close()
		}
		p.madeWith, p.clients = now.hash, map[string]*instanceapi.Client{}
	}
	if p.clients[instance] == nil {
		p.clients[instance] = instanceapi.NewClient(&tls.Config{
			MinVersion: tls.VersionTLS13, ServerName: instance,
			RootCAs: now.api.ClientCAs, Certificates: []tls.Certificate{now.replication},
		})
	}
	return p.clients[instance], nil
}
