// Package pgrun runs PostgreSQL's programs and talks to the local server.
// Every call ends when its context does, even if the server is frozen.
package pgrun
