package postgres

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestCheckHBA(t *testing.T) {
	cases := []struct{ why, line, want string }{
		{"empty", "", ""},
		{"comment", "  # host", ""},
		{"usual", "hostssl app app 10.0.0.0/8 scram-sha-256", ""},
		{"local", "local all all md5", ""},
		{"a list with blanks", "host app, other all samenet md5 # why", ""},
		{"a quoted name with a hash", `host "a # b" all all reject`, ""},
		{"an option", "hostssl all all all cert clientcert=verify-full", ""},
		{"a mask of its own", "host all all 10.0.0.0 255.0.0.0 md5", ""},
		{"unknown kind", "hosts all all all md5", `begins with "hosts"`},
		{"unknown method", "host all all all scram", `"scram" is not an authentication method`},
		{"too short", "host all all md5", "has 4 fields"},
		{"joins the next line", `host all all all md5 \`, "backslash"},
		{"two lines", "local all all md5\nhost all all all trust", "line break"},
		{"open quote", `host "all all all md5`, "quote"},
		{"include", "include /etc/passwd", "can't be included"},
	}
	for _, c := range cases {
		err := CheckHBA([]string{"", c.line})
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.why, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "line 2")):
			t.Errorf("%s: got %v, want an error with line 2 and %q", c.why, err, c.want)
		}
	}
}

func TestOperatorsLinesComeFirst(t *testing.T) {
	lines := strings.Split(RenderHBA([]string{"local all all reject", "host all all all reject"}), "\n")
	position := func(prefix string) int {
		for i, line := range lines {
			if strings.HasPrefix(line, prefix) {
				return i
			}
		}
		t.Fatalf("no line begins with %q in %q", prefix, lines)
		return 0
	}
	user := position("local all all reject")
	if position("local all postgres peer") > user || position("hostssl replication streaming_replica") > user ||
		position("hostssl all all all") < user {
		t.Errorf("wrong order: %q", lines)
	}
}

func TestHBALinesAreNamedAsUsersCountThem(t *testing.T) {
	file := RenderHBA([]string{"local all all reject", "host all all 10.0.0.0/33 md5"})
	line := func(text string) int { return slices.Index(strings.Split(file, "\n"), text) + 1 }
	for text, want := range map[string]string{
		"local all all reject":         fmt.Sprintf("hba line 1 (pg_hba.conf, line %d)", line("local all all reject")),
		"host all all 10.0.0.0/33 md5": fmt.Sprintf("hba line 2 (pg_hba.conf, line %d)", line("local all all reject")+1),
		hbaUsers:                       fmt.Sprintf("pg_hba.conf, line %d", line("local all all reject")-1),
	} {
		if got := NameHBALine(file, line(text)); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
	if got, want := NameHBALine("local all all peer\n", 1), "pg_hba.conf, line 1"; got != want {
		t.Errorf("without lines of a user: %q, want %q", got, want)
	}
}
