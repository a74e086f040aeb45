package instance

import (
	"context"
	"fmt"
	"strings"

	"github.com/lib/pq"

	"github.com/pgop/postgres-operator/pkg/postgres/pgrun"
)

// runInitSQL runs each item as one query, byte for byte.
func runInitSQL(ctx context.Context, server *pgrun.Server, items []string) error {
	for i, item := range items {
		if strings.TrimSpace(item) == "" {
			continue
		}
		if err := server.Exec(ctx, item); err != nil {
			return explainSQL(i, item, err)
		}
	}
	return nil
}

// explainSQL says which of the items failed, where in it, and why, in the
// server's words.
func explainSQL(index int, item string, err error) error {
	name := fmt.Sprintf("spec.bootstrap.initdb.sql[%d]", index)
	refused := pgrun.ServerError(err)
	if refused == nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	number, line, at := lineAt(item, refused.Position)
	const syntaxError = "42601"
	if string(refused.Code) == syntaxError && strings.HasPrefix(at, `\`) {
		command, _, _ := strings.Cut(at, " ")
		return fmt.Errorf("%s: line %d: %s is a command of psql and not SQL; only SQL can be used here: %q",
			name, number, command, line)
	}
	words := serverWords(refused)
	if refused.Where != "" {
		words += "; CONTEXT: " + strings.ReplaceAll(refused.Where, "\n", "; ")
	}
	if number == 0 {
		return fmt.Errorf("%s: %s: in %q", name, words, shorten(item))
	}
	return fmt.Errorf("%s: line %d: %s: %q", name, number, words, line)
}

// serverWords is what the server says against a statement, without the statement.
func serverWords(refused *pq.Error) string {
	words := refused.Severity + ": " + refused.Message
	if refused.Detail != "" {
		words += "; DETAIL: " + strings.ReplaceAll(refused.Detail, "\n", ", ")
	}
	if refused.Hint != "" {
		words += "; HINT: " + refused.Hint
	}
	return words
}

// lineAt finds the position that the server names, which counts characters
// from 1, in text: the number of its line, the line, and the rest of the line
// from there. Number is 0 if there is no such position.
func lineAt(text, position string) (number int, line, at string) {
	var offset int
	if _, err := fmt.Sscan(position, &offset); err != nil || offset < 1 {
		return 0, "", ""
	}
	characters := []rune(text)
	if offset > len(characters)+1 {
		return 0, "", ""
	}
	before := string(characters[:offset-1])
	number = strings.Count(before, "\n") + 1
	start := before[strings.LastIndex(before, "\n")+1:]
	at, _, _ = strings.Cut(string(characters[offset-1:]), "\n")
	return number, shorten(strings.TrimSpace(start + at)), strings.TrimRight(at, "\r")
}

// shorten keeps messages readable.
func shorten(text string) string { return shortenTo(text, 200) }

func shortenTo(text string, enough int) string {
	if characters := []rune(text); len(characters) > enough {
		return string(characters[:enough]) + "…"
	}
	return text
}
