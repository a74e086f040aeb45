package main

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"
)

func testNode(ordinal int) node {
	return node{cluster: &cluster{name: "test", state: "/state", cache: "/cache", apiIP: hostIP, apiPort: 6443, etcdPort: 23790}, ordinal: ordinal}
}

func TestNodesDifferInEverythingOfTheMachine(t *testing.T) {
	a, b := testNode(1), testNode(2)
	for name, pair := range map[string][2]string{
		"name":    {a.name(), b.name()},
		"ip":      {a.ip(), b.ip()},
		"pods":    {a.podCIDR(), b.podCIDR()},
		"netns":   {a.netns(), b.netns()},
		"link":    {a.link(), b.link()},
		"cgroup":  {a.cgroup(), b.cgroup()},
		"dir":     {a.dir(), b.dir()},
		"kubelet": {kubeletConfig(a), kubeletConfig(b)},
		"cni":     {cniConfig(a), cniConfig(b)},
	} {
		if pair[0] == pair[1] {
			t.Errorf("%s: both nodes have %s", name, pair[0])
		}
	}
}

func TestLinkNamesFitTheKernel(t *testing.T) {
	for _, n := range testNode(1).cluster.nodes(maxNodes) {
		if len(n.link()) > 15 {
			t.Errorf("link %s has more than 15 characters", n.link())
		}
	}
}

func TestConfigsAreWellFormed(t *testing.T) {
	n := testNode(3)
	var cni map[string]any
	if err := json.Unmarshal([]byte(cniConfig(n)), &cni); err != nil {
		t.Errorf("CNI configuration: %v", err)
	}
	for name, text := range map[string]string{
		"containerd": containerdConfig(n, true), "kubelet": kubeletConfig(n), "kube-proxy": kubeProxyConfig(n),
		"Corefile": corefile(n.cluster), "hostLinks": hostLinks([]node{n}), "nodeLinks": nodeLinks(n, nil),
	} {
		if strings.Contains(text, "%!") {
			t.Errorf("%s has a formatting error:\n%s", name, text)
		}
	}
}

func TestNodeLinksRouteToOtherNodesOnly(t *testing.T) {
	nodes := testNode(1).cluster.nodes(3)
	got := nodeLinks(nodes[1], nodes)
	want := `link set lo up
addr add 10.171.0.12/24 dev eth0
link set eth0 up
route add default via 10.171.0.1
route add 10.172.1.0/24 via 10.171.0.11
route add 10.172.3.0/24 via 10.171.0.13
`
	if got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestPeers(t *testing.T) {
	c := testNode(1).cluster
	n := c.nodes(3)[1]
	tests := map[string]struct {
		name string
		want peer
		ok   bool
	}{
		"a node is its address and its pods": {"node-2", peer{name: "node-2", node: &n,
			from: "ip saddr { 10.171.0.12, 10.172.2.0/24 }", to: "ip daddr { 10.171.0.12, 10.172.2.0/24 }"}, true},
		"the API server is one port": {"apiserver", peer{name: "apiserver",
			from: "ip saddr 10.171.0.1 tcp sport 6443", to: "ip daddr 10.171.0.1 tcp dport 6443"}, true},
		"a node that the cluster lacks": {"node-4", peer{}, false},
		"no node's name":                {"other", peer{}, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := c.peer(test.name, 3)
			if (err == nil) != test.ok || !reflect.DeepEqual(got, test.want) {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}

func TestMisfit(t *testing.T) {
	c := &cluster{apiOnly: true} // no network to look for
	whole := record{Nodes: 3, Boot: "today", Fingerprint: "f", Archives: "a", Complete: true}
	with := func(change func(*record)) record {
		r := whole
		change(&r)
		return r
	}
	tests := map[string]struct {
		have record
		want string
	}{
		"nothing has changed":       {whole, ""},
		"images are loaded":         {with(func(r *record) { r.Archives = "b" }), ""},
		"the provisioner restarts":  {with(func(r *record) { r.Programs.Provisioner = "other" }), ""},
		"there is none":             {record{}, "it was left unfinished"},
		"up was killed":             {with(func(r *record) { r.Complete = false }), "it was left unfinished"},
		"etcd did not sync to disk": {with(func(r *record) { r.Boot = "yesterday" }), "the machine was started anew"},
		"other nodes":               {with(func(r *record) { r.Nodes = 5 }), "it has 5 nodes"},
		"other configuration":       {with(func(r *record) { r.Fingerprint = "g" }), "its programs or their configuration have changed"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := c.misfit(test.have, whole, nil); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestParsePartitionTables(t *testing.T) {
	got := parsePartitionTables("table ip kube-proxy\ntable ip partition-node-3\ntable ip partition-apiserver\n")
	if want := []string{"partition-apiserver", "partition-node-3"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestParseStartTime(t *testing.T) {
	tail := " 1 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 99 98\n"
	tests := map[string]struct{ stat, want string }{
		"a name with blanks and parentheses": {"17 (a) b (c)) S" + tail, "4711"},
		"a zombie is dead":                   {"17 (a) Z" + tail, ""},
		"nonsense":                           {"17", ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := parseStartTime([]byte(test.stat)); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestParseCapabilities(t *testing.T) {
	caps, ok := parseCapabilities("Name:\tx\nCapEff:\t000001fffeffffff\nCapBnd:\t000001ffffffffff\n")
	if !ok || caps != 0x1fffeffffff || caps&(1<<capSysResource) != 0 {
		t.Errorf("got %x, %t", caps, ok)
	}
	if _, ok := parseCapabilities("Name:\tx\n"); ok {
		t.Error("found capabilities where there are none")
	}
}

func TestMissingPackages(t *testing.T) {
	tools := []tool{{"a", "pkg-1"}, {"b", "pkg-2"}, {"c", "pkg-2"}}
	got := missingPackages(tools, func(program string) bool { return program == "a" })
	if want := []string{"pkg-2"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestNotReady(t *testing.T) {
	var list nodeList
	err := json.Unmarshal([]byte(`{"items":[
		{"metadata":{"name":"node-1"},"status":{"conditions":[{"type":"MemoryPressure","status":"False"},
			{"type":"Ready","status":"True","lastHeartbeatTime":"2026-01-01T10:00:00Z"}]}},
		{"metadata":{"name":"node-2"},"status":{"conditions":[{"type":"Ready","status":"False","message":"no network"}]}},
		{"metadata":{"name":"stranger"},"status":{"conditions":[{"type":"Ready","status":"False"}]}}]}`), &list)
	if err != nil {
		t.Fatal(err)
	}
	heartbeat := time.Date(2026, 1, 1, 10, 0, 0, 0, time.UTC)
	tests := map[string]struct {
		started map[string]time.Time
		want    map[string]string
	}{
		"running for long":                   {nil, map[string]string{"node-2": "no network", "node-3": "not registered"}},
		"started within the report's second": {map[string]time.Time{"node-1": heartbeat.Add(time.Millisecond)}, map[string]string{"node-2": "no network", "node-3": "not registered"}},
		"started after the last report": {map[string]time.Time{"node-1": heartbeat.Add(time.Second)},
			map[string]string{"node-1": "kubelet has not reported yet", "node-2": "no network", "node-3": "not registered"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := list.notReady(testNode(1).cluster.nodes(3), test.started); !reflect.DeepEqual(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}
