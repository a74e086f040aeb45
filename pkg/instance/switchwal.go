package instance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/postgres"
)

// switchWAL lets the primary, whoever it is, end the segment that it writes, unless
// it has ended the one before a position; 0: in any case. A segment in which nothing
// was written stays.
func (a *Agent) switchWAL(ctx context.Context, beyond postgres.LSN) error {
	if a.runningAs().Role == instanceapi.RolePrimary {
		_, err := a.switchOwnWAL(ctx, beyond)
		return err
	}
	holder := a.view.knownLease().Holder.Instance
	if holder == "" {
		return errors.New("end the primary's WAL segment: nobody holds the Lease")
	}
	asking, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if _, err := a.peers.switchWAL(asking, holder, instanceapi.SwitchWAL{Beyond: beyond}); err != nil {
		return fmt.Errorf("end the primary's WAL segment: %w", err)
	}
	return nil
}

// beginCheckpoint lets this server make a checkpoint, however long that takes, and
// returns a position that this comes after.
func (a *Agent) beginCheckpoint(ctx context.Context) (postgres.LSN, error) {
	end, _, err := a.endOfOwnWAL(ctx)
	if err != nil {
		return 0, err
	}
	go func() {
		const longest = 15 * time.Minute
		ctx, cancel := context.WithTimeout(context.Background(), longest)
		defer cancel()
		if err := a.checkpoint(ctx); err != nil {
			a.log.WithError(err).Warn("the checkpoint that another instance's backup waits for has failed; it asks again")
		}
	}()
	return end, nil
}

// endOfOwnWAL is where this server's WAL ends, and the size of its segments in bytes.
func (a *Agent) endOfOwnWAL(ctx context.Context) (end postgres.LSN, size uint64, err error) {
	var text string
	const query = `SELECT pg_current_wal_insert_lsn()::text, (SELECT setting::bigint FROM pg_settings WHERE name = 'wal_segment_size')`
	if err := a.peerSQL.Row(ctx, query, &text, &size); err != nil {
		return 0, 0, fmt.Errorf("ask for the end of the WAL: %w", err)
	}
	end, err = postgres.ParseLSN(text)
	return end, size, err
}

// switchOwnWAL is switchWAL of this server, and returns where its WAL ended before.
func (a *Agent) switchOwnWAL(ctx context.Context, beyond postgres.LSN) (postgres.LSN, error) {
	end, size, err := a.endOfOwnWAL(ctx)
	if err != nil {
		return 0, err
	}
	if beyond != 0 && uint64(end)/size > uint64(beyond-1)/size {
		return end, nil
	}
	if err := a.peerSQL.Exec(ctx, "SELECT pg_switch_wal()"); err != nil {
		return 0, fmt.Errorf("end the WAL segment: %w", err)
	}
	return end, nil
}

// answerSwitchWAL answers another instance.
func (a *Agent) answerSwitchWAL(w http.ResponseWriter, r *http.Request) {
	var request instanceapi.SwitchWAL
	const largest = 4 << 10
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, largest)).Decode(&request); err != nil {
		http.Error(w, "can't read the question", http.StatusBadRequest)
		return
	}
	if now := a.runningAs(); now.Role != instanceapi.RolePrimary || !now.answers() {
		http.Error(w, "this instance is not the primary", http.StatusConflict)
		return
	}
	// It ends by itself: an answer that is cut off would cut the connection.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), patience)
	defer cancel()
	answer := func() (postgres.LSN, error) { return a.switchOwnWAL(ctx, request.Beyond) }
	if request.Checkpoint {
		answer = func() (postgres.LSN, error) { return a.beginCheckpoint(ctx) }
	}
	end, err := answer()
	if err != nil {
		a.log.WithError(err).Warn("another instance's backup waits for a WAL segment or a checkpoint")
		http.Error(w, "the server does not do as it is asked", http.StatusServiceUnavailable)
		return
	}
	answerJSON(w, instanceapi.Switched{End: end})
}
