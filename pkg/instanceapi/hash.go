package instanceapi

import (
	"crypto/sha256"
	"encoding/hex"
)

// ConfigHash identifies a configuration, a postgresql.conf, a pg_hba.conf and the
// user's part of a pg_ident.conf, as State.ConfigHash reports it.
func ConfigHash(conf, hba, ident string) string {
	text := conf + "\x00" + hba
	if ident != "" {
		text += "\x00" + ident
	}
	sum := sha256.Sum256([]byte(text))
	const digits = 16
	return hex.EncodeToString(sum[:])[:digits]
}
