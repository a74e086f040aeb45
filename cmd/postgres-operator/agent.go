package main

import (
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/sirupsen/logrus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pgop/postgres-operator/pkg/instance"
	"github.com/pgop/postgres-operator/pkg/postgres"
)

// agentFlags are the flags of every command that runs an agent in a pod.
type agentFlags struct {
	options    instance.Options
	kubeconfig string
	logLevel   string
}

// newAgentFlags are what the pod's environment says.
func newAgentFlags() agentFlags {
	return agentFlags{options: instance.Options{
		Instance:  os.Getenv("POD_NAME"),
		Namespace: os.Getenv("POD_NAMESPACE"),
		PodUID:    os.Getenv("POD_UID"),
		PodIP:     os.Getenv("POD_IP"),
		NodeName:  os.Getenv("NODE_NAME"),
		Port:      postgres.Port,
		Version:   version,
	}}
}

func (f *agentFlags) bind(set *flag.FlagSet) {
	o := &f.options
	set.StringVar(&o.Cluster, "cluster", "", "name of the PostgresCluster")
	set.StringVar(&o.ClusterUID, "cluster-uid", "", "UID of the PostgresCluster; objects that another of the name owns are left alone")
	set.IntVar(&o.Major, "major", 0, "major version that the server must have")
	set.StringVar(&o.Mount, "mount", "/pgdata", "where the data volume is mounted")
	set.StringVar(&o.RunDir, "run-dir", "/run/postgresql", "directory of the server's socket")
	set.StringVar(&f.kubeconfig, "kubeconfig", "", "path of a kubeconfig, to run outside of the cluster; default: the pod's service account")
	set.StringVar(&f.logLevel, "log-level", "info", "debug, info, warning or error")
}

// newAgent makes the process fit for an agent, and the agent; each line of its log bears
// the cluster's name and the field that is given.
func newAgent(f agentFlags, field, value string) (*instance.Agent, *logrus.Entry, error) {
	limitMemory()
	if err := dropLibpqVariables(); err != nil {
		return nil, nil, err
	}
	log, err := newLogger(f.logLevel)
	if err != nil {
		return nil, nil, err
	}
	log = log.WithFields(logrus.Fields{"cluster": f.options.Cluster, field: value})
	config, err := clientConfig(f.kubeconfig)
	if err != nil {
		return nil, nil, err
	}
	kube, err := instance.NewKubernetes(config, f.options.Namespace, f.options.Cluster, types.UID(f.options.ClusterUID))
	if err != nil {
		return nil, nil, err
	}
	agent, err := instance.New(f.options, kube, log, os.Stdout)
	return agent, log, err
}

// dropLibpqVariables removes from the environment what is there for people who
// open a shell in the pod, and would bend the agent's own connections.
func dropLibpqVariables() error {
	for _, variable := range os.Environ() {
		name, _, _ := strings.Cut(variable, "=")
		if !strings.HasPrefix(name, "PG") {
			continue
		}
		if err := os.Unsetenv(name); err != nil {
			return fmt.Errorf("drop environment variable %s: %w", name, err)
		}
	}
	return nil
}
