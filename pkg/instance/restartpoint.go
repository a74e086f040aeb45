package instance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/postgres"
	"github.com/pgop/postgres-operator/pkg/postgres/pgrun"
)

// askForCheckpoint lets the primary begin a checkpoint, and returns a position that
// this comes after.
func (a *Agent) askForCheckpoint(ctx context.Context) (postgres.LSN, error) {
	holder := a.view.knownLease().Holder.Instance
	if holder == "" {
		return 0, errors.New("ask the primary for a checkpoint: nobody holds the Lease")
	}
	asking, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	answer, err := a.peers.switchWAL(asking, holder, instanceapi.SwitchWAL{Checkpoint: true})
	if err != nil {
		return 0, fmt.Errorf("ask the primary for a checkpoint: %w", err)
	}
	return answer.End, nil
}

// awaitRestartpoint returns when this replica has made a restartpoint of a checkpoint
// that the primary has begun since. A backup begins at the last restartpoint, which may
// be long ago: before the end of the backup that an incremental one goes on from,
// which the server refuses; or in a segment that this replica has got with its clone,
// and that it will never archive, while the backup waits for that.
func (a *Agent) awaitRestartpoint(ctx context.Context, sql *pgrun.Server) error {
	const asksAgain, interval = time.Minute, 500 * time.Millisecond
	var wanted postgres.LSN
	var asked time.Time
	for {
		if asked.IsZero() || time.Since(asked) > asksAgain {
			end, err := a.askForCheckpoint(ctx)
			if err != nil {
				return err
			}
			asked = time.Now()
			if wanted == 0 {
				wanted = end
			}
		}
		if err := sql.Exec(ctx, "CHECKPOINT"); err != nil {
			return fmt.Errorf("make a restartpoint: %w", err)
		}
		var text string
		if err := sql.Row(ctx, "SELECT redo_lsn::text FROM pg_control_checkpoint()", &text); err != nil {
			return fmt.Errorf("ask for the last restartpoint: %w", err)
		}
		redo, err := postgres.ParseLSN(text)
		if err != nil {
			return err
		}
		if redo >= wanted {
			return nil
		}
		if err := pause(ctx, interval); err != nil {
			return fmt.Errorf("wait for a restartpoint after %s: %w", wanted, err)
		}
	}
}
