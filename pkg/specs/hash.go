package specs

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
)

// hashOf is a short hash of what is asked for. Maps are marshalled in order of
// their keys, so equal objects have equal hashes.
func hashOf(object any) string {
	text, err := json.Marshal(object)
	if err != nil {
		panic(fmt.Sprintf("marshal %T: %v", object, err)) // API objects always marshal
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}
