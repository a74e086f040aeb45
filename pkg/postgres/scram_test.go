package postgres

import (
	"encoding/base64"
	"testing"
)

func TestVerifierOfRFC7677(t *testing.T) {
	salt, err := base64.StdEncoding.DecodeString("W22ZaJ0SNY7soEsUEjb6gQ==")
	if err != nil {
		t.Fatal(err)
	}
	const want = "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="
	got, err := scramVerifier("pencil", salt, 4096)
	if err != nil || got != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
}

func TestVerifierMatches(t *testing.T) {
	for _, password := range []string{"secret", nasty, "", "I\u00ADX\u00A0é", "e\u0301"} {
		verifier, err := ScramVerifier(password)
		if err != nil {
			t.Fatal(err)
		}
		if !VerifierMatches(verifier, password) {
			t.Errorf("%q does not match its own verifier", password)
		}
		if VerifierMatches(verifier, password+"x") {
			t.Errorf("%q matches another password's verifier", password)
		}
	}
	for _, verifier := range []string{"", "md5abc", "SCRAM-SHA-256$0:x$y:z", "SCRAM-SHA-256$4096"} {
		if VerifierMatches(verifier, "secret") {
			t.Errorf("verifier %q matches", verifier)
		}
	}
}

func TestSaslPrepFollowsRFC4013(t *testing.T) {
	cases := map[string]string{
		"I\u00ADX":     "IX",
		"user":         "user",
		"\u00AA":       "a",
		"\u2168":       "IX",
		"a\u00A0b":     "a b",
		"\u00E9\u0007": "\u00E9\u0007", // prohibited: taken as it is
		"e\u0301":      "\u00E9",
	}
	for in, want := range cases {
		if got := saslPrep(in); got != want {
			t.Errorf("saslPrep(%q) = %q, want %q", in, got, want)
		}
	}
}
