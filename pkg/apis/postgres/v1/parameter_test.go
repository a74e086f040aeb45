package v1

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"
)

// values mean what people mean by them, in each spelling of YAML.
func TestParameterTexts(t *testing.T) {
	const refused = "must be a string, a number or a boolean; quote it"
	cases := []struct{ yaml, want, err string }{
		{`200`, "200", ""},
		{`-1`, "-1", ""},
		{`1.1`, "1.1", ""},
		{`0.5`, "0.5", ""},
		{`on`, "on", ""},
		{`off`, "off", ""},
		{`yes`, "on", ""},
		{`true`, "on", ""},
		{`false`, "off", ""},
		{`"true"`, "true", ""},
		{`"200"`, "200", ""},
		{`1e6`, "1000000", ""},
		{`1.5e3`, "1500", ""},
		{`9223372036854775807`, "9223372036854775807", ""},
		{`0x10`, "16", ""},
		{`"x"`, "x", ""},
		{`256MB`, "256MB", ""},
		{`""`, "", ""},
		{`'%m it''s [%p] \ '`, `%m it's [%p] \ `, ""},
		{"'\"$user\", public'", `"$user", public`, ""},
		{`null`, "", refused},
		{`~`, "", refused},
		{`[1, 2]`, "", refused},
		{`{a: b}`, "", refused},
		{`[]`, "", refused},
	}
	for _, c := range cases {
		var spec PostgresSpec
		text, err := yaml.YAMLToJSON([]byte("parameters: {p: " + c.yaml + "}"))
		if err != nil {
			t.Fatal(err)
		}
		if err := utiljson.Unmarshal(text, &spec); err != nil {
			t.Errorf("%s: can't be decoded: %v", c.yaml, err)
			continue
		}
		got := [2]string{}
		got[0], err = spec.Parameters["p"].Text()
		if err != nil {
			got[1] = err.Error()
		}
		if diff := cmp.Diff([2]string{c.want, c.err}, got); diff != "" {
			t.Errorf("%s: %s", c.yaml, diff)
		}
	}
}

func TestParameterOfNothing(t *testing.T) {
	text, err := json.Marshal(map[string]ParameterValue{"a": {}})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(`{"a":null}`, string(text)); diff != "" {
		t.Error(diff)
	}
	if text, err := (ParameterValue{}).Text(); err == nil {
		t.Errorf("the zero value means %q", text)
	}
}

// Whatever JSON a value is, it decodes, and it is the same JSON again.
func TestParametersKeepAnyJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := map[string]any{"p": anyJSON(3).Draw(t, "value")}
		text, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		var parameters map[string]ParameterValue
		if err := json.Unmarshal(text, &parameters); err != nil {
			t.Fatalf("decode %s: %v", text, err)
		}
		_, _ = parameters["p"].Text() // must not panic; what it says, the table tests
		again, err := json.Marshal(parameters)
		if err != nil {
			t.Fatalf("encode %s: %v", text, err)
		}
		var got map[string]any
		if err := json.Unmarshal(again, &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestNewParameterIsTheTextThatItWasMadeFrom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.String().Draw(t, "text")
		got, err := NewParameter(want).Text()
		if err != nil || got != want {
			t.Fatalf("made from %q, and means %q (%v)", want, got, err)
		}
	})
}

func anyJSON(depth int) *rapid.Generator[any] {
	scalars := []*rapid.Generator[any]{
		rapid.Just[any](nil), rapid.Bool().AsAny(), rapid.String().AsAny(),
		rapid.Float64Range(-1e300, 1e300).AsAny(), rapid.Map(rapid.Int32(), func(i int32) float64 { return float64(i) }).AsAny(),
	}
	if depth == 0 {
		return rapid.OneOf(scalars...)
	}
	inner := rapid.Deferred(func() *rapid.Generator[any] { return anyJSON(depth - 1) })
	return rapid.OneOf(append(scalars, rapid.SliceOfN(inner, 0, 3).AsAny(), rapid.MapOfN(rapid.String(), inner, 0, 3).AsAny())...)
}
