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

	"github.com/pgop/postgres-operator/pkg/instanceapi"
)

// verifyFlags are the flags of `verify`.
type verifyFlags struct {
	agentFlags
	backup string
	result string
}

func parseVerifyFlags(args []string) (verifyFlags, error) {
	f := verifyFlags{agentFlags: newAgentFlags()}
	f.options.Alone = true
	f.options.BackupMounts = []string{"/pgop/backups"} // as pkg/specs mounts it
	set := flag.NewFlagSet("verify", flag.ContinueOnError)
	f.bind(set)
	set.StringVar(&f.backup, "backup", "", "id of the backup in the store")
	set.StringVar(&f.result, "result", "/dev/termination-log", "file to which the result is written, as JSON")
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
	agent, log, err := newAgent(f.agentFlags, "backup", f.backup)
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
