package postgres

import "testing"

func TestBooleansAreReadAsTheServerDoes(t *testing.T) {
	for text, want := range map[string]string{
		"on": "on", "ON": "on", "true": "on", "t": "on", "Yes": "on", "y": "on", "1": "on",
		"off": "off", "of": "off", "FALSE": "off", "f": "off", "no": "off", "n": "off", "0": "off",
		"o": "none", "": "none", "2": "none", "onn": "none", "offf": "none", "local": "none",
	} {
		on, ok := ParseBool(text)
		got := map[[2]bool]string{{true, true}: "on", {false, true}: "off", {false, false}: "none"}[[2]bool{on, ok}]
		if got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
}

func TestLevelsOfSynchronousCommit(t *testing.T) {
	for level, want := range map[string]bool{
		"on": true, "remote_apply": true, "REMOTE_APPLY": true, "true": true, "1": true,
		"off": false, "local": false, "Local": false, "remote_write": false, "no": false, "0": false,
		"nonsense": true, // the server refuses it
	} {
		if got := CommitsAwaitReplicas(level); got != want {
			t.Errorf("%s: got %v, want %v", level, got, want)
		}
	}
}
