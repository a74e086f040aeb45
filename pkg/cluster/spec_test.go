package cluster

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"github.com/pgop/postgres-operator/deploy"
	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/internal/apischema"
)

// fullExample is the example, with every optional block that it leaves out.
func fullExample(t *testing.T) map[string]any {
	t.Helper()
	text, err := os.ReadFile("../../example/postgrescluster.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text, err = yaml.YAMLToJSON(text)
	if err != nil {
		t.Fatal(err)
	}
	var o map[string]any
	if err := utiljson.Unmarshal(text, &o); err != nil {
		t.Fatal(err)
	}
	spec := o["spec"].(map[string]any)
	spec["postgres"].(map[string]any)["hba"] = []any{"hostssl all all all md5"}
	spec["postgres"].(map[string]any)["image"] = "postgres:17"
	spec["postgres"].(map[string]any)["uid"] = int64(70)
	spec["storage"].(map[string]any)["class"] = "fast"
	spec["storage"].(map[string]any)["retain"] = "Delete"
	spec["replication"] = map[string]any{"mode": "sync", "need": int64(1), "durability": "preferred"}
	spec["failover"] = map[string]any{"leaseDuration": "12s", "restartTimeout": "20s", "unresponsiveTimeout": "1m", "maxLag": "64Mi"}
	spec["bootstrap"] = map[string]any{"initdb": map[string]any{
		"database": "shop", "owner": "shop", "locale": "C", "encoding": "UTF8", "dataChecksums": true, "sql": []any{"SELECT 1"},
	}}
	spec["pod"] = map[string]any{
		"labels": map[string]any{"a": "b"}, "annotations": map[string]any{"a": "b"}, "affinity": map[string]any{"nodeAffinity": map[string]any{}},
		"nodeSelector": map[string]any{"a": "b"}, "tolerations": []any{map[string]any{"key": "a"}}, "priorityClassName": "high",
		"topologySpreadConstraints": []any{map[string]any{"maxSkew": int64(1), "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}},
		"imagePullSecrets":          []any{map[string]any{"name": "login"}},
		"env":                       []any{map[string]any{"name": "A", "value": "b"}},
		"sidecars": []any{map[string]any{
			"name": "exporter", "image": "exporter:1", "imagePullPolicy": "Always", "command": []any{"a"}, "args": []any{"b"},
			"env": []any{map[string]any{"name": "PGUSER", "value": "x"}}, "envFrom": []any{map[string]any{"secretRef": map[string]any{"name": "s"}}},
			"ports": []any{map[string]any{"containerPort": int64(9187)}}, "resources": map[string]any{"limits": map[string]any{"cpu": int64(1)}},
			"livenessProbe": map[string]any{"httpGet": map[string]any{"port": int64(9187)}}, "securityContext": map[string]any{"runAsUser": int64(1)},
			"volumeMounts": []any{map[string]any{"name": "run", "mountPath": "/run/postgresql"}},
		}},
	}
	spec["paused"] = true
	return o
}

// each block that can be left out is taken away, null or empty in turn.
// What the API server accepts is a cluster like any other, and what it refuses
// must not hurt either: an operator may meet it with an older schema.
func TestOptionalBlocksCanBeLeftOut(t *testing.T) {
	pure(t)
	s, err := apischema.New(deploy.PostgresClusterCRD)
	if err != nil {
		t.Fatal(err)
	}
	full := fullExample(t)
	if unknown := s.Unknown(full); len(unknown) > 0 {
		t.Fatalf("unknown fields %v", unknown)
	}
	accepted := 0
	for _, path := range pathsOf(full["spec"].(map[string]any), []string{"spec"}) {
		for how, value := range map[string]any{"missing": nil, "null": nil, "{}": map[string]any{}, "[]": []any{}, `""`: ""} {
			o := runtime.DeepCopyJSON(full)
			parent := o
			for _, key := range path[:len(path)-1] {
				parent = parent[key].(map[string]any)
			}
			if parent[path[len(path)-1]] = value; how == "missing" {
				delete(parent, path[len(path)-1])
			}
			stored, err := s.Create(o)
			if err != nil {
				live(t, fmt.Sprintf("%v %s, past the schema", path, how), o)
				continue
			}
			accepted++
			live(t, fmt.Sprintf("%v %s", path, how), stored)
		}
	}
	t.Logf("%d of the changed manifests are accepted", accepted)
}

// pathsOf are the paths of everything below o.
func pathsOf(o map[string]any, path []string) [][]string {
	var paths [][]string
	for _, key := range slices.Sorted(maps.Keys(o)) {
		here := append(slices.Clone(path), key)
		paths = append(paths, here)
		if inner, ok := o[key].(map[string]any); ok {
			paths = append(paths, pathsOf(inner, here)...)
		}
	}
	return paths
}

// live lets the operator look after what an API server holds: at creation, and
// in place of a settled cluster. It says no more of it than that nothing panics
// and the status is sound.
func live(t rapid.TB, why string, stored map[string]any) {
	t.Helper()
	text, err := json.Marshal(stored)
	if err != nil {
		t.Fatal(err)
	}
	var c v1.PostgresCluster
	if err := json.Unmarshal(text, &c); err != nil {
		return // the schema keeps such objects away; that it does, is tested with it
	}
	defer func() {
		if r := recover(); r != nil {
			t.Errorf("%s: panic: %v", why, r)
		}
	}()
	for _, w := range []*world{newWorld(1), settledWorld(3)} {
		w.edit(func(s *v1.PostgresClusterSpec) { *s = c.Spec })
		w.catchUp(allKinds...)
		w.pass()
		if w.cluster.Status.Phase == "" {
			t.Errorf("%s: no phase", why)
		}
	}
}
