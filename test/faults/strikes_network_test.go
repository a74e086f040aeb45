//go:build e2e

package faults

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/pgop/postgres-operator/test/e2e/framework"
	"github.com/pgop/postgres-operator/test/faults/history"
)

func cutPrimarysNode(ctx context.Context, r *round) (proof, error) { return r.cutNode(ctx, r.primary) }
func cutStandbysNode(ctx context.Context, r *round) (proof, error) { return r.cutNode(ctx, r.spare()) }

// cutNode pulls the cable of the target's node.
func (r *round) cutNode(ctx context.Context, t target) (proof, error) {
	r.onHeal("plug in "+t.node, localUndo("node", "heal", t.node))
	if _, err := framework.RunLocal(ctx, "node", "cut", t.node); err != nil {
		return nil, err
	}
	if t.instance == r.primary.instance {
		r.isolatedAt = history.Now()
	}
	return func(ctx context.Context) (string, error) {
		link := "/sys/class/net/pgop-n" + strings.TrimPrefix(t.node, "node-") + "/operstate"
		state, err := os.ReadFile(link)
		if err != nil {
			return "", err
		}
		if err := framework.Want("the node's link", strings.TrimSpace(string(state)), "down"); err != nil {
			return "", err
		}
		return fmt.Sprintf("the link of %s is down, its pod %s answers nobody", t.node, t.instance), unreachable(ctx, t.address+":5432")
	}, nil
}

// pauseNode lets every process of the primary's node stand still.
func pauseNode(ctx context.Context, r *round) (proof, error) {
	kubelet, err := kubelet(r.primary.node) // the agent may have gone by another fault
	if err != nil {
		return nil, err
	}
	r.onHeal("resume "+r.primary.node, localUndo("node", "resume", r.primary.node))
	if _, err := framework.RunLocal(ctx, "node", "pause", r.primary.node); err != nil {
		return nil, err
	}
	return func(context.Context) (string, error) {
		return fmt.Sprintf("the kubelet, process %d, is frozen, and its node with it", kubelet.pid), kubelet.frozen()
	}, nil
}

// cutFromAPI drops all packets between the primary's node and the API server.
func cutFromAPI(ctx context.Context, r *round) (proof, error) {
	r.onHeal("heal the way to the API server", localUndo("heal-partition", r.primary.node, "apiserver"))
	if _, err := framework.RunLocal(ctx, "partition", r.primary.node, "apiserver"); err != nil {
		return nil, err
	}
	const missed = 5 * time.Second
	return func(context.Context) (string, error) {
		if since := r.lease.unchanged(); since < missed && r.lease.holder() == r.primary.instance {
			return "", fmt.Errorf("the Lease was renewed %v ago", since)
		}
		return fmt.Sprintf("two renewals of the Lease are missing: none for %v", missed), nil
	}, nil
}

// podPartition is a table of the packet filter; the beginning of its name makes
// `localcluster heal-partition` take it away.
const podPartition = "partition-faults"

var counted = regexp.MustCompile(`counter packets (\d+)`)

// partitionFromStandbys drops what the primary's pod and those of the standbys
// send to each other, and nothing else.
func partitionFromStandbys(ctx context.Context, r *round) (proof, error) {
	nft := func(ctx context.Context, commands string) (string, error) {
		return framework.RunLocal(ctx, "node", "exec", r.primary.node, "nft", commands)
	}
	r.onHeal("heal the partition", func(ctx context.Context) error {
		_, err := nft(ctx, fmt.Sprintf("add table ip %[1]s; delete table ip %[1]s", podPartition))
		return err
	})
	standbys := fmt.Sprintf("{ %s, %s }", r.standbys[0].address, r.standbys[1].address)
	_, err := nft(ctx, fmt.Sprintf("add table ip %[1]s; add chain ip %[1]s forward { type filter hook forward priority -10; }; "+
		"add rule ip %[1]s forward ip saddr %[2]s ip daddr %[3]s counter drop; "+
		"add rule ip %[1]s forward ip saddr %[3]s ip daddr %[2]s counter drop", podPartition, r.primary.address, standbys))
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (string, error) {
		rules, err := nft(ctx, "list table ip "+podPartition)
		if err != nil {
			return "", err
		}
		counters := counted.FindAllStringSubmatch(rules, -1)
		if len(counters) != 2 || counters[0][1] == "0" && counters[1][1] == "0" {
			return "", fmt.Errorf("no packet has met the rules yet: %s", rules)
		}
		return fmt.Sprintf("packets dropped: %s from the primary, %s to it", counters[0][1], counters[1][1]), nil
	}, nil
}

// stopAPIServer stops it for everybody, the suite too.
func stopAPIServer(ctx context.Context, r *round) (proof, error) {
	api, err := url.Parse(r.f.Config.Host)
	if err != nil {
		return nil, err
	}
	r.onHeal("start the API server", localUndo("apiserver", "start"))
	if _, err := framework.RunLocal(ctx, "apiserver", "stop"); err != nil {
		return nil, err
	}
	return func(ctx context.Context) (string, error) {
		return "nobody listens at " + api.Host, unreachable(ctx, api.Host)
	}, nil
}

func stopDNS(ctx context.Context, r *round) (proof, error) {
	r.onHeal("start DNS", localUndo("dns", "start"))
	if _, err := framework.RunLocal(ctx, "dns", "stop"); err != nil {
		return nil, err
	}
	return func(ctx context.Context) (string, error) {
		const ready = "http://10.171.0.10:8181/ready" // of test/localcluster
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, ready, nil)
		if err != nil {
			return "", err
		}
		response, err := http.DefaultClient.Do(request)
		if err == nil {
			response.Body.Close()
			return "", errors.New("it answers")
		}
		return "the server does not answer", nil
	}, nil
}

// unreachable looks whether nobody answers at the address.
func unreachable(ctx context.Context, address string) error {
	conn, err := (&net.Dialer{Timeout: 500 * time.Millisecond}).DialContext(ctx, "tcp", address)
	if err == nil {
		conn.Close()
		return fmt.Errorf("%s can be reached", address)
	}
	return ctx.Err()
}
