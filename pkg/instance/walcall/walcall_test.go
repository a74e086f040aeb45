package walcall

import (
	"bufio"
	"net"
	"os"
	"path/filepath"
	"testing"
)

// answering is a socket on which each line gets that answer, and the lines.
func answering(t *testing.T, answer string) (socket string, lines chan string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "c") // paths of sockets must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket, lines = filepath.Join(dir, "s"), make(chan string, 10)
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return // the test is over
			}
			line, _ := bufio.NewReader(conn).ReadString('\n')
			lines <- line
			_, _ = conn.Write([]byte(answer))
			_ = conn.Close()
		}
	}()
	return socket, lines
}

func TestACommandEndsAsItIsAnswered(t *testing.T) {
	archive, restore := []string{Archive, "000000010000000000000001"}, []string{Restore, "00000002.history", "pg_wal/RECOVERYHISTORY"}
	for name, c := range map[string]struct {
		args   []string
		answer string
		want   int
	}{
		"it is archived":                             {archive, "0 \n", Done},
		"it is not":                                  {archive, "1 the bucket is missing\n", Failed},
		"the archiver is to end":                     {archive, "255 the server is stopping\n", Abort},
		"it is the end of the archive":               {restore, "1 \n", Failed},
		"the object is damaged":                      {restore, "255 damaged\n", Abort},
		"an agent that ends archives nothing":        {archive, "", Failed},
		"an agent that ends is no end of an archive": {restore, "", Abort},
		"half an answer is none":                     {archive, "0", Failed},
		"nonsense is no success":                     {archive, "x\n", Failed},
		"nonsense is no end of an archive":           {restore, "1x \n", Abort},
		"an empty line is no answer":                 {restore, "\n", Abort},
	} {
		socket, lines := answering(t, c.answer)
		t.Setenv(Variable, socket)
		exit, handled := Run(c.args)
		if exit != c.want || !handled {
			t.Errorf("%s: %d (handled: %v), want %d", name, exit, handled, c.want)
		}
		if got, want := <-lines, c.args[0]+" "+c.args[1]; got[:len(want)] != want {
			t.Errorf("%s: it asked %q", name, got)
		}
	}
}

func TestACommandWithoutAnAgent(t *testing.T) {
	for name, socket := range map[string]string{"none is named": "", "none is there": filepath.Join(t.TempDir(), "s")} {
		t.Setenv(Variable, socket)
		if exit, _ := Run([]string{Archive, "000000010000000000000001"}); exit != Failed {
			t.Errorf("%s: archive ends with %d", name, exit)
		}
		if exit, _ := Run([]string{Restore, "000000010000000000000001", "pg_wal/RECOVERYXLOG"}); exit != Abort {
			t.Errorf("%s: restore-wal ends with %d", name, exit)
		}
	}
}

func TestOtherSubcommandsAreLeftAlone(t *testing.T) {
	for _, args := range [][]string{nil, {"run"}, {"instance", "archive"}} {
		if exit, handled := Run(args); handled {
			t.Errorf("%v is handled, with %d", args, exit)
		}
	}
	if exit, handled := Run([]string{Archive}); !handled || exit != Abort {
		t.Errorf("without a name: %d (handled: %v)", exit, handled)
	}
}
