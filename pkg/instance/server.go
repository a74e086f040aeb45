package instance

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/pgop/postgres-operator/pkg/instanceapi"
)

// listen serves the probes and the API until ctx ends. Both work from the very
// first moment: an instance that waits is to be seen waiting.
func (a *Agent) listen(ctx context.Context, group *sync.WaitGroup) error {
	probes, err := net.Listen("tcp", a.options.ProbeListen)
	if err != nil {
		return fmt.Errorf("listen for probes: %w", err)
	}
	api, err := net.Listen("tcp", a.options.APIListen)
	if err != nil {
		_ = probes.Close() // nobody has connected
		return fmt.Errorf("listen for the API: %w", err)
	}
	credentials := &credentials{options: a.options}
	api = tls.NewListener(api, &tls.Config{
		MinVersion:         tls.VersionTLS13,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return credentials.config() },
	})
	a.serveHTTP(ctx, group, probes, a.probeHandler())
	a.serveHTTP(ctx, group, api, a.apiHandler())
	return nil
}

func (a *Agent) serveHTTP(ctx context.Context, group *sync.WaitGroup, listener net.Listener, handler http.Handler) {
	const slow = 5 * time.Second
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: slow, ReadTimeout: slow, WriteTimeout: 2 * slow, IdleTimeout: time.Minute,
		MaxHeaderBytes: 8 << 10,
	}
	group.Go(func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			a.log.WithError(err).Error("serving has ended")
		}
	})
	group.Go(func() {
		<-ctx.Done()
		_ = server.Close() // the process ends
	})
}

// probeHandler answers the kubelet, with no data.
func (a *Agent) probeHandler() http.Handler {
	answer := func(ok func() bool) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			if !ok() {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", answer(func() bool { return a.alive(time.Now()) }))
	mux.HandleFunc("GET /readyz", answer(func() bool { return a.status.snapshot().Ready }))
	return mux
}

func (a *Agent) apiHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+instanceapi.StatePath, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		// An error here means that the client has gone.
		_ = json.NewEncoder(w).Encode(a.State(r.Context()))
	})
	return mux
}

// State is what the agent reports.
func (a *Agent) State(ctx context.Context) instanceapi.State {
	seen := a.observer.observe(ctx, freshEnough)
	state := a.status.snapshot()
	seen.into(&state)
	state.Term = max(state.Term, a.view.knownLease().Record.Term)
	size, free, err := volumeSize(a.options.Mount)
	if err == nil { // else they are not known
		state.VolumeSize, state.VolumeFree = size, free
	}
	return state
}

// observeForever keeps the answer of the readiness probe fresh.
func (a *Agent) observeForever(ctx context.Context) {
	const soon = 100 * time.Millisecond
	timer := time.NewTimer(0)
	defer timer.Stop()
	var streamedAt time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		seen := a.observer.observe(ctx, soon/2)
		now, running := time.Now(), a.runningAs()
		if running.Role != instanceapi.RoleReplica {
			streamedAt = time.Time{}
		} else if seen.Streaming {
			streamedAt = now
		}
		ready := readiness{
			Role: running.role(), Answers: seen.Answers, Reigns: running.Open && a.reign.holds(),
			StreamedAt: streamedAt, RenewedAt: a.view.knownLease().RenewedAt,
		}.isReady(now)
		a.status.update(func(s *instanceapi.State) { s.Ready = ready })
		next := observeEvery
		if !ready {
			next = soon
		}
		timer.Reset(next)
	}
}

// credentials are the agent's certificate and the CA of its clients. They are
// read again when a file has changed.
type credentials struct {
	options Options

	mu     sync.Mutex
	stamp  [3]time.Time
	loaded *tls.Config
}

// config is for one handshake. While files are being replaced, the ones before
// are used.
func (c *credentials) config() (*tls.Config, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	stamp, err := c.stampNow()
	if err == nil && c.loaded != nil && stamp == c.stamp {
		return c.loaded, nil
	}
	var fresh *tls.Config
	if err == nil {
		fresh, err = loadCredentials(c.options)
	}
	if err != nil {
		if c.loaded != nil {
			return c.loaded, nil // half replaced; the next handshake looks again
		}
		return nil, err
	}
	c.loaded, c.stamp = fresh, stamp
	return fresh, nil
}

func (c *credentials) stampNow() ([3]time.Time, error) {
	var stamp [3]time.Time
	for i, name := range []string{"ca.crt", "tls.crt", "tls.key"} {
		info, err := os.Stat(c.options.tls(name))
		if err != nil {
			return stamp, fmt.Errorf("look at certificate: %w", err)
		}
		stamp[i] = info.ModTime()
	}
	return stamp, nil
}

func loadCredentials(o Options) (*tls.Config, error) {
	certificate, err := tls.LoadX509KeyPair(o.tls("tls.crt"), o.tls("tls.key"))
	if err != nil {
		return nil, fmt.Errorf("load certificate: %w", err)
	}
	ca, err := os.ReadFile(o.tls("ca.crt"))
	if err != nil {
		return nil, fmt.Errorf("load CA: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("load CA: %s holds no certificate", o.tls("ca.crt"))
	}
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{certificate},
		ClientCAs:    pool,
		ClientAuth:   tls.RequireAndVerifyClientCert,
		// HTTP/2 would cost memory and gain nothing.
		NextProtos:       []string{"http/1.1"},
		VerifyConnection: verifyClient,
	}, nil
}

// verifyClient lets in the operator only; other holders of a certificate of
// this CA, such as the cluster's instances, have no business here yet.
func verifyClient(state tls.ConnectionState) error {
	if name := state.PeerCertificates[0].Subject.CommonName; name != instanceapi.OperatorName {
		return fmt.Errorf("client certificate of %q: only %q may ask", name, instanceapi.OperatorName)
	}
	return nil
}
