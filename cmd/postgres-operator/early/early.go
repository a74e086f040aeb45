// Package early carries out the subcommands that the server waits for before
// anything else of this program is set up: that takes ten times as long as the
// call itself. It imports next to nothing, and Go sets packages up as soon as what
// they import is, in the order of their paths, so this one comes before all that
// is large. Nothing but time depends on it.
package early

import (
	"os"

	"github.com/pgop/postgres-operator/pkg/instance/walcall"
)

func init() {
	if exit, handled := walcall.Run(os.Args[1:]); handled {
		os.Exit(exit)
	}
}
