//go:build e2e

package framework

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

// Request is one request of an operator to the API server.
type Request struct {
	// Verb is get, list, watch, create, update, patch or delete.
	Verb string
	// Resource is as in a path, with its subresource: pods, postgresclusters/status.
	Resource string
	// Name is empty where the request names no object.
	Name string
}

// IsWrite says whether the request changes something.
func (r Request) IsWrite() bool { return r.Verb != "get" && r.Verb != "list" && r.Verb != "watch" }

func (r Request) String() string { return strings.TrimSpace(r.Verb + " " + r.Resource + " " + r.Name) }

// Proxy is an operator's way to the API server. It counts, and fails on demand.
type Proxy struct {
	listener net.Listener
	server   *http.Server

	mu       sync.Mutex
	requests []Request
	under    map[*underWay]bool
	refusing bool
	expired  bool
	delay    time.Duration
	before   func(Request)
	stalled  func(Request) bool
	// flows is closed when stalled watches may go on.
	flows chan struct{}
}

// underWay is a request that has not ended.
type underWay struct {
	Request
	cut context.CancelFunc
}

func startProxy(config *rest.Config) (*Proxy, error) {
	target, err := url.Parse(config.Host)
	if err != nil {
		return nil, fmt.Errorf("start a proxy: %w", err)
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, fmt.Errorf("start a proxy: %w", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start a proxy: %w", err)
	}
	p := &Proxy{listener: listener, under: map[*underWay]bool{}}
	forward := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     transport,
		FlushInterval: -1,
		ModifyResponse: func(response *http.Response) error {
			response.Body = &gated{ReadCloser: response.Body, p: p, request: parseRequest(response.Request), done: response.Request.Context().Done()}
			return nil
		},
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	p.server = &http.Server{Handler: p.handle(forward), ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = p.server.Serve(listener) }() // ends with close
	return p, nil
}

func (p *Proxy) handle(forward http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		request := parseRequest(r)
		ctx, cut := context.WithCancel(r.Context())
		defer cut()
		u := &underWay{Request: request, cut: cut}
		p.mu.Lock()
		p.requests = append(p.requests, request)
		refusing, delay, before := p.refusing, p.delay, p.before
		expired := p.expired && request.Verb == "watch" && r.URL.Query().Get("resourceVersion") != ""
		p.under[u] = true
		p.mu.Unlock()
		defer func() {
			p.mu.Lock()
			delete(p.under, u)
			p.mu.Unlock()
		}()
		if refusing {
			panic(http.ErrAbortHandler)
		}
		if delay > 0 {
			select {
			case <-time.After(delay):
			case <-ctx.Done():
			}
		}
		if before != nil {
			before(request)
		}
		if expired {
			sayExpired(w)
			return
		}
		forward.ServeHTTP(w, r.WithContext(ctx))
	})
}

// sayExpired answers a watch as the API server does once it has forgotten the
// version that the watch goes on from. A server that is young has forgotten
// nothing, so it can't be asked for that.
func sayExpired(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintln(w, `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",`+
		`"message":"too old resource version: 1 (2)","reason":"Expired","code":410}}`)
}

// parseRequest reads a path such as /api/v1/namespaces/db/pods/shop-1/status.
func parseRequest(r *http.Request) Request {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case len(parts) > 2 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		parts = parts[3:]
	default:
		return Request{Verb: strings.ToLower(r.Method), Resource: r.URL.Path}
	}
	if parts[0] == "namespaces" && len(parts) > 2 {
		parts = parts[2:]
	}
	q := Request{Resource: parts[0]}
	if len(parts) > 1 {
		q.Name = parts[1]
	}
	if len(parts) > 2 {
		q.Resource += "/" + parts[2]
	}
	switch r.Method {
	case http.MethodGet:
		q.Verb = "get"
		if q.Name == "" {
			q.Verb = "list"
		}
		if r.URL.Query().Get("watch") == "true" || r.URL.Query().Get("watch") == "1" {
			q.Verb = "watch"
		}
	case http.MethodPost:
		q.Verb = "create"
	case http.MethodPut:
		q.Verb = "update"
	default:
		q.Verb = strings.ToLower(r.Method)
	}
	return q
}

