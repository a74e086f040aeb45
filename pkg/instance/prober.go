package instance

import (
	"context"
	"sync"
	"time"

	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/postgres/pgrun"
)

// probeEvery is how often a primary is asked over a new connection.
const probeEvery = 2 * time.Second

// prober finds out whether the server answers new connections: those that exist
// go on for long when the postmaster is frozen.
type prober struct {
	agent *Agent

	mu   sync.Mutex
	last time.Time
}

// answeredAt is when the server has last answered.
func (p *prober) answeredAt() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last
}

func (p *prober) answered() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = time.Now()
}

// run asks until ctx ends.
func (p *prober) run(ctx context.Context) {
	ticker := time.NewTicker(probeEvery)
	defer ticker.Stop()
	var asked *server
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		now := p.agent.runningAs()
		if now.Role != instanceapi.RolePrimary || !now.answers() || now.server != asked {
			asked = now.server
			p.answered() // it begins anew
			continue
		}
		if p.ask(ctx) {
			p.answered()
		}
	}
}

// ask says whether the server answers. A refusal is an answer.
func (p *prober) ask(ctx context.Context) bool {
	server, err := p.agent.openServer()
	if err != nil {
		return false
	}
	defer server.Close()
	ctx, cancel := context.WithTimeout(ctx, probeEvery)
	defer cancel()
	err = server.Exec(ctx, "SELECT 1")
	return err == nil || pgrun.ServerError(err) != nil
}

// openServer prepares a connection of its own to the server.
func (a *Agent) openServer() (*pgrun.Server, error) {
	return pgrun.Open(a.options.RunDir, a.options.Port, "postgres")
}
