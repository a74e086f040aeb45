package postgres

import (
	"strings"
	"testing"
)

func TestCheckIdent(t *testing.T) {
	cases := []struct{ why, line, want string }{
		{"empty", "", ""},
		{"comment", "# who is who", ""},
		{"usual", "people alice app", ""},
		{"quoted names", `people "CN=Alice Doe" "App"`, ""},
		{"a pattern", `realm /^(.*)@EXAMPLE\.ORG$ \1`, ""},
		{"too short", "people alice", "has 2 fields; write MAP SYSTEM-USER DATABASE-USER"},
		{"too long", "people Alice Doe app", "has 4 fields"},
		{"the operator's map", "pgop alice postgres", "the operator's own"},
		{"the operator's map, quoted", `"pgop" /.* postgres`, "the operator's own"},
		{"two lines", "people alice app\npgop /.* postgres", "line break"},
		{"joins the next line", `people alice app \`, "backslash"},
		{"open quote", `people "alice app`, "quote"},
		{"a file of lines", "include_if_exists more.conf", "can't be included"},
		{"a file of names", "people @names app", "can't be included"},
	}
	for _, c := range cases {
		err := CheckIdent([]string{"", c.line})
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.why, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "ident line 2")):
			t.Errorf("%s: got %v, want an error with line 2 and %q", c.why, err, c.want)
		}
	}
}

// The agent's own line is the first, whatever comes after it.
func TestMapsComeAfterTheAgents(t *testing.T) {
	const agents = "# Written by the operator; changes made here are lost.\npgop \"u 1\" postgres\n"
	if got := RenderIdent("u 1", RenderUserMaps(nil)); got != agents {
		t.Errorf("%q, want %q", got, agents)
	}
	file := RenderIdent("u 1", RenderUserMaps([]string{"people alice app", "people bob app"}))
	if want := agents + "# Lines of spec.postgres.ident.\npeople alice app\npeople bob app\n"; file != want {
		t.Errorf("%q, want %q", file, want)
	}
	for line, want := range map[int]string{2: "pg_ident.conf, line 2", 4: "ident line 1 (pg_ident.conf, line 4)", 5: "ident line 2 (pg_ident.conf, line 5)"} {
		if got := NameIdentLine(file, line); got != want {
			t.Errorf("line %d: %q, want %q", line, got, want)
		}
	}
}
