package instance

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/pgop/postgres-operator/pkg/instance/walcall"
)

// listenForWAL answers the server's archive_command and restore_command until ctx
// ends. Only this user may ask.
func (a *Agent) listenForWAL(ctx context.Context, group *sync.WaitGroup) error {
	path := a.options.walSocket()
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("listen for WAL commands: %w", err)
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return fmt.Errorf("listen for WAL commands: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return errors.Join(fmt.Errorf("listen for WAL commands: %w", err), listener.Close())
	}
	group.Go(func() {
		for {
			conn, err := listener.Accept()
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				a.log.WithError(err).Error("a WAL command does not reach the agent")
				if pause(ctx, time.Second) != nil {
					return
				}
				continue
			}
			go a.answerWAL(ctx, conn)
		}
	})
	context.AfterFunc(ctx, func() { _ = listener.Close() }) // the process ends
	return nil
}

// answerWAL reads one line, does what it asks for, and answers.
func (a *Agent) answerWAL(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	const longest = 4 << 10
	line, err := bufio.NewReader(io.LimitReader(conn, longest)).ReadString('\n')
	if err != nil {
		return // nobody is there any more to be told
	}
	// A command that was killed hangs up: nobody waits for its answer.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		_, _ = conn.Read(make([]byte, 1))
		cancel()
	}()
	exit, words := a.doWAL(ctx, strings.Fields(line))
	_, _ = fmt.Fprintf(conn, "%d %s\n", exit, strings.ReplaceAll(words, "\n", "; "))
}

func (a *Agent) doWAL(ctx context.Context, words []string) (exit int, answer string) {
	switch {
	case len(words) == 2 && words[0] == walcall.Archive:
		return a.archiver.archive(ctx, words[1])
	case len(words) == 3 && words[0] == walcall.Restore:
		source := a.walSource.Load()
		if source == nil {
			return walcall.Abort, "nothing is being restored"
		}
		// The server names a file of pg_wal, by a path that is relative to its data.
		return source.fetch(ctx, words[1], filepath.Join(a.volume.pgWAL(), filepath.Base(words[2])))
	}
	return walcall.Abort, "the agent does not know what is asked for"
}
