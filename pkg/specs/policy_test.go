package specs

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"github.com/pgop/postgres-operator/deploy"
	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/internal/apischema"
	"github.com/pgop/postgres-operator/pkg/postgres"
)

func loadPolicy(t testing.TB) *apischema.Policy {
	t.Helper()
	p, err := apischema.NewPolicy(deploy.PostgresClusterPolicy)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// manifest is a PostgresCluster with that spec.postgres beside its version.
func manifest(t rapid.TB, server map[string]any) map[string]any {
	t.Helper()
	server["version"] = int64(17)
	return map[string]any{
		"apiVersion": "pgop.dev/v1", "kind": "PostgresCluster", "metadata": map[string]any{"name": "shop", "namespace": "db"},
		"spec": map[string]any{"postgres": server, "storage": map[string]any{"size": "1Gi"}},
	}
}

// verdicts are what the policy and the operator have against a new object.
func verdicts(t rapid.TB, p *apischema.Policy, o map[string]any) (policy []string, operator string) {
	t.Helper()
	policy, err := p.Check(o, nil)
	if err != nil {
		t.Errorf("the policy can't be evaluated: %v", err)
	}
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	var c v1.PostgresCluster
	if err := json.Unmarshal(text, &c); err != nil {
		t.Fatal(err)
	}
	if err := CheckConfiguration(v1.WithDefaults(&c)); err != nil {
		operator = err.Error()
	}
	return policy, operator
}

// each of these is refused by the policy and by the operator, in the
// same words.
func TestPolicyAndOperatorRefuseTheSameParameters(t *testing.T) {
	p := loadPolicy(t)
	refused := map[string]any{
		"log_disconnections=": "off", "work mem": "4MB", "work-mem": "4MB", "1work_mem": "4MB", "": "x", "a.": "x", ".a": "x", "a..b": "x",
		"größe": "x", strings.Repeat("a", 128): "x", "a\tb": "x",
		"work_mem": nil, "jit": []any{"on"}, "autovacuum": map[string]any{"a": "b"}, "search_path": []any{},
		"wal_level": "minimal", "WAL_LEVEL": "Minimal",
	}
	for _, pattern := range postgres.Owned {
		name := strings.ReplaceAll(pattern, "*", "_x")
		refused[name] = "on"
		refused[strings.ToUpper(name)] = true
		refused[strings.ToUpper(name[:1])+name[1:]] = int64(1)
	}
	for name, value := range refused {
		policy, operator := verdicts(t, p, manifest(t, map[string]any{"parameters": map[string]any{name: value}}))
		want := operator
		if strings.EqualFold(name, "wal_level") {
			want = strings.ReplaceAll(want, name, "wal_level") // one message for all of its spellings
		}
		want = strings.ReplaceAll(want, `\t`, "\t") // the operator quotes
		if diff := cmp.Diff([]string{want}, policy); diff != "" || want == "" {
			t.Errorf("%q: the operator says %q: %s", name, operator, diff)
		}
	}
}

func TestPolicyLetsParametersPass(t *testing.T) {
	p := loadPolicy(t)
	parameters := map[string]any{
		"max_connections": int64(150), "autovacuum": true, "random_page_cost": 1.1, "log_statement": "ddl",
		"pg_stat_statements.max": int64(5000), "auto_explain.log_min_duration": "1s", "Work_Mem": "4MB",
		"wal_level": "LOGICAL", "ssl_ciphers": "HIGH", "log_line_prefix": "%m it's [%p] ", "application_name": "",
		strings.Repeat("a", 63) + "." + strings.Repeat("b", 63): "x",
	}
	policy, operator := verdicts(t, p, manifest(t, map[string]any{"parameters": parameters}))
	if len(policy) > 0 || operator != "" {
		t.Errorf("refused: %q, %q", policy, operator)
	}
}

// The server takes names in any case, so of two spellings of one name only one
// can count.
func TestParameterGivenTwice(t *testing.T) {
	p := loadPolicy(t)
	policy, operator := verdicts(t, p, manifest(t, map[string]any{"parameters": map[string]any{"Max_Connections": int64(1), "max_connections": int64(2)}}))
	if diff := cmp.Diff([]string{"spec.postgres.parameters[Max_Connections]: given twice, as Max_Connections and as max_connections; keep one"}, policy); diff != "" {
		t.Error(diff)
	}
	if want := "spec.postgres.parameters[max_connections]: given twice, as Max_Connections and as max_connections; keep one"; operator != want {
		t.Errorf("the operator says %q", operator)
	}
}

func TestPolicyNamesTheLineOfHBA(t *testing.T) {
	p := loadPolicy(t)
	for _, line := range []string{"include other.conf", "@other", "hosts all all all md5", "hostssl,host all all all md5", "HOST all all all md5", "all all all md5"} {
		policy, operator := verdicts(t, p, manifest(t, map[string]any{"hba": []any{"# a comment", "local all all peer", line}}))
		want := fmt.Sprintf("spec.postgres.hba: hba line 3, %q: begin it with one of local, host, hostssl, hostnossl, hostgssenc, hostnogssenc", line)
		if diff := cmp.Diff([]string{want}, policy); diff != "" {
			t.Errorf("%s: %s", line, diff)
		}
		if !strings.Contains(operator, "hba line 3") {
			t.Errorf("%s: the operator says %q", line, operator)
		}
	}
	policy, operator := verdicts(t, p, manifest(t, map[string]any{"hba": []any{
		"", "  ", "# include x", "\thost all all 10.0.0.0 255.0.0.0 md5", `"host" all all all md5`, "hostnogssenc all all samenet reject # no",
		"hostssl all all all cert", "hostnossl all all all reject", "hostgssenc all all all gss", "local\tall all peer",
	}}))
	if len(policy) > 0 || operator != "" {
		t.Errorf("refused: %q, %q", policy, operator)
	}
}

// What is stored can be edited otherwise, whatever it is: its finalizers go,
// other fields change, and what is bad can be corrected a piece at a time.
func TestPolicyLooksOnlyAtWhatChanges(t *testing.T) {
	p := loadPolicy(t)
	stored := func() map[string]any {
		return manifest(t, map[string]any{
			"parameters": map[string]any{"port": int64(1), "bad name": "x", "jit": nil, "wal_level": "minimal", "Work_Mem": "1MB", "work_mem": "2MB"},
			"hba":        []any{"nonsense", "include x"},
		})
	}
	server := func(o map[string]any) map[string]any {
		return o["spec"].(map[string]any)["postgres"].(map[string]any)
	}
	parameters := func(o map[string]any) map[string]any { return server(o)["parameters"].(map[string]any) }
	cases := []struct {
		why  string
		edit func(o map[string]any)
		want []string
	}{
		{"nothing", func(map[string]any) {}, nil},
		{"a finalizer goes", func(o map[string]any) { o["metadata"].(map[string]any)["finalizers"] = []any{} }, nil},
		{"more instances", func(o map[string]any) { o["spec"].(map[string]any)["instances"] = int64(3) }, nil},
		{"a good parameter is added", func(o map[string]any) { parameters(o)["max_connections"] = int64(5) }, nil},
		{"one bad parameter is taken away", func(o map[string]any) { delete(parameters(o), "port") }, nil},
		{"all parameters are taken away", func(o map[string]any) { delete(server(o), "parameters") }, nil},
		{"lines of hba change places", func(o map[string]any) { server(o)["hba"] = []any{"include x", "nonsense"} }, nil},
		{"another bad one is added", func(o map[string]any) { parameters(o)["ssl"] = "on" }, []string{"spec.postgres.parameters[ssl]: ssl is set by the operator; remove it"}},
		{"a bad one changes its value", func(o map[string]any) { parameters(o)["port"] = int64(2) },
			[]string{"spec.postgres.parameters[port]: port is set by the operator; the server listens on 5432; choose another port in a Service of your own"}},
		{"a bad line is added", func(o map[string]any) { server(o)["hba"] = []any{"nonsense", "include y", "include x"} },
			[]string{`spec.postgres.hba: hba line 2, "include y": begin it with one of local, host, hostssl, hostnossl, hostgssenc, hostnogssenc`}},
	}
	for _, c := range cases {
		edited := stored()
		c.edit(edited)
		got, err := p.Check(edited, stored())
		if err != nil {
			t.Errorf("%s: %v", c.why, err)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: %s", c.why, diff)
		}
	}
}

// The policy never refuses what the operator would take, and its cost stays
// within an API server's budget.
func TestPolicyRefusesNothingMoreThanTheOperator(t *testing.T) {
	p := loadPolicy(t)
	names := rapid.OneOf(rapid.SampledFrom(postgres.Owned), rapid.String(), rapid.StringMatching(`[A-Za-z_$.]{1,12}`),
		rapid.SampledFrom([]string{"work_mem", "WORK_MEM", "wal_level", "jit", "a.b"}))
	values := rapid.OneOf(rapid.String().AsAny(), rapid.Int64().AsAny(), rapid.Bool().AsAny(), rapid.Just[any](nil), rapid.Just[any]([]any{}),
		rapid.SampledFrom([]any{"replica", "logical", "minimal", 1.5}))
	lines := rapid.OneOf(rapid.StringMatching(`(local|host|hostssl|include|"host"|#|)[ \t]?(all|"a b"|,){0,3} (md5|trust|x)?`), rapid.String())
	rapid.Check(t, func(t *rapid.T) {
		o := manifest(t, map[string]any{
			"parameters": rapid.MapOfN(names, values, 0, 5).Draw(t, "parameters"),
			"hba":        toAny(rapid.SliceOfN(lines, 0, 3).Draw(t, "hba")),
		})
		if policy, operator := verdicts(t, p, o); len(policy) > 0 && operator == "" {
			t.Errorf("only the policy refuses: %q", policy)
		}
	})
}

func toAny(lines []string) []any {
	all := []any{}
	for _, line := range lines {
		all = append(all, line)
	}
	return all
}

func TestPolicyOfTheLargestObjectIsWithinItsBudget(t *testing.T) {
	p := loadPolicy(t)
	parameters, lines := map[string]any{}, []any{}
	for i := range 500 {
		parameters[fmt.Sprintf("Ab%03d", i)+strings.Repeat("x", 120)] = "1"
	}
	for range 200 {
		lines = append(lines, "host "+strings.Repeat("x", 1019))
	}
	policy, err := p.Check(manifest(t, map[string]any{"parameters": parameters, "hba": lines}), nil)
	if err != nil || len(policy) > 0 {
		t.Errorf("refused: %q, %v", policy, err)
	}
}

// The policy's manifest is what the operator applies, and the list in it is
// that of the operator, so that whoever reads either knows both.
func TestPolicyHasTheListOfOwnedParameters(t *testing.T) {
	first, binding, found := strings.Cut(string(deploy.PostgresClusterPolicy), "\n---\n")
	if !found {
		t.Fatal("no binding")
	}
	var policy struct {
		Metadata struct{ Name string }
		Spec     struct {
			Variables []struct{ Name, Expression string }
		}
	}
	if err := yaml.Unmarshal([]byte(first), &policy); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(binding, "policyName: "+policy.Metadata.Name) {
		t.Error("the binding is of another policy")
	}
	var want []string
	for _, owned := range postgres.Owned {
		if !strings.Contains(owned, "*") {
			want = append(want, fmt.Sprintf("'%s': '%s'", owned, postgres.WayOut(owned)))
		}
	}
	for _, v := range policy.Spec.Variables {
		if v.Name != "owned" {
			continue
		}
		got := strings.Split(strings.Trim(v.Expression, "{} "), ", ")
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
}