// gated holds back what the API server says while the proxy stalls it.
type gated struct {
	io.ReadCloser
	p       *Proxy
	request Request
	done    <-chan struct{}
}

func (g *gated) Read(into []byte) (int, error) {
	n, err := g.ReadCloser.Read(into)
	for {
		g.p.mu.Lock()
		stalled := g.p.stalled != nil && g.p.stalled(g.request)
		flows := g.p.flows
		g.p.mu.Unlock()
		if !stalled {
			return n, err
		}
		select {
		case <-flows:
		case <-g.done:
			return 0, context.Canceled
		}
	}
}

// Mark is where Since begins.
func (p *Proxy) Mark() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.requests)
}

// Since are the requests made after a mark.
func (p *Proxy) Since(mark int) []Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]Request{}, p.requests[mark:]...)
}

// CutWatches breaks the connection of each watch, once.
func (p *Proxy) CutWatches() { p.cut(func(r Request) bool { return r.Verb == "watch" }) }

func (p *Proxy) cut(which func(Request) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for u := range p.under {
		if which(u.Request) {
			u.cut()
		}
	}
}

// Refuse takes the API server away, with every connection to it, or gives it
// back.
func (p *Proxy) Refuse(on bool) {
	p.mu.Lock()
	p.refusing = on
	p.mu.Unlock()
	if on {
		p.cut(func(Request) bool { return true })
	}
}

// Expire lets every watch that goes on from a version meet 410 Gone, until it is
// switched off.
func (p *Proxy) Expire(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expired = on
}

// Delay makes every request wait.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Before runs a function before each request is passed on; nil ends that.
func (p *Proxy) Before(f func(Request)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.before = f
}

// Stall holds back the answers to the requests that it is true of; to watches,
// each further event. So caches are stale, until Flow.
func (p *Proxy) Stall(which func(Request) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stalled, p.flows = which, make(chan struct{})
}

// Flow ends Stall.
func (p *Proxy) Flow() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stalled != nil {
		p.stalled = nil
		close(p.flows)
	}
}

func (p *Proxy) url() string { return "http://" + p.listener.Addr().String() }

// config is an operator's: it knows no credentials, the proxy has them.
func (p *Proxy) config() *rest.Config {
	return &rest.Config{
		Host: p.url(), UserAgent: "postgres-operator/test", QPS: 100, Burst: 200,
		ContentConfig: rest.ContentConfig{
			ContentType:        "application/vnd.kubernetes.protobuf",
			AcceptContentTypes: "application/vnd.kubernetes.protobuf,application/json",
		},
	}
}

func (p *Proxy) close() {
	p.Flow()
	p.cut(func(Request) bool { return true })
	_ = p.server.Close() // the test is over
}

// Count counts the requests that it is true of, by what they ask.
func Count(requests []Request, which func(Request) bool) map[string]int {
	counts := map[string]int{}
	for _, r := range requests {
		if which(r) {
			counts[r.Verb+" "+r.Resource]++
		}
	}
	return counts
}

// Total is the sum of counts.
func Total(counts map[string]int) int {
	sum := 0
	for _, n := range counts {
		sum += n
	}
	return sum
}

// Writes counts the requests that change something.
func Writes(requests []Request) map[string]int { return Count(requests, Request.IsWrite) }

// StartProxy starts a proxy of its own, and returns how to reach the API server
// through it.
func (f *Framework) StartProxy() (*Proxy, *rest.Config) {
	f.T.Helper()
	p, err := startProxy(f.Config)
	if err != nil {
		f.T.Fatal(err)
	}
	f.T.Cleanup(p.close)
	return p, p.config()
}
