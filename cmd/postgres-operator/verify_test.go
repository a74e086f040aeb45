package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/specs"
)

// The subcommand takes what the operator gives it.
func TestVerifyTakesTheFlagsOfItsPod(t *testing.T) {
	c := v1.WithDefaults(&v1.PostgresCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "shop", Namespace: "db", UID: "uid"},
		Spec:       v1.PostgresClusterSpec{Postgres: v1.PostgresSpec{Version: 17}},
	})
	command := specs.VerifyPod(c, "20261127T030000Z-full-abc123", "nightly", "operator").Spec.Containers[0].Command
	if command[1] != "verify" {
		t.Fatalf("it runs %v", command)
	}
	f, err := parseVerifyFlags(command[2:])
	if err != nil {
		t.Fatal(err)
	}
	if o := f.options; f.backup != "20261127T030000Z-full-abc123" || o.Cluster != "shop" || o.ClusterUID != "uid" || o.Major != 17 || !o.Alone {
		t.Errorf("it reads %+v", f)
	}
	if _, err := parseVerifyFlags(nil); err == nil {
		t.Error("no backup: accepted")
	}
}

// The kubelet cuts a termination message at 4096 bytes, and half of JSON is none.
func TestResultOfAProofFitsTheTerminationMessage(t *testing.T) {
	until := time.Date(2026, 11, 29, 4, 59, 58, 0, time.UTC)
	for why, proof := range map[string]instanceapi.Proof{
		"proved": {Until: until}, "failed": {Failed: "part-00001 is damaged"},
		"many words": {Failed: strings.Repeat("ä\n\x01", 5000)},
	} {
		path := filepath.Join(t.TempDir(), "result")
		if err := writeProof(path, proof); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var got instanceapi.Proof
		if err := json.Unmarshal(text, &got); err != nil || len(text) > 4096 {
			t.Fatalf("%s: %d bytes: %v", why, len(text), err)
		}
		if why != "many words" {
			if diff := cmp.Diff(proof, got); diff != "" {
				t.Errorf("%s: %s", why, diff)
			}
		} else if !strings.HasPrefix(got.Failed, "ä\n\x01ä") {
			t.Errorf("%s: it says %.20q", why, got.Failed)
		}
	}
}
