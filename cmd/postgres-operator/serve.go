package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/sirupsen/logrus"
)

// probes answers /healthz and /readyz with what is wrong or missing.
func probes(healthy, ready func() error) http.Handler {
	mux := http.NewServeMux()
	answer := func(path string, problem func() error) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			if err := problem(); err != nil {
				http.Error(w, err.Error(), http.StatusServiceUnavailable)
				return
			}
			fmt.Fprintln(w, "ok")
		})
	}
	answer("/healthz", healthy)
	answer("/readyz", ready)
	return mux
}

// serve answers until ctx ends.
func serve(ctx context.Context, address string, handler http.Handler, log *logrus.Entry) {
	server := &http.Server{Addr: address, Handler: handler, ReadHeaderTimeout: 5 * time.Second}
	go func() {
		if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
			log.WithField("address", address).WithError(err).Error("can't serve probes or metrics")
		}
	}()
	context.AfterFunc(ctx, func() { server.Close() })
}
