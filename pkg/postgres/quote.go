package postgres

import "strings"

// confEscapes are the characters that a quoted value in postgresql.conf can't
// hold as they are.
var confEscapes = strings.NewReplacer(
	`'`, `''`, `\`, `\\`, "\b", `\b`, "\f", `\f`, "\n", `\n`, "\r", `\r`, "\t", `\t`)

// QuoteConf quotes a value for postgresql.conf.
func QuoteConf(value string) string {
	return "'" + confEscapes.Replace(value) + "'"
}

// quoteConnInfo quotes a value for a key/value connection string.
func quoteConnInfo(value string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(value) + "'"
}

// quotePgPass escapes a field of a pgpass line.
func quotePgPass(value string) string {
	return strings.NewReplacer(`\`, `\\`, `:`, `\:`).Replace(value)
}

// quoteURI percent-encodes every byte but RFC 3986's unreserved ones, which is
// right in each part of a URI: url.PathEscape and url.QueryEscape each leave
// something that libpq or pgjdbc reads otherwise.
func quoteURI(value string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := 0; i < len(value); i++ {
		c := value[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-._~", c) >= 0 {
			b.WriteByte(c)
			continue
		}
		b.WriteByte('%')
		b.WriteByte(hex[c>>4])
		b.WriteByte(hex[c&15])
	}
	return b.String()
}
