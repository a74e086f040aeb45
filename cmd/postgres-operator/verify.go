package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pgop/postgres-operator/pkg/instance"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/postgres"
)

// verifyFlags are the flags of `verify`.
type verifyFlags struct {
	options    instance.Options
	backup     string
	result     string
	kubeconfig string
	logLevel   string
}

func parseVerifyFlags(args []string) (verifyFlags, error) {
	f := verifyFlags{options: instance.Options{
		Instance:     os.Getenv("POD_NAME"),
		Namespace:    os.Getenv("POD_NAMESPACE"),
		PodUID:       os.Getenv("POD_UID"),
		Port:         postgres.Port,
		Version:      version,
		Alone:        true,
		BackupMounts: []string{"/pgop/backups"}, // as pkg/specs mounts it
	}}
	o := &f.options
	set := flag.NewFlagSet("verify", flag.ContinueOnError)
	set.StringVar(&o.Cluster, "cluster", "", "name of the PostgresCluster")
	set.StringVar(&o.ClusterUID, "cluster-uid", "", "UID of the PostgresCluster; objects that another of the name owns are left alone")
	set.IntVar(&o.Major, "major", 0, "major version that the server must have")
	set.StringVar(&o.Mount, "mount", "/pgdata", "where the volume for the restored data is mounted")
	set.StringVar(&o.RunDir, "run-dir", "/run/postgresql", "directory of the server's socket")
	set.StringVar(&f.backup, "backup", "", "id of the backup in the store")
	set.StringVar(&f.result, "result", "/dev/termination-log", "file to which the result is written, as JSON")
	set.StringVar(&f.kubeconfig, "kubeconfig", "", "path of a kubeconfig, to run outside of the cluster; default: the pod's service account")
	set.StringVar(&f.logLevel, "log-level", "info", "debug, info, warning or error")
	err := parseFlags(set, args)
	if err == nil && f.backup == "" {
		err = errors.New("verify: --backup is not set")
	}
	return f, err
}

// runVerify proves a backup. It succeeds when it has written a result, whatever that
// says.
func runVerify(ctx context.Context, args []string) error {
	f, err := parseVerifyFlags(args)
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
	log = log.WithFields(logrus.Fields{"cluster": f.options.Cluster, "backup": f.backup})
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
	proof, err := agent.Prove(ctx, f.backup)
	if err != nil {
		return err
	}
	if proof.Failed != "" {
		log.WithField("message", proof.Failed).Error("the backup is not proved")
	} else {
		log.WithField("until", proof.Until.UTC().Format(time.RFC3339)).Info("the backup is proved")
	}
	return writeProof(f.result, proof)
}

// writeProof writes the result where the kubelet reads the container's termination
// message, of which it keeps 4096 bytes.
func writeProof(path string, proof instanceapi.Proof) error {
	const most = 4096
	text, err := json.Marshal(proof)
	for err == nil && len(text) > most { // JSON may need many bytes for one
		proof.Failed = strings.ToValidUTF8(proof.Failed[:len(proof.Failed)*3/4], "")
		text, err = json.Marshal(proof)
	}
	if err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	return nil
}
