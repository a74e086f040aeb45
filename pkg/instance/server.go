package instance

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
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
	if err := a.listenForWAL(ctx, group); err != nil {
		return errors.Join(err, probes.Close(), api.Close())
	}
	api = tls.NewListener(api, &tls.Config{
		MinVersion: tls.VersionTLS13,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			now, err := a.credentials.current()
			return now.api, err
		},
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
	mux.HandleFunc("GET "+instanceapi.CatalogPath, operatorOnly(func(w http.ResponseWriter, _ *http.Request) {
		catalog, _ := a.catalog.last()
		if catalog == nil {
			http.Error(w, "this instance has read no catalog", http.StatusNotFound)
			return
		}
		answerJSON(w, catalog)
	}))
	a.peerHandlers(mux)
	return mux
}

// State is what the agent reports.
func (a *Agent) State(ctx context.Context) instanceapi.State {
	// In this order: what is in force is told only after what the server said before
	// was forgotten.
	state := a.status.snapshot()
	seen := a.observer.observe(ctx, freshEnough)
	seen.into(&state)
	state.ConnectionsTaken = a.observer.connectionsTaken()
	if !a.restartHelps.Load() {
		state.PendingRestart, state.Raised, state.Lowered = nil, nil, nil
	}
	state.Term = max(state.Term, a.view.knownLease().Record.Term)
	state.Credentials = a.credentialsInUse()
	state.Archive, state.Backup = a.archiver.report(), a.backups.report()
	a.catalog.into(&state)
	size, free, err := volumeSize(a.options.Mount)
	if err == nil { // else they are not known
		state.VolumeSize, state.VolumeFree = size, free
	}
	if a.options.WALMount == "" {
		return state
	}
	if size, free, err := volumeSize(a.options.WALMount); err == nil {
		state.WALVolumeSize, state.WALVolumeFree = size, free
	}
	return state
}

// observeForever keeps the answer of the readiness probe fresh.
func (a *Agent) observeForever(ctx context.Context) {
	const soon = 100 * time.Millisecond
	timer := time.NewTimer(0)
	defer timer.Stop()
	var last streamed
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		seen := a.observer.observe(ctx, soon/2)
		now, running := time.Now(), a.runningAs()
		if running.Role != instanceapi.RoleReplica {
			last = streamed{}
		} else if seen.Streaming {
			last = streamed{at: now, from: running.Upstream}
		}
		lease := a.view.knownLease()
		ready := readiness{
			Role: running.role(), Answers: seen.Answers, Reigns: running.Open && a.mayLead(),
			StreamedAt: last.at, RenewedAt: lease.RenewedAt, Lasts: cmp.Or(lease.lasts(), leaseDuration),
		}.isReady(now)
		a.status.update(func(s *instanceapi.State) { s.Ready, s.Streaming = ready, last.lately(running.Upstream, now) })
		next := observeEvery
		if !ready {
			next = soon
		}
		timer.Reset(next)
	}
}
