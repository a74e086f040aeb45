package instanceapi

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"time"
)

const (
	// OperatorName is the common name of the client certificate to which agents
	// answer.
	OperatorName = "operator"
	// Port is where agents serve their API.
	Port = 8443

	dialTimeout = time.Second
	// largestAnswer is more than any State, and than a Catalog of ten thousand
	// backups; what is longer is none.
	largestAnswer = 8 << 20
)

// Client asks agents for their state.
type Client struct {
	http *http.Client
}

// NewClient returns a client with the given certificate and CA. The config's
// ServerName must be a name that the certificates of all agents asked carry,
// since they are asked by address.
func NewClient(config *tls.Config) *Client {
	dialer := &net.Dialer{Timeout: dialTimeout}
	return &Client{http: &http.Client{
		Transport: &http.Transport{
			DialContext:         dialer.DialContext,
			TLSClientConfig:     config,
			TLSHandshakeTimeout: dialTimeout,
			MaxIdleConnsPerHost: 1,
			IdleConnTimeout:     time.Minute,
		},
		// An agent has no reason to send anyone elsewhere.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// State asks the agent at address, host:port. How long it may take is up to
// ctx; a request that is given up takes its connection with it.
func (c *Client) State(ctx context.Context, address string) (State, error) {
	var state State
	return state, c.ask(ctx, http.MethodGet, address, StatePath, nil, &state)
}

// Close closes connections that are not in use, such as those to an
// instance that is gone.
func (c *Client) Close() { c.http.CloseIdleConnections() }
