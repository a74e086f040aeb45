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
		{"E-08: an unknown method and a mask that is none", "host all all 10.0.0.0/33 md5x", `"md5x" is not an authentication method`},
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

// Nobody logs in over a plain connection unless a line of the user's says so.
func TestPlainConnectionsNeedALineOfTheUsers(t *testing.T) {
	for _, file := range []string{RenderHBA(nil), RenderHBA(nil, "reporting"), RenderHBA([]string{"hostssl all all all md5"}), RenderClosedHBA(), RenderReplicationHBA()} {
		for line := range strings.Lines(file) {
			fields, err := hbaFields(strings.TrimSpace(line))
			if err != nil {
				t.Fatal(err)
			}
			if len(fields) > 0 && fields[0] != "local" && fields[0] != "hostssl" && fields[len(fields)-1] != "reject" {
				t.Errorf("%q lets plain connections in", line)
			}
		}
	}
}

// A role's name is nothing but a name, whatever is in it, and its line comes after the
// user's and before those of the closing default.
func TestRolesLogInByTheirCertificates(t *testing.T) {
	names := []string{"reporting", "all", "+readers", `say "hi" # all`, "@file", "a, b"}
	lines := strings.Split(RenderHBA([]string{"hostssl all all 10.0.0.0/8 reject"}, names...), "\n")
	at := slices.Index(lines, "hostssl all all 10.0.0.0/8 reject")
	if at < 0 {
		t.Fatalf("the user's line is not in %q", lines)
	}
	for i, want := range []string{`"reporting"`, `"all"`, `"+readers"`, `"say ""hi"" # all"`, `"@file"`, `"a, b"`} {
		if got := lines[at+2+i]; got != "hostssl all "+want+" all cert" {
			t.Errorf("%q, want the user %s", got, want)
		}
	}
	if got, want := lines[at+2+len(names):], strings.Split(hbaTail, "\n"); !slices.Equal(got, want) {
		t.Errorf("after them come %q, want %q", got, want)
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
	said := fmt.Sprintf(`invalid CIDR mask (line %d of configuration file "/a/config/pg_hba.conf"); FATAL: could not load`, line("host all all 10.0.0.0/33 md5"))
	if got, want := NameHBALines(file, said), fmt.Sprintf("invalid CIDR mask (hba line 2 (pg_hba.conf, line %d)); FATAL: could not load", line("host all all 10.0.0.0/33 md5")); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	const other = `syntax error (line 10 of configuration file "/a/config/postgresql.conf")`
	if got := NameHBALines(file, other); got != other {
		t.Errorf("of another file: %q", got)
	}
}
