package postgres

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const hbaHead = `# Written by the operator; changes made here are lost.
# The operator's own lines: the agent over the local socket, also for backups, and
# replicas by their certificates, for streaming and for pg_rewind.
local all postgres peer map=` + IdentMap + `
local replication postgres peer map=` + IdentMap + `
hostssl replication ` + ReplicationRole + ` all cert
hostssl postgres ` + ReplicationRole + ` all cert
` + hbaUsers + "\n"

// hbaUsers is the line before the user's.
const hbaUsers = "# Lines of spec.postgres.hba."

const hbaTail = `# The superuser comes from outside by the lines before alone.
host all ` + Superuser + ` all reject
# The closing default: every other role, over TLS, with its password.
hostssl all all all scram-sha-256
`

// RenderHBA writes pg_hba.conf around the user's lines; certified are the roles that
// log in by a certificate. The first line that matches a connection decides, so that
// users can't lock out the operator.
func RenderHBA(user []string, certified ...string) string {
	var b strings.Builder
	b.WriteString(hbaHead)
	for _, line := range user {
		b.WriteString(line + "\n")
	}
	if len(certified) > 0 {
		b.WriteString("# Roles of spec.roles with clientCertificate.\n")
	}
	for _, role := range certified {
		b.WriteString("hostssl all " + quoteHBA(role) + " all cert\n")
	}
	b.WriteString(hbaTail)
	return b.String()
}

// quoteHBA writes a name so that it is no keyword, group or file.
func quoteHBA(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// NameHBALine names a line of a pg_hba.conf, counted from 1: a user's line by its
// place among those, too.
func NameHBALine(file string, line int) string {
	return nameLine("hba", "pg_hba.conf", file, hbaUsers, line)
}

// nameLine names a line of a file: one after the line first by its place after that.
func nameLine(kind, path, file, first string, line int) string {
	name := fmt.Sprintf("%s, line %d", path, line)
	before := slices.Index(strings.Split(file, "\n"), first) + 1
	if before == 0 || line <= before {
		return name
	}
	return fmt.Sprintf("%s line %d (%s)", kind, line-before, name)
}

// NameHBALines names the lines of a pg_hba.conf of which a server speaks, as
// NameHBALine does.
func NameHBALines(file, words string) string {
	return hbaPlace.ReplaceAllStringFunc(words, func(place string) string {
		line, err := strconv.Atoi(hbaPlace.FindStringSubmatch(place)[1])
		if err != nil {
			return place
		}
		return NameHBALine(file, line)
	})
}

// hbaPlace is how a server names a line.
var hbaPlace = regexp.MustCompile(`line (\d+) of configuration file "[^"]*pg_hba\.conf"`)

// RenderClosedHBA writes a pg_hba.conf that lets nobody in but the agent.
func RenderClosedHBA() string {
	return "# The server is being prepared; only the agent may connect.\n" +
		"local all postgres peer map=" + IdentMap + "\n"
}

// RenderReplicationHBA writes a pg_hba.conf that lets in the agent and replicas.
func RenderReplicationHBA() string { return hbaHead }

var (
	hbaTypes   = []string{"local", "host", "hostssl", "hostnossl", "hostgssenc", "hostnogssenc"}
	hbaMethods = []string{"trust", "reject", "scram-sha-256", "md5", "password", "gss", "sspi", "ident",
		"peer", "ldap", "radius", "cert", "pam", "bsd", "oauth"}
)

// CheckHBA says which of the user's lines, counted from 1, can't be a rule of
// pg_hba.conf, and why. The server checks the finished file more closely.
func CheckHBA(user []string) error {
	for i, line := range user {
		if err := checkHBALine(line); err != nil {
			return fmt.Errorf("hba line %d, %q: %w", i+1, line, err)
		}
	}
	return nil
}

func checkHBALine(line string) error {
	fields, err := checkedFields(line)
	if err != nil || len(fields) == 0 {
		return err
	}
	kind := fields[0]
	if !slices.Contains(hbaTypes, kind) {
		return fmt.Errorf("begins with %q; begin it with one of %s", kind, strings.Join(hbaTypes, ", "))
	}
	return checkHBAMethod(kind, fields)
}

// checkedFields splits a line of pg_hba.conf or pg_ident.conf, which has to stand for
// itself.
func checkedFields(line string) ([]string, error) {
	if strings.ContainsAny(line, "\n\r\x00") {
		return nil, errors.New("holds a line break; make an item of each line")
	}
	if strings.HasSuffix(strings.TrimRight(line, " \t"), `\`) {
		return nil, errors.New("ends with a backslash, which would join it to the next line; write the rule in one line")
	}
	fields, err := hbaFields(line)
	if err == nil && len(fields) > 0 && (strings.HasPrefix(fields[0], "include") || strings.HasPrefix(fields[0], "@")) {
		err = errors.New("other files can't be included; write their rules here")
	}
	return fields, err
}

func checkHBAMethod(kind string, fields []string) error {
	method, form := 4, "TYPE DATABASE USER ADDRESS METHOD"
	if kind == "local" {
		method, form = 3, "TYPE DATABASE USER METHOD"
	}
	// An address may be followed by its mask in a field of its own.
	if kind != "local" && len(fields) > 5 && strings.Trim(fields[4], "0123456789abcdefABCDEF.:") == "" &&
		strings.ContainsAny(fields[4], ".:") {
		method = 5
	}
	if len(fields) <= method {
		return fmt.Errorf("has %d fields; write %s", len(fields), form)
	}
	if !slices.Contains(hbaMethods, fields[method]) {
		return fmt.Errorf("%q is not an authentication method; use one of %s", fields[method], strings.Join(hbaMethods, ", "))
	}
	return nil
}

// hbaFields splits a line as the server does: blanks part fields, a comma
// joins what follows to a list, quotes protect both, and # begins a comment.
func hbaFields(line string) ([]string, error) {
	var fields []string
	var field strings.Builder
	quoted, inField, afterComma := false, false, false
	for _, c := range line {
		if !quoted && c == '#' {
			break
		}
		if !quoted && (c == ' ' || c == '\t') {
			if inField && !afterComma {
				fields = append(fields, field.String())
				field.Reset()
				inField = false
			}
			continue
		}
		inField, afterComma = true, !quoted && c == ','
		if c == '"' {
			quoted = !quoted
			continue
		}
		field.WriteRune(c)
	}
	if quoted {
		return nil, errors.New("has a quote that is not closed; close it")
	}
	if inField {
		fields = append(fields, field.String())
	}
	return fields, nil
}
