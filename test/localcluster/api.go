package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

// object is something to apply: its path in the API, and its YAML.
type object struct {
	path, yaml string
}

// apiClient speaks to the API server as the administrator.
type apiClient struct {
	url  string
	http *http.Client
}

func newAPIClient(c *cluster) (*apiClient, error) {
	ca, err := os.ReadFile(c.path("pki", "ca.crt"))
	if err != nil {
		return nil, fmt.Errorf("connect to API server: %w", err)
	}
	pair, err := tls.LoadX509KeyPair(c.path("pki", "admin.crt"), c.path("pki", "admin.key"))
	if err != nil {
		return nil, fmt.Errorf("connect to API server: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	return &apiClient{
		url: c.apiURL(),
		http: &http.Client{
			Timeout: 10 * time.Second,
			Transport: &http.Transport{
				TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}},
			},
		},
	}, nil
}

// apply makes o exist as it is written.
func (a *apiClient) apply(ctx context.Context, o object) error {
	_, err := a.do(ctx, http.MethodPatch, o.path+"?fieldManager=localcluster&force=true", "application/apply-patch+yaml", []byte(o.yaml))
	if err != nil {
		return fmt.Errorf("apply %s: %w", o.path, err)
	}
	return nil
}

func (a *apiClient) get(ctx context.Context, path string, into any) error {
	body, err := a.do(ctx, http.MethodGet, path, "", nil)
	if err != nil {
		return fmt.Errorf("get %s: %w", path, err)
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("get %s: %w", path, err)
	}
	return nil
}

// ready says why the API server does not serve yet.
func (a *apiClient) ready(ctx context.Context) error {
	_, err := a.do(ctx, http.MethodGet, "/readyz", "", nil)
	return err
}

func (a *apiClient) do(ctx context.Context, method, path, contentType string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, a.url+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	req.Header.Set("User-Agent", "localcluster")
	resp, err := a.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusNotFound {
		return nil, errNotFound
	}
	if resp.StatusCode/100 != 2 {
		return nil, fmt.Errorf("%s: %s", resp.Status, bytes.TrimSpace(answer))
	}
	return answer, nil
}

var errNotFound = errors.New("not found")

// nodeList is what is of interest of a NodeList.
type nodeList struct {
	Items []struct {
		Metadata struct{ Name string }
		Status   struct {
			Conditions []nodeCondition
		}
	}
}

type nodeCondition struct {
	Type, Status, Message string
	LastHeartbeatTime     time.Time
}

// notReady returns why each of nodes that is not ready is not. What a node's
// kubelet said before the node was started is no answer; started has the nodes
// for which that matters.
func (l nodeList) notReady(nodes []node, started map[string]time.Time) map[string]string {
	reasons := map[string]string{}
	for _, n := range nodes {
		reasons[n.name()] = "not registered"
	}
	for _, item := range l.Items {
		name := item.Metadata.Name
		for _, condition := range item.Status.Conditions {
			if _, ours := reasons[name]; !ours || condition.Type != "Ready" {
				continue
			}
			switch {
			case condition.LastHeartbeatTime.Before(started[name].Truncate(time.Second)):
				reasons[name] = "kubelet has not reported yet"
			case condition.Status == "True":
				delete(reasons, name)
			default:
				reasons[name] = condition.Message
			}
		}
	}
	return reasons
}

// dnsLimit is how long the DNS server may take to serve.
const dnsLimit = time.Minute

// dnsReady says why the cluster's DNS does not serve yet.
func dnsReady(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+dnsIP+":8181/ready", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return nil
}
