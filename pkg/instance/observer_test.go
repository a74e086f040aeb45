package instance

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

// A server that gives no answer for a moment counts as it was, one that gives none
// for longer does not, and neither does one of which something has changed since.
func TestMomentWithoutAnAnswerIsNoNews(t *testing.T) {
	began := time.Now()
	o := &observer{}
	look := func(after time.Duration, answered bool) bool {
		var err error
		if !answered {
			err = fmt.Errorf("ask the server how it is: %w", context.DeadlineExceeded)
		}
		o.note(observation{Answers: answered, Version: "17.12"}, err, began.Add(after))
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
	look(12*time.Second, true)
	o.note(observation{}, errors.New("the database system is shutting down"), began.Add(13*time.Second))
	if o.last.Answers || look(14*time.Second, false) {
		t.Error("a server that refuses answers")
	}
}
