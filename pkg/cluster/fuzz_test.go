package cluster

import (
	"encoding/json"
	"flag"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
)

var (
	mutationSeed  = flag.Uint64("seed", 0, "seed of the mutations; 0: another one each time")
	mutationCount = flag.Int("mutations", 800, "how many mutated specs to try")
)

// seeds are specs that each take another way through the operator.
var seeds = []string{
	`{"spec": {"postgres": {"version": 17}, "storage": {"size": "1Gi"}}}`,
	`{"spec": {"instances": 2, "postgres": {"version": 15, "image": "reg:5000/pg@sha256:00", "uid": 70}, "storage": {"size": 1073741824, "class": "fast", "retain": "Delete"}}}`,
	`{"spec": {"postgres": {"version": 17, "parameters": {"max_connections": 150, "autovacuum": true, "random_page_cost": 1.1, "a.b": "x"}}, "storage": {"size": "1Gi"}}}`,
	`{"spec": {"postgres": {"version": 17, "parameters": {"Port": 1, "port": null, "jit": [], "bad name": {}, "wal_level": "minimal"}}, "storage": {"size": "1Gi"}}}`,
	`{"spec": {"postgres": {"version": 17, "parameters": {"shared_buffers": "1e300TB", "huge_pages": "on", "max_wal_senders": "0x"}}, "storage": {"size": "1Gi"}, "resources": {"limits": {"memory": "1Mi"}}}}`,
	`{"spec": {"postgres": {"version": 17, "hba": ["host all all all md5", "include x", "\"", "a,\\", "#"]}, "storage": {"size": "1Gi"}}}`,
	`{"spec": {"bootstrap": {"initdb": {"database": "a\"b", "owner": "Ünï", "locale": "", "sql": ["$$;", ""]}}, "postgres": {"version": 17}, "storage": {"size": "-1"}}}`,
	`{"spec": {"instances": -5, "postgres": {}, "storage": {}, "pod": {"labels": {"pgop.dev/cluster": "x"}, "affinity": {}}}}`,
	`{"spec": {}}`, `{}`, `{"spec": null, "status": {"systemID": "1", "volumeSize": "1e400"}}`,
}

// FuzzSpec throws what is no spec, nearly one or a strange one at all that the
// operator does with a spec: decode, default, validate, analyse, report.
func FuzzSpec(f *testing.F) {
	for _, seed := range seeds {
		f.Add([]byte(seed))
	}
	f.Add([]byte(`{"spec": {"instances": 2147483647, "postgres": {"version": 17}, "storage": {"size": "1Gi"}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var o map[string]any
		if utiljson.Unmarshal(text, &o) != nil {
			return // no API server stores it
		}
		live(t, string(text), o)
	})
}

// TestMutatedSpecs is the same for thousands of mutations of valid specs, since
// changes to bytes seldom make JSON.
func TestMutatedSpecs(t *testing.T) {
	pure(t)
	seed := *mutationSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("replay: -seed=%d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	originals := []map[string]any{fullExample(t)}
	for _, text := range seeds {
		var o map[string]any
		if err := utiljson.Unmarshal([]byte(text), &o); err != nil {
			t.Fatal(err)
		}
		originals = append(originals, o)
	}
	decoded := 0
	for n := range *mutationCount {
		var o any = runtime.DeepCopyJSON(originals[n%len(originals)])
		for range 1 + random.IntN(5) {
			o = mutated(random, o)
		}
		mutant, isObject := o.(map[string]any)
		if !isObject {
			continue
		}
		text, err := json.Marshal(mutant)
		if err != nil {
			t.Fatal(err)
		}
		if json.Unmarshal(text, &v1.PostgresCluster{}) == nil {
			decoded++
		}
		live(t, string(text), mutant)
		if t.Failed() {
			t.Fatalf("mutation %d of seed %d", n, seed)
		}
	}
	t.Logf("%d of %d mutations could be decoded and were looked after", decoded, *mutationCount)
}

// mutated is v with one change somewhere in it.
func mutated(random *rand.Rand, v any) any {
	if random.IntN(8) == 0 {
		return anything(random)
	}
	switch v := v.(type) {
	case map[string]any:
		return mutatedObject(random, v)
	case []any:
		if len(v) == 0 || random.IntN(4) == 0 {
			return append(v, anything(random))
		}
		n := random.IntN(len(v))
		if random.IntN(4) == 0 {
			return slices.Delete(v, n, n+1)
		}
		v[n] = mutated(random, v[n])
		return v
	case string:
		return mutatedText(random, v)
	case int64:
		return [...]any{-v, v + 1, v << 20, float64(v) + 0.5, 1e30}[random.IntN(5)]
	case float64:
		return [...]any{-v, v / 3, 1e300, int64(1)}[random.IntN(4)]
	case bool:
		return !v
	}
	return anything(random)
}

func mutatedObject(random *rand.Rand, o map[string]any) any {
	keys := slices.Sorted(maps.Keys(o)) // map order must not decide
	if len(keys) == 0 {
		o[mutatedText(random, "work_mem")] = anything(random)
		return o
	}
	key := keys[random.IntN(len(keys))]
	switch random.IntN(12) {
	case 0:
		delete(o, key)
	case 1:
		o[mutatedText(random, key)] = o[key]
	case 2:
		o[key] = runtime.DeepCopyJSONValue(o[keys[random.IntN(len(keys))]])
	default:
		o[key] = mutated(random, o[key])
	}
	return o
}

func mutatedText(random *rand.Rand, s string) string {
	pieces := []string{"", " ", "\x00", "\n", "'", `"`, `\`, "=", "-", ".", "9", "Ä", "\u2028", ",", "#", "include", strings.Repeat("x", 300)}
	at := random.IntN(len(s) + 1)
	switch piece := pieces[random.IntN(len(pieces))]; random.IntN(4) {
	case 0:
		return strings.ToValidUTF8(s[:at], "")
	case 1:
		return strings.ToUpper(s)
	case 2:
		return piece
	default:
		return strings.ToValidUTF8(s[:at]+piece+s[at:], "")
	}
}

// anything is a value that somebody might write.
func anything(random *rand.Rand) any {
	values := []any{nil, "", "a", "0", "on", "1Gi", "-1Gi", "1e1000", "16GB", int64(0), int64(-1), int64(1) << 40, 1.5, true, false,
		[]any{}, []any{nil}, []any{"host all all all md5"}, map[string]any{}, map[string]any{"": nil}, map[string]any{"port": int64(1)},
		map[string]any{"work_mem": map[string]any{"a": []any{}}}}
	return runtime.DeepCopyJSONValue(values[random.IntN(len(values))])
}
