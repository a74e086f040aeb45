package instanceapi

import (
	"crypto/sha256"
	"encoding/hex"
)

// ConfigHash identifies a configuration, a postgresql.conf and a pg_hba.conf,
// as State.ConfigHash reports it.
func ConfigHash(conf, hba string) string {
	sum := sha256.Sum256([]byte(conf + "\x00" + hba))
	const digits = 16
	return hex.EncodeToString(sum[:])[:digits]
}
