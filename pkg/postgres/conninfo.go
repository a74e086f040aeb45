package postgres

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// ConnInfo says how to connect to a server. Each method writes it in one of
// the forms that programs read, escaped by that form's own rules. Empty fields
// are left out.
type ConnInfo struct {
	Host     string
	Port     int
	DBName   string
	User     string
	Password string
	// Options are further settings by libpq's names, such as sslmode. JDBC
	// knows some of them under the same name.
	Options map[string]string
}

// KeyValue is libpq's form host='…' port='…'.
func (c ConnInfo) KeyValue() string {
	var b strings.Builder
	add := func(key, value string) {
		if value == "" {
			return
		}
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(key + "=" + quoteConnInfo(value))
	}
	add("host", c.Host)
	add("port", c.port())
	add("dbname", c.DBName)
	add("user", c.User)
	add("password", c.Password)
	for _, key := range slices.Sorted(maps.Keys(c.Options)) {
		add(key, c.Options[key])
	}
	return b.String()
}

// URI is the form postgresql://user:password@host:port/dbname?option=value.
func (c ConnInfo) URI() string {
	var b strings.Builder
	b.WriteString("postgresql://")
	if c.User != "" {
		b.WriteString(quoteURI(c.User))
		if c.Password != "" {
			b.WriteString(":" + quoteURI(c.Password))
		}
		b.WriteByte('@')
	}
	b.WriteString(c.authority() + "/" + quoteURI(c.DBName))
	b.WriteString(query(c.Options))
	return b.String()
}

// JDBC is pgjdbc's form jdbc:postgresql://host:port/dbname?user=…&password=….
func (c ConnInfo) JDBC() string {
	all := maps.Clone(c.Options)
	if all == nil {
		all = map[string]string{}
	}
	all["user"] = c.User
	all["password"] = c.Password
	return "jdbc:postgresql://" + c.authority() + "/" + quoteURI(c.DBName) + query(all)
}

// PgPass is a line of a pgpass file, without its line break; what is empty
// matches everything. A password with a line break has no such form.
func (c ConnInfo) PgPass() string {
	fields := []string{c.Host, c.port(), c.DBName, c.User}
	for i, field := range fields {
		if field == "" {
			fields[i] = "*"
			continue
		}
		fields[i] = quotePgPass(field)
	}
	return strings.Join(append(fields, quotePgPass(c.Password)), ":")
}

func (c ConnInfo) port() string {
	if c.Port == 0 {
		return ""
	}
	return strconv.Itoa(c.Port)
}

// authority is host:port of a URI; IPv6 addresses stand in brackets.
func (c ConnInfo) authority() string {
	host := quoteURI(c.Host)
	if strings.Contains(c.Host, ":") {
		host = "[" + c.Host + "]"
	}
	if c.Port == 0 {
		return host
	}
	return host + ":" + c.port()
}

func query(options map[string]string) string {
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(options)) {
		if options[key] != "" {
			parts = append(parts, quoteURI(key)+"="+quoteURI(options[key]))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return "?" + strings.Join(parts, "&")
}
