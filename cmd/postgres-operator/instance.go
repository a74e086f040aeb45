package main

import (
	"context"
	"errors"
	"flag"
	"os"
	"time"
)

func parseInstanceFlags(args []string) (agentFlags, error) {
	f := newAgentFlags()
	o := &f.options
	o.BackupMounts = []string{"/pgop/backups", "/pgop/restore"} // as pkg/specs mounts them
	set := flag.NewFlagSet("instance", flag.ContinueOnError)
	f.bind(set)
	set.StringVar(&o.WALMount, "wal-mount", "", "where the WAL volume is mounted; empty: WAL lies in the data directory")
	set.StringVar(&o.TLSDir, "tls-dir", "/pgop/tls", "directory of ca.crt, tls.crt, tls.key, replication.crt and replication.key")
	set.StringVar(&o.APIListen, "api-listen", ":8443", "address of the API")
	set.StringVar(&o.ProbeListen, "probe-listen", ":8080", "address of /healthz and /readyz")
	const mostOfTheGracePeriod = 45 * time.Second
	set.DurationVar(&o.StopTimeout, "stop-timeout", mostOfTheGracePeriod, "how long stopping the server in order may take")
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
	agent, log, err := newAgent(f, "instance", f.options.Instance)
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
