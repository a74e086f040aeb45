package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pgop/postgres-operator/pkg/instance"
	"github.com/pgop/postgres-operator/pkg/postgres"
)

// instanceFlags are the flags of `instance`.
type instanceFlags struct {
	options    instance.Options
	kubeconfig string
	logLevel   string
}

func parseInstanceFlags(args []string) (instanceFlags, error) {
	f := instanceFlags{options: instance.Options{
		Instance:  os.Getenv("POD_NAME"),
		Namespace: os.Getenv("POD_NAMESPACE"),
		PodUID:    os.Getenv("POD_UID"),
		PodIP:     os.Getenv("POD_IP"),
		NodeName:  os.Getenv("NODE_NAME"),
		Port:      postgres.Port,
		Version:   version,
		// As pkg/specs mounts them.
		BackupMounts: []string{"/pgop/backups", "/pgop/restore"},
	}}
	o := &f.options
	set := flag.NewFlagSet("instance", flag.ContinueOnError)
	set.StringVar(&o.Cluster, "cluster", "", "name of the PostgresCluster")
	set.StringVar(&o.ClusterUID, "cluster-uid", "", "UID of the PostgresCluster; objects that another of the name owns are left alone")
	set.IntVar(&o.Major, "major", 0, "major version that the server must have")
	set.StringVar(&o.Mount, "mount", "/pgdata", "where the data volume is mounted")
	set.StringVar(&o.WALMount, "wal-mount", "", "where the WAL volume is mounted; empty: WAL lies in the data directory")
	set.StringVar(&o.RunDir, "run-dir", "/run/postgresql", "directory of the server's socket")
	set.StringVar(&o.TLSDir, "tls-dir", "/pgop/tls", "directory of ca.crt, tls.crt, tls.key, replication.crt and replication.key")
	set.StringVar(&o.APIListen, "api-listen", ":8443", "address of the API")
	set.StringVar(&o.ProbeListen, "probe-listen", ":8080", "address of /healthz and /readyz")
	const mostOfTheGracePeriod = 45 * time.Second
	set.DurationVar(&o.StopTimeout, "stop-timeout", mostOfTheGracePeriod, "how long stopping the server in order may take")
	set.StringVar(&f.kubeconfig, "kubeconfig", "", "path of a kubeconfig, to run outside of the cluster; default: the pod's service account")
	set.StringVar(&f.logLevel, "log-level", "info", "debug, info, warning or error")
	return f, parseFlags(set, args)
}

func runInstance(ctx context.Context, args []string) error {
	f, err := parseInstanceFlags(args)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	limitMemory()
	if err := dropLibpqVariables(); err != nil {
		return err
	}
	log, err := newLogger(f.logLevel)
	if err != nil {
		return err
	}
	log = log.WithFields(logrus.Fields{"cluster": f.options.Cluster, "instance": f.options.Instance})
	config, err := clientConfig(f.kubeconfig)
	if err != nil {
		return err
	}
	kube, err := instance.NewKubernetes(config, f.options.Namespace, f.options.Cluster, types.UID(f.options.ClusterUID))
	if err != nil {
		return err
	}
	agent, err := instance.New(f.options, kube, log, os.Stdout)
	if err != nil {
		return err
	}
	if os.Getpid() == 1 { // else the directory is not this container's alone
		if err := clearShared("/dev/shm"); err != nil {
			log.WithError(err).Warn("shared memory that was left is in use still")
		}
	}
	go dropProgramPages(ctx, log)
	log.WithField("version", version).Info("agent starts")
	return agent.Run(ctx)
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
