// Command dns is CoreDNS with no more plugins than a cluster's DNS needs, so
// that it builds in seconds.
package main

import (
	"slices"

	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"
)

// directives are the plugins above, in CoreDNS's own order of execution.
var directives = []string{"bind", "ready", "errors", "cache", "kubernetes"}

func main() {
	dnsserver.Directives = slices.DeleteFunc(dnsserver.Directives, func(name string) bool {
		return !slices.Contains(directives, name)
	})
	coremain.Run()
}
