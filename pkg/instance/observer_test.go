package instance

import (
	"testing"
	"time"
)

// A server that gives no answer for a moment counts as it was, one that gives none
// for longer does not, and neither does one of which something has changed since.
func TestMomentWithoutAnAnswerIsNoNews(t *testing.T) {
	began := time.Now()
	o := &observer{}
	look := func(after time.Duration, answered bool) bool {
		o.note(observation{Answers: answered, Version: "17.12"}, answered, began.Add(after))
		return o.last.Answers
	}
	if look(0, false) {
		t.Error("a server that has never answered answers")
	}
	if !look(time.Second, true) || !look(2*time.Second, false) || !look(3*time.Second, false) {
		t.Error("a server that has answered a moment ago does not answer")
	}
	if look(time.Second+blip, false) {
		t.Error("a server that answers no more answers")
	}
	if !look(10*time.Second, true) {
		t.Error("a server that answers again does not answer")
	}
	o.forget()
	if look(11*time.Second, false) {
		t.Error("what was said before a change still holds")
	}
}
