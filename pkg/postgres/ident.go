package postgres

import (
	"errors"
	"fmt"
	"strings"
)

// IdentMap is the name of the map in pg_ident.conf that lets the agent's
// operating system user in as Superuser.
const IdentMap = "pgop"

// identUsers is the line before the user's.
const identUsers = "# Lines of spec.postgres.ident."

// RenderUserMaps writes the user's part of pg_ident.conf; it is empty without lines.
func RenderUserMaps(user []string) string {
	if len(user) == 0 {
		return ""
	}
	return identUsers + "\n" + strings.Join(user, "\n") + "\n"
}

// RenderIdent writes pg_ident.conf for an agent that runs as that operating
// system user, with the user's part after it.
func RenderIdent(osUser, userMaps string) string {
	return "# Written by the operator; changes made here are lost.\n" +
		fmt.Sprintf("%s \"%s\" %s\n", IdentMap, osUser, Superuser) + userMaps
}

// NameIdentLine names a line of a pg_ident.conf, counted from 1: a user's line by its
// place among those, too.
func NameIdentLine(file string, line int) string {
	return nameLine("ident", "pg_ident.conf", file, identUsers, line)
}

// CheckIdent says which of the user's lines, counted from 1, can't be of pg_ident.conf,
// and why. The server checks the finished file more closely.
func CheckIdent(user []string) error {
	for i, line := range user {
		if err := checkIdentLine(line); err != nil {
			return fmt.Errorf("ident line %d, %q: %w", i+1, line, err)
		}
	}
	return nil
}

func checkIdentLine(line string) error {
	fields, err := checkedFields(line)
	if err != nil || len(fields) == 0 {
		return err
	}
	const form = "MAP SYSTEM-USER DATABASE-USER"
	switch {
	case len(fields) != 3:
		return fmt.Errorf("has %d fields; write %s", len(fields), form)
	case fields[0] == IdentMap:
		return fmt.Errorf("the map %q is the operator's own; give yours another name", IdentMap)
	case strings.HasPrefix(fields[1], "@"), strings.HasPrefix(fields[2], "@"):
		return errors.New("other files can't be included; write their names here, a line for each")
	}
	return nil
}
