// Command kube is every Kubernetes program that a local cluster runs, in one
// file: linking them together takes a fraction of the time and the disk that
// seven programs would. The program to run is named by argv[0], as through a
// symlink, or else by the first argument.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	_ "time/tzdata" // for timeZone in CronJobs

	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	_ "k8s.io/component-base/logs/json/register"          // JSON log format
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client metrics
	_ "k8s.io/component-base/metrics/prometheus/version"  // version metric
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// programs run until they are done; each exits or returns the exit code. They
// read os.Args themselves.
var programs = map[string]func() int{
	"etcd": func() int {
		etcdmain.Main(os.Args)
		return 0
	},
	"kube-apiserver":          func() int { return cli.Run(apiserver.NewAPIServerCommand()) },
	"kube-controller-manager": func() int { return cli.Run(controllermanager.NewControllerManagerCommand()) },
	"kube-scheduler":          func() int { return cli.Run(scheduler.NewSchedulerCommand()) },
	"kube-proxy":              func() int { return cli.Run(proxy.NewProxyCommand()) },
	"kubectl":                 kubectl,
	"kubelet":                 func() int { return cli.Run(kubelet.NewKubeletCommand(context.Background())) },
}

func main() {
	name := filepath.Base(os.Args[0])
	if programs[name] == nil && len(os.Args) > 1 {
		os.Args = os.Args[1:]
		name = os.Args[0]
	}
	run := programs[name]
	if run == nil {
		fmt.Fprintf(os.Stderr, "kube: no program %q; there are: %s\n", name, strings.Join(names(), ", "))
		os.Exit(2)
	}
	os.Exit(run())
}

func kubectl() int {
	// kubectl's own main sets the verbosity by hand too: building the command
	// logs already, before any flag is parsed.
	_, _ = logs.GlogSetter(cmd.GetLogVerbosity(os.Args)) // "" at worst
	if err := cli.RunNoErrOutput(cmd.NewDefaultKubectlCommand()); err != nil {
		util.CheckErr(err) // prints and exits
	}
	return 0
}

func names() []string {
	var all []string
	for name := range programs {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}
