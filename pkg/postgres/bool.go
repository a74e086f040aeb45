package postgres

import "strings"

// ParseBool reads a boolean as the server does: in any case, and by any
// beginning that is not ambiguous. The last answer is false for what is none.
func ParseBool(text string) (on, ok bool) {
	text = strings.ToLower(strings.TrimSpace(text))
	begins := func(words ...string) bool {
		for _, word := range words {
			if text != "" && strings.HasPrefix(word, text) {
				return true
			}
		}
		return false
	}
	switch {
	case text == "o":
		return false, false // on or off
	case text == "1" || begins("true", "yes", "on"):
		return true, true
	case text == "0" || begins("false", "no", "off"):
		return false, true
	}
	return false, false
}

// CommitsAwaitReplicas says whether, with that value of synchronous_commit, a
// commit waits until replicas have it on disk. What is no such value is the
// server's to refuse.
func CommitsAwaitReplicas(synchronousCommit string) bool {
	switch strings.ToLower(strings.TrimSpace(synchronousCommit)) {
	case "local", "remote_write":
		return false
	}
	on, isBool := ParseBool(synchronousCommit)
	return on || !isBool
}
